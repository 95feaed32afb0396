"""One stream of an MDP without resets, played until a stopping rule is met: one call an update.

The world is its transition rows (`start`, `stop`, `indices`), their cumulative probabilities (the
last of each row 1), and per stored transition what it pays (`pays`) and consumes (`consumes`).
"""

import numpy as np

from tightrope.kernels.jit import kernel


@kernel
def roll_stream(
    state,
    phase,
    actions,
    cumulative_policy,
    start,
    stop,
    indices,
    cumulative,
    pays,
    consumes,
    bernoulli,
    uniforms,
    visits_left,
    ahead,
    features,
    inverse,
    ratio,
    states_out,
    actions_out,
    rewards_out,
    costs_out,
):
    """Play at most ``len(uniforms)`` steps; return how many, and whether the rule stopped them.

    actions (P, S): what a policy of period P does, or (0, 0) and cumulative_policy (P, S, A) holds
    cumulative probabilities (1 from the last possible action on). uniforms (n, 2): action, next
    state; (n, 3 + m) with Bernoulli rewards and costs. visits_left (S, A) counts down and stops at
    0, or has size 0; with `ahead` it stops before a pair that has none left. inverse (d, d) and
    ratio (1,) follow the Gram matrix of features (S, A, d) and stop when its determinant has
    doubled, or have size 0. The arrays of both rules are updated, so a later call goes on.
    """
    number = uniforms.shape[0]
    num_costs = consumes.shape[0]
    fixed = actions.size > 0
    period = actions.shape[0] if fixed else cumulative_policy.shape[0]
    num_actions = (stop.shape[0] // actions.shape[1]) if fixed else cumulative_policy.shape[2]
    count_visits = visits_left.size > 0
    follow_gram = inverse.size > 0
    dimension = inverse.shape[0]
    direction = np.empty(dimension)
    states_out[0] = state
    for t in range(number):
        if fixed:
            action = actions[phase, state]
        else:
            action = 0
            while uniforms[t, 0] >= cumulative_policy[phase, state, action]:
                action += 1
        if ahead and visits_left[state, action] <= 0:
            return t, True
        row = state * num_actions + action
        low, high = start[row], stop[row] - 1
        draw = uniforms[t, 1]
        while high - low > 8:
            middle = (low + high) // 2
            if draw >= cumulative[middle]:
                low = middle + 1
            else:
                high = middle
        while draw >= cumulative[low]:
            low += 1
        reward = pays[low]
        if bernoulli:
            reward = 1.0 if uniforms[t, 2] < reward else 0.0
        actions_out[t] = action
        rewards_out[t] = reward
        for i in range(num_costs):
            cost = consumes[i, low]
            if bernoulli:
                cost = 1.0 if uniforms[t, 3 + i] < cost else 0.0
            costs_out[t, i] = cost
        stopped = False
        if count_visits:
            visits_left[state, action] -= 1
            stopped = not ahead and visits_left[state, action] <= 0
        if follow_gram:
            width = 0.0
            for i in range(dimension):
                total = 0.0
                for j in range(dimension):
                    total += inverse[i, j] * features[state, action, j]
                direction[i] = total
                width += total * features[state, action, i]
            for i in range(dimension):
                for j in range(dimension):
                    inverse[i, j] -= direction[i] * direction[j] / (1.0 + width)
            ratio[0] *= 1.0 + width
            stopped = stopped or ratio[0] >= 2.0 * (1.0 - 1e-12)
        state = indices[low]
        states_out[t + 1] = state
        phase = phase + 1 if phase + 1 < period else 0
        if stopped:
            return t + 1, True
    return number, False
