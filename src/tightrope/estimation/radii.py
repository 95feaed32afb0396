"""Confidence radii and bonuses: one function an inequality, no tunable factor inside."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tightrope.types import FloatArray, IntArray


def conrl_bonus(
    visits: IntArray | int, episode: int, *, num_states: int, num_actions: int, horizon: int,
    num_costs: int, delta: float,
) -> FloatArray:  # fmt: skip
    """``H sqrt(2 ln(8 S A H (d+1) k^2 / delta) / N)`` with N = max(1, visits) [CON, Eq. (9)].

    >>> conrl_bonus(np.array([10]), 100, num_states=64, num_actions=4, horizon=30, num_costs=1,
    ...             delta=0.1).round(5)
    array([64.66637])
    """
    size = num_states * num_actions * horizon * (num_costs + 1)
    log = math.log(8 * size * episode * episode / delta)
    return horizon * np.sqrt(2 * log / np.maximum(visits, 1))


def hoeffding_radius(count: int, *, delta: float, low: float = 0.0, high: float = 1.0) -> float:
    """``(high - low) sqrt(ln(2 / delta) / (2 n))``: two-sided, for n draws in [low, high].

    >>> round(hoeffding_radius(50, delta=0.05), 6)
    0.192065
    >>> round(hoeffding_radius(50, delta=0.05, low=-1, high=3), 6)
    0.768258
    """
    return (high - low) * math.sqrt(math.log(2 / delta) / (2 * count))


def jaksch_reward(counts: Any, *, states: int, actions: int, time: int, delta: float) -> FloatArray:
    """Radius of a mean reward in [0, 1] [Jaksch, Ortner, Auer 2010, Eq. (3)].

    ``sqrt(7 ln(2 S A t / delta) / (2 max(1, n)))``; `time` is the step t, not the epoch.
    """
    number = np.maximum(1.0, counts)
    return np.sqrt(7.0 * np.log(2.0 * states * actions * time / delta) / (2.0 * number))


def jaksch_transition(
    counts: Any, *, states: int, actions: int, time: int, delta: float
) -> FloatArray:
    """L1 radius of a row of transition probabilities [Jaksch, Ortner, Auer 2010, Eq. (4)].

    ``sqrt(14 S ln(2 A t / delta) / max(1, n))``; `time` is the step t, not the epoch.

    >>> radius = jaksch_transition(40, states=6, actions=2, time=81, delta=0.05)
    >>> print(round(float(radius), 6))
    4.293087
    """
    number = np.maximum(1.0, counts)
    return np.sqrt(14.0 * states * np.log(2.0 * actions * time / delta) / number)
