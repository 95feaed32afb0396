"""Compiled sweeps for the average and the discounted criterion.

Transition tables come as ``start, stop, indices, data`` (row ``s*A + a``); `usable` (S, A) says
which pairs may be played. Plain NumPy twins: `tightrope.kernels.reference.average`.
"""

from __future__ import annotations

import numpy as np

from tightrope.kernels.jit import kernel

SPLIT = 134217729.0  # 2^27 + 1 (Veltkamp): halves of a float whose products are exact
UNIT = 2.0**-52
TINY = 1e-290  # covers what products below the normal range lose


@kernel
def backup(start, stop, indices, data, rewards, usable, discount, values, out, actions):
    """``out[s] = max_a r(s,a) + discount P(s,a) values`` and the first maximiser.

    States without a usable pair get -inf and action -1. Writes `out` (S,) and `actions` (S,).
    """
    states, choices = rewards.shape
    for s in range(states):
        best, chosen = -np.inf, -1
        for a in range(choices):
            if not usable[s, a]:
                continue
            row = s * choices + a
            mean = 0.0
            for k in range(start[row], stop[row]):
                mean += data[k] * values[indices[k]]
            total = rewards[s, a] + discount * mean
            if total > best:
                best, chosen = total, a
        out[s] = best
        actions[s] = chosen


@kernel
def relative_iteration(
    start,
    stop,
    indices,
    data,
    rewards,
    usable,
    labels,
    step,
    tolerance,
    max_sweeps,
    bias,
    lower,
    upper,
    actions,
):
    """Relative value iteration in every end component at once; returns the number of sweeps.

    Parameters
    ----------
    usable : (S, A) pairs that stay inside the component of their state
    labels : (S,) component of each state, -1 where there is none
    step : in (0, 1]
        Part of the change that is taken, ``h += step (T h - h)``: below 1 this is the aperiodicity
        transform ``P' = (1-step) I + step P, r' = step r``, whose gain is `step` times ours.
        The bounds below are of T itself, so nothing has to be scaled back.
    bias : (S,) start, written: the last values, relative to one state of each component
    tolerance : stops where upper - lower <= tolerance * max(1, |lower|) in all components
    lower, upper : (K,) written: ``min (T h - h) <= gain <= max (T h - h)`` [Puterman, 8.5.5]
    actions : (S,) written: maximisers at `bias`
    """
    states = bias.size
    parts = lower.size
    out = np.empty(states)
    shift = np.empty(parts)
    sweeps = 0
    while True:
        backup(start, stop, indices, data, rewards, usable, 1.0, bias, out, actions)
        sweeps += 1
        lower[:] = np.inf
        upper[:] = -np.inf
        for s in range(states):
            k = labels[s]
            if k >= 0:
                change = out[s] - bias[s]
                if change < lower[k]:
                    lower[k] = change
                    shift[k] = bias[s] + step * change
                if change > upper[k]:
                    upper[k] = change
        widest = 0.0
        for k in range(parts):
            widest = max(widest, (upper[k] - lower[k]) / max(1.0, abs(lower[k])))
        if widest <= tolerance or sweeps >= max_sweeps:
            return sweeps
        for s in range(states):
            k = labels[s]
            if k >= 0:
                bias[s] += step * (out[s] - bias[s]) - shift[k]


@kernel
def discounted_iteration(
    start,
    stop,
    indices,
    data,
    rewards,
    usable,
    discount,
    inner,
    tolerance,
    max_sweeps,
    values,
    actions,
):
    """Modified policy iteration; returns (sweeps, low, high).

    After each maximising sweep `inner` sweeps follow the maximisers. ``values + low`` and
    ``values + high`` bound the optimum at every state (MacQueen 1966; Puterman 1994, 6.6.4):
    ``discount/(1-discount)`` times the least and largest change. Stops when they are `tolerance`
    apart.

    values : (S,) start, written; actions : (S,) written
    """
    states, choices = rewards.shape
    out = np.empty(states)
    factor = discount / (1.0 - discount)
    sweeps = 0
    while True:
        backup(start, stop, indices, data, rewards, usable, discount, values, out, actions)
        sweeps += 1
        least, largest = np.inf, -np.inf
        for s in range(states):
            change = out[s] - values[s]
            least = min(least, change)
            largest = max(largest, change)
            values[s] = out[s]
        if factor * (largest - least) <= tolerance or sweeps >= max_sweeps:
            return sweeps, factor * least, factor * largest
        values -= values[0]  # the level is in the change; small numbers round less
        for _ in range(inner):
            if sweeps >= max_sweeps:
                break
            for s in range(states):
                row = s * choices + actions[s]
                mean = 0.0
                for k in range(start[row], stop[row]):
                    mean += data[k] * values[indices[k]]
                out[s] = rewards[s, actions[s]] + discount * mean
            values[:] = out
            sweeps += 1


@kernel
def differences(start, stop, indices, data, owner, pays, level, high, low, out, error):
    """``out[row] = pays[row] - level[i] + sum_j p(j) (h_j - h_i)`` with i the owner of the row.

    The vector h comes as unevaluated sum `high + low`, and sums and products are carried in twice
    the digits (Ogita, Rump, Oishi, SIAM J. Sci. Comput. 26, 2005, Dot2), so that
    ``r - g + P h - h`` keeps its digits where h is 1e15 times as large. A row's chance of staying
    is not read: it is what the other entries leave.

    Parameters
    ----------
    start, stop, owner, pays : (R,)
    level, high, low : (S,)
    out, error : (R,) written
        The exact number is within ``out +- error``; `error` is inf if it overflows.
    """
    for row in range(start.size):
        i = owner[row]
        total = pays[row] - level[i]
        back = total - pays[row]
        rest = (pays[row] - (total - back)) + (-level[i] - back)
        spread = abs(pays[row]) + abs(level[i])
        rough = 0.0
        for k in range(start[row], stop[row]):
            j = indices[k]
            if j == i:
                continue
            p = data[k]
            # h_j - h_i, its rounding error, and the low parts
            apart = high[j] - high[i]
            back = apart - high[j]
            lost = (high[j] - (apart - back)) + (-high[i] - back)
            lower = lost + (low[j] - low[i])
            # p times that, and its rounding error
            step = p * apart
            c = SPLIT * p
            p_high = c - (c - p)
            c = SPLIT * apart
            apart_high = c - (c - apart)
            p_low, apart_low = p - p_high, apart - apart_high
            gone = p_low * apart_low - (
                ((step - p_high * apart_high) - p_low * apart_high) - p_high * apart_low
            )
            new = total + step
            back = new - total
            rest += ((total - (new - back)) + (step - back)) + (gone + p * lower)
            total = new
            spread += abs(step)
            rough += p * (abs(lost) + abs(low[j]) + abs(low[i]))
        terms = (stop[row] - start[row] + 8) * UNIT
        result = total + rest
        bound = 2.0 * (UNIT * abs(result) + terms * rough + terms * terms * spread) + TINY
        if np.isfinite(result) and np.isfinite(bound):
            out[row], error[row] = result, bound
        else:
            out[row], error[row] = 0.0, np.inf
