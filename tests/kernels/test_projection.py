"""Compiled kernels of the projection against their plain twins, and the certificate recomputed."""

import numpy as np
import pytest
from tests.planning.confidence_samples import random_instance

from tightrope.kernels import projection as fast
from tightrope.kernels.reference import projection as plain
from tightrope.planning.confidence import confidence_set
from tightrope.planning.projection import project


@pytest.mark.parametrize("number", range(25))
def test_gap_is_primal_minus_dual(number):
    confidence, z = random_instance(number)
    found = project(z, confidence)
    exists = confidence.available
    dual = plain.dual_value(confidence.layout, z[exists], found.heights)
    primal = 0.5 * np.sum((found.q - z)[exists] ** 2)
    assert primal == pytest.approx(found.objective, rel=1e-12)
    assert primal - dual == pytest.approx(found.gap, abs=1e-12 * (1.0 + primal))


@pytest.mark.parametrize("number", range(25))
def test_optimistic_sweep(number):
    confidence, costs = random_instance(number)
    layout, out = confidence.layout, []
    for kernels in (fast, plain):
        values, landing = np.empty(confidence.shape[0]), np.empty(confidence.shape[0])
        best = np.empty(confidence.shape[0], dtype=np.int64)
        fractions = np.empty(layout.entry_prob.size)
        kernels.optimistic_sweep(
            layout, costs.ravel()[confidence.pairs], values, best, fractions, landing
        )
        out.append((values, landing, best, fractions))
    for a, b in zip(*out):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.parametrize("number", range(15))
def test_fractions(number):
    confidence, _ = random_instance(number)
    rng = np.random.default_rng(number)
    layout, (a, b) = confidence.layout, np.empty((2, confidence.layout.entry_prob.size))
    for kernels, out in ((fast, a), (plain, b)):
        kernels.first_fractions(layout, out)
    np.testing.assert_array_equal(a, b)
    a += 0.2 * rng.normal(size=a.size)
    b[:] = a
    for kernels, out in ((fast, a), (plain, b)):
        kernels.fit_fractions(layout, out)
    np.testing.assert_allclose(a, b, atol=1e-15)
    assert ((a >= 0) & (a <= layout.entry_prob)).all()
    rows = np.repeat(np.arange(layout.half.size), np.diff(layout.entry_start))
    keep = np.where(layout.half < 1, 1 - layout.half, 0)
    np.testing.assert_allclose(np.bincount(rows, a, keep.size), keep, atol=1e-14)
    thinned = confidence.p_bar.toarray() * (rng.random(confidence.p_bar.shape) < 0.6)
    total = thinned.sum(axis=1)
    thinned /= np.where(total > 0, total, 1.0)[:, None]
    radius = np.where(total.reshape(confidence.shape) > 0, 0.9 * confidence.radius, 2.0)
    other = confidence_set(
        confidence.layers,
        thinned.reshape(*confidence.shape, -1),
        radius,
        available=confidence.available,
    )
    c, d = np.empty((2, other.layout.entry_prob.size))
    fast.carry_fractions(layout, other.layout, a, c)
    plain.carry_fractions(layout, other.layout, a, d)
    np.testing.assert_allclose(c, d, atol=1e-14)


@pytest.mark.parametrize("number", range(15))
def test_repair(number):
    confidence, _ = random_instance(number)
    rng = np.random.default_rng(number)
    layout, states = confidence.layout, confidence.shape[0]
    u = rng.normal(size=layout.half.size)
    owner = np.repeat(np.arange(states), np.diff(layout.state_row))
    mass = np.bincount(owner, np.maximum(0.0, u), states)
    fractions = np.empty(layout.entry_prob.size)
    fast.first_fractions(layout, fractions)
    excess = rng.normal(size=states) * rng.integers(0, 2, size=states)
    heights = rng.random(states)
    out = []
    for kernels in (fast, plain):
        q, rolled, landing = np.empty(u.size), np.empty(states), np.zeros(states)
        kernels.repair(layout, u, mass, fractions, excess, heights, q, rolled, landing)
        out.append((q, rolled, landing))
    for a, b in zip(*out):
        np.testing.assert_allclose(a, b, atol=1e-14)
