"""The KL projection: compiled and plain agree, and the answer is the optimum."""

import numpy as np
import pytest
import scipy.optimize

from tightrope.kernels import reps as compiled
from tightrope.kernels.reference import reps as plain


def instance(seed, largest_radius, sizes=(1, 3, 4, 1), num_actions=2):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    shape = (offsets[-1], num_actions)
    rows, centres = (np.zeros((*shape, max(sizes))) for _ in range(2))
    pairs = np.zeros(shape)
    for k in range(len(sizes) - 1):
        here = slice(offsets[k], offsets[k + 1])
        width = sizes[k + 1]
        rows[here, :, :width] = rng.dirichlet(np.ones(width), (sizes[k], num_actions))
        centres[here, :, :width] = rng.dirichlet(np.full(width, 0.4), (sizes[k], num_actions))
        pairs[here] = rng.dirichlet(np.ones(sizes[k] * num_actions)).reshape(sizes[k], -1)
    radii = rng.random(shape) * largest_radius
    losses = rng.normal(size=shape) * 0.3
    losses[-1] = 0.0
    return offsets, pairs, rows, centres, radii, losses


@pytest.mark.parametrize("largest_radius", [1e-6, 0.2, 0.8, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_rows_maximise_over_the_ball(seed, largest_radius):
    rng = np.random.default_rng(seed)
    n = 5
    prior, centre = rng.dirichlet(np.ones(n)), rng.dirichlet(np.full(n, 0.4))
    radius, value = largest_radius * rng.random(), 2 * rng.normal(size=n)
    out, out_plain = np.empty(n), np.empty(n)
    best = compiled.ball_row(prior, centre, radius, value, out)
    assert best == pytest.approx(plain.ball_row(prior, centre, radius, value, out_plain))
    np.testing.assert_allclose(out, out_plain, atol=1e-9)
    assert out.sum() == pytest.approx(1.0)
    assert np.abs(out - centre).sum() <= max(radius, 0) + 1e-12
    for _ in range(200):  # no point of the ball is better
        other = rng.dirichlet(np.ones(n))
        step = min(1.0, radius / max(np.abs(other - centre).sum(), 1e-300))
        other = np.maximum(centre + step * (other - centre), 1e-300)
        assert -(other @ value) - (other * np.log(other / prior)).sum() <= best + 1e-9


@pytest.mark.parametrize("largest_radius", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_projection_twins_agree_and_the_dual_gap_closes(seed, largest_radius):
    args = instance(seed, largest_radius)
    offsets, pairs, rows, centres, radii, losses = args
    found = []
    for kernels in (compiled, plain):
        value, q, p = np.zeros(len(pairs)), np.zeros_like(pairs), rows.copy()
        dual, imbalance, _ = kernels.reps_project(*args, value, q, p, 1e-9, 2000)
        assert imbalance < 1e-7
        found.append(q)
        # feasible exactly, and the primal value meets the dual one
        flow = np.einsum("xa,xay->xy", q, p)
        for k in range(offsets.size - 2):
            here, there = slice(*offsets[k : k + 2]), slice(*offsets[k + 1 : k + 3])
            assert q[here].sum() == pytest.approx(1.0)
            if k + 2 < offsets.size - 1:
                into = flow[here].sum(axis=0)[: offsets[k + 2] - offsets[k + 1]]
                np.testing.assert_allclose(q[there].sum(axis=1), into, atol=1e-12)
        inner = slice(0, offsets[-2])
        assert (np.abs(p - centres).sum(axis=2)[inner] <= radii[inner] + 1e-9).all()
        positive = p[inner] > 0
        ratio = np.log(
            p[inner] / np.where(positive, rows[inner], 1.0),
            where=positive,
            out=np.zeros_like(p[inner]),
        )
        divergence = (q[inner] * (np.log(q[inner] / pairs[inner]) + losses[inner])).sum()
        divergence += (q[inner][:, :, None] * p[inner] * ratio).sum()
        assert divergence == pytest.approx(-dual, abs=1e-6)
    np.testing.assert_allclose(*found, atol=1e-6)


def test_gradient_of_the_dual():
    args = instance(5, 0.6)
    rng = np.random.default_rng(1)
    value = rng.normal(size=len(args[1]))
    value[[0, -1]] = 0.0
    q, p, slope = np.zeros_like(args[1]), args[2].copy(), np.zeros(value.size)

    def dual(v):
        return compiled.reps_dual(*args, v, q, p, slope)

    dual(value)
    exact = slope.copy()
    numeric = scipy.optimize.approx_fprime(value, dual, 1e-7)
    np.testing.assert_allclose(exact[1:-1], numeric[1:-1], atol=1e-5)
