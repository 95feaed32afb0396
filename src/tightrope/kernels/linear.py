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
def least_squares_value_iteration(
    features, reward_weights, successor_weights, bonus, available, cap, horizon
):
    """[LIN, Algorithm 2] backward: ``Q_h = min(phi'(b + M V_{h+1}) + bonus, cap)``, V_{H+1} = 0.

    reward_weights (d,) and successor_weights (d, S) are b and M times the inverse Gram matrix,
    bonus (S, A). The action is the first within 1e-9 (relative to the cap) of the best, so that
    rounding does not choose between equals.

    Returns actions (H, S), values (H, S), weights (H, d).
    """
    num_states, num_actions, dimension = features.shape
    actions = np.zeros((horizon, num_states), dtype=np.int32)
    values = np.zeros((horizon + 1, num_states))
    weights = np.zeros((horizon, dimension))
    q = np.empty(num_actions)
    slack = 1e-9 * max(1.0, cap)
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
