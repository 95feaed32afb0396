"""Plain twins of `tightrope.kernels.reps`; the dual is minimised by SciPy's own L-BFGS."""

from __future__ import annotations

import numpy as np
import scipy.optimize

LEAST = 1e-30


def ball_row(prior, centre, radius, value, out):
    weights = prior * np.exp(value.min() - value)
    total = weights.sum()
    free = weights / total
    if radius >= 2.0 or np.abs(free - centre).sum() <= radius:
        out[:] = free
        return float(np.log(total) - value.min())
    ratio = np.sort(centre / free)

    def above(level):
        return np.maximum(level * free - centre, 0.0).sum() - radius / 2

    def below(level):
        return np.maximum(centre - level * free, 0.0).sum() - radius / 2

    high = (radius / 2 + 1.0) / free.min()
    alpha = scipy.optimize.brentq(above, 0.0, high, xtol=1e-300, rtol=1e-15)
    beta = scipy.optimize.brentq(below, 0.0, max(ratio[-1], 1e-300), xtol=1e-300, rtol=1e-15)
    out[:] = np.maximum(np.maximum(alpha * free, np.minimum(centre, beta * free)), LEAST)
    out /= out.sum()
    return float(-(out * (value + np.log(out / prior))).sum())


def reps_dual(offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, slope):
    slope[:] = 0.0
    dual = 0.0
    for k in range(offsets.size - 2):
        here = np.arange(offsets[k], offsets[k + 1])
        there = slice(offsets[k + 1], offsets[k + 2])
        width = offsets[k + 2] - offsets[k + 1]
        phi = np.array(
            [
                [
                    ball_row(
                        rows[x, a, :width],
                        centres[x, a, :width],
                        radii[x, a],
                        value[there],
                        new_rows[x, a, :width],
                    )
                    for a in range(pairs.shape[1])
                ]
                for x in here
            ]
        )
        exponent = np.log(np.maximum(pairs[here], 1e-300)) - losses[here] + value[here, None] + phi
        top = exponent.max()
        weights = np.exp(exponent - top)
        dual += top + np.log(weights.sum())
        new_pairs[here] = weights / weights.sum()
        slope[here] += new_pairs[here].sum(axis=1)
        slope[there] -= np.einsum("xa,xay->y", new_pairs[here], new_rows[here, :, :width])
    slope[0] = slope[-1] = 0.0
    return float(dual)


def reps_project(
    offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, tolerance, max_steps
):
    slope = np.zeros(value.size)
    args = (offsets, pairs, rows, centres, radii, losses)

    def both(v):
        return reps_dual(*args, v, new_pairs, new_rows, slope), slope.copy()

    found = scipy.optimize.minimize(
        both,
        value,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 0.0, "maxfun": max_steps, "maxiter": max_steps},
    )
    value[:] = found.x
    dual = reps_dual(*args, value, new_pairs, new_rows, slope)
    imbalance = float(np.abs(slope).max())
    roll_forward(offsets, new_pairs, new_rows)
    return dual, imbalance, found.nfev


def roll_forward(offsets, pairs, rows):
    mass = np.zeros(pairs.shape[0])
    mass[0] = 1.0
    for k in range(offsets.size - 2):
        here = np.arange(offsets[k], offsets[k + 1])
        width = offsets[k + 2] - offsets[k + 1]
        total = pairs[here].sum(axis=1, keepdims=True)
        share = np.where(total > 0, pairs[here] / np.where(total > 0, total, 1), 1 / pairs.shape[1])
        pairs[here] = mass[here, None] * share
        mass[offsets[k + 1] : offsets[k + 2]] = np.einsum(
            "xa,xay->y", pairs[here], rows[here, :, :width]
        )
