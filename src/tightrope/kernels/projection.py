"""Projection onto the occupancies of an L1 confidence set, by cuts on the dual.

The problem: minimise ``1/2 sum_r (q_r - z_r)**2`` over the occupancies q of (state, action) rows
that some transition function within the confidence set produces. With a height ``h(y) >= 0`` for
every state (the dual potential of the flow into it, least 0 in each layer) and one multiplier mu_k
per layer (its mass is 1), the minimiser of the Lagrangian is ``q = max(0, u)``, where for the row
r = (x, a) of a state x in layer k

    u_r = z_r + mu_k + h(x) - sum_j lam_j (p_bar(S_j | r) - eps_r / 2)_+ ,

where ``S_1 < S_2 < ...`` are the superlevel sets of h in layer k+1 and ``lam_j`` the level
differences. So h alone holds the cuts and their multipliers. The states of a layer that share a
height form a *group*; groups are numbered from the highest down.

One round: maximise the dual over the current groups (`ascend`, semismooth Newton), look for a
flow that carries q (`spread`), roll it forward to a feasible point and measure the duality gap
(`repair`); where no flow exists, the minimum cut says how to split the groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.kernels.jit import kernel
from tightrope.types import FloatArray, IntArray

DUST, ULP = 1e-15, 2.0**-52
"""Masses below this are rounding."""

RIDGE, RIDGE_MAX = 0.1, 1e-2
"""Ridge of the Newton matrix over the violation left; it is singular at sparse optima."""

INNER_FIRST, INNER, FLOOR = 1e-4, 1e-2, 1e-14
"""Accuracy of the dual ascent in the first round, over the last violation in later ones, and the
rounding of a sum of masses, below which nothing can be asked."""

PATIENCE = 30
"""Rounds without a smaller gap before giving up: the gap has met the rounding errors."""

STIFFER, STIFFEST = 100.0, 1e12
"""Where a Newton step does not rise (its active set did not settle), the ridge is made stiffer: in
the limit the step is the projected gradient, which does."""

RELEASES, SOLVES = 6, 12
"""Systems of one Newton step: in the first 6 a tie may be undone, after 12 the step is cut."""


class Layout(NamedTuple):
    """What stays fixed within an epoch. Rows are the available (state, action) pairs.

    Attributes
    ----------
    layer_start : (L+2,) int64
        States of layer k are ``layer_start[k] .. layer_start[k+1]-1``; no rows in the last layer.
    state_row : (S+1,) int64
        Rows of state x are ``state_row[x] .. state_row[x+1]-1``.
    entry_start : (R+1,) int64
    entry_state : (E,) int32
        Next states with p_bar > 0; a row with a vacuous radius has no entries.
    entry_prob : (E,)
    half : (R,)
        Half the radius.
    """

    layer_start: IntArray
    state_row: IntArray
    entry_start: IntArray
    entry_state: IntArray
    entry_prob: FloatArray
    half: FloatArray


class Chain(NamedTuple):
    """The groups of each layer and the rows' coefficients on them.

    `group`, `gap`, `level` and `grad` are by state number ``layer_start[k] + g``: the group of a
    state; lam of the cut below group g; mu + height of group g; derivative of the dual by `level`.
    `coefficient[first[k] + (r - r0) * width + g]` is the worst-case probability of group g, that of
    the lowest group made minus the sum of the others.
    """

    group: IntArray
    size: IntArray
    gap: FloatArray
    level: FloatArray
    grad: FloatArray
    first: IntArray
    coefficient: FloatArray


@kernel
def group_states(layout, k, heights, mark, order, chain):
    """Sort layer k by height (then mark) and number its groups."""
    a, b = layout.layer_start[k], layout.layer_start[k + 1]
    for i in range(a, b):
        j = i
        while j > a:
            y = order[j - 1]
            if heights[y] > heights[i] or (heights[y] == heights[i] and mark[y] <= mark[i]):
                break
            order[j] = y
            j -= 1
        order[j] = i
    g = 0
    for i in range(a, b):
        y = order[i]
        if i > a:
            last = order[i - 1]
            if heights[y] != heights[last] or mark[y] != mark[last]:
                chain.gap[a + g] = heights[last] - heights[y]
                g += 1
        chain.group[y] = g
    chain.size[k] = g + 1


@kernel
def set_coefficients(layout, k, chain):
    """Worst-case probability of each group of layer k+1, for every row of layer k."""
    a, b, c = layout.layer_start[k], layout.layer_start[k + 1], layout.layer_start[k + 2]
    width, groups = c - b, chain.size[k + 1]
    at = chain.first[k]
    coefficient = chain.coefficient
    for r in range(layout.state_row[a], layout.state_row[b]):
        for g in range(groups):
            coefficient[at + g] = 0.0
        for e in range(layout.entry_start[r], layout.entry_start[r + 1]):
            coefficient[at + chain.group[layout.entry_state[e]]] += layout.entry_prob[e]
        total, before = -layout.half[r], 0.0
        for g in range(groups - 1):
            total += coefficient[at + g]
            now = max(0.0, total)
            coefficient[at + g] = now - before
            before = now
        coefficient[at + groups - 1] = -before
        at += width


@kernel
def set_levels(layout, chain, mu):
    for k in range(mu.size):
        a = layout.layer_start[k]
        value = mu[k]
        chain.level[a + chain.size[k] - 1] = value
        for g in range(chain.size[k] - 2, -1, -1):
            value += chain.gap[a + g]
            chain.level[a + g] = value


@kernel
def apply_rows(layout, chain, level, out, base, use_base):
    """out_r = base_r + level of the row's state - worst-case expectation of the next levels."""
    for k in range(layout.layer_start.size - 2):
        a, b = layout.layer_start[k], layout.layer_start[k + 1]
        width, groups = layout.layer_start[k + 2] - b, chain.size[k + 1]
        at = chain.first[k]
        lowest = level[b + groups - 1]
        for x in range(a, b):
            own = level[a + chain.group[x]]
            for r in range(layout.state_row[x], layout.state_row[x + 1]):
                value = own
                if use_base:
                    value += base[r]
                for g in range(groups - 1):
                    value -= chain.coefficient[at + g] * (level[b + g] - lowest)
                out[r] = value
                at += width


@kernel
def set_masses(layout, chain, z, u, mu):
    """The mu of each layer for which max(0, u) has mass 1, the heights being kept."""
    for k in range(mu.size):
        mu[k] = 0.0
    set_levels(layout, chain, mu)
    apply_rows(layout, chain, chain.level, u, z, True)
    for k in range(mu.size):
        r0 = layout.state_row[layout.layer_start[k]]
        r1 = layout.state_row[layout.layer_start[k + 1]]
        shift = -np.inf
        while True:  # Michelot: the active set only shrinks
            total, active = 1.0, 0
            for r in range(r0, r1):
                if u[r] + shift > 0.0 or shift == -np.inf:
                    total -= u[r]
                    active += 1
            new = total / active
            if shift != -np.inf and new >= shift:
                break
            shift = new
        mu[k] = shift
        for r in range(r0, r1):
            u[r] += shift
    set_levels(layout, chain, mu)


@kernel
def set_gradient(layout, chain, u):
    """Derivative of the dual by the level of each group."""
    layers = layout.layer_start.size - 2
    grad = chain.grad
    for k in range(layers):
        a = layout.layer_start[k]
        for g in range(chain.size[k]):
            grad[a + g] = 0.0
        grad[a + chain.size[k] - 1] = 1.0
    for k in range(layers):
        a, b = layout.layer_start[k], layout.layer_start[k + 1]
        width, groups = layout.layer_start[k + 2] - b, chain.size[k + 1]
        at = chain.first[k]
        for x in range(a, b):
            own = a + chain.group[x]
            for r in range(layout.state_row[x], layout.state_row[x + 1]):
                if u[r] > 0.0:
                    grad[own] -= u[r]
                    if k < layers - 1 and groups > 1:
                        for g in range(groups):
                            grad[b + g] += u[r] * chain.coefficient[at + g]
                at += width


@kernel
def find_tied(layout, chain, tied):
    """Largest violation of the optimality conditions.

    `tied` are the groups that stay level with the next one: no multiplier, and no violated cut.
    """
    worst = 0.0
    for k in range(layout.layer_start.size - 2):
        a = layout.layer_start[k]
        last, total = a + chain.size[k] - 1, 0.0
        for i in range(a, last):
            total += chain.grad[i]
            tied[i] = chain.gap[i] == 0.0 and total <= 0.0
            worst = max(worst, total if chain.gap[i] == 0.0 else abs(total))
        worst = max(worst, abs(total + chain.grad[last]))
    return worst


@kernel
def fill_system(layout, chain, u, matrix):
    """Newton matrix over the groups: blocks on (lower half) and above the diagonal."""
    diagonal, above, block = matrix
    layers = layout.layer_start.size - 2
    for k in range(layers):
        n = chain.size[k]
        for i in range(block[k], block[k] + n * n):
            diagonal[i] = 0.0
        for i in range(block[k], block[k] + n * chain.size[k + 1]):
            above[i] = 0.0
    for k in range(layers):
        a, b = layout.layer_start[k], layout.layer_start[k + 1]
        width, after = layout.layer_start[k + 2] - b, chain.size[k + 1]
        n, r0 = chain.size[k], layout.state_row[a]
        for x in range(a, b):
            corner = block[k] + chain.group[x] * (n + 1)
            row = block[k] + chain.group[x] * after
            for r in range(layout.state_row[x], layout.state_row[x + 1]):
                if u[r] <= 0.0:
                    continue
                diagonal[corner] += 1.0
                if after < 2 or layout.half[r] >= 1.0:
                    continue
                at = chain.first[k] + (r - r0) * width
                below = block[k + 1]
                for i in range(after):
                    value = chain.coefficient[at + i]
                    if value != 0.0:
                        above[row + i] -= value
                        for j in range(i + 1):
                            diagonal[below + j] += value * chain.coefficient[at + j]
                    below += after


@kernel
def multiply(layout, chain, matrix, vector, out):
    """out = matrix @ vector over the groups."""
    diagonal, above, block = matrix
    for k in range(layout.layer_start.size - 2):
        a, n = layout.layer_start[k], chain.size[k]
        for i in range(a, a + n):
            out[i] = 0.0
    for k in range(layout.layer_start.size - 2):
        a, b, n, after = (
            layout.layer_start[k],
            layout.layer_start[k + 1],
            chain.size[k],
            chain.size[k + 1],
        )
        at = block[k]
        for i in range(n):
            for j in range(i):
                out[a + i] += diagonal[at + j] * vector[a + j]
                out[a + j] += diagonal[at + j] * vector[a + i]
            out[a + i] += diagonal[at + i] * vector[a + i]
            at += n
        if k < layout.layer_start.size - 3:
            at = block[k]
            for i in range(n):
                for j in range(after):
                    out[a + i] += above[at + j] * vector[b + j]
                    out[b + j] += above[at + j] * vector[a + i]
                at += after


@kernel
def reduce_system(layout, chain, matrix, tied, offset, product, merged, size, start, small, right):
    """The system with the tied groups merged, whose steps differ by `offset` (multipliers to 0)."""
    diagonal, above, block = matrix
    layers, n = size.size, 0
    for k in range(layers):
        a = layout.layer_start[k]
        last = a + chain.size[k] - 1
        merged[a] = 0
        for i in range(a, last):
            merged[i + 1] = merged[i] if tied[i] else merged[i] + 1
        size[k] = merged[last] + 1
        start[k] = n
        n += size[k]
        offset[last] = 0.0
        for i in range(last - 1, a - 1, -1):
            offset[i] = offset[i + 1] - chain.gap[i] if tied[i] else 0.0
    for i in range(n):
        right[i] = 0.0
    multiply(layout, chain, matrix, offset, product)
    for k in range(layers):
        a, n, m = layout.layer_start[k], chain.size[k], size[k]
        for i in range(a, a + n):
            right[start[k] + merged[i]] += chain.grad[i] - product[i]
        for i in range(block[k], block[k] + m * m):
            small[0][i] = 0.0
        at = block[k]
        for i in range(n):
            row = block[k] + merged[a + i] * m
            for j in range(i):  # the entry above the diagonal falls on it if both are merged
                small[0][row + merged[a + j]] += diagonal[at + j]
                if merged[a + j] == merged[a + i]:
                    small[0][row + merged[a + j]] += diagonal[at + j]
            small[0][row + merged[a + i]] += diagonal[at + i]
            at += n
        if k < layers - 1:
            b, after, m2 = layout.layer_start[k + 1], chain.size[k + 1], size[k + 1]
            for i in range(block[k], block[k] + m * m2):
                small[1][i] = 0.0
            merged[b] = 0
            for i in range(b, b + after - 1):
                merged[i + 1] = merged[i] if tied[i] else merged[i] + 1
            at = block[k]
            for i in range(n):
                row = block[k] + merged[a + i] * m2
                for j in range(after):
                    small[1][row + merged[b + j]] += above[at + j]
                at += after


@kernel
def newton_step(layout, chain, matrix, tied, tol, ridge, step, box):
    """Maximise the quadratic model with all multipliers >= 0 (primal-dual active set).

    Returns whether some multiplier would still fall below 0.
    """
    offset, product, merged, size, start, small, right = box
    solved = 0
    while True:
        while True:
            reduce_system(
                layout, chain, matrix, tied, offset, product, merged, size, start, small, right
            )
            solved += 1
            for k in range(size.size):
                for i in range(small[2][k], small[2][k] + size[k] ** 2, size[k] + 1):
                    small[0][i] += ridge
            if solve_system(size, small[0], small[1], small[2], start, right) or ridge > 1.0:
                break
            ridge *= 100.0
        for k in range(size.size):
            a = layout.layer_start[k]
            for i in range(a, a + chain.size[k]):
                step[i] = right[start[k] + merged[i]] + offset[i]
        multiply(layout, chain, matrix, step, product)
        changed, falls = False, False
        for k in range(size.size):
            a, total = layout.layer_start[k], 0.0
            for i in range(a, a + chain.size[k] - 1):
                total += chain.grad[i] - product[i]
                if tied[i]:
                    if total > tol and solved <= RELEASES:
                        tied[i] = False
                        changed = True
                elif step[i] - step[i + 1] < -(1.0 + 1e-12) * chain.gap[i]:
                    tied[i] = True
                    changed, falls = True, True
        if not changed or solved >= SOLVES:
            return falls


@kernel
def solve_system(size, diagonal, above, block, start, right):
    """Block-tridiagonal Cholesky in place; `right` becomes the solution. False if it broke down."""
    layers = size.size
    for k in range(layers):
        n, d, f = size[k], block[k], start[k]
        for j in range(n):
            pivot = diagonal[d + j * n + j]
            for i in range(j):
                pivot -= diagonal[d + j * n + i] ** 2
            if not pivot > 0.0:
                return False
            pivot = np.sqrt(pivot)
            diagonal[d + j * n + j] = pivot
            for i in range(j + 1, n):
                value = diagonal[d + i * n + j]
                for c in range(j):
                    value -= diagonal[d + i * n + c] * diagonal[d + j * n + c]
                diagonal[d + i * n + j] = value / pivot
        for i in range(n):
            for c in range(i):
                right[f + i] -= diagonal[d + i * n + c] * right[f + c]
            right[f + i] /= diagonal[d + i * n + i]
        if k == layers - 1:
            break
        after, e, f2 = size[k + 1], block[k + 1], start[k + 1]
        for i in range(n):
            row = d + i * after
            for c in range(i):
                factor = diagonal[d + i * n + c]
                if factor != 0.0:
                    for j in range(after):
                        above[row + j] -= factor * above[d + c * after + j]
            scale = 1.0 / diagonal[d + i * n + i]
            for j in range(after):
                above[row + j] *= scale
                right[f2 + j] -= above[row + j] * right[f + i]
            for j in range(after):
                factor = above[row + j]
                if factor != 0.0:
                    for c in range(j + 1):
                        diagonal[e + j * after + c] -= factor * above[row + c]
    for k in range(layers - 1, -1, -1):
        n, d, f = size[k], block[k], start[k]
        if k < layers - 1:
            after, f2 = size[k + 1], start[k + 1]
            for i in range(n):
                for j in range(after):
                    right[f + i] -= above[d + i * after + j] * right[f2 + j]
        for i in range(n - 1, -1, -1):
            for c in range(i + 1, n):
                right[f + i] -= diagonal[d + c * n + i] * right[f + c]
            right[f + i] /= diagonal[d + i * n + i]
    return True


@kernel
def search_line(u, slope, linear, longest):
    """Maximise ``t * linear - 1/2 sum max(0, u + t * slope)**2`` over t in [0, longest].

    Returns (t, gain); the gain takes the derivative for straight, which it nearly is.
    """
    low, high, start = 0.0, longest, linear
    for r in range(u.size):
        start -= max(0.0, u[r]) * slope[r]
    t = min(1.0, longest)
    first = start
    for _ in range(100):
        first, second = linear, 0.0
        for r in range(u.size):
            value = u[r] + t * slope[r]
            if value > 0.0:
                first -= value * slope[r]
                second += slope[r] * slope[r]
        if first > 0.0:
            if t >= longest:
                break
            low = t
        else:
            high = t
        if abs(first) <= 1e-3 * start:
            break
        new = t + first / second if second > 0.0 else np.inf
        if not low < new < high:
            if high == np.inf:
                new = 4.0 * t
            elif new >= high == longest and low == t:
                new = longest
            else:
                new = 0.5 * (low + high)
        t = new
    return t, 0.5 * t * (start + first)


@kernel
def clipped_step(layout, chain, step, clipped):
    """The step with every multiplier kept at or above 0."""
    for k in range(layout.layer_start.size - 2):
        a = layout.layer_start[k]
        last = a + chain.size[k] - 1
        value = step[last]
        clipped[last] = value
        for i in range(last - 1, a - 1, -1):
            value += max(step[i] - step[i + 1], -chain.gap[i])
            clipped[i] = value


@kernel
def step_rounding(step, i):
    return 4.0 * ULP * (abs(step[i]) + abs(step[i + 1]))


@kernel
def try_step(layout, chain, u, step, slope):
    """Best length of a step and its gain; `slope` becomes the change of u."""
    longest, linear = np.inf, 0.0
    for k in range(layout.layer_start.size - 2):
        a = layout.layer_start[k]
        last = a + chain.size[k] - 1
        linear += step[last]
        for i in range(a, last):
            change = step[i] - step[i + 1]
            if change < 0.0:
                limit = -chain.gap[i] / change
                if chain.gap[i] + change >= -step_rounding(step, i):
                    limit = max(1.0, limit)  # it ends at 0 but for rounding
                longest = min(longest, limit)
    apply_rows(layout, chain, step, slope, slope, False)
    return search_line(u, slope, linear, longest)


@kernel
def ascend(layout, chain, z, u, mu, tol, limit, box):
    """Maximise the dual over the current groups; returns (violation left, Newton steps).

    Should the step of the model not keep the multipliers >= 0, the better of two is taken: cut
    where the first multiplier meets 0, or with all of them clipped.
    """
    tied, step, clipped, slope, other, matrix, model = box
    steps, stiff = 0, 1.0
    while True:
        set_gradient(layout, chain, u)
        worst = find_tied(layout, chain, tied)
        if worst <= tol or steps >= limit or stiff > STIFFEST:
            if steps > 0:
                set_levels(layout, chain, mu)
                apply_rows(layout, chain, chain.level, u, z, True)
            return worst, steps
        fill_system(layout, chain, u, matrix)
        ridge = stiff * min(RIDGE_MAX, RIDGE * worst) + 1e-13
        falls = newton_step(layout, chain, matrix, tied, tol, ridge, step, model)
        steps += 1
        t, gain = try_step(layout, chain, u, step, slope)
        if falls:
            clipped_step(layout, chain, step, clipped)
            t2, gain2 = try_step(layout, chain, u, clipped, other)
            if gain2 > gain:
                t = t2
                step, clipped = clipped, step
                slope, other = other, slope
                gain = gain2
        stiff = 1.0 if gain > 0.0 else stiff * STIFFER
        if stiff > 1.0:
            continue
        for k in range(mu.size):
            a = layout.layer_start[k]
            last = a + chain.size[k] - 1
            for i in range(a, last):
                change = step[i] - step[i + 1]
                new = chain.gap[i] + t * change
                if change < 0.0 and new <= 1e-14 * chain.gap[i] + t * step_rounding(step, i):
                    new = 0.0
                chain.gap[i] = new
            mu[k] += t * step[last]
        for r in range(u.size):
            u[r] += t * slope[r]


@kernel
def spread(layout, k, u, mass, fractions, flow, excess, distance, used, row_distance):
    """Route the rows of layer k into layer k+1 with as little excess over the masses as possible.

    Maximum flow by blocking sweeps. Returns the excess that is left; the states that cannot get
    rid of it have distance -1 (the largest minimum cut).
    """
    a, b, c = layout.layer_start[k], layout.layer_start[k + 1], layout.layer_start[k + 2]
    count = 0
    for y in range(b, c):
        excess[y] = -mass[y]
    for r in range(layout.state_row[a], layout.state_row[b]):
        if u[r] > 0.0 and layout.half[r] < 1.0:
            used[count] = r
            count += 1
            for e in range(layout.entry_start[r], layout.entry_start[r + 1]):
                flow[e] = fractions[e] * u[r]
                excess[layout.entry_state[e]] += flow[e]
    while True:
        waiting = 0
        for y in range(b, c):
            distance[y] = 0 if excess[y] < -DUST else -1
            if excess[y] > DUST:
                waiting += 1
        if waiting == 0:
            break
        for i in range(count):
            row_distance[i] = -1
        found, top, more = 0, 0, True
        while more and found < waiting:
            more = False
            for i in range(count):
                if row_distance[i] < 0:
                    r = used[i]
                    if find_givers(layout, r, top, u[r], flow, excess, distance):
                        row_distance[i] = top
            top += 1
            for y in range(b, c):
                if distance[y] == top:
                    more = True
                    if excess[y] > DUST:
                        found += 1
        if found == 0:
            break
        for d in range(top, 0, -1):
            for i in range(count):
                if row_distance[i] == d - 1:
                    push(layout, used[i], d, u[used[i]], flow, excess, distance)
    left = 0.0
    for y in range(b, c):
        left += max(0.0, excess[y])
    return left


@kernel
def find_givers(layout, r, d, total, flow, excess, distance):
    """Whether row r can send more to a state at distance d; what it can take from is at d+1."""
    first, last = layout.entry_start[r], layout.entry_start[r + 1]
    for e in range(first, last):
        if distance[layout.entry_state[e]] == d and layout.entry_prob[e] * total - flow[e] > DUST:
            break
    else:
        return False
    for e in range(first, last):
        y = layout.entry_state[e]
        if distance[y] < 0 and flow[e] > DUST:
            distance[y] = d + 1
    return True


@kernel
def push(layout, r, d, total, flow, excess, distance):
    """Move excess along row r from states at distance d to states at distance d-1."""
    first, last = layout.entry_start[r], layout.entry_start[r + 1]
    f = first
    for e in range(first, last):
        y = layout.entry_state[e]
        if distance[y] != d or not excess[y] > DUST:
            continue
        while f < last and flow[e] > 0.0 and excess[y] > 0.0:
            x = layout.entry_state[f]
            amount = 0.0
            if distance[x] == d - 1:
                amount = min(excess[y], flow[e], layout.entry_prob[f] * total - flow[f])
                if d == 1:
                    amount = min(amount, -excess[x])
            if amount > 0.0:
                flow[e] -= amount
                flow[f] += amount
                excess[y] -= amount
                excess[x] += amount
            if excess[y] > 0.0 and flow[e] > 0.0:
                f += 1
        if f == last:
            return


@kernel
def keep_flow(layout, u, flow, fractions):
    """Fractions of the rows in use, exactly within [0, p_bar] and with the right sum."""
    for r in range(u.size):
        if u[r] > 0.0 and layout.half[r] < 1.0:
            first, last = layout.entry_start[r], layout.entry_start[r + 1]
            for e in range(first, last):
                fractions[e] = flow[e] / u[r]
            fit_row(layout.entry_prob, fractions, first, last, 1.0 - layout.half[r])


@kernel
def first_fractions(layout, fractions):
    """The start without knowledge: every estimated row scaled down to the mass it must keep."""
    for r in range(layout.half.size):
        keep = max(0.0, 1.0 - layout.half[r])
        for e in range(layout.entry_start[r], layout.entry_start[r + 1]):
            fractions[e] = keep * layout.entry_prob[e]


@kernel
def fit_fractions(layout, fractions):
    """Bring fractions that are nearly right into their bounds."""
    for r in range(layout.half.size):
        first, last = layout.entry_start[r], layout.entry_start[r + 1]
        fit_row(layout.entry_prob, fractions, first, last, 1.0 - layout.half[r])


@kernel
def carry_fractions(old, new, old_fractions, fractions):
    """Fractions of an old layout of the same rows, brought into the bounds of a new one."""
    for r in range(new.half.size):
        first, last = new.entry_start[r], new.entry_start[r + 1]
        f, end = old.entry_start[r], old.entry_start[r + 1]
        for e in range(first, last):
            while f < end and old.entry_state[f] < new.entry_state[e]:
                f += 1
            known = f < end and old.entry_state[f] == new.entry_state[e]
            fractions[e] = old_fractions[f] if known else 0.0
        fit_row(new.entry_prob, fractions, first, last, 1.0 - new.half[r])


@kernel
def fit_row(prob, fractions, first, last, total):
    """Bring fractions[first:last] into [0, prob] with the given sum (<= that of prob)."""
    have, room = 0.0, 0.0
    for e in range(first, last):
        fractions[e] = min(max(fractions[e], 0.0), prob[e])
        have += fractions[e]
        room += prob[e] - fractions[e]
    if have > total:
        for e in range(first, last):
            fractions[e] *= total / have
    elif room > 0.0:
        part = min(1.0, (total - have) / room)
        for e in range(first, last):
            fractions[e] += part * (prob[e] - fractions[e])


@kernel
def repair(layout, u, mass, fractions, excess, heights, q, rolled, landing):
    """Roll the policy of max(0, u) forward along the fractions: a feasible q, exactly.

    What a row may send anywhere lands where `landing` says (the normalised room of each layer).
    """
    layers = layout.layer_start.size - 2
    rolled[0] = 1.0
    for k in range(layers):
        a, b, c = layout.layer_start[k], layout.layer_start[k + 1], layout.layer_start[k + 2]
        room, free = 0.0, 0.0
        for y in range(b, c):
            rolled[y] = 0.0
            landing[y] = max(0.0, -excess[y])
            room += landing[y]
        for y in range(b, c):
            if room > 0.0:
                landing[y] /= room
        if not room > 0.0:
            lowest = b
            for y in range(b, c):
                if heights[y] < heights[lowest]:
                    lowest = y
            landing[lowest] = 1.0
        for x in range(a, b):
            first, last = layout.state_row[x], layout.state_row[x + 1]
            for r in range(first, last):
                if mass[x] > 0.0:
                    q[r] = max(0.0, u[r]) * (rolled[x] / mass[x])
                else:
                    q[r] = rolled[x] / (last - first)
                if q[r] > 0.0:
                    free += q[r]
                    for e in range(layout.entry_start[r], layout.entry_start[r + 1]):
                        moved = q[r] * fractions[e]
                        rolled[layout.entry_state[e]] += moved
                        free -= moved
        for y in range(b, c):
            rolled[y] += max(0.0, free) * landing[y]


@kernel
def duality_gap(layout, chain, u, q, rolled):
    """f(q) minus the dual value at u, as a sum of terms that are >= 0 (no cancellation).

    The rounding of the terms, an ulp of each layer's largest height, is added to it.
    """
    layers = layout.layer_start.size - 2
    total, rounding = 0.0, 0.0
    for k in range(layers):
        a, b = layout.layer_start[k], layout.layer_start[k + 1]
        width, groups = layout.layer_start[k + 2] - b, chain.size[k + 1]
        lowest = chain.level[b + groups - 1]
        at = chain.first[k]
        for r in range(layout.state_row[a], layout.state_row[b]):
            total += 0.5 * (q[r] - max(0.0, u[r])) ** 2 + q[r] * max(0.0, -u[r])
            if q[r] > 0.0:
                for g in range(groups - 1):
                    total -= q[r] * chain.coefficient[at + g] * (chain.level[b + g] - lowest)
            at += width
        for y in range(b, layout.layer_start[k + 2]):
            total += rolled[y] * (chain.level[b + chain.group[y]] - lowest)
        rounding += ULP * (chain.level[b] - lowest)
    return max(0.0, total) + rounding


@kernel
def project(layout, z, heights, fractions, q, landing, tol, max_rounds, max_steps):
    """Project z; returns (gap, rounds, Newton steps).

    `heights` (S,) and `fractions` (E,) are the start and become the end state; `q` (R,) and
    `landing` (S,) are written. Converged when ``sqrt(2 * gap) <= tol``. `max_steps` bounds the
    Newton steps of a round; with one round and no step the start is only certified.
    """
    layers = layout.layer_start.size - 2
    states, rows = layout.state_row.size - 1, z.size
    first = np.zeros(layers + 1, dtype=np.int64)
    block = np.zeros(layers + 1, dtype=np.int64)
    for k in range(layers):
        n = layout.layer_start[k + 1] - layout.layer_start[k]
        n2 = layout.layer_start[k + 2] - layout.layer_start[k + 1]
        r0 = layout.state_row[layout.layer_start[k]]
        first[k + 1] = first[k] + (layout.state_row[layout.layer_start[k + 1]] - r0) * n2
        block[k + 1] = block[k] + n * max(n, n2)
    chain = Chain(
        np.zeros(states, dtype=np.int64),
        np.ones(layers + 1, dtype=np.int64),
        np.zeros(states),
        np.zeros(states),
        np.zeros(states),
        first,
        np.zeros(first[layers]),
    )
    space = block[layers]
    model = (
        np.zeros(states),
        np.zeros(states),
        np.zeros(states, dtype=np.int64),
        np.ones(layers, dtype=np.int64),
        np.zeros(layers, dtype=np.int64),
        (np.zeros(space), np.zeros(space), block),
        np.zeros(states),
    )
    box = (
        np.zeros(states, dtype=np.bool_),
        np.zeros(states),
        np.zeros(states),
        np.zeros(rows),
        np.zeros(rows),
        (np.zeros(space), np.zeros(space), block),
        model,
    )
    order = np.zeros(states, dtype=np.int64)
    mark = np.zeros(states, dtype=np.int64)
    mu, u = np.zeros(layers), np.zeros(rows)
    mass, rolled, excess = np.zeros(states), np.zeros(states), np.zeros(states)
    flow = np.zeros(layout.entry_prob.size)
    distance, used = np.zeros(states, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    row_distance = np.zeros(rows, dtype=np.int64)
    gap, total_steps, inner = np.inf, 0, INNER_FIRST
    rounds, best, best_round = 0, np.inf, 0
    while rounds < max_rounds and rounds - best_round < PATIENCE:
        rounds += 1
        for k in range(1, layers):
            group_states(layout, k, heights, mark, order, chain)
        for k in range(layers - 1):
            set_coefficients(layout, k, chain)
        if rounds == 1:
            set_masses(layout, chain, z, u, mu)
        else:
            set_levels(layout, chain, mu)
            apply_rows(layout, chain, chain.level, u, z, True)
        _, steps = ascend(layout, chain, z, u, mu, inner, max_steps, box)
        total_steps += steps
        for k in range(layers):
            a, b = layout.layer_start[k], layout.layer_start[k + 1]
            for x in range(a, b):
                heights[x] = chain.level[a + chain.group[x]] - mu[k]
                mass[x] = 0.0
                for r in range(layout.state_row[x], layout.state_row[x + 1]):
                    mass[x] += max(0.0, u[r])
        mass[layout.layer_start[layers] :] = 1.0
        worst = 0.0
        for k in range(layers - 1):
            left = spread(layout, k, u, mass, fractions, flow, excess, distance, used, row_distance)
            worst = max(worst, left)
            for y in range(layout.layer_start[k + 1], layout.layer_start[k + 2]):
                mark[y] = 0 if left > DUST and distance[y] < 0 else 1
        keep_flow(layout, u, flow, fractions)
        repair(layout, u, mass, fractions, excess, heights, q, rolled, landing)
        gap = duality_gap(layout, chain, u, q, rolled)
        if 2.0 * gap <= tol * tol:
            break
        if gap < best:
            best, best_round = gap, rounds
        tallest = 1.0
        for y in range(states):
            tallest = max(tallest, heights[y])
        floor = max(FLOOR, INNER * tol * tol / tallest)
        inner = max(INNER * min(worst, inner), floor)
    return gap, rounds, total_steps


@kernel
def project_pairs(
    layer_start,
    state_row,
    entry_start,
    entry_state,
    entry_prob,
    half,
    pairs,
    z,
    heights,
    fractions,
    occupancy,
    landing,
    tol,
    max_rounds,
    max_steps,
):
    """`project` between flat (S*A,) arrays, of which only `pairs` are read and written.

    Single arrays, because a tuple of them takes as long to pass as a small projection. The gap is
    NaN, and nothing is written, if z has numbers that are not finite.
    """
    layout = Layout(layer_start, state_row, entry_start, entry_state, entry_prob, half)
    target, q = np.empty(pairs.size), np.empty(pairs.size)
    total = 0.0
    for r in range(pairs.size):
        target[r] = z[pairs[r]]
        total += target[r]
    if not np.isfinite(total):
        return np.nan, 0, 0
    result = project(layout, target, heights, fractions, q, landing, tol, max_rounds, max_steps)
    for r in range(pairs.size):
        occupancy[pairs[r]] = q[r]
    return result


@kernel
def optimistic_sweep(layout, costs, values, best, fractions, landing):
    """Least expected cost to go over actions and transitions, backwards over the layers.

    Half the radius is taken from the most expensive next states and put on the cheapest. Writes
    `values` (S,), the `best` row of each state (-1 in the last layer), what each row keeps of
    p_bar (`fractions`) and the cheapest state of each layer (`landing`, an indicator).
    """
    layers = layout.layer_start.size - 2
    values[layout.layer_start[layers] :] = 0.0
    best[layout.layer_start[layers] :] = -1
    landing[:] = 0.0
    row_prob = np.zeros(values.size)
    order = np.arange(values.size)
    for k in range(layers - 1, -1, -1):
        a, b, c = layout.layer_start[k], layout.layer_start[k + 1], layout.layer_start[k + 2]
        for i in range(b + 1, c):  # cheapest last; ties by number
            y, j = order[i], i
            while j > b and values[order[j - 1]] < values[y]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = y
        cheapest = order[c - 1]
        landing[cheapest] = 1.0
        for x in range(a, b):
            best[x] = -1
            for r in range(layout.state_row[x], layout.state_row[x + 1]):
                first, last = layout.entry_start[r], layout.entry_start[r + 1]
                for e in range(first, last):
                    row_prob[layout.entry_state[e]] = layout.entry_prob[e]
                taken, value, kept = layout.half[r], costs[r], 0.0
                for i in range(b, c):
                    y = order[i]
                    part = min(taken, row_prob[y])
                    taken -= part
                    row_prob[y] -= part
                    kept += row_prob[y]
                    value += row_prob[y] * values[y]
                value += (1.0 - kept) * values[cheapest]
                for e in range(first, last):
                    fractions[e] = row_prob[layout.entry_state[e]]
                    row_prob[layout.entry_state[e]] = 0.0
                if best[x] < 0 or value < values[x]:
                    values[x] = value
                    best[x] = r
