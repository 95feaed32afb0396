"""Plain NumPy twins of `tightrope.kernels.linear`."""

import numpy as np


def add_to_statistics(features, states, actions, rewards, gram, reward_sum, successor_sum):
    """See the compiled kernel."""
    phi = features[states[:-1], actions]
    gram += phi.T @ phi
    reward_sum += phi.T @ rewards
    np.add.at(successor_sum.T, states[1:], phi)


def least_squares_value_iteration(
    features, reward_weights, successor_weights, bonus, available, cap, horizon
):
    """See the compiled kernel."""
    num_states, _, dimension = features.shape
    actions = np.zeros((horizon, num_states), dtype=np.int32)
    values = np.zeros((horizon + 1, num_states))
    weights = np.zeros((horizon, dimension))
    for h in reversed(range(horizon)):
        weights[h] = reward_weights + successor_weights @ values[h + 1]
        q = np.where(available, np.minimum(features @ weights[h] + bonus, cap), -np.inf)
        values[h] = q.max(axis=1)
        actions[h] = (q >= values[h][:, None] - 1e-9 * max(1.0, cap)).argmax(axis=1)
    return actions, values[:horizon], weights
