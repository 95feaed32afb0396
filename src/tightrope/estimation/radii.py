"""Confidence radii: one function an inequality, no tunable factor inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.types import FloatArray


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
