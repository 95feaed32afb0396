"""OLSVI.FH with one-hot features is tabular optimistic value iteration on visit counts."""

import dataclasses

import numpy as np
import pytest

from tightrope.learners import olsvi_fh
from tightrope.model.mdp import FiniteMDP
from tightrope.simulation.stream import StreamWorld
from tightrope.simulation.streams import streams
from tightrope.types import Average


def tabular(states, actions, rewards, *, num_states, num_actions, length, beta):
    """The plain recursion: means shrunk by the ridge of 1, bonus beta / sqrt(1 + n), clip at H."""
    visits = np.zeros((num_states, num_actions))
    moves = np.zeros((num_states, num_actions, num_states))
    sums = np.zeros((num_states, num_actions))
    for s, a, r, y in zip(states[:-1], actions, rewards, states[1:]):
        visits[s, a] += 1
        moves[s, a, y] += 1
        sums[s, a] += r
    values = np.zeros(num_states)
    table, policy = [], []
    for _ in range(length):
        q = (sums + moves @ values) / (1 + visits) + beta / np.sqrt(1 + visits)
        q = np.minimum(q, length)
        values = q.max(axis=1)
        table.append(values)
        policy.append((q >= values[:, None] - 1e-9 * length).argmax(axis=1))
    return np.array(table[::-1]), np.array(policy[::-1])


@pytest.mark.parametrize("seed", range(3))
def test_one_hot_features_reproduce_the_table(seed):
    rng = np.random.default_rng(seed)
    model = FiniteMDP(
        transitions=rng.dirichlet(np.full(5, 0.3), size=(5, 3)),
        rewards=rng.uniform(-1, 1, size=(5, 3)),
        criterion=Average(),
        axes="sas",
    )
    spec = model.spec(knowledge={"span": 2.0})
    config = dataclasses.replace(olsvi_fh.theory(spec, 4000), bonus_scale=1e-4, horizon_scale=4.0)
    world = StreamWorld(model, streams(seed), spec)
    state = olsvi_fh.init(spec, config)
    history = [np.array([], int), np.array([], int), np.array([])]
    for _ in range(60):
        seen, _ = world.play(olsvi_fh.policy(state), olsvi_fh.horizon(state), 10_000)
        history[0] = np.concatenate([history[0][:-1], seen.states])
        history[1] = np.concatenate([history[1], seen.actions])
        history[2] = np.concatenate([history[2], seen.rewards])
        state, _ = olsvi_fh.update(state, seen)
        values, policy = tabular(
            *history, num_states=5, num_actions=3, length=state.length, beta=state.beta
        )
        np.testing.assert_allclose(state.values, values, atol=1e-9)
        np.testing.assert_array_equal(state.actions, policy)
    assert len(np.unique(policy)) > 1
