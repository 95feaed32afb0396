"""Plain twin of `tightrope.kernels.knapsack`: the recursion as it is written."""

from __future__ import annotations

from functools import cache

import numpy as np


def budget_program(
    start, stop, indices, data, pays, consumes, available, initial, horizon, strides, sizes,
    episodes, worth,
):  # fmt: skip
    """``V_k,h(s, b) = max_a sum_s' p (r + V_k,h+1(s', b - c))``, -inf where a budget breaks."""
    num_actions = available.shape[1]

    @cache
    def value(episode: int, h: int, s: int, left: tuple[int, ...]) -> float:
        if min(left, default=0) < 0:
            return -np.inf
        if h == horizon:
            return begin(episode + 1, left)
        options = []
        for a in np.flatnonzero(available[s]):
            row = s * num_actions + a
            total = 0.0
            for k in range(start[row], stop[row]):
                if data[k] > 0:
                    rest = tuple(int(x) for x in np.array(left) - consumes[:, k])
                    total += data[k] * (pays[k] + value(episode, h + 1, int(indices[k]), rest))
            options.append(total)
        return max(options)

    @cache
    def begin(episode: int, left: tuple[int, ...]) -> float:
        if episode == episodes:
            return 0.0
        starts = np.flatnonzero(initial)
        return sum(initial[s] * value(episode, 0, int(s), left) for s in starts)

    for b in range(worth.size):
        worth[b] = begin(0, tuple(int(b // w % n) for w, n in zip(strides, sizes)))
