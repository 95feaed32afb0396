"""Compiled advantage actor-critic with tables: one Adam step a trajectory."""

from __future__ import annotations

import math

import numpy as np

from tightrope.kernels.jit import kernel

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


@kernel
def softmax_policy(logits, available, out):
    """``pi(a|s)`` proportional to exp(logits) over the available actions; all (S, A)."""
    num_states, num_actions = logits.shape
    for s in range(num_states):
        top = -np.inf
        for a in range(num_actions):
            if available[s, a]:
                top = max(top, logits[s, a])
        total = 0.0
        for a in range(num_actions):
            out[s, a] = math.exp(logits[s, a] - top) if available[s, a] else 0.0
            total += out[s, a]
        for a in range(num_actions):
            out[s, a] /= total


@kernel
def actor_critic_step(
    states, actions, pays, available, count, actor_step, critic_step, entropy, logits, critic,
    moments,
):  # fmt: skip
    """One step from one trajectory [CON, Algorithm 3]; writes logits, critic and moments.

    Gradients are those of ``sum_h -log pi(a_h|s_h) (R_h - V(s_h)) + huber(R_h - V(s_h))`` minus
    `entropy` times the entropy of pi at every s_h, with R_h the undiscounted sum from step h on.

    Parameters
    ----------
    states (H + 1,), actions (H,), pays (H,)
    count : number of this step, from 1
    logits (S, A), critic (S,), moments (2, S, A + 1) of Adam, the last column for the critic
    """
    num_states, num_actions = logits.shape
    policy = np.empty_like(logits)
    softmax_policy(logits, available, policy)
    gradient = np.zeros((num_states, num_actions + 1))
    left = 0.0
    for h in range(actions.size - 1, -1, -1):
        s = states[h]
        left += pays[h]
        advantage = left - critic[s]
        gradient[s, num_actions] -= min(max(advantage, -1.0), 1.0)
        mean_log = 0.0
        for a in range(num_actions):
            if policy[s, a] > 0.0:
                mean_log += policy[s, a] * math.log(policy[s, a])
        for a in range(num_actions):
            if not available[s, a]:
                continue
            chosen = 1.0 if a == actions[h] else 0.0
            gradient[s, a] -= advantage * (chosen - policy[s, a])
            if policy[s, a] > 0.0:
                gradient[s, a] += entropy * policy[s, a] * (math.log(policy[s, a]) - mean_log)
    first, second = 1.0 - BETA1**count, 1.0 - BETA2**count
    for s in range(num_states):
        for a in range(num_actions + 1):
            g = gradient[s, a]
            moments[0, s, a] = BETA1 * moments[0, s, a] + (1.0 - BETA1) * g
            moments[1, s, a] = BETA2 * moments[1, s, a] + (1.0 - BETA2) * g * g
            change = moments[0, s, a] / first / (math.sqrt(moments[1, s, a] / second) + EPS)
            if a < num_actions:
                logits[s, a] -= actor_step * change
            else:
                critic[s] -= critic_step * change
