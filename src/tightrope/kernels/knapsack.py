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
    worth[:] = 0.0
    after = np.empty((num_states, cells))
    here = np.empty((num_states, cells))
    for _ in range(episodes):
        for s in range(num_states):
            after[s] = worth
        for _h in range(horizon):
            for s in range(num_states):
                for b in range(cells):
                    best = -np.inf
                    for a in range(num_actions):
                        if not available[s, a]:
                            continue
                        row = s * num_actions + a
                        total = 0.0
                        for k in range(start[row], stop[row]):
                            if data[k] == 0.0:
                                continue
                            left = b
                            for i in range(m):
                                if (b // strides[i]) % sizes[i] < consumes[i, k]:
                                    left = -1
                                    break
                                left -= strides[i] * consumes[i, k]
                            if left < 0:
                                total = -np.inf
                                break
                            total += data[k] * (pays[k] + after[indices[k], left])
                        if total > best:
                            best = total
                    here[s, b] = best
            after, here = here, after
        for b in range(cells):
            total = 0.0
            for s in range(num_states):
                if initial[s] > 0.0:
                    total += initial[s] * after[s, b]
            worth[b] = total
