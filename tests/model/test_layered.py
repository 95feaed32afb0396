"""Unrolling is exact: values, costs, policies and occupancies agree with the episodic model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tightrope.errors import ModelError
from tightrope.model.layered import (
    fold_occupancy,
    fold_policy,
    layered,
    unroll,
    unroll_occupancy,
    unroll_policy,
)
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import StochasticPolicy
from tightrope.planning.layered import occupancy_of
from tightrope.types import Average, Episodic


def episodic(seed, *, staged, spread, horizon):
    rng = np.random.default_rng(seed)
    S, A, m = rng.integers(1, 5), rng.integers(1, 4), rng.integers(0, 3)
    lead = (horizon,) if staged else ()
    available = rng.random((S, A)) < 0.7
    available[np.arange(S), rng.integers(A, size=S)] = True
    initial = rng.dirichlet(np.ones(S)) if spread else np.eye(S)[rng.integers(S)]
    return FiniteMDP(
        transitions=rng.dirichlet(np.full(S, 0.6), (*lead, S, A)),
        rewards=rng.random((*lead, S, A)),
        costs=rng.random((m, *lead, S, A)),
        capacities=rng.random(m) * horizon * 1.5,
        senses=["<=", ">="][:m] if m else None,
        criterion=Episodic(horizon),
        available=available,
        initial=initial,
        axes="sas",
    ), rng


def forward(model, policy):
    """Occupancy (H, S, A) of the episodic model, from the definition."""
    P = np.broadcast_to(
        model.dense(), (model.horizon, model.num_states, model.num_actions, model.num_states)
    )
    mass, out = model.initial, []
    for h in range(model.horizon):
        out.append(mass[:, None] * policy[h])
        mass = np.einsum("sa,say->y", out[-1], P[h])
    return np.array(out)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(1, 5))
def test_unrolling_is_exact(seed, staged, spread, horizon):
    model, rng = episodic(seed, staged=staged, spread=spread, horizon=horizon)
    loop_free = unroll(model)
    S, A = model.num_states, model.num_actions
    policy = rng.dirichlet(np.ones(A), (horizon, S)) * model.available
    policy /= policy.sum(axis=2, keepdims=True)
    q = forward(model, policy)

    unrolled = unroll_policy(loop_free, StochasticPolicy(policy)).probabilities
    q_layers = occupancy_of(loop_free, unrolled)
    np.testing.assert_allclose(fold_occupancy(loop_free, q_layers), q, atol=1e-12)
    unrolled_q = unroll_occupancy(loop_free, q)
    np.testing.assert_allclose(unrolled_q[1:-1], q_layers[1:-1], atol=1e-12)

    value = (q * model.rewards).sum()
    assert (q_layers * loop_free.model.rewards).sum() == pytest.approx(value, abs=1e-12)
    costs = np.array([(q * c).sum() for c in model.costs])
    g = np.tensordot(loop_free.model.costs, q_layers, axes=2)
    expected = model.signs * (costs - model.capacities) / loop_free.scale
    np.testing.assert_allclose(g, expected, atol=1e-12)
    assert (np.abs(loop_free.model.costs) <= 1.0).all()

    # any policy of the loop-free model, copies of missing actions included, folds back
    other = rng.dirichlet(np.ones(A), loop_free.model.num_states)
    folded = fold_policy(loop_free, StochasticPolicy(other)).probabilities
    assert (folded[:, ~model.available] == 0).all()
    np.testing.assert_allclose(folded.sum(axis=2), 1.0)
    np.testing.assert_allclose(
        fold_occupancy(loop_free, occupancy_of(loop_free, other)),
        forward(model, folded),
        atol=1e-12,
    )


def test_layers_of_an_unrolled_model():
    point, _ = episodic(3, staged=False, spread=False, horizon=4)
    assert unroll(point).num_layers == 4
    spread, _ = episodic(3, staged=False, spread=True, horizon=4)
    loop_free = unroll(spread)
    assert loop_free.num_layers == 5
    assert (loop_free.layers == np.repeat(range(6), [1, *[spread.num_states] * 4, 1])).all()


def test_capacity_above_the_horizon_is_scaled_and_recorded():
    model = FiniteMDP(
        transitions=np.ones((1, 2, 1)),
        rewards=np.zeros((1, 2)),
        axes="sas",
        costs=[[[0.0, 1.0]]],
        capacities=[8.0],
        criterion=Episodic(4),
    )
    loop_free = unroll(model)
    assert loop_free.scale == pytest.approx([2.0])
    np.testing.assert_allclose(loop_free.model.costs[0, 0], [-1.0, -0.5])


def test_rewards_outside_the_range_are_refused_or_mapped():
    model = FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[-1.0, 3.0]], axes="sas", criterion=Episodic(3)
    )
    with pytest.raises(ModelError, match=r"\[-1, 3\].*rescale=True"):
        unroll(model)
    loop_free = unroll(model, rescale=True)
    assert (loop_free.reward_shift, loop_free.reward_scale) == (-1.0, 4.0)
    np.testing.assert_allclose(loop_free.model.rewards[:3], [[0.0, 1.0]] * 3)


def test_only_episodic_models_unroll():
    model = FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[0.0, 1.0]], axes="sas", criterion=Average()
    )
    with pytest.raises(ModelError, match="episodic"):
        unroll(model)


def chain(jump=None):
    P = np.zeros((4, 2, 4))
    P[0, :, 1], P[1, :, 2], P[2, :, 3] = 1.0, 1.0, 1.0
    if jump is not None:
        P[0, 1] = np.eye(4)[jump]
    return P


@pytest.mark.parametrize("jump", [0, 2, 3])
def test_a_transition_that_skips_a_layer_is_named(jump):
    with pytest.raises(ModelError, match=r"state 0, action 1.*layer 0.*expected layer 1"):
        layered(chain(jump), layers=(1, 1, 1, 1), rewards=np.zeros((4, 2)))


def test_ranges_and_layer_sizes_are_checked():
    good = np.zeros((4, 2))
    bad = good.copy()
    bad[1, 0] = 1.5
    with pytest.raises(ModelError, match=r"reward \(1, 0\) is 1.5"):
        layered(chain(), layers=(1, 1, 1, 1), rewards=bad)
    with pytest.raises(ModelError, match=r"constraint \(0, 1, 0\) is -1.5"):
        layered(chain(), layers=(1, 1, 1, 1), rewards=good, constraints=[-bad])
    with pytest.raises(ModelError, match="first and the last layer"):
        layered(chain(), layers=(1, 1, 2), rewards=good)
    with pytest.raises(ModelError, match="expected 10 of length 5"):
        layered(chain(), layers=(1, 1, 1, 1, 1), rewards=good)
