"""Optimal gains in fractions, by trying every deterministic policy of a small model."""

import itertools
from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from tightrope.model.structure import chain_classes


def solve(rows, right):
    """The solution of a regular system, by elimination in fractions."""
    size = len(rows)
    system = [[*row, x] for row, x in zip(rows, right)]
    for k in range(size):
        pivot = next(i for i in range(k, size) if system[i][k])
        system[k], system[pivot] = system[pivot], system[k]
        system[k] = [x / system[k][k] for x in system[k]]
        for i in range(size):
            if i != k and system[i][k]:
                factor = system[i][k]
                system[i] = [x - factor * y for x, y in zip(system[i], system[k])]
    return [row[-1] for row in system]


def gains_of(rows, pays, labels):
    """Gain of each state of a chain; `labels` are its recurrent classes, -1 where transient."""
    gains = [Fraction(0)] * len(rows)
    for k in range(max(labels) + 1):
        part = [i for i, label in enumerate(labels) if label == k]
        system = [[rows[i][j] - (i == j) for i in part] for j in part]
        system[-1] = [Fraction(1)] * len(part)
        law = solve(system, [Fraction(0)] * (len(part) - 1) + [Fraction(1)])
        for i in part:
            gains[i] = sum(mass * pays[j] for mass, j in zip(law, part))
    moving = [i for i, label in enumerate(labels) if label < 0]
    system = [[(i == j) - rows[i][j] for j in moving] for i in moving]
    into = [sum(x * g for x, g, label in zip(rows[i], gains, labels) if label >= 0) for i in moving]
    for i, gain in zip(moving, solve(system, into)):
        gains[i] = gain
    return gains


def every_policy(model, rewards):
    """The gains (S,) of every deterministic policy; a row's diagonal is what the others leave."""
    table = model.dense()
    exact = [[[Fraction(float(x)) for x in row] for row in rows] for rows in table]
    for s, rows in enumerate(exact):
        for row in rows:
            row[s] = 1 - sum(x for j, x in enumerate(row) if j != s)
    states = range(model.num_states)
    for actions in itertools.product(*(np.flatnonzero(row) for row in model.available)):
        labels = chain_classes(sp.csr_array(table[list(states), list(actions)]))
        pays = [Fraction(float(rewards[s, actions[s]])) for s in states]
        yield gains_of([exact[s][actions[s]] for s in states], pays, labels.tolist())


def mean(model, gains):
    start = [Fraction(float(x)) for x in model.initial]
    return sum(x * g for x, g in zip(start, gains)) / sum(start)


def every_gain(model, rewards):
    """The gain from the initial law of every deterministic policy."""
    return [mean(model, gains) for gains in every_policy(model, rewards)]


def best_gain(model):
    """The largest gain from the initial law, where each start may have its own policy."""
    return mean(model, [max(gains) for gains in zip(*every_policy(model, model.rewards))])
