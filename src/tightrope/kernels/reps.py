"""Compiled kernels of the KL projection in UC-O-REPS; `reference.reps` holds their plain twins.

The projection of q~(x, a, y) = q(x, a) e^(-eta l(x, a)) p(y | x, a) onto the occupancies of an L1
confidence set has the dual: minimise over V on the inner states, V(x_0) = V(x_L) = 0,

    D(V) = sum_k ln sum_{x in X_k, a} q(x, a) exp(-eta l(x, a) + V(x) + phi_{x,a}(V)),
    phi_{x,a}(V) = max over rows p' of the ball of  - p' V - KL(p' || p(. | x, a)).

The multipliers with sign constraints (two for every (x, a, y)) sit inside phi, where they have a
closed form: the maximiser is p' = max(alpha u, min(p_bar, beta u)) with u = p e^(-V), and alpha,
beta are the levels at which half the radius lies above and below p_bar.
"""

from __future__ import annotations

import numpy as np

from tightrope.kernels.jit import kernel

LEAST = 1e-30  # probabilities of a row are kept at or above it, so that no logarithm is of 0


@kernel
def sorted_by_ratio(above, below):
    """Order of above/below, smallest first; insertion sort, since a row is short."""
    n = above.size
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        ratio = above[i] / below[i]
        j = i
        while j > 0 and above[order[j - 1]] / below[order[j - 1]] > ratio:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@kernel
def dot(left, right):
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@kernel
def add_scaled(target, factor, direction):
    for i in range(target.size):
        target[i] += factor * direction[i]


@kernel
def largest(vector):
    best = 0.0
    for i in range(vector.size):
        best = max(best, abs(vector[i]))
    return best


@kernel
def ball_row(prior, centre, radius, value, out):
    """Write the maximiser of -p'V - KL(p' || prior) over the ball into `out`; returns the maximum.

    A radius of 2 or more allows every distribution.
    """
    n = prior.size
    lowest = value[0]
    for i in range(1, n):
        lowest = min(lowest, value[i])
    total = 0.0
    for i in range(n):
        out[i] = prior[i] * np.exp(lowest - value[i])
        total += out[i]
    distance = 0.0
    for i in range(n):
        out[i] /= total
        distance += abs(out[i] - centre[i])
    if radius >= 2.0 or distance <= radius:
        return np.log(total) - lowest
    order = sorted_by_ratio(centre, out)
    half = 0.5 * radius
    above, mass = half, 0.0
    alpha = 0.0
    for k in range(n):
        i = order[k]
        above += centre[i]
        mass += out[i]
        alpha = above / mass
        if k == n - 1 or alpha * out[order[k + 1]] <= centre[order[k + 1]]:
            break
    below, mass = -half, 0.0
    beta = np.inf
    for k in range(n - 1, -1, -1):
        i = order[k]
        below += centre[i]
        mass += out[i]
        beta = below / mass
        if k == 0 or beta * out[order[k - 1]] >= centre[order[k - 1]]:
            break
    total = 0.0
    for i in range(n):
        out[i] = max(alpha * out[i], min(centre[i], beta * out[i]))
        out[i] = max(out[i], LEAST)
        total += out[i]
    best = 0.0
    for i in range(n):
        out[i] /= total
        best -= out[i] * (value[i] + np.log(out[i] / prior[i]))
    return best


@kernel
def reps_dual(offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, slope):
    """D(V), its gradient in `slope` (S,), and the primal point it belongs to.

    `pairs` (S, A) is q(x, a), `rows` (S, A, W) is p, `losses` (S, A) is eta l; `new_pairs` and
    `new_rows` receive the maximiser of the Lagrangian.
    """
    num_actions = pairs.shape[1]
    slope[:] = 0.0
    dual = 0.0
    for k in range(offsets.size - 2):
        first, last, after = offsets[k], offsets[k + 1], offsets[k + 2]
        width = after - last
        top = -np.inf
        for x in range(first, last):
            for a in range(num_actions):
                inner = ball_row(
                    rows[x, a, :width],
                    centres[x, a, :width],
                    radii[x, a],
                    value[last:after],
                    new_rows[x, a, :width],
                )
                exponent = np.log(max(pairs[x, a], 1e-300)) - losses[x, a] + value[x] + inner
                new_pairs[x, a] = exponent
                top = max(top, exponent)
        total = 0.0
        for x in range(first, last):
            for a in range(num_actions):
                new_pairs[x, a] = np.exp(new_pairs[x, a] - top)
                total += new_pairs[x, a]
        dual += top + np.log(total)
        for x in range(first, last):
            for a in range(num_actions):
                new_pairs[x, a] /= total
                slope[x] += new_pairs[x, a]
                for y in range(width):
                    slope[last + y] -= new_pairs[x, a] * new_rows[x, a, y]
    slope[0] = 0.0
    slope[slope.size - 1] = 0.0
    return dual


MEMORY = 12


@kernel
def reps_project(
    offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, tolerance, max_steps
):
    """Minimise D from `value` (written back) by limited-memory BFGS with Armijo steps.

    Leaves an exactly feasible occupancy in `new_pairs` and `new_rows`. Returns the dual minimum
    found, the largest flow imbalance there and the number of evaluations.
    """
    size = value.size
    steps, turns = np.zeros((MEMORY, size)), np.zeros((MEMORY, size))
    curvature, factor = np.zeros(MEMORY), np.zeros(MEMORY)
    slope, trial, trial_slope = np.zeros(size), np.zeros(size), np.zeros(size)
    stored, evaluations = 0, 1
    dual = reps_dual(
        offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, slope
    )
    direction = np.zeros(size)
    while largest(slope) > tolerance and evaluations < max_steps:
        direction[:] = 0.0
        add_scaled(direction, -1.0, slope)
        kept = min(stored, MEMORY)
        for back in range(kept):
            i = (stored - 1 - back) % MEMORY
            factor[i] = dot(steps[i], direction) / curvature[i]
            add_scaled(direction, -factor[i], turns[i])
        if kept > 0:
            i = (stored - 1) % MEMORY
            scale = curvature[i] / dot(turns[i], turns[i])
            add_scaled(direction, scale - 1.0, direction)
        for back in range(kept - 1, -1, -1):
            i = (stored - 1 - back) % MEMORY
            add_scaled(direction, factor[i] - dot(turns[i], direction) / curvature[i], steps[i])
        descent = dot(direction, slope)
        if descent >= 0.0:
            direction[:] = 0.0
            add_scaled(direction, -1.0, slope)
            descent = -dot(slope, slope)
            stored = 0
        length = 1.0
        found = dual
        for _ in range(40):
            trial[:] = value
            add_scaled(trial, length, direction)
            found = reps_dual(
                offsets,
                pairs,
                rows,
                centres,
                radii,
                losses,
                trial,
                new_pairs,
                new_rows,
                trial_slope,
            )
            evaluations += 1
            if found <= dual + 1e-4 * length * descent + 1e-15 * abs(dual):
                break
            length *= 0.5
        else:
            break
        i = stored % MEMORY
        for j in range(size):
            steps[i, j] = trial[j] - value[j]
            turns[i, j] = trial_slope[j] - slope[j]
        bend = dot(steps[i], turns[i])
        if bend > 1e-14 * np.sqrt(dot(steps[i], steps[i]) * dot(turns[i], turns[i])):
            curvature[i] = bend
            stored += 1
        value[:] = trial
        slope[:] = trial_slope
        dual = found
    reps_dual(offsets, pairs, rows, centres, radii, losses, value, new_pairs, new_rows, slope)
    imbalance = largest(slope)
    roll_forward(offsets, new_pairs, new_rows)
    return dual, imbalance, evaluations


@kernel
def roll_forward(offsets, pairs, rows):
    """Replace q(x, a) by the occupancy of its policy under the rows p(y | x, a)."""
    num_states, num_actions = pairs.shape
    mass = np.zeros(num_states)
    mass[0] = 1.0
    for k in range(offsets.size - 2):
        last = offsets[k + 1]
        for x in range(offsets[k], last):
            total = 0.0
            for a in range(num_actions):
                total += pairs[x, a]
            for a in range(num_actions):
                share = pairs[x, a] / total if total > 0.0 else 1.0 / num_actions
                pairs[x, a] = mass[x] * share
                for y in range(offsets[k + 2] - last):
                    mass[last + y] += pairs[x, a] * rows[x, a, y]
