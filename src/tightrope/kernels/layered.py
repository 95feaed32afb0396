"""Compiled kernels for loop-free models; `reference.layered` holds their plain twins.

States are sorted by layer, so every successor has a larger number than its state: one pass over
the states is one pass over the layers. The transition table is CSR with row ``x*A + a``; the last
state is x_L, where nobody acts. Layer k holds the states ``offsets[k] .. offsets[k+1] - 1``.
"""

from __future__ import annotations

import numpy as np

from tightrope.kernels.jit import kernel


@kernel
def layered_occupancy(indptr, indices, data, policy, occupancy):
    """Write q(x, a) of `policy` (S, A) into `occupancy` (S, A)."""
    num_states, num_actions = policy.shape
    mass = np.zeros(num_states)
    mass[0] = 1.0
    for x in range(num_states - 1):
        for a in range(num_actions):
            flow = mass[x] * policy[x, a]
            occupancy[x, a] = flow
            if flow > 0.0:
                row = x * num_actions + a
                for j in range(indptr[row], indptr[row + 1]):
                    mass[indices[j]] += flow * data[j]
    for a in range(num_actions):
        occupancy[num_states - 1, a] = 0.0


@kernel
def layered_minimum(indptr, indices, data, losses, actions):
    """Least expected loss of an episode; writes a minimising policy into `actions` (S,)."""
    num_states, num_actions = losses.shape
    value = np.zeros(num_states)
    for x in range(num_states - 2, -1, -1):
        best = np.inf
        for a in range(num_actions):
            total = losses[x, a]
            row = x * num_actions + a
            for j in range(indptr[row], indptr[row + 1]):
                total += data[j] * value[indices[j]]
            if total < best:
                best = total
                actions[x] = a
        value[x] = best
    actions[num_states - 1] = 0
    return value[0]


@kernel
def layered_value(indptr, indices, data, policy, table):
    """Expected total of `table` (S, A) over an episode of `policy` (S, A)."""
    num_states, num_actions = policy.shape
    value = np.zeros(num_states)
    for x in range(num_states - 2, -1, -1):
        for a in range(num_actions):
            if policy[x, a] > 0.0:
                total = table[x, a]
                row = x * num_actions + a
                for j in range(indptr[row], indptr[row + 1]):
                    total += data[j] * value[indices[j]]
                value[x] += policy[x, a] * total
    return value[0]


@kernel
def layered_episode(indptr, indices, data, policy, uniforms, states, actions):
    """Sample one episode into `states` (L+1,) and `actions` (L,) with `uniforms` (2L,)."""
    num_actions = policy.shape[1]
    x = 0
    states[0] = 0
    for k in range(actions.size):
        u = uniforms[2 * k]
        a = 0
        for candidate in range(num_actions):
            if policy[x, candidate] > 0.0:
                a = candidate
                u -= policy[x, candidate]
                if u < 0.0:
                    break
        row = x * num_actions + a
        u = uniforms[2 * k + 1]
        following = indices[indptr[row + 1] - 1]
        for j in range(indptr[row], indptr[row + 1]):
            u -= data[j]
            if u < 0.0:
                following = indices[j]
                break
        actions[k] = a
        states[k + 1] = following
        x = following


@kernel
def inner_products(occupancy, tables, out):
    """out[i] = <occupancy (S, A), tables[i]>."""
    for i in range(tables.shape[0]):
        total = 0.0
        for x in range(occupancy.shape[0]):
            for a in range(occupancy.shape[1]):
                total += occupancy[x, a] * tables[i, x, a]
        out[i] = total


@kernel
def lagrangian_loss(rewards, constraints, multipliers, loss):
    """Write l = G lambda - r into `loss` (S, A); returns its largest absolute value."""
    largest = 0.0
    for x in range(loss.shape[0]):
        for a in range(loss.shape[1]):
            value = -rewards[x, a]
            for i in range(multipliers.size):
                value += multipliers[i] * constraints[i, x, a]
            loss[x, a] = value
            largest = max(largest, abs(value))
    return largest


@kernel
def count_episode(states, actions, offsets, frozen, counts, triples):
    """Add an episode to N (S, A) and M (S, A, W); True if a counter doubled its frozen value."""
    doubled = False
    for k in range(actions.size):
        x, a = states[k], actions[k]
        counts[x, a] += 1
        triples[x, a, states[k + 1] - offsets[k + 1]] += 1
        if counts[x, a] >= max(1, 2 * frozen[x, a]):
            doubled = True
    return doubled


@kernel
def policy_of(occupancy, policy):
    """Write q(x, a)/q(x) into `policy` (S, A), uniform where q(x) = 0."""
    num_states, num_actions = occupancy.shape
    for x in range(num_states):
        mass = 0.0
        for a in range(num_actions):
            mass += occupancy[x, a]
        for a in range(num_actions):
            policy[x, a] = occupancy[x, a] / mass if mass > 0.0 else 1.0 / num_actions


@kernel
def largest_interval_regret(indptr, indices, data, loss_sums, earned_sums, shape):
    """Largest regret over intervals between grid points, and the two points that have it.

    `loss_sums` (J+1, S*A) and `earned_sums` (J+1,) are cumulative over the grid; the comparator of
    each interval is its best fixed policy, by one dynamic program.
    """
    num_states, num_actions = shape
    actions = np.zeros(num_states, dtype=np.int64)
    best, first, last = -np.inf, 0, 0
    for i in range(earned_sums.size - 1):
        for j in range(i + 1, earned_sums.size):
            losses = (loss_sums[j] - loss_sums[i]).reshape(num_states, num_actions)
            least = layered_minimum(indptr, indices, data, losses, actions)
            regret = earned_sums[j] - earned_sums[i] - least
            if regret > best:
                best, first, last = regret, i, j
    return best, first, last


@kernel
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
    """Episodes of one policy with `occupancy`: what is visited, what is seen there, and the totals.

    Written: `states` (n, L+1), `actions` (n, L), `seen_rewards` (n, L), `seen_constraints`
    (n, L, m), `exact` and `sampled` (n, 1 + m). `uniforms` (n, 2L).
    """
    for j in range(actions.shape[0]):
        layered_episode(indptr, indices, data, policy, uniforms[j], states[j], actions[j])
        totals_of(
            rewards[j], constraints[j], occupancy, states[j], actions[j], exact[j], sampled[j]
        )
        for k in range(actions.shape[1]):
            x, a = states[j, k], actions[j, k]
            seen_rewards[j, k] = rewards[j, x, a]
            for i in range(constraints.shape[1]):
                seen_constraints[j, k, i] = constraints[j, i, x, a]


@kernel
def totals_of(rewards, constraints, occupancy, states, actions, exact, sampled):
    exact[:] = 0.0
    sampled[:] = 0.0
    for x in range(occupancy.shape[0]):
        for a in range(occupancy.shape[1]):
            q = occupancy[x, a]
            if q > 0.0:
                exact[0] += q * rewards[x, a]
                for i in range(constraints.shape[0]):
                    exact[1 + i] += q * constraints[i, x, a]
    for k in range(actions.size):
        sampled[0] += rewards[states[k], actions[k]]
        for i in range(constraints.shape[0]):
            sampled[1 + i] += constraints[i, states[k], actions[k]]


@kernel
def watch_episode(rewards, constraints, exact, occupancy, q_hat, multipliers, episode, ends, sums):
    """Add one episode to the sums of `simulation.adversarial`, which are in the order below.

    `q_hat` (S, A) and `multipliers` (m,) are empty for learners that have none.
    """
    total_r, total_g, largest, error, dual, pushed, loss, earned, loss_sums, earned_sums = sums
    value, norm, off = exact[0], 0.0, 0.0
    for i in range(multipliers.size):
        value -= multipliers[i] * exact[1 + i]
        norm += multipliers[i]
    largest[0] = max(largest[0], norm)
    earned[0] -= value
    for x in range(rewards.shape[0]):
        for a in range(rewards.shape[1]):
            total_r[x, a] += rewards[x, a]
            term = -rewards[x, a]
            for i in range(constraints.shape[0]):
                total_g[i, x, a] += constraints[i, x, a]
                if multipliers.size:
                    term += multipliers[i] * constraints[i, x, a]
                    pushed[i, x, a] += multipliers[i] * occupancy[x, a]
                    if q_hat.size:
                        dual[0] -= multipliers[i] * constraints[i, x, a] * q_hat[x, a]
            loss[x, a] += term
            if q_hat.size:
                off += abs(occupancy[x, a] - q_hat[x, a])
    error[0] += off if q_hat.size else np.nan
    if ends.size:
        place = np.searchsorted(ends, episode)
        if ends[place] == episode:
            loss_sums[place] = loss
            earned_sums[place] = earned[0]
