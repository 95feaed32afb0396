"""Plain twins of `tightrope.kernels.actor_critic`."""

from __future__ import annotations

import numpy as np

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def softmax_policy(logits, available, out):
    """Softmax over the available actions."""
    weights = np.where(available, np.exp(logits - logits.max(axis=1, keepdims=True)), 0.0)
    out[:] = weights / weights.sum(axis=1, keepdims=True)


def actor_critic_step(
    states, actions, pays, available, count, actor_step, critic_step, entropy, logits, critic,
    moments,
):  # fmt: skip
    """Policy gradient with a baseline, Huber loss of the critic, entropy bonus, Adam."""
    policy = np.empty_like(logits)
    softmax_policy(logits, available, policy)
    returns = np.cumsum(pays[::-1])[::-1]
    gradient = np.zeros((logits.shape[0], logits.shape[1] + 1))
    for s, a, left in zip(states[:-1], actions, returns):
        advantage = left - critic[s]
        gradient[s, -1] -= np.clip(advantage, -1.0, 1.0)
        gradient[s, :-1] -= advantage * (np.eye(logits.shape[1])[a] - policy[s])
        logs = np.log(np.where(policy[s] > 0, policy[s], 1.0))
        gradient[s, :-1] += entropy * policy[s] * (logs - policy[s] @ logs)
    gradient[:, :-1][~available] = 0.0
    moments[0] = BETA1 * moments[0] + (1 - BETA1) * gradient
    moments[1] = BETA2 * moments[1] + (1 - BETA2) * gradient**2
    scaled = moments[0] / (1 - BETA1**count)
    change = scaled / (np.sqrt(moments[1] / (1 - BETA2**count)) + EPS)
    logits -= actor_step * change[:, :-1]
    critic -= critic_step * change[:, -1]
