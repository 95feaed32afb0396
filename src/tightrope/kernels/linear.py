"""Least-squares value iteration and its sufficient statistics for finite feature sets.

[LIN] is Wei et al. (2020), Learning infinite-horizon average-reward MDPs with linear function
approximation.
"""

import numpy as np

from tightrope.kernels.jit import kernel


@kernel
def add_to_statistics(features, states, actions, rewards, gram, reward_sum, successor_sum):
    """Add a stretch of a stream to ``sum phi phi'``, ``sum phi r`` and ``sum phi 1{x' = y}``.

    features (S, A, d), states (n + 1,), actions (n,), rewards (n,); gram (d, d), reward_sum (d,)
    and successor_sum (d, S) are updated.
    """
    dimension = features.shape[2]
    for t in range(actions.shape[0]):
        s, a, y = states[t], actions[t], states[t + 1]
        for i in range(dimension):
            phi = features[s, a, i]
            if phi == 0.0:
                continue
            reward_sum[i] += phi * rewards[t]
            successor_sum[i, y] += phi
            for j in range(dimension):
                gram[i, j] += phi * features[s, a, j]


@kernel
def invert(gram):
    """Inverse of a positive definite matrix (d, d) by its Cholesky factor."""
    size = gram.shape[0]
    lower = np.zeros((size, size))
    for j in range(size):
        for i in range(j, size):
            total = gram[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = np.sqrt(total) if i == j else total / lower[j, j]
    root = np.zeros((size, size))  # inverse of the factor
    for j in range(size):
        root[j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= lower[i, k] * root[k, j]
            root[i, j] = total / lower[i, i]
    return root.T @ root


@kernel
def least_squares_value_iteration(
    features, gram, reward_sum, successor_sum, beta, available, cap, horizon
):
    """[LIN, Algorithm 2] backward: ``Q_h = min(phi'w_h + beta |phi|, cap)`` with V_{H+1} = 0.

    ``w_h = gram^-1 (reward_sum + successor_sum V_{h+1})`` and |phi| the norm of the inverse Gram
    matrix. The action is the first within 1e-9 (relative to the cap) of the best, so that rounding
    does not choose between equals.

    Returns actions (H, S), values (H, S), weights (H, d).
    """
    num_states, num_actions, dimension = features.shape
    actions = np.zeros((horizon, num_states), dtype=np.int32)
    values = np.zeros((horizon + 1, num_states))
    weights = np.zeros((horizon, dimension))
    q = np.empty(num_actions)
    slack = 1e-9 * max(1.0, cap)
    inverse = invert(gram)
    reward_weights = inverse @ reward_sum
    successor_weights = inverse @ successor_sum
    bonus = np.zeros((num_states, num_actions))
    for s in range(num_states):
        for a in range(num_actions):
            total = 0.0
            for i in range(dimension):
                if features[s, a, i] != 0.0:
                    for j in range(dimension):
                        total += features[s, a, i] * inverse[i, j] * features[s, a, j]
            bonus[s, a] = beta * np.sqrt(total)
    for h in range(horizon - 1, -1, -1):
        for i in range(dimension):
            total = reward_weights[i]
            for y in range(num_states):
                total += successor_weights[i, y] * values[h + 1, y]
            weights[h, i] = total
        for s in range(num_states):
            best = -np.inf
            for a in range(num_actions):
                q[a] = -np.inf
                if available[s, a]:
                    total = bonus[s, a]
                    for i in range(dimension):
                        total += features[s, a, i] * weights[h, i]
                    q[a] = min(total, cap)
                    best = max(best, q[a])
            values[h, s] = best
            action = 0
            while q[action] < best - slack:
                action += 1
            actions[h, s] = action
    return actions, values[:horizon], weights


@kernel
def averaged_sgd(gradients, targets, step, radius):
    """Mean iterate (d,) of projected SGD on ``(w'g - y)^2``, one pass over gradients (n, d)."""
    number, dimension = gradients.shape
    current = np.zeros(dimension)
    total = np.zeros(dimension)
    for t in range(number):
        error = -targets[t]
        for i in range(dimension):
            error += gradients[t, i] * current[i]
        norm = 0.0
        for i in range(dimension):
            current[i] -= 2.0 * step * error * gradients[t, i]
            norm += current[i] * current[i]
        shrink = min(1.0, radius / np.sqrt(norm)) if norm > 0.0 else 1.0
        for i in range(dimension):
            current[i] *= shrink
            total[i] += current[i]
    return total / max(1, number)


@kernel
def add_differences(features, policy, states, actions, rewards, gain, gram, target):
    """Average-reward LSTD: add ``phi (phi - E_pi phi')'`` to gram and ``phi (r - gain)`` to target.

    features (S, A, d), policy (S, A), states (n + 1,), actions, rewards (n,).
    """
    num_states, num_actions, dimension = features.shape
    means = np.zeros((num_states, dimension))
    for s in range(num_states):
        for a in range(num_actions):
            for i in range(dimension):
                means[s, i] += policy[s, a] * features[s, a, i]
    for t in range(actions.shape[0]):
        s, a, y = states[t], actions[t], states[t + 1]
        for i in range(dimension):
            phi = features[s, a, i]
            if phi == 0.0:
                continue
            target[i] += phi * (rewards[t] - gain)
            for j in range(dimension):
                gram[i, j] += phi * (features[s, a, j] - means[y, j])
