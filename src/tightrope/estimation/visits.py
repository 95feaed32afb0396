"""Visit counts of loop-free models, frozen at the start of an epoch, and their L1 radii.

[BOBW] Germano et al. 2023, Algorithms 3-4 and Eq. (10), after Rosenberg and Mansour 2019.
"""

from __future__ import annotations

import math

import numpy as np

from tightrope.types import FloatArray, IntArray


def offsets_of(layers: IntArray) -> IntArray:
    """(L + 2,) first state of each layer, from the layer of each state."""
    return np.concatenate([[0], np.cumsum(np.bincount(layers))]).astype(np.int64)


def row_widths(layers: IntArray) -> IntArray:
    """(S,) size of the next layer, |X_{k(x)+1}|; 1 for x_L."""
    sizes = np.bincount(layers)
    return np.append(sizes[1:], 1)[layers]


def l1_radius(
    visits: IntArray, layers: IntArray, episodes: int, delta: float, scale: float = 1.0
) -> FloatArray:
    """(S, A) radii eps(x, a) = scale sqrt(2 |X_{k+1}| ln(T |X| |A| / delta) / max(1, N(x, a))).

    [BOBW, Eq. (10)]. Where N = 0 every distribution is allowed, whatever the scale: at least 2.

    Examples
    --------
    >>> l1_radius(np.array([[0, 8], [0, 0]]), np.array([0, 1]), 100, 0.05).round(4)
    array([[4.2396, 1.4989],
           [4.2396, 4.2396]])
    """
    log_term = math.log(episodes * visits.size / delta)
    radius = scale * np.sqrt(2.0 * row_widths(layers)[:, None] * log_term / np.maximum(1, visits))
    return np.where(visits == 0, np.maximum(radius, 2.0), radius)


def empirical_rows(triples: IntArray, visits: IntArray) -> FloatArray:
    """(S, A, W) P_bar = M / max(1, N), by position within the next layer."""
    return triples / np.maximum(1, visits)[:, :, None]


def disjoint_balls(
    old_rows: FloatArray, old_radius: FloatArray, rows: FloatArray, radius: FloatArray
) -> int:
    """How many pairs have L1 balls that do not meet: no transition function is in both sets.

    The true one has then left a set, which at the proved radius has probability <= delta.
    """
    apart = np.abs(old_rows - rows).sum(axis=2) > old_radius + radius + 1e-12
    vacuous = (old_radius >= 2.0) | (radius >= 2.0)
    return int((apart & ~vacuous).sum())
