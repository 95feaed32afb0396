"""Compiled kernels for finite-horizon models.

Every function takes the arrays of `tightrope.model.mdp.Tables` first:

``start, stop`` (R,) int64, ``indices`` int32, ``data`` float64
    row ``h*S*A + s*A + a`` (h = 0 when there is one table) owns entries ``start..stop``;
``rewards`` (Hr, S, A), ``costs`` (m, Hc, S, A)
    Hr and Hc are 1 or H;
``available`` (S, A) bool, ``initial`` (S,).

"Values" of a policy are the vector (reward, cost_1, .., cost_m) of expected totals. The twins in
plain NumPy, with the same names and signatures, are in `tightrope.kernels.reference.episodic`.
Unsigned indices in the innermost loops spare the test for a negative one: twice as fast.
"""

from __future__ import annotations

import numpy as np
from numba import prange, uint32, uint64

from tightrope.kernels.jit import kernel

LANES = 4  # programs or policies side by side: what one vector register holds
CHUNKS = 64  # that the states are cut into for the cores


@kernel
def _sweep_states(
    low, high, stage_row, start, stop, indices, data, gain, available, after, here, actions
):
    """One Bellman step for the states low..high; the first best action wins."""
    num_actions = available.shape[1]
    for s in range(low, high):
        best = -np.inf
        choice = 0
        for a in range(num_actions):
            if available[s, a]:
                row = stage_row + s * num_actions + a
                q = gain[s, a]
                for k in range(uint64(start[row]), uint64(stop[row])):
                    q += data[k] * after[uint32(indices[k])]
                if q > best:
                    best = q
                    choice = a
        actions[s] = choice
        here[s] = best


@kernel
def _weighted(reward_weight, multipliers, rewards, costs):
    """(max(Hr, Hc), S, A) table of ``reward_weight * r - multipliers @ c``."""
    stages = max(rewards.shape[0], costs.shape[1])
    out = np.empty((stages, rewards.shape[1], rewards.shape[2]))
    for h in range(stages):
        hr = h if rewards.shape[0] > 1 else 0
        hc = h if costs.shape[1] > 1 else 0
        for s in range(rewards.shape[1]):
            for a in range(rewards.shape[2]):
                x = reward_weight * rewards[hr, s, a]
                for i in range(costs.shape[0]):
                    x -= multipliers[i] * costs[i, hc, s, a]
                out[h, s, a] = x
    return out


@kernel
def _mean(initial, last):
    total = 0.0
    for s in range(initial.size):
        total += initial[s] * last[s]
    return total


@kernel
def best_response(
    start, stop, indices, data, rewards, costs, available, initial, horizon, reward_weight,
    multipliers, actions,
):  # fmt: skip
    """Backward induction for ``reward_weight * r - multipliers @ c`` [CON, Alg. 2, inner problem].

    Writes the first best action of every (stage, state) into `actions` (H, S) int32 and returns
    the best objective.
    """
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    gain = _weighted(reward_weight, multipliers, rewards, costs)
    after = np.zeros(num_states)
    here = np.empty(num_states)
    for h in range(horizon - 1, -1, -1):
        _sweep_states(
            0, num_states, h * stride, start, stop, indices, data,
            gain[h if gain.shape[0] > 1 else 0], available, after, here, actions[h],
        )  # fmt: skip
        here, after = after, here
    return _mean(initial, after)


@kernel(parallel=True)
def best_response_parallel(
    start, stop, indices, data, rewards, costs, available, initial, horizon, reward_weight,
    multipliers, actions,
):  # fmt: skip
    """`best_response` with the states of a stage shared out among the cores; the same bytes."""
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    gain = _weighted(reward_weight, multipliers, rewards, costs)
    both = np.zeros((2, num_states))
    for back in range(horizon):
        h = horizon - 1 - back
        for c in prange(CHUNKS):
            _sweep_states(
                c * num_states // CHUNKS, (c + 1) * num_states // CHUNKS, h * stride, start, stop,
                indices, data, gain[h if gain.shape[0] > 1 else 0], available, both[back % 2],
                both[(back + 1) % 2], actions[h],
            )  # fmt: skip
    return _mean(initial, both[horizon % 2])


@kernel
def reach(start, stop, indices, available, seen, order, counts):
    """Where an episode can be that starts in the states `seen` (S,), which is written.

    At stage h it can be in the first ``counts[h]`` states of ``order[0]`` and in no other, a
    little more than exactly: who can be in a state can be there later. ``order[1]`` is 0, 1, 2, ...
    Writes `order` (2, S) int32 and `counts` (H,), which is 0 before.
    """
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    first, last = 0, 0
    for s in range(num_states):
        order[1, s] = s
        if seen[s]:
            order[0, last] = s
            last += 1
    counts[0] = last
    for h in range(1, counts.size):
        for i in range(first, counts[h - 1]):
            for a in range(num_actions):
                row = (h - 1) * stride + order[0, i] * num_actions + a
                if available[order[0, i], a]:
                    for k in range(start[row], stop[row]):
                        if not seen[indices[k]]:
                            seen[indices[k]] = True
                            order[0, last] = indices[k]
                            last += 1
        counts[h] = last
        if stride == 0:  # with one table those before lead nowhere new
            first = counts[h - 1]


@kernel
def _lane_gains(weight, points, rewards, costs, available, h, gain):
    """Write ``weight * r - points[j] @ c`` of stage h into ``gain[s, a, j]``; -inf: unavailable."""
    hr = h if rewards.shape[0] > 1 else 0
    hc = h if costs.shape[1] > 1 else 0
    for s in range(gain.shape[0]):
        for a in range(gain.shape[1]):
            for j in range(LANES):
                x = weight * rewards[hr, s, a] if available[s, a] else -np.inf
                for i in range(costs.shape[0]):
                    x -= points[j, i] * costs[i, hc, s, a]
                gain[s, a, j] = x


@kernel
def _respond_states(
    low, high, order, stage_row, start, stop, indices, data, gain, after, here, chosen, to0, to1,
    to2, to3,
):  # fmt: skip
    """One Bellman step of all lanes for the states ``order[low:high]``; the first best action wins.

    The lanes share what a step costs, the probabilities and successors. Written out one by one and
    without branches, they become vector instructions, and four programs cost what one does.
    """
    num_actions = uint64(gain.shape[1])
    for place in range(uint64(low), uint64(high)):
        s = uint64(uint32(order[place]))
        best0 = best1 = best2 = best3 = -np.inf
        choice0 = choice1 = choice2 = choice3 = uint64(0)
        for a in range(num_actions):
            row = uint64(stage_row) + s * num_actions + a
            q0, q1, q2, q3 = gain[s, a, 0], gain[s, a, 1], gain[s, a, 2], gain[s, a, 3]
            for k in range(uint64(start[row]), uint64(stop[row])):
                p, t = data[k], uint32(indices[k])
                q0 += p * after[t, 0]
                q1 += p * after[t, 1]
                q2 += p * after[t, 2]
                q3 += p * after[t, 3]
            choice0 = a if q0 > best0 else choice0
            choice1 = a if q1 > best1 else choice1
            choice2 = a if q2 > best2 else choice2
            choice3 = a if q3 > best3 else choice3
            best0 = q0 if q0 > best0 else best0
            best1 = q1 if q1 > best1 else best1
            best2 = q2 if q2 > best2 else best2
            best3 = q3 if q3 > best3 else best3
        here[s, 0], here[s, 1], here[s, 2], here[s, 3] = best0, best1, best2, best3
        chosen[s, 0], chosen[s, 1], chosen[s, 2], chosen[s, 3] = choice0, choice1, choice2, choice3
    for place in range(uint64(low), uint64(high)):
        s = uint64(uint32(order[place]))
        to0[s], to1[s], to2[s], to3[s] = chosen[s, 0], chosen[s, 1], chosen[s, 2], chosen[s, 3]


@kernel
def _evaluate_pair(
    low, high, order, stage_row, start, stop, indices, data, table, other, two, chosen, after,
    after_other, here, here_other,
):  # fmt: skip
    """Totals to go of a table (S, A), or of `two`, under the `chosen` actions of all lanes.

    Where the lanes agree, which is nearly everywhere, one row serves them all; and two tables take
    little longer than one.
    """
    num_actions = uint64(table.shape[1])
    for place in range(uint64(low), uint64(high)):
        s = uint64(uint32(order[place]))
        a = uint64(chosen[s, 0])
        if a == chosen[s, 1] and a == chosen[s, 2] and a == chosen[s, 3]:
            row = uint64(stage_row) + s * num_actions + a
            x0 = x1 = x2 = x3 = 0.0
            y0 = y1 = y2 = y3 = 0.0
            if two:
                for k in range(uint64(start[row]), uint64(stop[row])):
                    p, t = data[k], uint32(indices[k])
                    x0 += p * after[t, 0]
                    x1 += p * after[t, 1]
                    x2 += p * after[t, 2]
                    x3 += p * after[t, 3]
                    y0 += p * after_other[t, 0]
                    y1 += p * after_other[t, 1]
                    y2 += p * after_other[t, 2]
                    y3 += p * after_other[t, 3]
                d = other[s, a]
                here_other[s, 0], here_other[s, 1] = d + y0, d + y1
                here_other[s, 2], here_other[s, 3] = d + y2, d + y3
            else:
                for k in range(uint64(start[row]), uint64(stop[row])):
                    p, t = data[k], uint32(indices[k])
                    x0 += p * after[t, 0]
                    x1 += p * after[t, 1]
                    x2 += p * after[t, 2]
                    x3 += p * after[t, 3]
            c = table[s, a]
            here[s, 0], here[s, 1], here[s, 2], here[s, 3] = c + x0, c + x1, c + x2, c + x3
        else:
            for lane in range(LANES):
                a = uint64(chosen[s, lane])
                row = uint64(stage_row) + s * num_actions + a
                x0 = y0 = 0.0
                if two:
                    for k in range(uint64(start[row]), uint64(stop[row])):
                        x0 += data[k] * after[uint32(indices[k]), lane]
                        y0 += data[k] * after_other[uint32(indices[k]), lane]
                    here_other[s, lane] = other[s, a] + y0
                else:
                    for k in range(uint64(start[row]), uint64(stop[row])):
                        x0 += data[k] * after[uint32(indices[k]), lane]
                here[s, lane] = table[s, a] + x0


@kernel
def _step_states(
    low, high, order, h, stage_row, start, stop, indices, data, gain, costs, after, here, chosen,
    pool, slots,
):  # fmt: skip
    """Stage h for the states ``order[low:high]``: best responses, and what they cost."""
    _respond_states(
        low, high, order, stage_row, start, stop, indices, data, gain, after[0], here[0], chosen,
        pool[slots[0], h], pool[slots[1], h], pool[slots[2], h], pool[slots[3], h],
    )  # fmt: skip
    hc = h if costs.shape[1] > 1 else 0
    for i in range(0, costs.shape[0], 2):
        j = min(i + 1, costs.shape[0] - 1)  # the last of an odd number is alone
        _evaluate_pair(
            low, high, order, stage_row, start, stop, indices, data, costs[i, hc], costs[j, hc],
            j > i, chosen, after[1 + i], after[1 + j], here[1 + i], here[1 + j],
        )  # fmt: skip


@kernel
def best_responses(
    start, stop, indices, data, rewards, costs, available, initial, horizon, order, counts,
    reward_weight, points, pool, slots, totals,
):  # fmt: skip
    """`best_response` to LANES multipliers at once, for little more than one, and what they cost.

    Takes the multipliers `points` (LANES, m), writes the policies into the `slots` (LANES,) of
    `pool` (P, H, S), and into `totals` (1 + m, LANES) the best objectives and the costs. Stages
    and states that `order` (2, S) and `counts` (H,) of `reach` leave out are left as they are.
    """
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    staged = rewards.shape[0] > 1 or costs.shape[1] > 1
    gain = np.empty((num_states, num_actions, LANES))
    chosen = np.empty((num_states, LANES), dtype=np.int64)
    both = np.zeros((2, 1 + costs.shape[0], num_states, LANES))
    for back in range(horizon):
        h = horizon - 1 - back
        if staged or back == 0:
            _lane_gains(reward_weight, points, rewards, costs, available, h, gain)
        after, here = both[back % 2], both[(back + 1) % 2]
        states = order[1] if counts[h] == num_states else order[0]
        # the calls of `_step_states`, which would take a second more to compile
        _respond_states(
            0, counts[h], states, h * stride, start, stop, indices, data, gain, after[0], here[0],
            chosen, pool[slots[0], h], pool[slots[1], h], pool[slots[2], h], pool[slots[3], h],
        )  # fmt: skip
        hc = h if costs.shape[1] > 1 else 0
        for i in range(0, costs.shape[0], 2):
            j = min(i + 1, costs.shape[0] - 1)
            _evaluate_pair(
                0, counts[h], states, h * stride, start, stop, indices, data, costs[i, hc],
                costs[j, hc], j > i, chosen, after[1 + i], after[1 + j], here[1 + i], here[1 + j],
            )  # fmt: skip
    last = both[horizon % 2]
    for c in range(totals.shape[0]):
        for lane in range(LANES):
            totals[c, lane] = 0.0
            for s in range(num_states):
                totals[c, lane] += initial[s] * last[c, s, lane]


@kernel(parallel=True)
def best_responses_parallel(
    start, stop, indices, data, rewards, costs, available, initial, horizon, order, counts,
    reward_weight, points, pool, slots, totals,
):  # fmt: skip
    """`best_responses` with the states of a stage shared out among the cores; the same bytes."""
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    staged = rewards.shape[0] > 1 or costs.shape[1] > 1
    gain = np.empty((num_states, num_actions, LANES))
    chosen = np.empty((num_states, LANES), dtype=np.int64)
    both = np.zeros((2, 1 + costs.shape[0], num_states, LANES))
    for back in range(horizon):
        h = horizon - 1 - back
        if staged or back == 0:
            _lane_gains(reward_weight, points, rewards, costs, available, h, gain)
        states = order[1] if counts[h] == num_states else order[0]
        for c in prange(CHUNKS):
            _step_states(
                c * counts[h] // CHUNKS, (c + 1) * counts[h] // CHUNKS, states, h, h * stride,
                start, stop, indices, data, gain, costs, both[back % 2], both[(back + 1) % 2],
                chosen, pool, slots,
            )  # fmt: skip
    last = both[horizon % 2]
    for c in range(totals.shape[0]):
        for lane in range(LANES):
            totals[c, lane] = 0.0
            for s in range(num_states):
                totals[c, lane] += initial[s] * last[c, s, lane]


@kernel
def evaluate_actions(
    start, stop, indices, data, rewards, costs, available, initial, horizon, actions
):
    """Values (K, 1 + m) of K deterministic policies `actions` (K, Hp, S), backward in time.

    LANES policies and two of the tables reward, cost_1, .., cost_m at a time.
    """
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    m = costs.shape[0]
    values = np.zeros((actions.shape[0], 1 + m))
    order = np.empty(num_states, dtype=np.int32)
    for s in range(num_states):
        order[s] = s
    chosen = np.empty((num_states, LANES), dtype=np.int64)
    for first in range(0, actions.shape[0], LANES):
        both = np.zeros((2, 2 + m, num_states, LANES))
        for back in range(horizon):
            h = horizon - 1 - back
            for lane in range(LANES):
                policy = actions[min(first + lane, actions.shape[0] - 1)]
                for s in range(num_states):
                    chosen[s, lane] = policy[h if actions.shape[1] > 1 else 0, s]
            hr, hc = h if rewards.shape[0] > 1 else 0, h if costs.shape[1] > 1 else 0
            after, here = both[back % 2], both[(back + 1) % 2]
            for c in range(0, 1 + m, 2):  # of an even number the last is alone
                table = costs[c - 1, hc] if c > 0 else rewards[hr]
                other = costs[c, hc] if c < m else table
                _evaluate_pair(
                    0, num_states, order, h * stride, start, stop, indices, data, table, other,
                    c < m, chosen, after[c], after[c + 1], here[c], here[c + 1],
                )  # fmt: skip
        for k in range(first, min(first + LANES, actions.shape[0])):
            for c in range(1 + m):
                for s in range(num_states):
                    values[k, c] += initial[s] * both[horizon % 2, c, s, k - first]
    return values


@kernel
def occupancy(start, stop, indices, data, available, initial, horizon, probabilities):
    """Occupancy measure (H, S, A) of `probabilities` (Hp, S, A) [CON, Eq. (14)]."""
    num_states, num_actions = available.shape
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    out = np.zeros((horizon, num_states, num_actions))
    mass = initial.copy()
    for h in range(horizon):
        hp = h if probabilities.shape[0] > 1 else 0
        after = np.zeros(num_states)
        for s in range(num_states):
            if mass[s] > 0:
                for a in range(num_actions):
                    p = mass[s] * probabilities[hp, s, a]
                    if p > 0:
                        out[h, s, a] = p
                        row = h * stride + s * num_actions + a
                        for k in range(start[row], stop[row]):
                            after[indices[k]] += p * data[k]
        mass = after
    return out


@kernel
def lagrangian_iterations(
    start, stop, indices, data, rewards, costs, available, initial, horizon, capacities, step,
    multipliers, actions, values, trail,
):  # fmt: skip
    """Best responses to multipliers that follow the excess [CON, Algorithm 2].

    Writes, for n = 1..N, the best response `actions` (N, H, S), its values (N, 1 + m) and the
    multipliers after its update, `trail` (N, m); `multipliers` (m,) >= 0 holds the first at the
    start and the last at the end. Returns the least dual bound,
    ``min_n max_pi V_r - lambda_n @ (V_c - capacity)``.
    """
    upper = np.inf
    for n in range(actions.shape[0]):
        bound = best_response(
            start, stop, indices, data, rewards, costs, available, initial, horizon, 1.0,
            multipliers, actions[n],
        )  # fmt: skip
        found = evaluate_actions(
            start, stop, indices, data, rewards, costs, available, initial, horizon,
            actions[n : n + 1],
        )  # fmt: skip
        values[n] = found[0]
        for i in range(capacities.size):
            bound += multipliers[i] * capacities[i]
            excess = values[n, 1 + i] - capacities[i]
            multipliers[i] = max(0.0, multipliers[i] + step * excess)
            trail[n, i] = multipliers[i]
        upper = min(upper, bound)
    return upper
