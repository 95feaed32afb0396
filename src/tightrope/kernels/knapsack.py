"""Exact dynamic program over what is left of integer budgets; episodes of H steps each."""

from __future__ import annotations

import numpy as np

from tightrope.kernels.jit import kernel


@kernel
def budget_program(
    start, stop, indices, data, pays, consumes, available, initial, horizon, strides, sizes,
    episodes, worth,
):  # fmt: skip
    """Largest expected reward of the remaining episodes that surely stays within the budgets.

    Parameters
    ----------
    start, stop, indices, data : transitions, row ``s*A + a``, the same at every step
    pays : (nnz,) reward of each transition
    consumes : (m, nnz) int64 units that each transition consumes
    strides, sizes : (m,) int64; budget cell ``b = sum_i strides[i] * left_i``, left_i < sizes[i]
    worth : (cells,) written
        Value of `episodes` episodes, started with each cell's budgets; -inf if none is safe.
    """
    num_states, num_actions = available.shape
    m, cells = strides.size, worth.size
    # every budget gets as many cells below 0 as one step can consume, worth -inf, so that a step is
    # a shift of whole rows
    pads, wide = np.zeros(m, dtype=np.int64), np.ones(m, dtype=np.int64)
    total = 1
    for i in range(m - 1, -1, -1):
        for k in range(data.size):
            pads[i] = max(pads[i], consumes[i, k])
        wide[i] = total
        total *= sizes[i] + pads[i]
    first = 0
    for i in range(m):
        first += pads[i] * wide[i]
    count = total - first
    place = np.zeros(cells, dtype=np.int64)  # of each cell, after `first`
    broken = np.full(count, -np.inf)
    for b in range(cells):
        for i in range(m):
            place[b] += (b // strides[i]) % sizes[i] * wide[i]
        broken[place[b]] = 0.0
    shifts = np.zeros(data.size, dtype=np.int64)
    for k in range(data.size):
        for i in range(m):
            shifts[k] += consumes[i, k] * wide[i]
    worth[:] = 0.0
    after = np.full((num_states, total), -np.inf)
    here = np.full((num_states, total), -np.inf)
    gained = np.empty(count)
    for _ in range(episodes):
        for s in range(num_states):
            after[s, first:] = -np.inf
            for b in range(cells):
                after[s, first + place[b]] = worth[b]
        for _h in range(horizon):
            for s in range(num_states):
                best = here[s, first:]
                best[:] = -np.inf
                for a in range(num_actions):
                    if not available[s, a]:
                        continue
                    gained[:] = 0.0
                    row = s * num_actions + a
                    for k in range(start[row], stop[row]):
                        if data[k] == 0.0:
                            continue
                        chance, pay = data[k], pays[k]
                        source = after[indices[k], first - shifts[k] : total - shifts[k]]
                        for b in range(count):
                            gained[b] += chance * (pay + source[b])
                    for b in range(count):
                        best[b] = max(best[b], gained[b])
                for b in range(count):
                    best[b] += broken[b]
            after, here = here, after
        for b in range(cells):
            mean = 0.0
            for s in range(num_states):
                if initial[s] > 0.0:
                    mean += initial[s] * after[s, first + place[b]]
            worth[b] = mean
