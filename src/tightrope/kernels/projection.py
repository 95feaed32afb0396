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

DUST = 1e-15
RIDGE, RIDGE_MAX, REACH = 1.0, 1e-2, 1.0


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
    column_start : (S+1,) int64, column_entry : (E,) int64
        The entries sorted by next state.
    entry_row : (E,) int32
    """

    layer_start: IntArray
    state_row: IntArray
    entry_start: IntArray
    entry_state: IntArray
    entry_prob: FloatArray
    half: FloatArray
    column_start: IntArray
    column_entry: IntArray
    entry_row: IntArray


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
def find_free(layout, chain, held, merged, size):
    """Largest violation of the optimality conditions; groups that stay tied are `merged`.

    Tied are groups whose cut has no multiplier and is not violated, or is `held`.
    """
    worst = 0.0
    for k in range(size.size):
        a = layout.layer_start[k]
        total, m = 0.0, 0
        for g in range(chain.size[k]):
            merged[a + g] = m
            total += chain.grad[a + g]
            if g == chain.size[k] - 1:
                worst = max(worst, abs(total))
            elif chain.gap[a + g] > 0.0:
                worst = max(worst, abs(total))
                m += 1
            elif total > 0.0:
                worst = max(worst, total)
                if not held[a + g]:
                    m += 1
        size[k] = m + 1
    return worst


@kernel
def fill_system(layout, chain, u, merged, size, diagonal, above, block, ridge, reach, part):
    """Newton matrix over the merged groups: blocks on and above the diagonal.

    Rows count from `-reach` on: where a step would bring them into use, they must brake it.
    """
    layers = size.size
    for k in range(layers):
        n = size[k]
        diagonal[block[k] : block[k] + n * n] = 0.0
        for i in range(n):
            diagonal[block[k] + i * n + i] = ridge
        if k < layers - 1:
            above[block[k] : block[k] + n * size[k + 1]] = 0.0
    for k in range(layers):
        a, b = layout.layer_start[k], layout.layer_start[k + 1]
        width, groups = layout.layer_start[k + 2] - b, chain.size[k + 1]
        n = size[k]
        after = size[k + 1] if k < layers - 1 else 0
        for x in range(a, b):
            own = merged[a + chain.group[x]]
            for r in range(layout.state_row[x], layout.state_row[x + 1]):
                if u[r] <= -reach:
                    continue
                diagonal[block[k] + own * n + own] += 1.0
                if after < 2 or layout.half[r] >= 1.0:
                    continue
                at = chain.first[k] + (r - layout.state_row[a]) * width
                part[:after] = 0.0
                for g in range(groups):
                    part[merged[b + g]] += chain.coefficient[at + g]
                row = block[k] + own * after
                for j in range(after):
                    above[row + j] -= part[j]
                for i in range(after):
                    if part[i] != 0.0:
                        row = block[k + 1] + i * after
                        for j in range(i + 1):
                            diagonal[row + j] += part[i] * part[j]


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
    """Maximiser over [0, longest] of t -> t * linear - 1/2 sum max(0, u + t * slope)**2."""
    low, high = 0.0, longest
    t = min(1.0, longest)
    for _ in range(100):
        first, second = linear, 0.0
        for r in range(u.size):
            value = u[r] + t * slope[r]
            if value > 0.0:
                first -= value * slope[r]
                second += slope[r] * slope[r]
        if first > 0.0:
            if t >= longest:
                return longest
            low = t
        else:
            high = t
        if second > 0.0:
            new = t + first / second
        else:
            new = np.inf
        if not low < new < high:
            if new >= high and high < np.inf:
                new = high if high == longest else 0.5 * (low + high)
            elif new == np.inf or high == np.inf:
                new = 4.0 * t
            else:
                new = 0.5 * (low + high)
        if abs(new - t) <= 1e-14 * t:
            return new
        t = new
    return t


@kernel
def newton_step(
    layout, chain, u, held, merged, size, start, right, diagonal, above, block, part, ridge, reach
):
    """Solve for the Newton step of the merged groups' levels, into `right`."""
    while True:
        n = 0
        for k in range(size.size):
            start[k] = n
            a = layout.layer_start[k]
            right[n : n + size[k]] = 0.0
            for g in range(chain.size[k]):
                right[n + merged[a + g]] += chain.grad[a + g]
            n += size[k]
        fill_system(layout, chain, u, merged, size, diagonal, above, block, ridge, reach, part)
        if solve_system(size, diagonal, above, block, start, right):
            return
        ridge *= 100.0


@kernel
def project_step(layout, chain, merged, size, start, right, step):
    """The step with every multiplier kept at or above 0; returns the slope of the dual along it."""
    ascent = 0.0
    for k in range(size.size):
        a = layout.layer_start[k]
        last = a + chain.size[k] - 1
        value = right[start[k] + size[k] - 1]
        step[last] = value
        ascent += value * chain.grad[last]
        for g in range(chain.size[k] - 2, -1, -1):
            change = right[start[k] + merged[a + g]] - right[start[k] + merged[a + g + 1]]
            value += max(change, -chain.gap[a + g])
            step[a + g] = value
            ascent += value * chain.grad[a + g]
    return ascent


@kernel
def hold_back(layout, chain, held, merged, size, start, right, step):
    """The step as it is; cuts without multiplier that it would push below 0 become held."""
    again = False
    for k in range(size.size):
        a = layout.layer_start[k]
        for g in range(chain.size[k]):
            step[a + g] = right[start[k] + merged[a + g]]
            if g > 0 and chain.gap[a + g - 1] == 0.0 and step[a + g - 1] < step[a + g]:
                held[a + g - 1] = True
                again = True
    return again


@kernel
def ascend(layout, chain, z, u, mu, tol, limit, box):
    """Maximise the dual over the current groups; returns (violation left, Newton steps)."""
    held, merged, size, start, right, step, slope, diagonal, above, block, part = box
    layers = mu.size
    steps = 0
    while True:
        set_gradient(layout, chain, u)
        held[:] = False
        worst = find_free(layout, chain, held, merged, size)
        if worst <= tol or steps >= limit:
            return worst, steps
        ridge, reach = min(RIDGE_MAX, RIDGE * worst) + 1e-13, REACH * worst
        while True:
            steps += 1
            newton_step(
                layout,
                chain,
                u,
                held,
                merged,
                size,
                start,
                right,
                diagonal,
                above,
                block,
                part,
                ridge,
                reach,
            )
            if project_step(layout, chain, merged, size, start, right, step) > 0.0:
                break
            if not hold_back(layout, chain, held, merged, size, start, right, step):
                break
            find_free(layout, chain, held, merged, size)
        longest, linear = np.inf, 0.0
        for k in range(layers):
            a = layout.layer_start[k]
            linear += step[a + chain.size[k] - 1]
            for g in range(chain.size[k] - 1):
                change = step[a + g] - step[a + g + 1]
                if change < 0.0:
                    longest = min(longest, -chain.gap[a + g] / change)
        apply_rows(layout, chain, step, slope, slope, False)
        t = search_line(u, slope, linear, longest)
        for k in range(layers):
            a = layout.layer_start[k]
            for g in range(chain.size[k] - 1):
                change = step[a + g] - step[a + g + 1]
                new = chain.gap[a + g] + t * change
                if change < 0.0 and new <= 1e-15 * chain.gap[a + g]:
                    new = 0.0
                chain.gap[a + g] = new
            mu[k] += t * step[a + chain.size[k] - 1]
        set_levels(layout, chain, mu)
        apply_rows(layout, chain, chain.level, u, z, True)


@kernel
def spread(layout, k, u, mass, fractions, flow, excess, distance, queue, row_distance):
    """Route the rows of layer k into layer k+1 with as little excess over the masses as possible.

    Maximum flow by repeated blocking sweeps. Returns the excess that is left; the columns that
    cannot get rid of it have distance -1 (the largest minimum cut).
    """
    a, b, c = layout.layer_start[k], layout.layer_start[k + 1], layout.layer_start[k + 2]
    r0, r1 = layout.state_row[a], layout.state_row[b]
    for y in range(b, c):
        excess[y] = -mass[y]
    for r in range(r0, r1):
        if u[r] > 0.0:
            for e in range(layout.entry_start[r], layout.entry_start[r + 1]):
                flow[e] = fractions[e] * u[r]
                excess[layout.entry_state[e]] += flow[e]
    while True:
        waiting, tail = 0, 0
        for y in range(b, c):
            distance[y] = -1
            if excess[y] > DUST:
                waiting += 1
            elif excess[y] < -DUST:
                distance[y] = 0
                queue[tail] = y
                tail += 1
        if waiting == 0:
            break
        for r in range(r0, r1):
            row_distance[r] = -1
        head, found = 0, 0
        while head < tail:
            y = queue[head]
            head += 1
            for i in range(layout.column_start[y], layout.column_start[y + 1]):
                e = layout.column_entry[i]
                r = layout.entry_row[e]
                if row_distance[r] >= 0 or not u[r] > 0.0:
                    continue
                if not layout.entry_prob[e] * u[r] - flow[e] > DUST:
                    continue
                row_distance[r] = distance[y]
                for f in range(layout.entry_start[r], layout.entry_start[r + 1]):
                    x = layout.entry_state[f]
                    if distance[x] < 0 and flow[f] > DUST:
                        distance[x] = distance[y] + 1
                        queue[tail] = x
                        tail += 1
                        if excess[x] > DUST:
                            found += 1
        if found == 0:
            break
        for i in range(tail - 1, -1, -1):
            y = queue[i]
            if distance[y] > 0 and excess[y] > DUST:
                push(layout, y, u, flow, excess, distance, row_distance)
    left = 0.0
    for y in range(b, c):
        if excess[y] > 0.0:
            left += excess[y]
    return left


@kernel
def push(layout, y, u, flow, excess, distance, row_distance):
    """Move the excess of column y to columns one step nearer to one with room."""
    below = distance[y] - 1
    for i in range(layout.column_start[y], layout.column_start[y + 1]):
        e = layout.column_entry[i]
        r = layout.entry_row[e]
        if row_distance[r] != below or not u[r] > 0.0 or not flow[e] > 0.0:
            continue
        for f in range(layout.entry_start[r], layout.entry_start[r + 1]):
            x = layout.entry_state[f]
            if distance[x] != below:
                continue
            amount = min(excess[y], flow[e], layout.entry_prob[f] * u[r] - flow[f])
            if below == 0:
                amount = min(amount, -excess[x])
            if amount > 0.0:
                flow[e] -= amount
                flow[f] += amount
                excess[y] -= amount
                excess[x] += amount
                if not excess[y] > 0.0:
                    return
                if not flow[e] > 0.0:
                    break


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
def keep_flow(layout, u, flow, fractions):
    """Fractions of the rows in use, exactly within [0, p_bar] and with the right sum."""
    for r in range(u.size):
        if not u[r] > 0.0:
            continue
        first, last = layout.entry_start[r], layout.entry_start[r + 1]
        for e in range(first, last):
            fractions[e] = flow[e] / u[r]
        fit_row(layout.entry_prob, fractions, first, last, 1.0 - layout.half[r])


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
    """f(q) minus the dual value at u, as a sum of terms that are >= 0 (no cancellation)."""
    layers = layout.layer_start.size - 2
    total = 0.0
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
    return total


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
    box = (
        np.zeros(states, dtype=np.bool_),
        np.zeros(states, dtype=np.int64),
        np.ones(layers, dtype=np.int64),
        np.zeros(layers, dtype=np.int64),
        np.zeros(states),
        np.zeros(states),
        np.zeros(rows),
        np.zeros(block[layers]),
        np.zeros(block[layers]),
        block,
        np.zeros(states),
    )
    order = np.zeros(states, dtype=np.int64)
    mark = np.zeros(states, dtype=np.int64)
    mu, u = np.zeros(layers), np.zeros(rows)
    mass, rolled, excess = np.zeros(states), np.zeros(states), np.zeros(states)
    flow = np.zeros(layout.entry_prob.size)
    distance, queue = np.zeros(states, dtype=np.int64), np.zeros(states, dtype=np.int64)
    row_distance = np.zeros(rows, dtype=np.int64)
    gap, total_steps, inner = np.inf, 0, 1e-2
    rounds = 0
    while rounds < max_rounds:
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
            left = spread(
                layout, k, u, mass, fractions, flow, excess, distance, queue, row_distance
            )
            worst = max(worst, left)
            for y in range(layout.layer_start[k + 1], layout.layer_start[k + 2]):
                mark[y] = 0 if left > DUST and distance[y] < 0 else 1
        keep_flow(layout, u, flow, fractions)
        repair(layout, u, mass, fractions, excess, heights, q, rolled, landing)
        gap = max(0.0, duality_gap(layout, chain, u, q, rolled))
        if 2.0 * gap <= tol * tol:
            break
        inner = max(0.1 * min(worst, inner), 1e-15)
    return gap, rounds, total_steps


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
