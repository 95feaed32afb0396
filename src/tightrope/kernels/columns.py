"""Compiled column generation: a small master program over the values of deterministic policies.

Variables: P columns w_j, m slacks s_i, one violation z. Rows i < m read

    sum_j w_j c_ij + s_i - z_coef_i z = limit_i,        row m:  sum_j w_j = 1.

Phase 1 minimises z, phase 2 maximises sum_j w_j r_j with z = 0. A basis has m + 1 members, coded as
column j -> j, slack i -> P + i, violation -> P + m.

Compiling takes longer than running: every helper has one caller and few call sites.
"""

from __future__ import annotations

import numpy as np

from tightrope.kernels.episodic import LANES, best_response, best_responses, evaluate_actions
from tightrope.kernels.jit import kernel

SOLVED, NOT_CONVERGED = 0, 1
PIVOT_EPS = 1e-11
PRICE_EPS = 1e-12  # of the largest value of a column
KNOWN_EPS = 1e-14  # relative: the same objective
NEARBY = 0.2  # how far from the average towards a column's own multipliers, see `next_points`


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
    """The variable of largest reduced cost; -1 where none is."""
    m = basis.size - 1
    enter, best = -1, price_eps
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
        else:
            reduced = -y[code - pool]
        if reduced > best and not (first_positive and enter >= 0):
            enter, best = code, reduced
    return enter


@kernel
def master(used, values, limits, z_coef, feasible_eps, basis, phase, x, y):
    """Optimum over the first `used` columns; returns (code, phase, objective).

    Parameters
    ----------
    values : (P, 1 + m) reward and costs of each column
    limits : (m,) capacities; a violation below `feasible_eps` is added to them
    z_coef : (m,) weight of a unit of violation in each row
    basis : (m + 1,) int64, read when phase > 0, and written
    phase : 0 at the first call, then what the last call returned
    x, y : (m + 1,) written: basic variables and duals (y[m] prices the convexity row)

    A primal simplex that inverts its small basis at every pivot. The objective is minus the least
    violation in phase 1 and the reward in phase 2.
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
            return NOT_CONVERGED, phase, objective
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
        enter = _price(
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
            return SOLVED, phase, objective
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
            return NOT_CONVERGED, phase, objective
        basis[leave] = enter
        pivot += 1


# State of a column generation, as kernels and Python hand it to each other: `numbers` holds
# LOWER, UPPER (bounds of the optimum), LEAST, VIOLATION (bounds of the least violation), TOLERANCE
# and FEASIBLE_EPS; `codes` holds PHASE (0 before the first master, 1 feasibility, 2 optimality),
# USED columns, OUTCOME, how many of the LANES multipliers are FRESH, the others being copies, and
# how many may be at MOST.
LOWER, UPPER, LEAST, VIOLATION, TOLERANCE, FEASIBLE_EPS = range(6)
PHASE, USED, OUTCOME, FRESH, MOST = range(5)
RUNNING, OPTIMAL, INFEASIBLE, STUCK = range(4)


@kernel
def solve_columns(scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes):
    """Master over the columns in hand; writes the duals, the bounds and the outcome.

    `values` are scaled by `scale` (1 + m,); `capacities` and `duals` are not.
    """
    m = capacities.size
    code, phase, best = master(
        codes[USED], values, limits, z_coef, numbers[FEASIBLE_EPS], basis, codes[PHASE], x, y
    )
    codes[PHASE] = phase
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
def _is_new(points, n):
    """Whether point n differs from the points before it, beyond rounding."""
    for j in range(n):
        far = 0.0
        size = 0.0
        for i in range(points.shape[1]):
            far = max(far, abs(points[n, i] - points[j, i]))
            size = max(size, abs(points[j, i]))
        if far <= 1e-13 * size:
            return False
    return True


@kernel
def next_points(basis, x, duals, priced, weights, points, codes):
    """Where the next dynamic programs are solved; their number goes to ``codes[FRESH]``.

    The master's duals, without which nothing is proved; the average, by the master's weights, of
    the multipliers at which the basic policies were found, at which the capacities would be met if
    the values were smooth in the multipliers (the secant step of Newton's method); the middle of
    the two; and a point beside the average. This takes half the rounds of the duals alone.
    `priced` (P, m) are the multipliers of each column, `weights` (P,) its weight of the reward.
    """
    pool, m = priced.shape
    weight = 0.0 if codes[PHASE] == 1 else 1.0
    total, heaviest = 0.0, -1
    for i in range(m):
        points[0, i] = duals[i]
        points[1, i] = 0.0
    for b in range(basis.size):
        j = basis[b]
        if j < pool and x[b] > 0 and weights[j] == weight:
            total += x[b]
            if heaviest < 0 or x[b] > x[heaviest]:
                heaviest = b
            for i in range(m):
                points[1, i] += x[b] * priced[j, i]
    if heaviest >= 0:
        for i in range(m):
            mean = points[1, i] / total
            points[1, i] = mean
            points[2, i] = 0.5 * (duals[i] + mean)
            points[3, i] = mean + NEARBY * (priced[basis[heaviest], i] - mean)
    fresh = 1
    for n in range(1, codes[MOST] if heaviest >= 0 else 1):
        for i in range(m):
            points[fresh, i] = points[n, i]
        fresh += _is_new(points, fresh)
    for n in range(fresh, LANES):
        for i in range(m):
            points[n, i] = points[0, i]
    codes[FRESH] = fresh


@kernel
def choose_slots(values, basis, y, slots, codes):
    """Room in the pool for the next policies: unused, or that of the worst non-basic columns."""
    pool, n = values.shape
    for lane in range(LANES):
        slots[lane] = slots[0]
        if lane >= codes[FRESH]:
            continue
        if codes[USED] + lane < pool:
            slots[lane] = codes[USED] + lane
            continue
        least = np.inf
        for j in range(codes[USED]):
            taken = False
            for b in range(n):
                taken = taken or basis[b] == j
            for earlier in range(lane):
                taken = taken or slots[earlier] == j
            reduced = (values[j, 0] if codes[PHASE] == 2 else 0.0) - y[n - 1]
            for i in range(n - 1):
                reduced -= y[i] * values[j, 1 + i]
            if not taken and reduced < least:
                least, slots[lane] = reduced, j


@kernel
def add_column(slot, found, scale, point, values, priced, weights, codes):
    """Enter a policy of values `found` (1 + m,), which answers the multipliers `point`."""
    for i in range(found.size):
        values[slot, i] = found[i] / scale[i]
    for i in range(point.size):
        priced[slot, i] = point[i]
    weights[slot] = 0.0 if codes[PHASE] == 1 else 1.0
    codes[USED] = max(codes[USED], slot + 1)


@kernel
def add_bounds(totals, capacities, points, numbers, codes):
    """The bounds that dynamic programs of the objectives ``totals[0]`` prove."""
    for lane in range(codes[FRESH]):
        bound = totals[0, lane]
        for i in range(capacities.size):
            bound += points[lane, i] * capacities[i]
        if codes[PHASE] == 1:
            numbers[LEAST] = max(numbers[LEAST], -bound)
        else:
            numbers[UPPER] = min(numbers[UPPER], bound)


@kernel
def known_column(lane, objective, point, scale, values, slots, codes):
    """A column that reaches the objective of this lane too; -1 if there is none."""
    weight = 0.0 if codes[PHASE] == 1 else 1.0
    for j in range(codes[USED]):
        stale = False  # its place is already another policy's
        for later in range(lane, codes[FRESH]):
            stale = stale or slots[later] == j
        if stale:
            continue
        reached = weight * values[j, 0] * scale[0]
        for i in range(point.size):
            reached -= point[i] * values[j, 1 + i] * scale[1 + i]
        if objective - reached <= KNOWN_EPS * max(1.0, abs(objective)):
            return j
    return -1


@kernel
def add_columns(
    start, stop, indices, data, rewards, costs, available, initial, horizon, pool, scale, totals,
    points, slots, values, priced, weights, codes,
):  # fmt: skip
    """Evaluate and enter the policies of all lanes.

    A column that is as good at a lane's multipliers, as most are near the optimum, takes the place
    of the lane's policy, and is entered as the answer to these multipliers.
    """
    found = np.empty((1, scale.size))
    for lane in range(codes[FRESH]):
        slot, point = slots[lane], points[lane]
        twin = known_column(lane, totals[0, lane], point, scale, values, slots, codes)
        if twin >= 0:
            for h in range(horizon):
                for s in range(initial.size):
                    pool[slot, h, s] = pool[twin, h, s]
            for i in range(scale.size):
                found[0, i] = values[twin, i] * scale[i]
            add_column(twin, found[0], scale, point, values, priced, weights, codes)
        elif point.size == 1 and codes[PHASE] != 1 and codes[FRESH] > 1:
            found[0, 0] = totals[0, lane] + point[0] * totals[1, lane]
            found[0, 1] = totals[1, lane]
        else:
            found = evaluate_actions(
                start, stop, indices, data, rewards, costs, available, initial, horizon,
                pool[slot : slot + 1],
            )  # fmt: skip
        add_column(slot, found[0], scale, point, values, priced, weights, codes)


@kernel
def generate_columns(
    start, stop, indices, data, rewards, costs, available, initial, horizon, pool, scale,
    capacities, values, limits, z_coef, basis, x, y, duals, priced, weights, points, slots,
    numbers, codes, max_programs,
):  # fmt: skip
    """Price and solve until the outcome is known; returns the number of dynamic programs.

    The first ``codes[USED]`` policies of the pool are evaluated first, and count as answers to
    `duals`; `points` are where the first programs are solved.
    """
    programs = 0
    totals = np.empty((2, LANES))
    if codes[USED] > 0:
        found = evaluate_actions(
            start, stop, indices, data, rewards, costs, available, initial, horizon,
            pool[: codes[USED]],
        )  # fmt: skip
        for j in range(found.shape[0]):
            add_column(j, found[j], scale, duals, values, priced, weights, codes)
    while codes[OUTCOME] == RUNNING and programs < max_programs:
        choose_slots(values, basis, y, slots, codes)
        programs += codes[FRESH]
        weight = 0.0 if codes[PHASE] == 1 else 1.0
        if codes[FRESH] == 1:
            totals[0, 0] = best_response(
                start, stop, indices, data, rewards, costs, available, initial, horizon, weight,
                points[0], pool[slots[0]],
            )  # fmt: skip
        else:
            best_responses(
                start, stop, indices, data, rewards, costs, available, initial, horizon, weight,
                points, pool, slots, totals,
            )  # fmt: skip
        add_bounds(totals, capacities, points, numbers, codes)
        add_columns(
            start, stop, indices, data, rewards, costs, available, initial, horizon, pool, scale,
            totals, points, slots, values, priced, weights, codes,
        )  # fmt: skip
        solve_columns(scale, capacities, values, limits, z_coef, basis, x, y, duals, numbers, codes)
        next_points(basis, x, duals, priced, weights, points, codes)
    return programs
