"""Value iteration for one stream: optimistic over L1 balls (UCRL2), or with radius 0 plain."""

import numpy as np

from tightrope.kernels.jit import kernel


@kernel
def extended_value_iteration(p_hat, rewards, radius, available, values, tolerance, max_iterations):
    """Jaksch, Ortner and Auer (2010), Figure 2: max over policies and L1 balls of the gain.

    p_hat (S, A, S), rewards (S, A), radius (S, A) of the ball of each row (a row of zeros moves to
    the best state), available (S, A), values (S,) to start from. Stops when the span of a step is
    below `tolerance`.

    Returns actions (S,), values (S,), lower and upper bound of the optimistic gain, iterations.
    """
    num_states, num_actions = rewards.shape
    actions = np.zeros(num_states, dtype=np.int32)
    fresh = np.empty(num_states)
    values = values.copy()
    low, high = -np.inf, np.inf
    iteration = 0
    while iteration < max_iterations and high - low >= tolerance:
        iteration += 1
        order = np.argsort(-values, kind="mergesort")
        top = order[0]
        low, high = np.inf, -np.inf
        for s in range(num_states):
            best = -np.inf
            for a in range(num_actions):
                if not available[s, a]:
                    continue
                mass = 0.0
                total = 0.0
                for y in range(num_states):
                    mass += p_hat[s, a, y]
                    total += p_hat[s, a, y] * values[y]
                if mass == 0.0:
                    total = values[top]
                elif radius[s, a] > 0.0:
                    moved = min(0.5 * radius[s, a], 1.0 - p_hat[s, a, top])
                    total += moved * values[top]
                    place = num_states - 1
                    while moved > 0.0 and place > 0:
                        y = order[place]
                        taken = min(moved, p_hat[s, a, y])
                        total -= taken * values[y]
                        moved -= taken
                        place -= 1
                total += rewards[s, a]
                if total > best:
                    best = total
                    actions[s] = a
            fresh[s] = best
            low = min(low, best - values[s])
            high = max(high, best - values[s])
        values = fresh - fresh.min()
    return actions, values, low, high, iteration


@kernel
def count_transitions(states, actions, rewards, visits, moves, reward_sums):
    """Add a stretch of a stream to visits (S, A), moves (S, A, S) and reward_sums (S, A)."""
    for t in range(actions.shape[0]):
        s, a = states[t], actions[t]
        visits[s, a] += 1.0
        moves[s, a, states[t + 1]] += 1.0
        reward_sums[s, a] += rewards[t]


@kernel
def interval_value_iteration(p_hat, radius, rewards, available, values, tolerance, max_iterations):
    """Value iteration over ``|p(y|s, a) - p_hat(y|s, a)| <= radius(s, a, y)`` in every entry.

    p_hat and radius (S, A, S), rewards (S, A), values (S,) to start from. The best law in an
    interval box starts at the lower ends and fills the best states first. Every second step is
    averaged with the last (the aperiodic transform with 1/2), so that periodic models converge.

    Returns actions (S,), values (S,), lower and upper bound of the optimistic gain, iterations.
    """
    num_states, num_actions = rewards.shape
    lower = np.empty_like(p_hat)
    room = np.empty_like(p_hat)  # upper end minus lower end
    rest = np.empty((num_states, num_actions))  # mass that the lower ends leave
    for s in range(num_states):
        for a in range(num_actions):
            total = 0.0
            for y in range(num_states):
                low = max(0.0, p_hat[s, a, y] - radius[s, a, y])
                lower[s, a, y] = low
                room[s, a, y] = min(1.0, p_hat[s, a, y] + radius[s, a, y]) - low
                total += low
            rest[s, a] = 1.0 - total
    actions = np.zeros(num_states, dtype=np.int32)
    fresh = np.empty(num_states)
    values = values.copy()
    low_gain, high_gain = -np.inf, np.inf
    iteration = 0
    while iteration < max_iterations and high_gain - low_gain >= tolerance:
        iteration += 1
        order = np.argsort(-values, kind="mergesort")
        low_gain, high_gain = np.inf, -np.inf
        for s in range(num_states):
            best = -np.inf
            for a in range(num_actions):
                if not available[s, a]:
                    continue
                total = rewards[s, a]
                left = rest[s, a]
                for y in range(num_states):
                    total += lower[s, a, y] * values[y]
                for k in range(num_states):
                    if left <= 0.0:
                        break
                    y = order[k]
                    filled = min(left, room[s, a, y])
                    total += filled * values[y]
                    left -= filled
                if total > best:
                    best = total
                    actions[s] = a
            low_gain = min(low_gain, best - values[s])
            high_gain = max(high_gain, best - values[s])
            fresh[s] = 0.5 * (best + values[s])
        values = fresh - fresh.min()
    return actions, values, low_gain, high_gain, iteration
