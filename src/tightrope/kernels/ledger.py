"""Compiled running sums of regret and violation."""

from __future__ import annotations

from tightrope.kernels.jit import kernel


@kernel
def accumulate(exact, sampled, optimum, capacities, signs, grid, count, written, carry, sums):
    """Add n episodes one by one and copy the sums out at the points of the grid.

    Parameters
    ----------
    exact (n or 1, 1 + m), sampled (n, 1 + m)
    carry (3 + 4m,) : regret, violation (m), its positive part (m), sampled (1 + m), exact (1 + m)
    sums (rows, 3 + 4m) : what `carry` was at each point of `grid`
    count, written : episodes and rows before this call

    Returns the rows written by now.
    """
    m = capacities.size
    for e in range(sampled.shape[0]):
        k = e if exact.shape[0] > 1 else 0
        carry[0] += optimum - exact[k, 0]
        for i in range(m):
            excess = signs[i] * (exact[k, 1 + i] - capacities[i])
            carry[1 + i] += excess
            if excess > 0.0:
                carry[1 + m + i] += excess
        for j in range(1 + m):
            carry[1 + 2 * m + j] += sampled[e, j]
            carry[2 + 3 * m + j] += exact[k, j]
        if written < grid.size and grid[written] == count + e + 1:
            sums[written] = carry
            written += 1
    return written
