"""Compiled column generation: a small master program over the values of deterministic policies.

Variables: P columns w_j, m slacks s_i, one violation z. Rows i < m read

    sum_j w_j c_ij + s_i - z_coef_i z = limit_i,        row m:  sum_j w_j = 1.

Phase 1 minimises z, phase 2 maximises sum_j w_j r_j with z = 0. A basis has m + 1 members, coded as
column j -> j, slack i -> P + i, violation -> P + m.

Compiling takes longer than running: every helper has one caller and few call sites.
"""

from __future__ import annotations

import numpy as np

from tightrope.kernels.episodic import LANES
from tightrope.kernels.jit import kernel

SOLVED, NOT_CONVERGED = 0, 1
PIVOT_EPS = 1e-11
PRICE_EPS = 1e-12  # of the largest value of a column
STALL_EPS = 1e-15
KNOWN_EPS = 1e-14  # relative: the same objective
LEVELS = (0.3, 0.6)  # of the gap, see `advance`
ROWS, SWEEPS, ROUGH = 8, 40, 1e-3  # of a projection, see `_approach`


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
    limits : (m,) capacities; an excess below `feasible_eps` in its own row is added to them
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
    objective, highest = 0.0, -np.inf
    stalled = 0  # pivots since the objective rose
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
        stalled += 1
        if objective > highest + STALL_EPS * max(1.0, abs(objective)):
            highest, stalled = objective, 0
        # after many idle pivots the first positive reduced cost enters (Bland)
        enter = _price(pool, used, values, basis, phase, y, PRICE_EPS * biggest, stalled > n + used)
        fits = phase == 1 and (z_row < 0 or enter < 0)
        if fits and z_row >= 0:  # is what exceeds the capacities of rounding size in every row?
            for i in range(m):
                over = z_coef[i] * x[z_row]
                for b in range(n):
                    if basis[b] == pool + i:
                        over -= x[b]
                fits = fits and over <= feasible_eps
        if fits:
            if z_row >= 0:  # absorb it and pivot the violation out
                best = 0.0
                for i in range(m):
                    limits[i] += min(z_coef[i] * max(x[z_row], 0.0), feasible_eps)
                for i in range(m):
                    member = False
                    for b in range(n):
                        member = member or basis[b] == pool + i
                    if not member and abs(inverse[z_row, i]) > best:
                        best = abs(inverse[z_row, i])
                        basis[z_row] = pool + i
            phase, highest = 2, -np.inf
            continue
        # rounding may cycle, as between equal columns: the dual bound then decides
        if enter < 0 or stalled > 3 * (n + used):
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


# State of a column generation, as kernels and Python hand it to each other: `numbers` holds
# LOWER, UPPER (bounds of the optimum), LEAST, VIOLATION (bounds of the least violation),
# TOLERANCE, ROUNDING (what rounding makes of a cost of the largest entry 1) and UNIT (of the
# violation in the master: the smallest scale of a cost); `codes` holds PHASE (0 before the first
# master, 1 feasibility, 2 optimality), USED columns, OUTCOME, how many of the LANES multipliers are
# FRESH, the others being copies, and how many may be at MOST.
LOWER, UPPER, LEAST, VIOLATION, TOLERANCE, ROUNDING, UNIT = range(7)
PHASE, USED, OUTCOME, FRESH, MOST = range(5)
RUNNING, OPTIMAL, INFEASIBLE, STUCK = range(4)


@kernel
def _approach(level, used, values, limits, point):
    """Move `point` (m,) >= 0 to about the nearest where no column promises more than `level`.

    One by one the column, or the sign of a multiplier, that is violated most joins a few others,
    for which Hildreth's method solves the projection.
    """
    m = limits.size
    rows = np.zeros((used + m, m + 1))  # row[:m] @ point >= row[m]
    for j in range(used):
        length = 0.0
        for i in range(m):
            length += (values[j, 1 + i] - limits[i]) ** 2
        length = np.sqrt(length)
        if length > 0.0:
            for i in range(m):
                rows[j, i] = (values[j, 1 + i] - limits[i]) / length
            rows[j, m] = (values[j, 0] - level) / length
    for i in range(m):
        rows[used + i, i] = 1.0
    force, active = np.zeros(ROWS), np.empty(ROWS, dtype=np.int64)
    first = 0.0
    for size in range(ROWS):
        worst = 0.0
        for j in range(used + m):
            short = rows[j, m]
            for i in range(m):
                short -= rows[j, i] * point[i]
            if short > worst:
                active[size], worst = j, short
        first = max(first, worst)
        if worst <= ROUGH * first:
            break
        for _ in range(SWEEPS):
            moved = 0.0
            for b in range(size + 1):
                j = active[b]
                push = rows[j, m]
                for i in range(m):
                    push -= rows[j, i] * point[i]
                push = max(push, -force[b])
                force[b] += push
                moved = max(moved, abs(push))
                for i in range(m):
                    point[i] += push * rows[j, i]
            if moved <= ROUGH * worst:
                break
    for i in range(m):
        point[i] = max(point[i], 0.0)


@kernel
def add_columns(
    totals, scale, capacities, points, slots, values, priced, weights, best_point, numbers, codes
):  # fmt: skip
    """Enter the answers of all lanes, and the bounds that their objectives prove.

    A column that is as good at a lane's multipliers, as most are near the optimum, answers them
    too. In phase 1, and where there is one lane, `totals` has no costs: the caller has entered the
    values. `best_point` (m,) is written: the multipliers of the least upper bound.
    """
    m = capacities.size
    weight = 0.0 if codes[PHASE] == 1 else 1.0
    known = codes[PHASE] != 1 and codes[FRESH] > 1
    used = codes[USED]
    for lane in range(codes[FRESH]):
        slot, objective, bound = slots[lane], totals[0, lane], totals[0, lane]
        rounding = 0.0
        for i in range(m):
            bound += points[lane, i] * capacities[i]
            rounding += points[lane, i] * numbers[ROUNDING] * scale[1 + i]
        if codes[PHASE] == 1:
            numbers[LEAST] = max(numbers[LEAST], -bound - rounding)
        elif bound < numbers[UPPER]:
            numbers[UPPER] = bound
            for i in range(m):
                best_point[i] = points[lane, i]
        for j in range(used):
            stale = False  # its place is already another policy's
            for later in range(codes[FRESH]):
                stale = stale or slots[later] == j
            reached = weight * values[j, 0] * scale[0]
            for i in range(m):
                reached -= points[lane, i] * values[j, 1 + i] * scale[1 + i]
            if not stale and objective - reached <= KNOWN_EPS * max(1.0, abs(objective)):
                weights[j] = weight
                for i in range(m):
                    priced[j, i] = points[lane, i]
        weights[slot] = weight
        reward = objective
        for i in range(m):
            priced[slot, i] = points[lane, i]
            if known:
                reward += points[lane, i] * totals[1 + i, lane]
                values[slot, 1 + i] = totals[1 + i, lane] / scale[1 + i]
        if known:
            values[slot, 0] = reward / scale[0]
        codes[USED] = max(codes[USED], slot + 1)


@kernel
def advance(
    code, phase, best, scale, limits, values, basis, x, y, duals, priced, weights, best_point,
    points, slots, numbers, codes,
):  # fmt: skip
    """After a master: the bounds and the outcome, and where the next programs are solved.

    The next multipliers are the master's duals, without which nothing is proved; the average, by
    the master's weights, of the multipliers at which the basic policies were found, at which the
    capacities would be met if the values were smooth in the multipliers (the secant step of
    Newton's method); and, of the level method [Lemarechal, Nemirovskii and Nesterov, 1995], the
    points nearest to the best multipliers so far where the columns allow a dual bound that closes
    the gap up to a share (in phase 1 two points between the others instead). This takes .4 of
    the rounds of the duals alone. Their policies go where the pool is unused, or in the place of
    the worst non-basic columns.

    `priced` (P, m) are the multipliers of each column, `weights` (P,) its weight of the reward;
    `values` are scaled by `scale` (1 + m,), `duals` are not.
    """
    pool, m = priced.shape
    weight = 0.0 if phase == 1 else 1.0
    codes[PHASE] = phase
    if code != SOLVED:  # then `best` proves nothing
        codes[OUTCOME] = STUCK
    elif phase == 1:
        numbers[VIOLATION] = -best * numbers[UNIT]
        gap = numbers[VIOLATION] - numbers[LEAST]
        size = numbers[VIOLATION]  # or, if larger, the size of the costs that are at odds
        for i in range(m):
            size = max(size, y[i] * numbers[UNIT])
        if numbers[LEAST] > 0 and gap <= numbers[TOLERANCE] * size:
            codes[OUTCOME] = INFEASIBLE
    else:
        numbers[LOWER] = best * scale[0]
        gap = numbers[UPPER] - numbers[LOWER]
        if gap <= numbers[TOLERANCE] * max(1.0, abs(numbers[LOWER])):
            codes[OUTCOME] = OPTIMAL
    total = 0.0
    for i in range(m):
        duals[i] = max(y[i], 0.0) * (scale[0] if phase == 2 else numbers[UNIT]) / scale[1 + i]
        points[0, i] = duals[i]
        points[1, i] = 0.0
    for b in range(basis.size):
        j = basis[b]
        if j < pool and x[b] > 0 and weights[j] == weight:
            total += x[b]
            for i in range(m):
                points[1, i] += x[b] * priced[j, i]
    fresh = 1
    if total > 0.0:
        near = np.empty(m)
        for i in range(m):
            points[1, i] /= total
            points[2, i] = 0.5 * (duals[i] + points[1, i])
            points[3, i] = 0.5 * (points[2, i] + points[1, i])
        for n in range(2, codes[MOST] if phase == 2 and codes[OUTCOME] == RUNNING else 0):
            for i in range(m):
                near[i] = best_point[i] * scale[1 + i] / scale[0]
            level = (numbers[LOWER] + LEVELS[n - 2] * gap) / scale[0]
            _approach(level, codes[USED], values, limits, near)
            for i in range(m):
                points[n, i] = near[i] * scale[0] / scale[1 + i]
        for n in range(1, codes[MOST]):  # only those that differ from the ones before
            new = True
            for j in range(fresh):
                far, size = 0.0, 0.0
                for i in range(m):
                    far = max(far, abs(points[n, i] - points[j, i]))
                    size = max(size, abs(points[j, i]))
                new = new and far > 1e-13 * size
            if new:
                for i in range(m):
                    points[fresh, i] = points[n, i]
                fresh += 1
    codes[FRESH] = fresh
    for lane in range(LANES):
        slots[lane] = slots[0]
        if lane >= fresh:
            for i in range(m):
                points[lane, i] = points[0, i]
            continue
        if codes[USED] + lane < pool:
            slots[lane] = codes[USED] + lane
            continue
        least = np.inf
        for j in range(codes[USED]):
            taken = False
            for b in range(basis.size):
                taken = taken or basis[b] == j
            for earlier in range(lane):
                taken = taken or slots[earlier] == j
            reduced = weight * values[j, 0] - y[m]
            for i in range(m):
                reduced -= y[i] * values[j, 1 + i]
            if not taken and reduced < least:
                least, slots[lane] = reduced, j
