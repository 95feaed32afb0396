"""Compiled kernels against their plain twins."""

import numpy as np
import pytest
from tests.random_models import random_episodic

from tightrope.kernels import columns
from tightrope.kernels import episodic as fast
from tightrope.kernels.reference import episodic as plain
from tightrope.model.policy import probabilities, uniform_policy
from tightrope.planning import column_generation


@pytest.mark.parametrize("seed", range(30))
def test_twins(seed):
    model = random_episodic(seed)
    t, H, m = model.tables(), model.horizon, model.num_costs
    rng = np.random.default_rng(seed)
    prices = rng.random(m)
    left = np.empty((H, model.num_states), dtype=np.int32)
    right = np.empty_like(left)
    a = fast.best_response(*t, H, 1.0, prices, left)
    b = plain.best_response(*t, H, 1.0, prices, right)
    assert a == pytest.approx(b, rel=1e-12, abs=1e-12)
    pool = np.stack([left, right])
    values = fast.evaluate_actions(*t, H, pool)
    assert values == pytest.approx(plain.evaluate_actions(*t, H, pool), rel=1e-11, abs=1e-11)
    assert values[0, 0] - prices @ values[0, 1:] == pytest.approx(a, rel=1e-9, abs=1e-9)
    table = probabilities(uniform_policy(model.available), model.num_actions)[None].copy()
    args = (t.start, t.stop, t.indices, t.data, t.available, t.initial, H, table)
    assert fast.occupancy(*args) == pytest.approx(plain.occupancy(*args), abs=1e-13)


@pytest.mark.parametrize("seed", range(30))
def test_lanes(seed):
    """Four programs side by side are the four programs one by one, to the bit, on any cores."""
    model = random_episodic(seed)
    t, H, m = model.tables(), model.horizon, model.num_costs
    points = np.random.default_rng(seed).random((fast.LANES, m))
    pool = np.zeros((6, H, model.num_states), dtype=np.int32)
    slots = np.array([4, 0, 5, 2])
    totals = np.full((1 + m, fast.LANES), np.nan)
    everywhere = column_generation.everywhere(H, model.num_states)
    fast.best_responses(*t, H, *everywhere, 0.7, points, pool, slots, totals)
    for lane, slot in enumerate(slots):
        alone = np.empty_like(pool[0])
        assert fast.best_response(*t, H, 0.7, points[lane], alone) == totals[0, lane]
        assert (alone == pool[slot]).all()
        costs = fast.evaluate_actions(*t, H, pool[slot : slot + 1])[0, 1:]
        assert totals[1:, lane] == pytest.approx(costs, rel=1e-13, abs=1e-13)
    twin, sums = np.zeros_like(pool), np.empty_like(totals)
    plain.best_responses(*t, H, *everywhere, 0.7, points, twin, slots, sums)
    assert sums == pytest.approx(totals, rel=1e-12, abs=1e-12)
    again, same = np.zeros_like(pool), np.empty_like(totals)
    fast.best_responses_parallel(*t, H, *everywhere, 0.7, points, again, slots, same)
    assert (again == pool).all()
    assert (same == totals).all()


@pytest.mark.parametrize("seed", range(30))
def test_reach(seed):
    """What no episode reaches is left alone, and changes nothing elsewhere."""
    model = random_episodic(seed)
    t, H, m = model.tables(), model.horizon, model.num_costs
    order, twin = np.empty((2, 2, model.num_states), dtype=np.int32)
    counts, sizes = np.zeros((2, H), dtype=np.int64)
    for module, *out in ((fast, order, counts), (plain, twin, sizes)):
        module.reach(t.start, t.stop, t.indices, t.available, t.initial > 0, *out)
    assert (counts == sizes).all()
    for n in counts:
        assert set(order[0, :n]) == set(twin[0, :n])
    uniform = probabilities(uniform_policy(model.available), model.num_actions)[None].copy()
    visited = fast.occupancy(
        t.start, t.stop, t.indices, t.data, t.available, t.initial, H, uniform
    ).sum(axis=2) > 0  # fmt: skip
    inside = np.zeros_like(visited)
    for h, n in enumerate(counts):
        inside[h, order[0, :n]] = True
    assert (inside >= visited).all()
    points = np.random.default_rng(seed).random((fast.LANES, m))
    slots = np.arange(fast.LANES)
    everywhere = column_generation.everywhere(H, model.num_states)
    full, part, split = np.full((3, fast.LANES, H, model.num_states), -1, dtype=np.int32)
    totals, sums, same = np.zeros((3, 1 + m, fast.LANES))
    fast.best_responses(*t, H, *everywhere, 0.7, points, full, slots, totals)
    fast.best_responses(*t, H, order, counts, 0.7, points, part, slots, sums)
    fast.best_responses_parallel(*t, H, order, counts, 0.7, points, split, slots, same)
    assert (part == np.where(inside, full, -1)).all()
    assert (split == part).all()
    assert (sums == totals).all()
    assert (same == totals).all()


@pytest.mark.parametrize("seed", range(200))
def test_master_against_highs(seed):
    """Random masters, some infeasible, some with repeated columns."""
    rng = np.random.default_rng(seed)
    m, used = int(rng.integers(0, 5)), int(rng.integers(1, 12))
    values = rng.normal(size=(used + 2, 1 + m)).round(int(rng.integers(0, 4)))
    limits = rng.normal(size=m) + 0.3
    basis = np.zeros(m + 1, dtype=np.int64)
    x, y = np.zeros(m + 1), np.zeros(m + 1)
    code, phase, objective = columns.master(
        used, values, limits.copy(), np.ones(m), 1e-12, basis, 0, x, y
    )
    best, _ = plain.master(values[:used], limits)
    assert code == columns.SOLVED
    if np.isinf(best):
        assert phase == 1
        assert objective < 0
        assert (values[:used, 1:] @ y[:m]).min() > limits @ y[:m]
    else:
        assert phase == 2
        assert objective == pytest.approx(best, abs=1e-9)
        assert (y[:m] >= -1e-12).all()
        real = basis < values.shape[0]
        mixed = x[real] @ values[basis[real]]
        assert (mixed[1:] <= limits + 1e-9).all()
        assert mixed[0] == pytest.approx(best, abs=1e-9)


def test_master_of_many_columns():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=(400, 5))
        limits = np.full(4, -0.5)
        basis, x, y = np.zeros(5, dtype=np.int64), np.zeros(5), np.zeros(5)
        code, phase, objective = columns.master(
            400, values, limits.copy(), np.ones(4), 1e-12, basis, 0, x, y
        )
        best, _ = plain.master(values, limits)
        assert (code, phase) == (columns.SOLVED, 2)
        assert objective == pytest.approx(best, abs=1e-9)
