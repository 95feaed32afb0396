"""MDP-EXP2 and its comparators NPG and POLITEX on a fixed ergodic model."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.stats import t as student

from tightrope.errors import ConfigError
from tightrope.learners import mdp_exp2, npg, politex
from tightrope.learners.mdp_exp2 import softmax
from tightrope.learners.protocol import Experience
from tightrope.model import chain
from tightrope.model.linear import finite_model
from tightrope.model.policy import StochasticPolicy, uniform_policy
from tightrope.planning import evaluate, plan
from tightrope.problems.linear import random_linear_mdp
from tightrope.problems.registry import make_problem
from tightrope.simulation.runner import run
from tightrope.theory import log_log_slope


@pytest.fixture(scope="module")
def ergodic():
    return random_linear_mdp(states=10, actions=3, dimension=4, seed=3)


def tuned(problem, steps):
    return dataclasses.replace(
        mdp_exp2.theory(problem.spec(), steps),
        length_scale=0.02,
        batch_scale=5e-5,
        step_scale=3e4,
        threshold_scale=0.1,
    )


def gain_of(model, table):
    kernel = chain.policy_chain(model, StochasticPolicy(table))[0]
    return float(chain.stationary(kernel) @ (table * model.rewards).sum(axis=1))


def test_constants_of_the_theorem():
    spec = random_linear_mdp(states=4, actions=2, dimension=3, seed=1).spec()
    config = mdp_exp2.Config(steps=10_000, mixing_time=2.0, sigma=0.25)
    parts = mdp_exp2.constants(spec, config, 3)
    assert parts.length == np.ceil(16 * np.log(1e4)) == 148
    ratio = 32 * np.log(3e4) / 0.25
    assert parts.batch % 296 == 0
    assert 0 <= parts.batch - 148 * ratio < 296
    np.testing.assert_allclose(parts.step, min(np.sqrt(1 / 2e4), 0.25 / (24 * 148)))
    np.testing.assert_allclose(parts.threshold, parts.batch * 0.25 / (24 * 148))
    assert mdp_exp2.guarantee(config)
    assert mdp_exp2.guarantee(dataclasses.replace(config, step_scale=2.0)) is None


@pytest.mark.parametrize(
    ("seed", "steps"),
    [(0, 300_000), *(pytest.param(seed, 10**6, marks=pytest.mark.slow) for seed in range(5))],
)
def test_reaches_the_optimum(seed, steps, ergodic, stream):
    model = ergodic.model
    best, _ = stream.optimal_gain(model)
    assert gain_of(model, uniform_policy(model.available).probabilities) <= 0.75 * best
    config = tuned(ergodic, steps)
    played = stream.play(model, mdp_exp2.LEARNER, config, steps, seed=seed, spec=ergodic.spec())
    assert played.means[-steps // 5 :].mean() >= 0.95 * best


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["ergodic", "linear-mdp"])
def test_tuned_on_ten_ergodic_states(problem):
    """One preset for one-hot and for simplex features: five seeds, T = 1e6, and the slope in T."""
    model = make_problem(problem)
    best = plan(finite_model(model)).value
    uniform = evaluate(finite_model(model), uniform_policy(finite_model(model).available)).value
    assert uniform <= 0.75 * best
    horizons, finals = [], []
    for steps, seed in itertools.product((10**4, 10**5, 10**6), range(5)):
        columns = run(model, "mdp-exp2", steps=steps, seed=seed, delta=0.05).columns
        horizons.append(steps)
        finals.append(columns["regret"][-1])
        if steps == 10**6:
            start = np.searchsorted(columns["episode"], 0.8 * steps)
            lost = columns["regret"][-1] - columns["regret"][start]
            assert lost <= 0.05 * best * (steps - columns["episode"][start])
    assert log_log_slope(np.array(horizons), np.array(finals))[2] <= 0.7


@pytest.mark.slow
def test_regret_grows_like_the_root(ergodic, stream):
    """Slope of log regret over T in {1e4, 1e5, 1e6}, constants for each: upper 95% end <= 0.7."""
    best, _ = stream.optimal_gain(ergodic.model)
    points = []
    for steps in (10**4, 10**5, 10**6):
        for seed in range(3):
            played = stream.play(
                ergodic.model,
                mdp_exp2.LEARNER,
                tuned(ergodic, steps),
                steps,
                seed=seed,
                spec=ergodic.spec(),
            )
            points.append((np.log10(steps), np.log10(best * steps - played.means.sum())))
    x, y = np.array(points).T
    slope, offset = np.polyfit(x, y, 1)
    residual = y - slope * x - offset
    error = np.sqrt(residual @ residual / (len(x) - 2) / ((x - x.mean()) @ (x - x.mean())))
    assert slope + student.ppf(0.975, len(x) - 2) * error <= 0.7


def test_weights_never_overflow():
    available = np.ones(3, dtype=bool)
    np.testing.assert_allclose(
        softmax(np.array([1200.0, 1199.0, 0.0]), available), [0.73105858, 0.26894142, 0], atol=1e-8
    )
    table = softmax(np.array([[1e300, -1e300, 0.0], [-1e308, -1e308, -1e308]]), available)
    np.testing.assert_allclose(table, [[1, 0, 0], [1 / 3] * 3])
    np.testing.assert_allclose(softmax(np.zeros(3), np.array([True, False, True])), [0.5, 0, 0.5])


def test_too_small_an_eigenvalue_gives_weight_zero(ergodic, stream):
    config = dataclasses.replace(tuned(ergodic, 10_000), threshold_scale=1e9)
    played = stream.play(ergodic.model, mdp_exp2.LEARNER, config, 10_000, spec=ergodic.spec())
    whole = 10_000 // mdp_exp2.constants(ergodic.spec(), config, 4).batch
    assert played.state.skipped == whole == played.infos[-1]["skipped"]
    np.testing.assert_array_equal(played.state.weights, 0.0)


def test_one_state_never_seen_is_no_failure(riverswim, stream):
    """One-hot features of states that the epoch missed: M_k is singular, w_k = 0, no warning."""
    config = mdp_exp2.Config(
        steps=2000, mixing_time=5, sigma=0.1, length_scale=0.02, batch_scale=0.01
    )
    played = stream.play(riverswim, mdp_exp2.LEARNER, config, 2000)
    assert played.state.skipped > 0


def test_trajectories_lie_where_the_paper_puts_them():
    """tau_{k,m} = 2N(m - 1) + N + 1 within the epoch, R over N steps."""
    seen = Experience(
        first=1,
        states=np.arange(13),
        actions=np.arange(12) + 100,
        rewards=10.0 ** np.arange(12),
        costs=np.zeros((12, 0)),
    )
    states, actions, totals = mdp_exp2.trajectories(seen, 3)
    np.testing.assert_array_equal(states, [3, 9])  # steps 4 and 10, counted from 1
    np.testing.assert_array_equal(actions, [103, 109])
    np.testing.assert_allclose(totals, [111e3, 111e9])


def test_lemma_21_exact_natural_gradient_is_exponential_weights(ergodic):
    """With tabular features and exact advantages, pi_new is proportional to pi exp(eta A)."""
    model, rng = ergodic.model, np.random.default_rng(4)
    features = np.eye(30).reshape(10, 3, 30)
    theta = rng.normal(size=30)
    for step in (0.1, 3.0):
        table = softmax(features @ theta, model.available)
        kernel, rewards = chain.policy_chain(model, StochasticPolicy(table))[0], None
        rewards = (table * model.rewards).sum(axis=1)
        gain, bias = chain.gain_and_bias(kernel, rewards)
        q = model.rewards - gain[:, None] + model.dense() @ bias
        advantages = q - (table * q).sum(axis=1, keepdims=True)
        gradients = npg.log_gradients(features, table).reshape(-1, 30)
        weights = (chain.stationary(kernel)[:, None] * table).ravel()
        direction = npg.natural_direction(gradients, advantages.ravel(), weights)
        new = softmax(features @ (theta + step * direction), model.available)
        expected = table * np.exp(step * advantages)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(new, expected, atol=1e-10)


def test_comparators_learn(ergodic, stream):
    best, _ = stream.optimal_gain(ergodic.model)
    for learner, config in (
        (
            npg,
            npg.Config(
                steps=100_000, length=4, batch=256, step_size=1.0, sgd_step=0.125, sgd_radius=1e3
            ),
        ),
        (politex, politex.Config(steps=100_000, phase=1000, step_size=1.0)),
        (politex, politex.Config(steps=100_000, phase=500, step_size=3.0, adaptive=True)),
    ):
        played = stream.play(ergodic.model, learner.LEARNER, config, 100_000, spec=ergodic.spec())
        assert played.means[-20_000:].mean() >= 0.95 * best


def test_bad_input(riverswim, ergodic):
    config = tuned(ergodic, 10_000)
    with pytest.raises(ConfigError, match=r"less than one epoch of B = \d+ steps"):
        mdp_exp2.check(ergodic.spec(), dataclasses.replace(config, batch_scale=1.0))
    with pytest.raises(ConfigError, match="needs the sigma"):
        mdp_exp2.check(riverswim.spec(), mdp_exp2.Config(steps=10_000, mixing_time=5))
    with pytest.raises(ConfigError, match="finite mixing time > 0, got inf"):
        mdp_exp2.check(
            riverswim.spec(knowledge={"mixing_time": np.inf, "sigma": 0.1}),
            mdp_exp2.Config(steps=10_000),
        )
    with pytest.raises(ConfigError, match=r"finite sigma > 0, got 0"):
        mdp_exp2.check(
            riverswim.spec(knowledge={"mixing_time": 5.0, "sigma": 0.0}),
            mdp_exp2.Config(steps=10_000),
        )
    with pytest.raises(ConfigError, match="less than one phase"):
        politex.check(ergodic.spec(), politex.Config(steps=10, phase=100, step_size=1.0))
    with pytest.raises(ConfigError, match="less than one iteration"):
        npg.check(ergodic.spec(), npg.Config(steps=10, length=2, batch=16, step_size=1.0))
