"""Compiled rollouts of whole blocks of episodes."""

from __future__ import annotations

from tightrope.kernels.jit import kernel

MEAN, SAMPLED, BERNOULLI = 0, 1, 2


@kernel
def _draw(weights, first, last, u):
    """First k in first..last-1 at which the running sum of the weights exceeds u."""
    total = 0.0
    for k in range(first, last):
        total += weights[k]
        if u < total:
            return k
    k = last - 1  # rounding: never land on an entry without mass
    while k > first and weights[k] == 0.0:
        k -= 1
    return k


@kernel
def rollout_episodes(
    start, stop, indices, data, rewards, costs, available, initial, horizon, next_rewards,
    next_costs, feedback, actions, probabilities, components, world_draws, policy_draws,
    states_out, actions_out, rewards_out, costs_out, sums_out,
):  # fmt: skip
    """Play n episodes and write what happened.

    Parameters
    ----------
    next_rewards (nnz,), next_costs (m, nnz)
        Realised values of the transitions; of size 0 where the mean is paid.
    feedback : MEAN, SAMPLED or BERNOULLI
    actions (K, Hp, S) int32 or probabilities (K, Hp, S, A); the other has K = 0
    components (n,) int32 : which of the K is played
    world_draws (n, H + 1, w) : uniforms; [e, 0, 0] draws the initial state, [e, h + 1, 0] the next
        state and [e, h + 1, 1:] Bernoulli rewards and costs (then w = 2 + m, else 1)
    policy_draws (n, H) : uniforms of the policy's own randomness
    states_out (n, H + 1) int32, actions_out (n, H) int32, rewards_out (n, H), costs_out (n, H, m)
    sums_out (n, 1 + m) : totals of each episode
    """
    num_states, num_actions = available.shape
    m = costs.shape[0]
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    for e in range(components.size):
        j = components[e]
        s = _draw(initial, 0, num_states, world_draws[e, 0, 0])
        states_out[e, 0] = s
        for i in range(1 + m):
            sums_out[e, i] = 0.0
        for h in range(horizon):
            if actions.shape[0] > 0:
                a = actions[j, h if actions.shape[1] > 1 else 0, s]
            else:
                a = _draw(
                    probabilities[j, h if probabilities.shape[1] > 1 else 0, s], 0, num_actions,
                    policy_draws[e, h],
                )  # fmt: skip
            row = h * stride + s * num_actions + a
            k = _draw(data, start[row], stop[row], world_draws[e, h + 1, 0])
            r = rewards[h if rewards.shape[0] > 1 else 0, s, a]
            if feedback == SAMPLED and next_rewards.size > 0:
                r = next_rewards[k]
            elif feedback == BERNOULLI:
                r = 1.0 if world_draws[e, h + 1, 1] < r else 0.0
            rewards_out[e, h] = r
            sums_out[e, 0] += r
            for i in range(m):
                c = costs[i, h if costs.shape[1] > 1 else 0, s, a]
                if feedback == SAMPLED and next_costs.size > 0:
                    c = next_costs[i, k]
                elif feedback == BERNOULLI:
                    c = 1.0 if world_draws[e, h + 1, 2 + i] < c else 0.0
                costs_out[e, h, i] = c
                sums_out[e, 1 + i] += c
            actions_out[e, h] = a
            s = indices[k]
            states_out[e, h + 1] = s
