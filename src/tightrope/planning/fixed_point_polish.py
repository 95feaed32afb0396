"""Newton's method on the active constraints of FOPO's cone program.

With the maximising actions fixed, and u = matrix @ w + ones J - rewards, the program is

    max J (or, at a given J, min |u|^2 / 2)  s.t.  |u| <= beta,  |w| <= radius,  rows @ w <= 0.

An interior point leaves the objective right to 1e-12, which on a ball means w to 1e-6 times its
curvature. Solving the optimality conditions of the constraints that bind gives w to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from tightrope.types import BoolArray, FloatArray

ROUNDS = 10  #: changes of the active set
STEPS = 30  #: of Newton's method
CLOSE = 1e-3  #: the answer is within this, relatively, of the start


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """The program above; `gain` is J where it is given."""

    matrix: FloatArray  #: (d, d)
    ones: FloatArray  #: (d,)
    rewards: FloatArray  #: (d,)
    rows: FloatArray  #: (k, d)
    beta: float
    radius: float
    gain: float | None


def polish(
    cell: Cell, weights: FloatArray, gain: float, active: BoolArray, on_sphere: bool
) -> tuple[FloatArray, float] | None:
    """w (d,) and J to rounding, from a solution to about 1e-6; None if no active set fits.

    `active` (k,) and `on_sphere` (``|w| = radius``) are first guesses.
    """
    active, start = active.copy(), weights
    size = 1.0 + float(np.linalg.norm(start))
    for _ in range(ROUNDS):
        found = _newton(cell, start, gain, cell.rows[active], on_sphere)
        if found is None:
            return None
        weights, level, pressure, outward = found
        excess = np.where(active, 0.0, cell.rows @ weights)
        largest = float(np.abs(pressure).max(initial=1e-9))
        if excess.max(initial=0.0) > 1e-12 * size:
            active[int(excess.argmax())] = True
        elif not on_sphere and np.linalg.norm(weights) > cell.radius * (1.0 + 1e-12):
            on_sphere = True
        elif pressure.min(initial=0.0) < -1e-9 * largest:
            active[np.flatnonzero(active)[int(pressure.argmin())]] = False
        elif on_sphere and outward < 0.0:
            on_sphere = False
        else:
            near = np.linalg.norm(weights - start) <= CLOSE * size and abs(level - gain) <= CLOSE
            return (weights, level) if near and _within(cell, weights, level) else None
    return None


def _within(cell: Cell, weights: FloatArray, gain: float) -> bool:
    slack = cell.matrix @ weights + cell.ones * gain - cell.rewards
    return bool(np.linalg.norm(slack) <= cell.beta * (1.0 + 1e-9) + 1e-12 and abs(gain) <= 1.0)


def _newton(
    cell: Cell, weights: FloatArray, gain: float, rows: FloatArray, on_sphere: bool
) -> tuple[FloatArray, float, FloatArray, float] | None:
    """Solve with ``rows @ w = 0``, |u| = beta if J is free, |w| = radius if `on_sphere`.

    Returns w, J, the multipliers of the rows and that of the sphere.
    """
    basis = scipy.linalg.null_space(rows) if len(rows) else np.eye(len(weights))
    matrix, free = cell.matrix @ basis, cell.gain is None
    count = basis.shape[1]
    place, level = basis.T @ weights, gain
    slack = matrix @ place + cell.ones * level - cell.rewards
    along = float(cell.ones @ slack)
    if free and along == 0.0:
        return None
    ball = 1.0 / along if free else 1.0
    squared = float(place @ place)
    sphere = -ball * float(place @ (matrix.T @ slack)) / squared if on_sphere and squared else 0.0
    inner, cross = matrix.T @ matrix, matrix.T @ cell.ones
    last = np.inf
    for _ in range(STEPS):
        # unknowns: w in the basis, then J and the multiplier of |u|, then that of |w|
        gradient = [ball * (matrix.T @ slack) + sphere * place]
        table = ball * inner + sphere * np.eye(count)
        if free:
            pull = matrix.T @ slack
            gradient.append(np.array([ball * along - 1.0, 0.5 * (slack @ slack - cell.beta**2)]))
            edge = np.column_stack([ball * cross, pull])
            corner = np.array([[ball * float(cell.ones @ cell.ones), along], [along, 0.0]])
            table = np.block([[table, edge], [edge.T, corner]])
        if on_sphere:
            gradient.append(np.array([0.5 * (place @ place - cell.radius**2)]))
            edge = np.concatenate([place, np.zeros(len(table) - count)])
            table = np.block([[table, edge[:, None]], [edge[None], np.zeros((1, 1))]])
        try:
            move = -np.linalg.solve(table, np.concatenate(gradient))
        except np.linalg.LinAlgError:
            return None
        place = place + move[:count]
        if free:
            level, ball = level + float(move[count]), ball + float(move[count + 1])
        if on_sphere:
            sphere += float(move[-1])
        slack = matrix @ place + cell.ones * level - cell.rewards
        along = float(cell.ones @ slack)
        length = float(np.linalg.norm(move[:count]))
        if not np.isfinite(length):
            return None
        if length <= 1e-15 * (1.0 + np.linalg.norm(place)) or (last < 1e-9 and length >= last):
            break
        last = length
    else:
        return None
    weights = basis @ place
    force = -(ball * (cell.matrix.T @ slack) + sphere * weights)
    pressure = np.linalg.lstsq(rows.T, force, rcond=None)[0] if len(rows) else np.zeros(0)
    return np.asarray(weights, dtype=np.float64), level, np.asarray(pressure, float), sphere
