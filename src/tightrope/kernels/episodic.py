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

SOLVED, NOT_CONVERGED = 0, 1
PIVOT_EPS = 1e-11
PRICE_EPS = 1e-12  # of the largest value of a column


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
    chunks = 64
    for back in range(horizon):
        h = horizon - 1 - back
        for c in prange(chunks):
            _sweep_states(
                c * num_states // chunks, (c + 1) * num_states // chunks, h * stride, start, stop,
                indices, data, gain[h if gain.shape[0] > 1 else 0], available, both[back % 2],
                both[(back + 1) % 2], actions[h],
            )  # fmt: skip
    return _mean(initial, both[horizon % 2])


@kernel
def evaluate_actions(
    start, stop, indices, data, rewards, costs, available, initial, horizon, actions
):
    """Values (K, 1 + m) of K deterministic policies `actions` (K, Hp, S), forward in time."""
    num_states, num_actions = available.shape
    m = costs.shape[0]
    stride = num_states * num_actions if start.size > num_states * num_actions else 0
    values = np.zeros((actions.shape[0], 1 + m))
    mass, after = np.empty(num_states), np.empty(num_states)
    for j in range(actions.shape[0]):
        for s in range(num_states):
            mass[s] = initial[s]
        for h in range(horizon):
            hp = h if actions.shape[1] > 1 else 0
            hr = h if rewards.shape[0] > 1 else 0
            hc = h if costs.shape[1] > 1 else 0
            for s in range(num_states):
                after[s] = 0.0
            for s in range(num_states):
                p = mass[s]
                if p > 0:
                    a = actions[j, hp, s]
                    values[j, 0] += p * rewards[hr, s, a]
                    for i in range(m):
                        values[j, 1 + i] += p * costs[i, hc, s, a]
                    row = h * stride + s * num_actions + a
                    for k in range(uint64(start[row]), uint64(stop[row])):
                        after[uint32(indices[k])] += p * data[k]
            mass, after = after, mass
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


# ------------------------------------------------------------- the master program of (1.1)
#
# Variables: P columns w_j, m slacks s_i, one violation z. Rows i < m read
#     sum_j w_j c_ij + s_i - z_coef_i z = limit_i,        row m:  sum_j w_j = 1.
# Phase 1 minimises z, phase 2 maximises sum_j w_j r_j with z = 0. A basis has m + 1 members,
# coded as column j -> j, slack i -> P + i, violation -> P + m.
# Compiling takes longer than running: every helper below has one caller and few call sites.


@kernel
def _entry(code, i, pool, values, z_coef):
    """Coefficient of a variable in row i."""
    m = z_coef.size
    if code < pool:
        return values[code, 1 + i] if i < m else 1.0
    if i == m:
        return 0.0
    if code == pool + m:
        return -z_coef[i]
    return 1.0 if code == pool + i else 0.0


@kernel
def _invert(a, inv):
    """Inverse of `a`, which is lost, by Gauss-Jordan with partial pivoting; False if singular."""
    n = a.shape[0]
    for c in range(n):
        for j in range(n):
            inv[c, j] = 1.0 if c == j else 0.0
    for c in range(n):
        p = c
        for r in range(c + 1, n):
            if abs(a[r, c]) > abs(a[p, c]):
                p = r
        if abs(a[p, c]) < 1e-300:
            return False
        d = 1.0 / a[p, c]
        for j in range(n):  # swap rows c and p, and scale
            top, inv_top = a[p, j] * d, inv[p, j] * d
            a[p, j], inv[p, j] = a[c, j], inv[c, j]
            a[c, j], inv[c, j] = top, inv_top
        for r in range(n):
            f = a[r, c]
            if r != c and f != 0.0:
                for j in range(n):
                    a[r, j] -= f * a[c, j]
                    inv[r, j] -= f * inv[c, j]
    return True


@kernel
def _price(pool, used, values, basis, phase, y, price_eps, first_positive):
    """The variable of largest reduced cost, and the column of smallest; -1 where none is."""
    m = basis.size - 1
    enter, worst = -1, -1
    best, least = price_eps, np.inf
    for code in range(pool + m):
        member = False
        for b in range(m + 1):
            member = member or basis[b] == code
        if member or used <= code < pool:
            continue
        if code < pool:
            reduced = (values[code, 0] if phase == 2 else 0.0) - y[m]
            for i in range(m):
                reduced -= y[i] * values[code, 1 + i]
            if reduced < least:
                worst, least = code, reduced
        else:
            reduced = -y[code - pool]
        if reduced > best and not (first_positive and enter >= 0):
            enter, best = code, reduced
    return enter, worst


@kernel
def master(used, values, limits, z_coef, feasible_eps, basis, phase, x, y):
    """Optimum over the first `used` columns; returns (code, phase, objective, free slot).

    Parameters
    ----------
    values : (P, 1 + m) reward and costs of each column
    limits : (m,) capacities; a violation below `feasible_eps` is added to them
    z_coef : (m,) weight of a unit of violation in each row
    basis : (m + 1,) int64, read when phase > 0, and written
    phase : 0 at the first call, then what the last call returned
    x, y : (m + 1,) written: basic variables and duals (y[m] prices the convexity row)

    A primal simplex that inverts its small basis at every pivot. The objective is minus the least
    violation in phase 1 and the reward in phase 2. The free slot is where the next column may go:
    unused, or that of the worst non-basic column.
    """
    pool, n = values.shape
    m = n - 1
    matrix, inverse = np.empty((n, n)), np.empty((n, n))
    if phase == 0:  # column 0 and slacks; the violation replaces the most violated one
        violated = -1
        excess = 0.0
        for i in range(m):
            basis[i] = pool + i
            over = (values[0, 1 + i] - limits[i]) / z_coef[i]
            if over > excess:
                excess, violated = over, i
        basis[m] = 0
        phase = 2 if violated < 0 else 1
        if violated >= 0:
            basis[violated] = pool + m
    z_code = pool + m
    biggest = 1.0
    for j in range(used):
        for i in range(n):
            biggest = max(biggest, abs(values[j, i]))
    objective = 0.0
    pivot, last_pivot = 0, 50 * (n + used) + 200
    while True:
        for b in range(n):
            for i in range(n):
                matrix[i, b] = _entry(basis[b], i, pool, values, z_coef)
        if not _invert(matrix, inverse):
            return NOT_CONVERGED, phase, objective, -1
        objective = 0.0
        z_row = -1
        for i in range(n):
            y[i] = 0.0
        for b in range(n):
            x[b] = inverse[b, m]
            for i in range(m):
                x[b] += inverse[b, i] * limits[i]
            price = 0.0
            if basis[b] == z_code:
                z_row = b
                if phase == 1:
                    price = -1.0
            elif basis[b] < pool and phase == 2:
                price = values[basis[b], 0]
            objective += price * x[b]
            for i in range(n):
                y[i] += price * inverse[b, i]
        # after many pivots the first positive reduced cost enters (Bland)
        enter, worst = _price(
            pool, used, values, basis, phase, y, PRICE_EPS * biggest, pivot > 20 * n + used
        )
        if phase == 1 and (z_row < 0 or (enter < 0 and -objective <= feasible_eps)):
            if z_row >= 0:  # absorb a violation of rounding size and pivot it out
                best = 0.0
                for i in range(m):
                    limits[i] += z_coef[i] * max(x[z_row], 0.0)
                for i in range(m):
                    member = False
                    for b in range(n):
                        member = member or basis[b] == pool + i
                    if not member and abs(inverse[z_row, i]) > best:
                        best = abs(inverse[z_row, i])
                        basis[z_row] = pool + i
            phase, pivot = 2, 0
            continue
        if enter < 0 or pivot == last_pivot:  # rounding may cycle: the dual bound then decides
            return SOLVED, phase, objective, used if used < pool else worst
        leave = -1
        theta = np.inf
        for b in range(n):
            d = 0.0
            for i in range(n):
                d += inverse[b, i] * _entry(enter, i, pool, values, z_coef)
            if d > PIVOT_EPS:
                ratio = max(x[b], 0.0) / d
                # z leaves first among ties, then the smallest code
                if ratio < theta - 1e-15 or (
                    ratio <= theta + 1e-15
                    and (basis[b] == z_code or (basis[leave] != z_code and basis[b] < basis[leave]))
                ):
                    theta = min(theta, ratio)
                    leave = b
        if leave < 0:
            return NOT_CONVERGED, phase, objective, -1
        basis[leave] = enter
        pivot += 1


# State of a column generation, as kernels and Python hand it to each other: `numbers` holds
# LOWER, UPPER (bounds of the optimum), LEAST, VIOLATION (bounds of the least violation) and
# TOLERANCE; `codes` holds PHASE (0 before the first master, 1 feasibility, 2 optimality), USED
# columns, the SLOT that the next column goes to, and OUTCOME.
LOWER, UPPER, LEAST, VIOLATION, TOLERANCE, FEASIBLE_EPS = range(6)
PHASE, USED, SLOT, OUTCOME = range(4)
RUNNING, OPTIMAL, INFEASIBLE, STUCK = range(4)


@kernel
def solve_columns(scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes):
    """Master over the columns in hand; writes the duals, the bounds and the outcome.

    `values` are scaled by `scale` (1 + m,); `capacities` and `duals` are not.
    """
    m = capacities.size
    code, phase, best, slot = master(
        codes[USED], values, limits, z_coef, numbers[FEASIBLE_EPS], basis, codes[PHASE], x, y
    )
    codes[PHASE] = phase
    codes[SLOT] = slot
    if code != SOLVED:
        codes[OUTCOME] = STUCK
    elif phase == 1:
        numbers[VIOLATION] = -best
        for i in range(m):
            duals[i] = max(y[i], 0.0) / scale[1 + i]
        gap = numbers[VIOLATION] - numbers[LEAST]
        if numbers[LEAST] > 0 and gap <= numbers[TOLERANCE] * max(1.0, numbers[VIOLATION]):
            codes[OUTCOME] = INFEASIBLE
    else:
        numbers[LOWER] = best * scale[0]
        for i in range(m):
            duals[i] = max(y[i], 0.0) * scale[0] / scale[1 + i]
        gap = numbers[UPPER] - numbers[LOWER]
        if gap <= numbers[TOLERANCE] * max(1.0, abs(numbers[LOWER])):
            codes[OUTCOME] = OPTIMAL


@kernel
def add_column(slot, found, scale, values, codes):
    """Enter a policy's values `found` (1 + m,) into a slot."""
    for j in range(found.size):
        values[slot, j] = found[j] / scale[j]
    codes[USED] = max(codes[USED], slot + 1)


@kernel
def add_bound(objective, capacities, duals, numbers, codes):
    """The bound that a dynamic program of this objective proves."""
    bound = objective
    for i in range(capacities.size):
        bound += duals[i] * capacities[i]
    if codes[PHASE] == 1:
        numbers[LEAST] = max(numbers[LEAST], -bound)
    else:
        numbers[UPPER] = min(numbers[UPPER], bound)


@kernel
def generate_columns(
    start, stop, indices, data, rewards, costs, available, initial, horizon, pool, warm, cold,
    scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes, max_programs,
):  # fmt: skip
    """Price and solve until the outcome is known; returns the number of dynamic programs.

    The first `warm` policies of the pool are evaluated first; if `cold`, the first multipliers are
    those of the master over them, else those in `duals`.
    """
    programs = 0
    while codes[OUTCOME] == RUNNING and programs < max_programs:
        given = codes[USED] < warm
        slot = codes[USED] if given else codes[SLOT]
        if not given:
            programs += 1
            objective = best_response(
                start, stop, indices, data, rewards, costs, available, initial, horizon,
                0.0 if codes[PHASE] == 1 else 1.0, duals, pool[slot],
            )  # fmt: skip
            add_bound(objective, capacities, duals, numbers, codes)
        found = evaluate_actions(
            start, stop, indices, data, rewards, costs, available, initial, horizon,
            pool[slot : slot + 1],
        )  # fmt: skip
        add_column(slot, found[0], scale, values, codes)
        if not given or (cold and codes[USED] == warm):
            solve_columns(
                scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes
            )
    return programs


@kernel
def largest_entry(table):
    """Largest absolute value of a 3-d table, or 1 if all are zero."""
    biggest = 0.0
    for h in range(table.shape[0]):
        for s in range(table.shape[1]):
            for a in range(table.shape[2]):
                biggest = max(biggest, abs(table[h, s, a]))
    return biggest if biggest > 0.0 else 1.0


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
