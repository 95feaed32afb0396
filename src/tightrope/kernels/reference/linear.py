"""Plain NumPy twins of `tightrope.kernels.linear`."""

import numpy as np


def add_to_statistics(features, states, actions, rewards, gram, reward_sum, successor_sum):
    """See the compiled kernel."""
    phi = features[states[:-1], actions]
    gram += phi.T @ phi
    reward_sum += phi.T @ rewards
    np.add.at(successor_sum.T, states[1:], phi)


def invert(gram):
    """See the compiled kernel."""
    return np.linalg.inv(gram)


def least_squares_value_iteration(
    features, gram, reward_sum, successor_sum, beta, available, cap, horizon
):
    """See the compiled kernel."""
    num_states, _, dimension = features.shape
    inverse = invert(gram)
    bonus = beta * np.sqrt(np.einsum("sai,ij,saj->sa", features, inverse, features))
    actions = np.zeros((horizon, num_states), dtype=np.int32)
    values = np.zeros((horizon + 1, num_states))
    weights = np.zeros((horizon, dimension))
    for h in reversed(range(horizon)):
        weights[h] = inverse @ (reward_sum + successor_sum @ values[h + 1])
        q = np.where(available, np.minimum(features @ weights[h] + bonus, cap), -np.inf)
        values[h] = q.max(axis=1)
        actions[h] = (q >= values[h][:, None] - 1e-9 * max(1.0, cap)).argmax(axis=1)
    return actions, values[:horizon], weights


def averaged_sgd(gradients, targets, step, radius):
    """See the compiled kernel."""
    current, iterates = np.zeros(gradients.shape[1]), []
    for gradient, target in zip(gradients, targets):
        current = current - 2.0 * step * (gradient @ current - target) * gradient
        current = current * min(1.0, radius / max(np.linalg.norm(current), 1e-300))
        iterates.append(current)
    return np.mean(iterates, axis=0) if iterates else current


def add_differences(features, policy, states, actions, rewards, gain, gram, target):
    """See the compiled kernel."""
    phi = features[states[:-1], actions]
    following = np.einsum("sa,sai->si", policy, features)[states[1:]]
    gram += phi.T @ (phi - following)
    target += phi.T @ (rewards - gain)
