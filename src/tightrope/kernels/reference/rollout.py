"""Plain twin of `tightrope.kernels.rollout`."""

from __future__ import annotations

import numpy as np

from tightrope.kernels.rollout import BERNOULLI, SAMPLED


def rollout_episodes(
    start, stop, indices, data, rewards, costs, available, initial, horizon, next_rewards,
    next_costs, feedback, actions, probabilities, components, world_draws, policy_draws,
    states_out, actions_out, rewards_out, costs_out, sums_out,
):  # fmt: skip
    """Inverse transform sampling of every draw."""
    num_states, num_actions = available.shape

    def draw(weights, u):
        return int(np.searchsorted(np.cumsum(weights)[:-1], u, side="right"))

    for e, j in enumerate(components):
        s = states_out[e, 0] = draw(initial, world_draws[e, 0, 0])
        for h in range(horizon):
            if len(actions):
                a = actions[j, h % actions.shape[1], s]
            else:
                a = draw(probabilities[j, h % probabilities.shape[1], s], policy_draws[e, h])
            row = (h * num_states * num_actions + s * num_actions + a) % start.size
            k = start[row] + draw(data[start[row] : stop[row]], world_draws[e, h + 1, 0])
            pays = np.array([
                rewards[h % rewards.shape[0], s, a],
                *(c[h % c.shape[0], s, a] for c in costs),
            ])  # fmt: skip
            if feedback == SAMPLED and next_rewards.size:
                pays[0] = next_rewards[k]
            if feedback == SAMPLED and next_costs.size:
                pays[1:] = next_costs[:, k]
            if feedback == BERNOULLI:
                pays = (world_draws[e, h + 1, 1:] < pays).astype(float)
            rewards_out[e, h], costs_out[e, h] = pays[0], pays[1:]
            actions_out[e, h] = a
            s = states_out[e, h + 1] = indices[k]
    sums_out[:, 0] = rewards_out.sum(axis=1)
    sums_out[:, 1:] = costs_out.sum(axis=1)
