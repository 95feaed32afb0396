"""Streams over points of [0, 1]: the law, the certified gain, and learners against finite twins."""

import dataclasses

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.learners import mdp_exp2, olsvi_fh
from tightrope.learners.protocol import Experience, Stop
from tightrope.model.features import FeatureMap
from tightrope.model.linear import LinearPolicy
from tightrope.problems.linear import continuous_gain, random_linear_mdp
from tightrope.simulation import runner
from tightrope.simulation.points import PointWorld
from tightrope.simulation.streams import streams


@pytest.fixture(scope="module")
def problem():
    return tr.problems.random_continuous_mdp(seed=2)


def test_law_of_the_stream(problem):
    """Mean next point given (x, a) is phi(x, a)'(shares @ Beta means)."""
    world, n = PointWorld(problem, streams(3)), 4000
    policy = LinearPolicy(problem.features, np.zeros((1, 4)), greedy=False)
    seen, sampled = world.play(policy, Stop("steps", n), n)
    phi = problem.features(seen.states[:-1])[np.arange(n), seen.actions]
    means = phi @ problem.shares @ (problem.alphas / (problem.alphas + problem.betas))
    residual = seen.states[1:] - means
    assert abs(residual.mean()) < 5 * residual.std() / np.sqrt(n)
    for i in range(4):  # unbiased in every feature
        product = residual * phi[:, i]
        assert abs(product.mean()) < 5 * product.std() / np.sqrt(n)
    np.testing.assert_allclose(seen.rewards, phi @ problem.theta)
    np.testing.assert_array_equal(sampled[:, 0], seen.rewards)
    assert (np.abs(np.bincount(seen.actions) - n / 3) < 5 * np.sqrt(n)).all()


def test_oracle_earns_the_certified_gain_and_resumes(problem, tmp_path):
    found = continuous_gain(problem)
    session = runner.start(problem, "oracle", episodes=4000, seed=1)
    runner.advance(session)
    columns = runner.finish(session).columns
    assert abs(columns["regret"][-1]) < 5 * found.span * np.sqrt(4000)
    part = runner.start(problem, "oracle", episodes=4000, seed=1)
    runner.advance(part, 1000)
    runner.save(part, tmp_path / "state.npz")
    fresh = runner.start(problem, "oracle", episodes=4000, seed=1)
    runner.resume(fresh, tmp_path / "state.npz")
    runner.advance(fresh)
    np.testing.assert_array_equal(runner.finish(fresh).columns["regret"], columns["regret"])


def test_learners_of_points_learn(problem):
    worst = tr.run(problem, "uniform", steps=1500).columns["regret"][-1]
    best = tr.run(problem, "olsvi-fh@lazy", steps=1500, seed=1).columns["regret"][-1]
    assert best < 0.2 * worst


def as_points(problem):
    """A finite problem whose states are handed out as points 0.0, 1.0, ..."""
    table = problem.features
    mapped = FeatureMap(
        function=lambda points: table[points[:, 0].astype(int)],
        num_actions=table.shape[1],
        dimension=table.shape[2],
        name="numbers",
    )
    spec = dataclasses.replace(problem.spec(), knowledge={**problem.spec().knowledge, "span": 1.0})
    return spec, dataclasses.replace(spec, features=mapped, num_states=0)


def experience_of(problem, first, number, rng):
    size = problem.model.num_states
    states = rng.integers(0, size, number + 1)
    actions = rng.integers(0, problem.model.num_actions, number)
    rewards = problem.model.rewards[states[:-1], actions]
    return [
        Experience(
            first=first, states=kind, actions=actions, rewards=rewards, costs=np.zeros((number, 0))
        )
        for kind in (states, states.astype(float))
    ]


def test_olsvi_on_points_equals_olsvi_on_numbers(monkeypatch):
    monkeypatch.setattr(olsvi_fh, "BLOCK", 37)
    problem, rng = (
        random_linear_mdp(states=5, actions=2, dimension=3, seed=2),
        np.random.default_rng(0),
    )
    finite, points = as_points(problem)
    config = olsvi_fh.Config(steps=10_000, bonus_scale=1e-5, horizon_scale=3.0)
    one, other = olsvi_fh.init(finite, config), olsvi_fh.init(points, config)
    for i in range(6):
        seen = experience_of(problem, 1 + 50 * i, 50, rng)
        olsvi_fh.update(one, seen[0])
        olsvi_fh.update(other, seen[1])
        np.testing.assert_allclose(other.weights, one.weights, atol=1e-9)
        policy = olsvi_fh.policy(other)
        for h in range(one.length):
            played = policy.probabilities(np.arange(5.0), h).argmax(axis=1)
            np.testing.assert_array_equal(played, one.actions[h])


def test_mdp_exp2_on_points_equals_mdp_exp2_on_numbers():
    problem, rng = (
        random_linear_mdp(states=5, actions=2, dimension=3, seed=2),
        np.random.default_rng(1),
    )
    finite, points = as_points(problem)
    config = mdp_exp2.Config(
        steps=10_000, length_scale=0.02, batch_scale=1e-3, step_scale=1e4, threshold_scale=1e-3
    )
    size = mdp_exp2.horizon(mdp_exp2.init(finite, config)).number
    one, other = mdp_exp2.init(finite, config), mdp_exp2.init(points, config)
    for i in range(4):
        seen = experience_of(problem, 1 + i * size, size, rng)
        mdp_exp2.update(one, seen[0])
        mdp_exp2.update(other, seen[1])
        assert np.abs(one.weights).max() > 0
        np.testing.assert_allclose(other.weights, one.weights, rtol=1e-9)
        np.testing.assert_allclose(
            mdp_exp2.policy(other).probabilities(np.arange(5.0)),
            mdp_exp2.policy(one).probabilities,
            atol=1e-9,
        )


def test_what_is_refused(problem):
    for learner in ("ucrl2", "psrl"):
        with pytest.raises(ConfigError, match="needs finitely many states"):
            tr.run(problem, learner, steps=100)
    for learner in ("fopo", "npg", "politex"):
        with pytest.raises(ConfigError, match="finitely many states"):
            tr.run(problem, learner, steps=10_000)
    with pytest.raises(ConfigError, match="cannot stop after"):
        PointWorld(problem, streams(0)).play(None, Stop("visit-doubling", 5), 5)
    with pytest.raises(ConfigError, match="measured in steps="):
        tr.run(problem, "uniform", episodes=5)
