"""Plain twins of `tightrope.kernels.layered`: the formulas, for reading and for tests."""

from __future__ import annotations

import numpy as np


def _dense(indptr, indices, data, shape):
    out = np.zeros((shape[0] * shape[1], shape[0]))
    out[np.repeat(np.arange(indptr.size - 1), np.diff(indptr)), indices] = data
    return out.reshape(*shape, shape[0])


def layered_occupancy(indptr, indices, data, policy, occupancy):
    transitions = _dense(indptr, indices, data, policy.shape)
    mass = np.zeros(policy.shape[0])
    mass[0] = 1.0
    occupancy[-1] = 0.0
    for x in range(policy.shape[0] - 1):
        occupancy[x] = mass[x] * policy[x]
        mass += occupancy[x] @ transitions[x]


def layered_minimum(indptr, indices, data, losses, actions):
    transitions = _dense(indptr, indices, data, losses.shape)
    value = np.zeros(losses.shape[0])
    actions[-1] = 0
    for x in range(losses.shape[0] - 2, -1, -1):
        totals = losses[x] + transitions[x] @ value
        actions[x] = np.argmin(totals)
        value[x] = totals[actions[x]]
    return value[0]


def layered_value(indptr, indices, data, policy, table):
    occupancy = np.zeros(policy.shape)
    layered_occupancy(indptr, indices, data, policy, occupancy)
    return float((occupancy * table).sum())


def layered_episode(indptr, indices, data, policy, uniforms, states, actions):
    num_actions = policy.shape[1]
    states[0] = 0
    for k in range(actions.size):
        law = np.cumsum(policy[states[k]])
        last = np.flatnonzero(policy[states[k]])[-1]
        actions[k] = min(np.searchsorted(law, uniforms[2 * k], side="right"), last)
        row = states[k] * num_actions + actions[k]
        span = slice(indptr[row], indptr[row + 1])
        law = np.cumsum(data[span])
        choice = min(np.searchsorted(law, uniforms[2 * k + 1], side="right"), law.size - 1)
        states[k + 1] = indices[span][choice]


def inner_products(occupancy, tables, out):
    out[:] = np.einsum("xa,ixa->i", occupancy, tables)


def lagrangian_loss(rewards, constraints, multipliers, loss):
    loss[:] = np.einsum("i,ixa->xa", multipliers, constraints) - rewards
    return float(np.abs(loss).max())


def count_episode(states, actions, offsets, frozen, counts, triples):
    steps = np.arange(actions.size)
    counts[states[:-1], actions] += 1
    triples[states[:-1], actions, states[1:] - offsets[steps + 1]] += 1
    visited = counts[states[:-1], actions]
    return bool((visited >= np.maximum(1, 2 * frozen[states[:-1], actions])).any())


def policy_of(occupancy, policy):
    mass = occupancy.sum(axis=1, keepdims=True)
    np.divide(occupancy, mass, out=policy, where=mass > 0)
    policy[mass[:, 0] <= 0] = 1.0 / occupancy.shape[1]


def largest_interval_regret(indptr, indices, data, loss_sums, earned_sums, shape):
    best, first, last = -np.inf, 0, 0
    actions = np.zeros(shape[0], dtype=np.int64)
    for i in range(earned_sums.size - 1):
        for j in range(i + 1, earned_sums.size):
            losses = (loss_sums[j] - loss_sums[i]).reshape(shape)
            least = layered_minimum(indptr, indices, data, losses, actions)
            regret = earned_sums[j] - earned_sums[i] - least
            if regret > best:
                best, first, last = regret, i, j
    return best, first, last


def play_episodes(
    indptr,
    indices,
    data,
    policy,
    occupancy,
    uniforms,
    rewards,
    constraints,
    states,
    actions,
    seen_rewards,
    seen_constraints,
    exact,
    sampled,
):
    for j in range(len(actions)):
        layered_episode(indptr, indices, data, policy, uniforms[j], states[j], actions[j])
        totals_of(
            rewards[j], constraints[j], occupancy, states[j], actions[j], exact[j], sampled[j]
        )
        visited = (states[j, :-1], actions[j])
        seen_rewards[j] = rewards[j][visited]
        seen_constraints[j] = constraints[j][:, *visited].T


def totals_of(rewards, constraints, occupancy, states, actions, exact, sampled):
    tables = np.concatenate([rewards[None], constraints])
    exact[:] = (tables * occupancy).sum(axis=(1, 2))
    sampled[:] = tables[:, states[:-1], actions].sum(axis=1)


def watch_episode(rewards, constraints, exact, occupancy, q_hat, multipliers, episode, ends, sums):
    total_r, total_g, largest, error, dual, pushed, loss, earned, loss_sums, earned_sums = sums
    total_r += rewards
    total_g += constraints
    largest[0] = max(largest[0], multipliers.sum())
    error += np.abs(occupancy - q_hat).sum() if q_hat.size else np.nan
    loss -= rewards
    earned -= exact[0]
    if multipliers.size:
        loss += np.tensordot(multipliers, constraints, axes=1)
        pushed += multipliers[:, None, None] * occupancy
        if q_hat.size:
            dual -= multipliers @ np.tensordot(constraints, q_hat, axes=2)
        earned += multipliers @ exact[1:]
    if episode in ends:
        loss_sums[ends == episode] = loss
        earned_sums[ends == episode] = earned
