"""Estimates of t_mix and sigma [LIN, Assumptions 3 and 5] from a trajectory.

[LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020). Both assumptions speak of the worst of all
policies, a trajectory only of its own: the truth can be worse on either count, so no theorem
covers a run with these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tightrope.types import FloatArray, IntArray

BLOCK_ENTRIES = 4_000_000


class Estimates(NamedTuple):
    """What `estimate` found."""

    mixing_time: float  #: relaxation time of the policy's chain, seen through the features
    sigma: float  #: least eigenvalue of the policy's Gram matrix


def estimate(
    states: np.ndarray,
    actions: IntArray,
    rows_at: Callable[[np.ndarray], FloatArray],
    chances_at: Callable[[np.ndarray], FloatArray],
) -> Estimates:
    """t_mix and sigma of one policy, from its trajectory.

    In a linear MDP ``E[f(x') | x, a] = phi(x, a)'K`` for ``f(x) = sum_a pi(a|x) phi(x, a)``; the
    regression estimate of K has the eigenvalue 1 of the constant, and with rho the next modulus
    t_mix is estimated as ``max(1, -1 / ln rho)``.

    Parameters
    ----------
    states : (n + 1,) numbers of states, or points
    actions : (n,)
    rows_at : states (k,) -> features (k, A, d)
    chances_at : states (k,) -> (k, A) probabilities of the policy that was played

    Examples
    --------
    A chain of two states that stays with chance 0.9 has second eigenvalue 0.8.

    >>> moves = np.random.default_rng(0).random(20_000) < 0.1
    >>> x = np.concatenate([[0], np.cumsum(moves) % 2])
    >>> phi, one = np.eye(2)[:, None], np.ones((2, 1))
    >>> found = estimate(x, np.zeros(20_000, int), lambda s: phi[s], lambda s: one[s])
    >>> 4.2 < found.mixing_time < 4.8, abs(found.sigma - 0.5) < 0.05
    (True, True)
    """
    number = len(actions)
    _, width, dimension = rows_at(states[:1]).shape
    gram, seen, cross = (np.zeros((dimension, dimension)) for _ in range(3))
    size = max(1, BLOCK_ENTRIES // (width * dimension))
    for first in range(0, number, size):
        block = slice(first, min(number, first + size))
        rows = rows_at(states[block.start : block.stop + 1])
        weighted = rows * chances_at(states[block.start : block.stop + 1])[:, :, None]
        taken = rows[np.arange(len(rows) - 1), actions[block]]
        gram += np.tensordot(rows[:-1], weighted[:-1], axes=((0, 1), (0, 1)))
        seen += taken.T @ taken
        cross += taken.T @ weighted[1:].sum(axis=1)
    operator = np.linalg.pinv(seen, rcond=1e-12, hermitian=True) @ cross
    moduli = np.sort(np.abs(np.linalg.eigvals(operator)))
    second = float(moduli[-2]) if dimension > 1 else 0.0
    time = math.inf if second >= 1.0 else max(1.0, -1.0 / math.log(max(second, 1e-300)))
    return Estimates(time, max(0.0, float(np.linalg.eigvalsh(gram / number)[0])))
