"""Settings of the average-reward learners that make no sense are refused, with the field's name."""

import dataclasses

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.learners import psrl
from tightrope.learners.protocol import Experience
from tightrope.model.linear import LinearMDP
from tightrope.problems.registry import make_problem
from tightrope.simulation import runner

NAN = float("nan")
BAD = {
    "fopo": [("beta_scale", NAN), ("beta_scale", 0.0), ("node_limit", -3), ("node_limit", 0)],
    "olsvi-fh": [("bonus_scale", NAN), ("bonus_scale", -1.0), ("horizon_scale", -1.0)],
    "mdp-exp2": [
        ("batch_scale", -1.0),
        ("length_scale", 0.0),
        ("step_scale", 0.0),
        ("step_scale", NAN),
        ("threshold_scale", -1.0),
        ("sigma", 5.0),
    ],
    "npg": [("step_size", -1.0), ("length", 0), ("batch", 0), ("sgd_radius", NAN), ("fit", "qr")],
    "politex": [("step_size", NAN), ("phase", 0), ("ridge", 0.0)],
    "ucrl2": [("max_iterations", 0), ("reward_radius_scale", -1.0)],
    "psrl": [("transition_prior", NAN), ("tolerance", 0.0), ("max_iterations", 1.5)],
}
CASES = [(learner, field, value) for learner, pairs in BAD.items() for field, value in pairs]


@pytest.mark.parametrize(("learner", "field", "value"), CASES)
def test_refused_by_name(learner, field, value):
    if learner == "fopo":
        pytest.importorskip("clarabel")
    with pytest.raises(ConfigError, match=field):
        runner.start(make_problem("ergodic"), learner, episodes=3000, **{field: value})


@pytest.mark.parametrize("learner", ["ucrl2", "olsvi-fh", "mdp-exp2"])
@pytest.mark.parametrize("delta", ["a", None])
def test_delta_is_a_number(learner, delta):
    with pytest.raises(ConfigError, match="delta must be a number"):
        runner.start(make_problem("ergodic"), learner, episodes=3000, delta=delta)


def test_sigma_is_at_most_two_over_d():
    with pytest.raises(ConfigError, match=r"at most 2 / d = 0\.06"):
        runner.start(make_problem("ergodic"), "mdp-exp2", episodes=3000, sigma=0.07)


def test_the_span_is_no_estimate_and_may_be_zero():
    with pytest.raises(ConfigError, match="cannot estimate span"):
        tr.run("riverswim", "olsvi-fh", steps=2000, span="estimate")
    bandit = tr.FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[0.5, 0.1]], criterion="average", axes="sas"
    )
    run = tr.run(bandit, "olsvi-fh", steps=2000)
    assert run.columns["regret"][-1] <= 0.05 * 0.4 * 2000
    with pytest.raises(ConfigError, match="finite span >= 0, got -1"):
        tr.run(bandit, "olsvi-fh", steps=2000, span=-1.0)
    pytest.importorskip("clarabel")
    run = tr.run(bandit, "fopo@theory", steps=300)
    assert run.guarantee
    assert run.columns["regret"][-1] <= 0.2 * 300  # what always the worse arm has is 120


def test_a_tiny_prior_of_psrl_still_gives_distributions():
    """Every gamma of a row may underflow; the limit of the law is a corner."""
    rng = np.random.default_rng(0)
    rows = psrl._dirichlet(rng, np.full((50, 4, 5), 1e-6))
    np.testing.assert_allclose(rows.sum(axis=2), 1.0)
    shares = rows.sum(axis=(0, 1)) / 200
    assert (shares > 0.1).all()  # each of five corners, expected 0.2 of 200 rows


def test_features_of_unavailable_pairs_do_not_matter():
    problem = tr.problems.access_control(servers=2)
    features = tr.features.one_hot(problem.available)
    scaled = problem.replace(rewards=problem.rewards / 8)
    holes = features.copy()
    holes[~problem.available] = np.nan
    for learner in ("olsvi-fh", "npg", "politex"):
        runs = [
            tr.run(LinearMDP(model=scaled, features=x), learner, steps=3000)
            for x in (features, holes)
        ]
        assert runs[0].columns["regret"].tobytes() == runs[1].columns["regret"].tobytes()


def test_the_last_epoch_that_is_cut_short_keeps_its_information():
    run = tr.run("linear-mdp", "mdp-exp2", steps=3000)
    assert np.isfinite(run.diagnostics["least_eigenvalue"][-1])


def test_npg_fits_by_least_squares():
    """On a sample without noise in a linear target both fits find the same direction."""
    problem = make_problem("linear-mdp")
    spec = problem.spec()
    from tightrope.learners import npg

    config = npg.Config(
        steps=10**6, length=1, batch=200_000, step_size=1.0, sgd_step=0.125, sgd_radius=1e3
    )
    rng, truth = np.random.default_rng(2), np.array([1.0, -2.0, 0.5, 0.0])
    states = rng.integers(0, 10, 200_001).astype(np.int32)
    actions = rng.integers(0, 3, 200_000).astype(np.int32)
    table = np.full((10, 3), 1 / 3)
    gradients = npg.log_gradients(spec.features, table)
    rewards = (gradients @ truth)[states[:-1], actions]
    found = {}
    for fit in ("sgd", "least-squares"):
        state = npg.init(spec, dataclasses.replace(config, fit=fit))
        experience = Experience(
            first=1, states=states, actions=actions, rewards=rewards, costs=np.zeros((200_000, 0))
        )
        found[fit] = gradients @ npg.update(state, experience)[0].theta
    np.testing.assert_allclose(found["least-squares"], gradients @ truth, atol=0.01)
    np.testing.assert_allclose(found["sgd"], gradients @ truth, atol=0.03)
