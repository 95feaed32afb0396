"""The world of a single stream: laws, rules, blocks and what it refuses."""

import numpy as np
import pytest

from tightrope.errors import ConfigError, ModelError
from tightrope.learners.protocol import Stop
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, StochasticPolicy, mixture
from tightrope.simulation import stream
from tightrope.simulation.streams import streams
from tightrope.types import Average


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(6)
    return FiniteMDP(
        transitions=rng.dirichlet(np.ones(4), size=(4, 3)),
        rewards_next=rng.random((4, 3, 4)),
        costs=rng.random((1, 4, 3)),
        capacities=[0.5],
        criterion=Average(),
        initial=[0.1, 0.2, 0.3, 0.4],
        available=[[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1]],
        axes="sas",
    )


@pytest.fixture(scope="module")
def table():
    return np.array([[0.2, 0.3, 0.5], [0.6, 0.0, 0.4], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def world(model, seed=1, feedback="sampled"):
    return stream.StreamWorld(model, streams(seed), model.spec(feedback=feedback), feedback)


def test_law_of_the_stream(model, table):
    n = 200_000
    seen, _ = world(model).play(StochasticPolicy(table), Stop("steps", n), n)
    assert len(seen.states) == n + 1
    visits = np.zeros((4, 3, 4))
    np.add.at(visits, (seen.states[:-1], seen.actions, seen.states[1:]), 1.0)
    pairs = visits.sum(axis=2)
    expected = pairs.sum(axis=1, keepdims=True) * table
    assert (np.abs(pairs - expected) <= 5 * np.sqrt(expected + 1e-12)).all()
    expected = pairs[:, :, None] * model.dense()
    assert (np.abs(visits - expected) <= 5 * np.sqrt(expected + 1e-12)).all()
    # realised rewards belong to the transition, costs to the pair
    place = model.rewards_next.reshape(-1)
    rows = np.concatenate([np.flatnonzero(model.dense().ravel() > 0)])
    values = np.zeros(model.dense().size)
    values[rows] = place
    flat = np.ravel_multi_index((seen.states[:-1], seen.actions, seen.states[1:]), (4, 3, 4))
    np.testing.assert_allclose(seen.rewards, values[flat])
    np.testing.assert_allclose(seen.costs[:, 0], model.costs[0][seen.states[:-1], seen.actions])


def test_initial_law(model):
    starts = np.bincount([world(model, seed).state for seed in range(2000)], minlength=4)
    assert (np.abs(starts - 2000 * model.initial) < 5 * np.sqrt(2000 * model.initial)).all()


def test_cutting_and_resuming_changes_nothing(model, table, monkeypatch):
    monkeypatch.setattr(stream, "BLOCK", 64)
    policy = StochasticPolicy(np.stack([table, table[[0, 1, 3, 2]]]))
    whole, _ = world(model).play(policy, Stop("steps", 500), 500)
    again, parts = world(model), []
    for n in (2, 62, 64, 100, 272):
        part, _ = again.play(policy, Stop("steps", n), 10_000)
        assert part.first == 1 + sum(len(p.actions) for p in parts)
        parts.append(part)
        resumed = world(model)
        resumed.restore(again.arrays())
        again = resumed
    np.testing.assert_array_equal(whole.actions, np.concatenate([p.actions for p in parts]))
    np.testing.assert_array_equal(whole.states[1:], np.concatenate([p.states[1:] for p in parts]))


def test_feedback(model, table):
    n = 50_000
    seen, _ = world(model, feedback="mean").play(StochasticPolicy(table), Stop("steps", n), n)
    means = model.rewards[seen.states[:-1], seen.actions]
    np.testing.assert_allclose(seen.rewards, means)
    coins, _ = world(model, feedback="bernoulli").play(StochasticPolicy(table), Stop("steps", n), n)
    assert set(np.unique(coins.rewards)) == {0.0, 1.0}
    assert abs(coins.rewards.mean() - means.mean()) < 5 / np.sqrt(n)
    assert set(np.unique(coins.costs)) == {0.0, 1.0}
    assert abs(coins.costs.mean() - seen.costs.mean()) < 5 / np.sqrt(n)


def test_visit_doubling(model, table):
    counts = np.full((4, 3), 7.0)
    seen, _ = world(model).play(
        StochasticPolicy(table), Stop("visit-doubling", 10**6, counts), 10**6
    )
    visits = np.zeros((4, 3))
    np.add.at(visits, (seen.states[:-1], seen.actions), 1)
    assert visits.max() == 7
    assert visits[seen.states[-2], seen.actions[-1]] == 7
    assert (visits == 7).sum() == 1
    limited, _ = world(model).play(
        StochasticPolicy(table), Stop("visit-doubling", 5, 100 * counts), 10**6
    )
    assert len(limited.actions) == 5


def test_visits_left(model, table):
    """Stops before the pair that has none left; others may have run out on the way."""
    fixed = DeterministicPolicy(table.argmax(axis=1))
    counts = np.full((4, 3), 7.0)
    counts[3] = 2.0
    seen, _ = world(model).play(fixed, Stop("visits-left", 10**6, counts), 10**6)
    visits = np.zeros((4, 3))
    np.add.at(visits, (seen.states[:-1], seen.actions), 1)
    assert (visits <= counts).all()
    last = seen.states[-1]
    assert visits[last, fixed.actions[last]] == counts[last, fixed.actions[last]]
    limited, _ = world(model).play(fixed, Stop("visits-left", 5, 100 * counts), 10**6)
    assert len(limited.actions) == 5


def test_what_it_refuses(model, table):
    steps = Stop("steps", 5)
    with pytest.raises(ModelError, match="not available"):
        world(model).play(DeterministicPolicy(np.array([0, 1, 0, 0])), steps, 5)
    both = mixture(
        [StochasticPolicy(table), DeterministicPolicy(np.zeros(4, int))], np.array([0.5, 0.5])
    )
    with pytest.raises(ConfigError, match="no mixture"):
        world(model).play(both, steps, 5)
    with pytest.raises(ConfigError, match="cannot stop after 'episodes'"):
        world(model).play(StochasticPolicy(table), Stop("episodes", 1), 5)
    big = model.replace(rewards=2.0 * model.rewards)
    with pytest.raises(ConfigError, match="bernoulli"):
        world(big, feedback="bernoulli")


def test_exact_and_sampled_rows(model, table):
    there = world(model)
    policy = StochasticPolicy(table)
    seen, sampled = there.play(policy, Stop("steps", 1000), 1000)
    exact = there.exact(policy, seen)
    np.testing.assert_array_equal(sampled[:, 0], seen.rewards)
    np.testing.assert_array_equal(exact[:, 0], model.rewards[seen.states[:-1], seen.actions])
    np.testing.assert_array_equal(exact[:, 1], model.costs[0][seen.states[:-1], seen.actions])
