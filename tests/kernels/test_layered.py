"""Compiled kernels of loop-free models agree with their plain twins."""

import numpy as np
import pytest

from tightrope.kernels import layered as compiled
from tightrope.kernels.reference import layered as plain
from tightrope.problems.loop_free import random_layered


@pytest.fixture(params=range(5))
def world(request):
    sizes = [(1, 5, 5, 5, 1), (1, 1), (1, 2, 7, 1), (1, 1, 1, 1), (1, 6, 3, 1)][request.param]
    loop_free = random_layered(
        layers=sizes, num_actions=request.param + 1, rho=0.5, seed=request.param
    )
    rng = np.random.default_rng(request.param)
    model = loop_free.model
    policy = rng.dirichlet(np.ones(model.num_actions), model.num_states)
    if model.num_actions > 1:
        policy[0] = np.eye(model.num_actions)[-1]
    return loop_free, (model.indptr, model.indices, model.data), policy, rng


def test_occupancy_value_and_minimum(world):
    loop_free, csr, policy, rng = world
    shape = policy.shape
    q, q_plain = np.empty(shape), np.empty(shape)
    compiled.layered_occupancy(*csr, policy, q)
    plain.layered_occupancy(*csr, policy, q_plain)
    np.testing.assert_allclose(q, q_plain, atol=1e-14)
    assert q.sum() == pytest.approx(loop_free.num_layers)
    table = rng.normal(size=shape)
    table[-1] = 0
    assert compiled.layered_value(*csr, policy, table) == pytest.approx((q * table).sum())
    assert plain.layered_value(*csr, policy, table) == pytest.approx((q * table).sum())
    best, best_plain = np.zeros(shape[0], np.int64), np.zeros(shape[0], np.int64)
    value = compiled.layered_minimum(*csr, table, best)
    assert value == pytest.approx(plain.layered_minimum(*csr, table, best_plain))
    np.testing.assert_array_equal(best, best_plain)
    assert value <= (q * table).sum() + 1e-12
    sums = np.cumsum(rng.normal(size=(4, table.size)), axis=0)
    earned = rng.normal(size=4)
    first = compiled.largest_interval_regret(*csr, sums, earned, shape)
    assert first == pytest.approx(plain.largest_interval_regret(*csr, sums, earned, shape))


def test_episodes_counts_and_policies(world):
    loop_free, csr, policy, _ = world
    num_layers, shape = loop_free.num_layers, policy.shape
    width = int(np.diff(loop_free.offsets).max())
    both = []
    for kernels in (compiled, plain):
        draws = np.random.default_rng(7)
        states, actions = np.zeros(num_layers + 1, np.int32), np.zeros(num_layers, np.int32)
        counts, frozen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        triples = np.zeros((*shape, width), np.int64)
        epochs, log = 0, []
        for _ in range(200):
            kernels.layered_episode(*csr, policy, draws.random(2 * num_layers), states, actions)
            log.append(states.copy())
            if kernels.count_episode(states, actions, loop_free.offsets, frozen, counts, triples):
                frozen[:] = counts
                epochs += 1
        both.append((np.array(log), counts, triples, epochs))
    for left, right in zip(*both):
        np.testing.assert_array_equal(left, right)
    log, counts, triples, _ = both[0]
    assert (loop_free.layers[log] == np.arange(num_layers + 1)).all()
    np.testing.assert_array_equal(triples.sum(axis=2), counts)
    q = np.empty(shape)
    compiled.layered_occupancy(*csr, policy, q)
    assert np.abs(counts / 200 - q).max() < 5 * 0.5 / np.sqrt(200)
    back, back_plain = np.empty(shape), np.empty(shape)
    compiled.policy_of(q, back)
    plain.policy_of(q, back_plain)
    np.testing.assert_allclose(back, back_plain)
    reached = q.sum(axis=1) > 0
    np.testing.assert_allclose(back[reached], policy[reached], atol=1e-12)
    np.testing.assert_allclose(back[~reached], 1 / shape[1])


def test_losses_and_products(world):
    loop_free, _, policy, rng = world
    g, r = loop_free.model.costs, loop_free.model.rewards
    lam = rng.random(2) * 3
    loss, loss_plain = np.empty(r.shape), np.empty(r.shape)
    largest = compiled.lagrangian_loss(r, g, lam, loss)
    assert largest == pytest.approx(plain.lagrangian_loss(r, g, lam, loss_plain))
    np.testing.assert_allclose(loss, loss_plain)
    out, out_plain = np.empty(2), np.empty(2)
    compiled.inner_products(policy, g, out)
    plain.inner_products(policy, g, out_plain)
    np.testing.assert_allclose(out, out_plain)


def test_episodes_of_one_policy(world):
    loop_free, csr, policy, rng = world
    n, m, num_layers, shape = 4, 2, loop_free.num_layers, policy.shape
    q = np.empty(shape)
    compiled.layered_occupancy(*csr, policy, q)
    draws, r, g = (
        rng.random((n, 2 * num_layers)),
        rng.random((n, *shape)),
        rng.random((n, m, *shape)),
    )
    both = []
    for kernels in (compiled, plain):
        both.append(
            (
                np.zeros((n, num_layers + 1), np.int32),
                np.zeros((n, num_layers), np.int32),
                np.zeros((n, num_layers)),
                np.zeros((n, num_layers, m)),
                np.zeros((n, 1 + m)),
                np.zeros((n, 1 + m)),
            )
        )
        kernels.play_episodes(*csr, policy, q, draws, r, g, *both[-1])
    for left, right in zip(*both):
        np.testing.assert_allclose(left, right)
    _, _, seen_r, seen_g, exact, sampled = both[0]
    np.testing.assert_allclose(sampled, np.column_stack([seen_r.sum(axis=1), seen_g.sum(axis=1)]))
    np.testing.assert_allclose(exact[:, 0], (r * q).sum(axis=(1, 2)))


def test_sums_that_need_the_truth(world):
    _, _, policy, rng = world
    shape, m, ends = policy.shape, 2, np.array([0, 2, 3])
    learners = [(rng.random(shape), rng.random(m)), (np.empty((0, 0)), np.empty(0))]
    for q_hat, multipliers in learners:
        both = []
        for kernels in (compiled, plain):
            draws = np.random.default_rng(1)
            both.append(
                tuple(
                    np.zeros(size)
                    for size in (shape, (m, *shape), 1, 1, 1, (m, *shape), shape, 1, (3, *shape), 3)
                )
            )
            for episode in (1, 2, 3):
                kernels.watch_episode(
                    draws.random(shape), draws.random((m, *shape)), draws.random(1 + m),
                    draws.random(shape), q_hat, multipliers, episode, ends, both[-1],
                )  # fmt: skip
        for left, right in zip(*both):
            np.testing.assert_allclose(left, right)
        assert both[0][2][0] == pytest.approx(multipliers.sum())
        assert (both[0][8][1:] != 0).any(axis=(1, 2)).all()
        assert (both[0][4][0] != 0.0) == bool(multipliers.size)
        assert (both[0][5] != 0.0).any() == bool(multipliers.size)
