"""Plain twins of `tightrope.kernels.projection`, but for the search itself.

The dual ascent and the flow are checked through their result: `dual_value` and `repair` here
recompute the certificate from the heights and the fractions alone, and
`planning.projection_program` solves the same projection as a quadratic program.
"""

from __future__ import annotations

import numpy as np


def _rows(layout, values):
    """Entry values as a dense (R, S) array."""
    out = np.zeros((layout.half.size, layout.state_row.size - 1))
    out[np.repeat(np.arange(out.shape[0]), np.diff(layout.entry_start)), layout.entry_state] = (
        values
    )
    return out


def _row_states(layout):
    return np.repeat(np.arange(layout.state_row.size - 1), np.diff(layout.state_row))


def worst_expectation(layout, values):
    """Least expectation of `values` (S,) over the L1 ball of each row: half the radius of mass
    moves from the largest values of the next layer to the least."""
    layer = np.searchsorted(layout.layer_start, _row_states(layout), side="right") - 1
    prob = _rows(layout, layout.entry_prob)
    out = np.empty(layout.half.size)
    for r in range(out.size):
        states = np.arange(layout.layer_start[layer[r] + 1], layout.layer_start[layer[r] + 2])
        states = states[np.argsort(-values[states], kind="stable")]
        left = np.maximum(0.0, np.cumsum(prob[r, states]) - layout.half[r])
        kept = np.diff(left, prepend=0.0)
        out[r] = kept @ values[states] + (1.0 - kept.sum()) * values[states].min()
    return out


def dual_value(layout, z, heights):
    """The dual at `heights`, the masses' multipliers being the best: a lower bound of
    ``1/2 ||q - z||**2`` over the feasible q."""
    states = _row_states(layout)
    lowest = np.minimum.reduceat(heights, layout.layer_start[:-1])
    layer = np.searchsorted(layout.layer_start, states, side="right") - 1
    v = z + heights[states] - worst_expectation(layout, heights) + lowest[layer + 1]
    total = 0.5 * z @ z
    for k in range(layer[-1] + 1):  # the mass of each layer is 1: sorted thresholds
        w = np.sort(v[layer == k])[::-1]
        shift = (1.0 - np.cumsum(w)) / np.arange(1, w.size + 1)
        mu = shift[w + shift > 0.0][-1]
        q = np.maximum(0.0, v[layer == k] + mu)
        total += mu - 0.5 * q @ q
    return total


def first_fractions(layout, fractions):
    keep = np.maximum(0.0, 1.0 - layout.half)
    fractions[:] = layout.entry_prob * np.repeat(keep, np.diff(layout.entry_start))


def fit_row(prob, fractions, first, last, total):
    part = np.clip(fractions[first:last], 0.0, prob[first:last])
    if part.sum() > max(0.0, total):
        part *= total / part.sum()
    elif (prob[first:last] - part).sum() > 0.0:
        room = prob[first:last] - part
        part += min(1.0, (total - part.sum()) / room.sum()) * room
    fractions[first:last] = part


def fit_fractions(layout, fractions):
    for r, half in enumerate(layout.half):
        first, last = layout.entry_start[r], layout.entry_start[r + 1]
        fit_row(layout.entry_prob, fractions, first, last, 1.0 - half)


def carry_fractions(old, new, old_fractions, fractions):
    known = _rows(old, old_fractions)
    rows = np.repeat(np.arange(new.half.size), np.diff(new.entry_start))
    fractions[:] = known[rows, new.entry_state]
    fit_fractions(new, fractions)


def repair(layout, u, mass, fractions, excess, heights, q, rolled, landing):
    states, rows = _row_states(layout), _rows(layout, fractions)
    rolled[:] = 0.0
    rolled[0] = 1.0
    landing[0] = 0.0
    for k in range(layout.layer_start.size - 2):
        here = (states >= layout.layer_start[k]) & (states < layout.layer_start[k + 1])
        after = slice(layout.layer_start[k + 1], layout.layer_start[k + 2])
        room = np.maximum(0.0, -excess[after])
        if room.sum() > 0.0:
            landing[after] = room / room.sum()
        else:
            landing[after] = np.arange(room.size) == heights[after].argmin()
        x = states[here]
        share = np.where(
            mass[x] > 0.0,
            np.maximum(0.0, u[here]) / np.where(mass[x] > 0.0, mass[x], 1.0),
            1.0 / np.diff(layout.state_row)[x],
        )
        q[here] = rolled[x] * share
        rolled[after] = (q[here] @ rows[here])[after]
        rolled[after] += q[here] @ (1.0 - rows[here].sum(axis=1)) * landing[after]


def optimistic_sweep(layout, costs, values, best, fractions, landing):
    states, prob = _row_states(layout), _rows(layout, layout.entry_prob)
    values[:], best[:], landing[:] = 0.0, -1, 0.0
    kept = np.zeros_like(prob)
    for k in range(layout.layer_start.size - 3, -1, -1):
        after = np.arange(layout.layer_start[k + 1], layout.layer_start[k + 2])
        order = after[np.argsort(-values[after], kind="stable")]
        landing[order[-1]] = 1.0
        for x in range(layout.layer_start[k], layout.layer_start[k + 1]):
            rows = np.flatnonzero(states == x)
            left = np.maximum(
                0.0, np.cumsum(prob[rows][:, order], axis=1) - layout.half[rows, None]
            )
            kept[rows[:, None], order] = np.diff(left, axis=1, prepend=0.0)
            free = 1.0 - kept[rows].sum(axis=1)
            totals = costs[rows] + kept[rows] @ values + free * values[order[-1]]
            best[x] = rows[totals.argmin()]
            values[x] = totals.min()
    entry_row = np.repeat(np.arange(layout.half.size), np.diff(layout.entry_start))
    fractions[:] = kept[entry_row, layout.entry_state]
