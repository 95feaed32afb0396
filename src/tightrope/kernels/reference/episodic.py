"""Plain NumPy twins of `tightrope.kernels.episodic`, for tests and for reading."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog


def _matrices(start, stop, indices, data, num_states, num_actions):
    """One sparse (S*A, S) matrix per stored stage."""
    rows = num_states * num_actions
    out = []
    for first in range(0, start.size, rows):
        lengths = stop[first : first + rows] - start[first : first + rows]
        entries = np.concatenate(
            [np.arange(a, b) for a, b in zip(start, stop)][first : first + rows]
        )
        entries = entries.astype(int)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        out.append(
            sp.csr_array((data[entries], indices[entries], indptr), shape=(rows, num_states))
        )
    return out


def best_response(
    start, stop, indices, data, rewards, costs, available, initial, horizon, reward_weight,
    multipliers, actions,
):  # fmt: skip
    """Backward induction for ``reward_weight * r - multipliers @ c``."""
    num_states, num_actions = available.shape
    tables = _matrices(start, stop, indices, data, num_states, num_actions)
    value = np.zeros(num_states)
    for h in reversed(range(horizon)):
        costs_h = np.tensordot(multipliers, costs[:, h % costs.shape[1]], axes=1)
        gain = reward_weight * rewards[h % rewards.shape[0]] - costs_h
        q = gain + (tables[h % len(tables)] @ value).reshape(gain.shape)
        q = np.where(available, q, -np.inf)
        actions[h] = q.argmax(axis=1)
        value = q.max(axis=1)
    return initial @ value


def reach(start, stop, indices, available, seen, order, counts):
    """``counts[h]`` states can be reached within h steps."""
    num_states, num_actions = available.shape
    tables = _matrices(start, stop, indices, np.ones(indices.size), num_states, num_actions)
    inside = seen
    found = [*np.flatnonzero(inside)]
    for h in range(counts.size):
        counts[h] = len(found)
        leaves = (available & inside[:, None]).ravel()
        after = inside | (tables[h % len(tables)].T @ leaves.astype(float) > 0)
        found += [*np.flatnonzero(after & ~inside)]
        inside = after
    order[0, : counts[-1]] = found[: counts[-1]]
    order[1] = range(num_states)


def best_responses(
    start, stop, indices, data, rewards, costs, available, initial, horizon, order, counts,
    reward_weight, points, pool, slots, totals,
):  # fmt: skip
    """One program and one evaluation after the other, at every state."""
    tables = (start, stop, indices, data, rewards, costs, available, initial, horizon)
    for lane, slot in enumerate(slots):
        totals[0, lane] = best_response(*tables, reward_weight, points[lane], pool[slot])
        totals[1:, lane] = evaluate_actions(*tables, pool[slot : slot + 1])[0, 1:]


def occupancy(start, stop, indices, data, available, initial, horizon, probabilities):
    """``rho_{h+1}(s') = sum_{s,a} rho_h(s, a) P(s' | s, a)``."""
    num_states, num_actions = available.shape
    tables = _matrices(start, stop, indices, data, num_states, num_actions)
    out = np.zeros((horizon, num_states, num_actions))
    mass = initial
    for h in range(horizon):
        out[h] = mass[:, None] * probabilities[h % probabilities.shape[0]]
        mass = tables[h % len(tables)].T @ out[h].ravel()
    return out


def evaluate_actions(
    start, stop, indices, data, rewards, costs, available, initial, horizon, actions
):
    """Inner products of the occupancy measures with reward and costs."""
    values = []
    for policy in actions:
        probabilities = np.eye(available.shape[1])[policy]
        rho = occupancy(
            start, stop, indices, data, available, initial, horizon, probabilities
        )  # fmt: skip
        values.append([(rho * rewards).sum(), *((rho * c).sum() for c in costs)])
    return np.array(values).reshape(len(actions), 1 + costs.shape[0])


def master(values, limits):
    """``max w @ r, C' w <= limits, sum w = 1, w >= 0`` by HiGHS; (objective, multipliers)."""
    m = limits.size
    result = linprog(
        -values[:, 0],
        A_ub=values[:, 1:].T if m else None,
        b_ub=limits if m else None,
        A_eq=np.ones((1, len(values))),
        b_eq=[1.0],
    )
    if result.status != 0:
        return -np.inf, np.full(m, np.nan)
    return -result.fun, -result.ineqlin.marginals if m else np.zeros(0)


def lagrangian_iterations(
    start, stop, indices, data, rewards, costs, available, initial, horizon, capacities, step,
    multipliers, actions, values, trail,
):  # fmt: skip
    """``lambda <- max(0, lambda + step (V_c(pi_lambda) - capacity))`` [CON, Algorithm 2]."""
    tables = (start, stop, indices, data, rewards, costs, available, initial, horizon)
    bounds = []
    for n in range(len(actions)):
        best = best_response(*tables, 1.0, multipliers, actions[n])
        bounds.append(best + multipliers @ capacities)
        values[n] = evaluate_actions(*tables, actions[n : n + 1])[0]
        multipliers[:] = np.maximum(0.0, multipliers + step * (values[n, 1:] - capacities))
        trail[n] = multipliers
    return min(bounds)
