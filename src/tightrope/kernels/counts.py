"""Compiled counting: sufficient statistics of a tabular model, one row of successors a pair.

The estimate is kept in slots: row ``s*A + a`` owns entries ``start[row] .. stop[row]`` of
`successors` and `p_hat`, so the planners' kernels read it as they read any model.
"""

from __future__ import annotations

import math

from tightrope.kernels.jit import kernel


@kernel
def count_episodes(
    states, actions, rewards, costs, first, visits, start, stop, capacity, successors, tallies,
    p_hat, reward_sums, cost_sums,
):  # fmt: skip
    """Add the transitions `first`, `first + 1`, .. of n episodes [CON, Eqs. (4)-(7)].

    Parameters
    ----------
    states (n, H + 1), actions (n, H), rewards (n, H), costs (n, H, m)
    visits (S, A) int64, reward_sums (S, A), cost_sums (m, S, A)
    start, stop (S*A,) int64, successors (S*A*capacity,) int32, tallies int64, p_hat float64

    Returns the number of transitions counted in all: less than n*H if a row is full, and then
    nothing of that transition was written; give it more room and go on from there.
    """
    n, horizon = actions.shape
    num_actions = visits.shape[1]
    for position in range(first, n * horizon):
        e, h = position // horizon, position % horizon
        s, a, t = states[e, h], actions[e, h], states[e, h + 1]
        row = s * num_actions + a
        if visits[s, a] == 0:
            stop[row] = start[row]  # drop the self-loop of an unvisited pair
        k = start[row]
        while k < stop[row] and successors[k] != t:
            k += 1
        if k == stop[row]:
            if k == start[row] + capacity:
                return position
            successors[k] = t
            tallies[k] = 0
            stop[row] += 1
        tallies[k] += 1
        visits[s, a] += 1
        reward_sums[s, a] += rewards[e, h]
        for i in range(cost_sums.shape[0]):
            cost_sums[i, s, a] += costs[e, h, i]
        for j in range(start[row], stop[row]):
            p_hat[j] = tallies[j] / visits[s, a]
    return n * horizon


@kernel
def optimistic_tables(
    visits, reward_sums, cost_sums, signs, unit_bonus, unvisited_bonus, rewards, costs
):
    """Empirical means plus a bonus ``unit_bonus / sqrt(N)``, N = max(1, visits) [CON, Sec. 3].

    Pairs never visited get `unvisited_bonus` instead. Writes rewards (S, A) and costs (m, S, A),
    the latter multiplied by `signs` and with the bonus taken off.
    """
    for s in range(visits.shape[0]):
        for a in range(visits.shape[1]):
            n = max(1, visits[s, a])
            bonus = unit_bonus / math.sqrt(n) if visits[s, a] > 0 else unvisited_bonus
            rewards[s, a] = reward_sums[s, a] / n + bonus
            for i in range(costs.shape[0]):
                costs[i, s, a] = signs[i] * cost_sums[i, s, a] / n - bonus
