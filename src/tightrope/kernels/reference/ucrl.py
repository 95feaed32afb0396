"""Plain NumPy twins of `tightrope.kernels.ucrl`."""

import numpy as np


def optimistic_row(p_hat, radius, values):
    """The row of the L1 ball around p_hat (S,) that maximises the mean of values (S,)."""
    order = np.argsort(-values, kind="stable")
    if p_hat.sum() == 0.0:
        return np.eye(len(values))[order[0]]
    row = p_hat.copy()
    row[order[0]] = min(1.0, p_hat[order[0]] + radius / 2)
    for y in order[::-1]:
        excess = row.sum() - 1.0
        if excess <= 0.0 or y == order[0]:
            break
        row[y] = max(0.0, row[y] - excess)
    return row


def extended_value_iteration(p_hat, rewards, radius, available, values, tolerance, max_iterations):
    """See the compiled kernel."""
    low, high = -np.inf, np.inf
    actions = np.zeros(len(values), dtype=np.int32)
    iteration = 0
    while iteration < max_iterations and high - low >= tolerance:
        iteration += 1
        q = np.full(rewards.shape, -np.inf)
        for s, a in np.argwhere(available):
            q[s, a] = rewards[s, a] + optimistic_row(p_hat[s, a], radius[s, a], values) @ values
        actions = q.argmax(axis=1).astype(np.int32)
        step = q.max(axis=1) - values
        low, high = step.min(), step.max()
        values = q.max(axis=1) - q.max(axis=1).min()
    return actions, values, low, high, iteration


def count_transitions(states, actions, rewards, visits, moves, reward_sums):
    """See the compiled kernel."""
    np.add.at(visits, (states[:-1], actions), 1.0)
    np.add.at(moves, (states[:-1], actions, states[1:]), 1.0)
    np.add.at(reward_sums, (states[:-1], actions), rewards)


def best_in_box(p_hat, radius, values):
    """The law within the interval box that maximises the mean of `values`."""
    p = np.maximum(0.0, p_hat - radius)
    upper = np.minimum(1.0, p_hat + radius)
    for y in np.argsort(-values, kind="stable"):
        p[y] += min(upper[y] - p[y], max(0.0, 1.0 - p.sum()))
    return p


def interval_value_iteration(p_hat, radius, rewards, available, values, tolerance, max_iterations):
    """The same sweeps, one law at a time."""
    values = values.copy()
    low, high, iteration = -np.inf, np.inf, 0
    while iteration < max_iterations and high - low >= tolerance:
        iteration += 1
        q = np.full(rewards.shape, -np.inf)
        for s, a in zip(*np.nonzero(available)):
            q[s, a] = rewards[s, a] + best_in_box(p_hat[s, a], radius[s, a], values) @ values
        best = q.max(axis=1)
        low, high = (best - values).min(), (best - values).max()
        fresh = 0.5 * (best + values)
        values = fresh - fresh.min()
    return q.argmax(axis=1), values, low, high, iteration
