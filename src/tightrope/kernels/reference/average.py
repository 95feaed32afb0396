"""NumPy twins of `tightrope.kernels.average`; `differences` in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import scipy.sparse as sp


def _matrix(start, stop, indices, data, states):
    return sp.csr_array((data, indices, np.append(start, stop[-1])), shape=(start.size, states))


def _looked_ahead(matrix, rewards, usable, discount, values):
    ahead = rewards + discount * (matrix @ values).reshape(rewards.shape)
    return np.where(usable, ahead, -np.inf)


def backup(start, stop, indices, data, rewards, usable, discount, values, out, actions):
    matrix = _matrix(start, stop, indices, data, values.size)
    ahead = _looked_ahead(matrix, rewards, usable, discount, values)
    out[:] = ahead.max(axis=1)
    actions[:] = np.where(usable.any(axis=1), ahead.argmax(axis=1), -1)


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
    matrix = _matrix(start, stop, indices, data, bias.size)
    inside = labels >= 0
    sweeps = 0
    while True:
        ahead = _looked_ahead(matrix, rewards, usable, 1.0, bias)
        actions[:] = np.where(usable.any(axis=1), ahead.argmax(axis=1), -1)
        change = ahead.max(axis=1) - bias
        sweeps += 1
        for k in range(lower.size):
            lower[k], upper[k] = change[labels == k].min(), change[labels == k].max()
        widest = ((upper - lower) / np.maximum(1.0, np.abs(lower))).max(initial=0.0)
        if widest <= tolerance or sweeps >= max_sweeps:
            return sweeps
        bias[inside] += step * change[inside]
        for k in range(lower.size):
            part = np.flatnonzero(labels == k)
            bias[part] -= bias[part[change[part].argmin()]]


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
    matrix = _matrix(start, stop, indices, data, values.size)
    states = np.arange(values.size)
    factor = discount / (1.0 - discount)
    sweeps = 0
    while True:
        ahead = _looked_ahead(matrix, rewards, usable, discount, values)
        actions[:] = ahead.argmax(axis=1)
        change = ahead.max(axis=1) - values
        values[:] = ahead.max(axis=1)
        sweeps += 1
        low, high = factor * change.min(), factor * change.max()
        if high - low <= tolerance or sweeps >= max_sweeps:
            return sweeps, low, high
        values -= values[0]
        for _ in range(inner):
            if sweeps >= max_sweeps:
                break
            values[:] = _looked_ahead(matrix, rewards, usable, discount, values)[states, actions]
            sweeps += 1


def differences(start, stop, indices, data, owner, pays, level, high, low, out, error):
    for row, i in enumerate(owner):
        total = Fraction(pays[row]) - Fraction(level[i])
        for k in range(start[row], stop[row]):
            j = indices[k]
            apart = Fraction(high[j]) + Fraction(low[j]) - Fraction(high[i]) - Fraction(low[i])
            total += Fraction(data[k]) * apart
        out[row] = float(total)
        error[row] = 2.0**-52 * abs(out[row])
