"""Compiled kernels for finite-horizon models.

Every function takes the arrays of `tightrope.model.mdp.Tables` first:

``start, stop`` (R,) int64, ``indices`` int32, ``data`` float64
    row ``h*S*A + s*A + a`` (h = 0 when there is one table) owns entries ``start..stop``;
``rewards`` (Hr, S, A), ``costs`` (m, Hc, S, A)
    Hr and Hc are 1 or H;
``available`` (S, A) bool, ``initial`` (S,).

"Values" of a policy are the vector (reward, cost_1, .., cost_m) of expected totals. The twins in
plain NumPy, with the same names and signatures, are in `tightrope.kernels.reference.episodic`.
"""

from __future__ import annotations

import numpy as np
from numba import prange

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
                for k in range(start[row], stop[row]):
                    q += data[k] * after[indices[k]]
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
    for j in range(actions.shape[0]):
        mass = initial.copy()
        for h in range(horizon):
            hp = h if actions.shape[1] > 1 else 0
            hr = h if rewards.shape[0] > 1 else 0
            hc = h if costs.shape[1] > 1 else 0
            after = np.zeros(num_states)
            for s in range(num_states):
                p = mass[s]
                if p > 0:
                    a = actions[j, hp, s]
                    values[j, 0] += p * rewards[hr, s, a]
                    for i in range(m):
                        values[j, 1 + i] += p * costs[i, hc, s, a]
                    row = h * stride + s * num_actions + a
                    for k in range(start[row], stop[row]):
                        after[indices[k]] += p * data[k]
            mass = after
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


@kernel
def _basis_column(code, pool, values, z_coef, out):
    m = z_coef.size
    for i in range(m + 1):
        out[i] = 0.0
    if code < pool:
        for i in range(m):
            out[i] = values[code, 1 + i]
        out[m] = 1.0
    elif code < pool + m:
        out[code - pool] = 1.0
    else:
        for i in range(m):
            out[i] = -z_coef[i]


@kernel
def _inverse(matrix):
    """Inverse by Gauss-Jordan with partial pivoting; False when the matrix is singular."""
    n = matrix.shape[0]
    a = matrix.copy()
    inv = np.zeros((n, n))
    for c in range(n):
        inv[c, c] = 1.0
    for c in range(n):
        p = c
        for r in range(c + 1, n):
            if abs(a[r, c]) > abs(a[p, c]):
                p = r
        if abs(a[p, c]) < 1e-300:
            return False, inv
        if p != c:
            for j in range(n):
                a[c, j], a[p, j] = a[p, j], a[c, j]
                inv[c, j], inv[p, j] = inv[p, j], inv[c, j]
        d = 1.0 / a[c, c]
        for j in range(n):
            a[c, j] *= d
            inv[c, j] *= d
        for r in range(n):
            if r != c and a[r, c] != 0.0:
                f = a[r, c]
                for j in range(n):
                    a[r, j] -= f * a[c, j]
                    inv[r, j] -= f * inv[c, j]
    return True, inv


@kernel
def _simplex(pool, used, values, limits, z_coef, basis, phase, x, y):
    """Primal simplex over the first `used` columns, from `basis`, which it updates.

    Returns (status, objective) and writes x (m+1,), the basic variables, and y (m+1,), the duals:
    y[:m] are the multipliers and y[m] is the price of the convexity row. In phase 1 it stops as
    soon as the violation leaves the basis (status SOLVED with z non-basic) or is minimal.
    """
    m = limits.size
    n = m + 1
    matrix = np.empty((n, n))
    column = np.empty(n)
    cost = np.empty(n)
    z_code = pool + m
    biggest = 1.0
    for j in range(used):
        for i in range(n):
            biggest = max(biggest, abs(values[j, i]))
    price_eps = PRICE_EPS * biggest
    objective = 0.0
    last_pivot = 50 * (n + used) + 200
    for pivot in range(last_pivot + 1):
        for b in range(n):
            _basis_column(basis[b], pool, values, z_coef, column)
            for i in range(n):
                matrix[i, b] = column[i]
            if basis[b] < pool:
                cost[b] = values[basis[b], 0] if phase == 2 else 0.0
            else:
                cost[b] = -1.0 if (basis[b] == z_code and phase == 1) else 0.0
        regular, inverse = _inverse(matrix)
        if not regular:
            return NOT_CONVERGED, objective
        objective = 0.0
        z_basic = False
        for b in range(n):
            x[b] = inverse[b, m]
            y[b] = 0.0
            for i in range(m):
                x[b] += inverse[b, i] * limits[i]
            if basis[b] == z_code:
                z_basic = True
            objective += cost[b] * x[b]
        for b in range(n):
            for i in range(n):
                y[i] += cost[b] * inverse[b, i]
        if phase == 1 and not z_basic:
            return SOLVED, objective
        # price: largest reduced cost, after many pivots the first positive one (Bland)
        enter = -1
        best = price_eps
        for code in range(pool + m):
            if code < pool and code >= used:
                continue
            basic = False
            for b in range(n):
                if basis[b] == code:
                    basic = True
            if basic:
                continue
            if code < pool:
                reduced = (values[code, 0] if phase == 2 else 0.0) - y[m]
                for i in range(m):
                    reduced -= y[i] * values[code, 1 + i]
            else:
                reduced = -y[code - pool]
            if reduced > best:
                enter = code
                if pivot > 20 * n + used:
                    break
                best = reduced
        if enter < 0 or pivot == last_pivot:  # rounding may cycle: the dual bound then decides
            return SOLVED, objective
        _basis_column(enter, pool, values, z_coef, column)
        leave = -1
        theta = np.inf
        for b in range(n):
            d = 0.0
            for i in range(n):
                d += inverse[b, i] * column[i]
            if d > PIVOT_EPS:
                ratio = max(x[b], 0.0) / d
                # z leaves first among ties, then the smallest code
                better = ratio < theta - 1e-15
                tie = ratio <= theta + 1e-15
                if better or (
                    tie
                    and (basis[b] == z_code or (basis[leave] != z_code and basis[b] < basis[leave]))
                ):
                    theta = min(theta, ratio)
                    leave = b
        if leave < 0:
            return NOT_CONVERGED, objective
        basis[leave] = enter
    return NOT_CONVERGED, objective


@kernel
def _first_basis(pool, values, limits, z_coef, basis):
    """Column 0 and slacks; the violation replaces the most violated slack. True if feasible."""
    m = limits.size
    basis[m] = 0
    worst = -1
    excess = 0.0
    for i in range(m):
        basis[i] = pool + i
        over = (values[0, 1 + i] - limits[i]) / z_coef[i]
        if over > excess:
            excess = over
            worst = i
    if worst >= 0:
        basis[worst] = pool + m
    return worst < 0


@kernel
def _expel_violation(pool, values, limits, z_coef, basis, x):
    """After phase 1 at z = 0 (within tolerance): absorb z into the limits and pivot it out."""
    m = limits.size
    n = m + 1
    where = -1
    for b in range(n):
        if basis[b] == pool + m:
            where = b
    if where < 0:
        return
    for i in range(m):
        limits[i] += z_coef[i] * max(x[where], 0.0)
    matrix = np.empty((n, n))
    column = np.empty(n)
    for b in range(n):
        _basis_column(basis[b], pool, values, z_coef, column)
        for i in range(n):
            matrix[i, b] = column[i]
    regular, inverse = _inverse(matrix)
    best = 0.0
    enter = -1
    for i in range(m):
        basic = False
        for b in range(n):
            if basis[b] == pool + i:
                basic = True
        if not basic and abs(inverse[where, i]) > best:
            best = abs(inverse[where, i])
            enter = pool + i
    if regular and enter >= 0:
        basis[where] = enter


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
    x, y : (m + 1,) written: basic variables and duals

    The objective is minus the least violation in phase 1 and the reward in phase 2. The free slot
    is where the next column may go: unused, or that of the worst non-basic column.
    """
    pool = values.shape[0]
    m = limits.size
    if phase == 0:
        phase = 2 if _first_basis(pool, values, limits, z_coef, basis) else 1
    code, objective = SOLVED, 0.0
    if phase == 1:
        code, objective = _simplex(pool, used, values, limits, z_coef, basis, 1, x, y)
        if code == SOLVED and -objective <= feasible_eps:
            _expel_violation(pool, values, limits, z_coef, basis, x)
            phase = 2
    if phase == 2 and code == SOLVED:
        code, objective = _simplex(pool, used, values, limits, z_coef, basis, 2, x, y)
    if used < pool:
        return code, phase, objective, used
    worst = np.inf
    slot = -1
    for j in range(pool):
        basic = False
        for b in range(m + 1):
            if basis[b] == j:
                basic = True
        if not basic:
            reduced = values[j, 0] if phase == 2 else 0.0
            for i in range(m):
                reduced -= y[i] * values[j, 1 + i]
            if reduced < worst:
                worst = reduced
                slot = j
    return code, phase, objective, slot


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
def add_column(objective, found, scale, capacities, values, duals, numbers, codes):
    """Enter a priced column (values `found` (1 + m,)) and the bound that its program proves."""
    slot = codes[SLOT]
    bound = objective
    for j in range(found.size):
        values[slot, j] = found[j] / scale[j]
    for i in range(capacities.size):
        bound += duals[i] * capacities[i]
    if codes[PHASE] == 1:
        numbers[LEAST] = max(numbers[LEAST], -bound)
    else:
        numbers[UPPER] = min(numbers[UPPER], bound)
    codes[USED] = max(codes[USED], slot + 1)


@kernel
def generate_columns(
    start, stop, indices, data, rewards, costs, available, initial, horizon, pool, scale,
    capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes, max_programs,
):  # fmt: skip
    """Price and solve until the outcome is known; returns the number of dynamic programs."""
    programs = 0
    while codes[OUTCOME] == RUNNING and programs < max_programs:
        slot = codes[SLOT]
        objective = best_response(
            start, stop, indices, data, rewards, costs, available, initial, horizon,
            0.0 if codes[PHASE] == 1 else 1.0, duals, pool[slot],
        )  # fmt: skip
        found = evaluate_actions(
            start, stop, indices, data, rewards, costs, available, initial, horizon,
            pool[slot : slot + 1],
        )  # fmt: skip
        programs += 1
        add_column(objective, found[0], scale, capacities, values, duals, numbers, codes)
        solve_columns(scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes)
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
