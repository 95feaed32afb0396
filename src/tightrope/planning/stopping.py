"""Stopping problems: the best expected sum until a process is stopped, exactly, with a certificate.

States may stop for a final payment, or take one of their rows and be paid for it. The average
criterion uses it to choose between end components, the total criterion to end.

Policy iteration starts from a policy that stops surely and improves strictly, so a policy that does
not stop surely can only come out if going round pays (Bertsekas and Tsitsiklis 1991).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.model.chain import solve_part
from tightrope.model.mdp import FiniteMDP
from tightrope.model.structure import leading_to
from tightrope.types import BoolArray, FloatArray, IntArray

EPS = float(np.finfo(np.float64).eps)
STOP = -1


class Rows(NamedTuple):
    """A ragged process: `matrix` (R, n) has one row of probabilities for each choice of a state."""

    matrix: sp.csr_array
    owner: IntArray  #: (R,) the state of each row, ascending
    pairs: IntArray  #: (R,) row ``s*A + a`` of the model from which each row comes


class Stopping(NamedTuple):
    """A solved stopping problem."""

    values: FloatArray  #: (n,)
    choice: IntArray  #: (n,) index into the rows, or STOP
    endless: int | None  #: a state that a paying round trip never leaves, if there is one
    iterations: int


def collapse(
    matrix: sp.csr_array, owner: IntArray, allowed: BoolArray, labels: IntArray
) -> tuple[Rows, IntArray]:
    """Merge the states of each label into one; returns the rows and the (S,) new state of each.

    `allowed` rows alone are kept; leave out those that stay inside a label.
    """
    count = int(labels.max()) + 1
    alone = labels < 0
    merged = np.where(alone, count + np.cumsum(alone) - 1, labels)
    size = count + int(alone.sum())
    states = merged.size
    join = sp.csr_array((np.ones(states), (np.arange(states), merged)), shape=(states, size))
    kept = np.flatnonzero(allowed)
    kept = kept[np.argsort(merged[owner[kept]], kind="stable")]
    return Rows(sp.csr_array(matrix[kept] @ join), merged[owner[kept]], kept), merged


def best_rows(rows: Rows, scores: FloatArray, size: int) -> tuple[FloatArray, IntArray]:
    """(n,) largest score among the rows of each state (-inf without rows), and which row."""
    best, which = np.full(size, -np.inf), np.full(size, STOP)
    np.maximum.at(best, rows.owner, scores)
    hits = np.flatnonzero(scores == best[rows.owner])[::-1]
    which[rows.owner[hits]] = hits  # the first of equals is written last
    return best, which


def surely_stopping(rows: Rows, can_stop: BoolArray) -> IntArray:
    """(n,) a choice for each state that leads to stopping; -2 where no choice surely does."""
    size = can_stop.size
    alive = np.ones(size, dtype=bool)
    while True:
        # rows that may leave the living states are useless; among the rest, search backwards
        usable = (rows.matrix @ (~alive).astype(float) == 0) & alive[rows.owner]
        choice = np.where(can_stop & alive, STOP, -2)
        reached = (can_stop & alive).astype(float)
        while True:
            leads = (rows.matrix @ reached > 0) & usable & (reached[rows.owner] == 0)
            if not leads.any():
                break
            hits = np.flatnonzero(leads)[::-1]
            choice[rows.owner[hits]] = hits
            reached[rows.owner[hits]] = 1.0
        if (reached > 0).sum() == alive.sum():
            return choice
        alive = reached > 0


def evaluate_choice(
    rows: Rows, pays: FloatArray, stop: FloatArray, choice: IntArray
) -> tuple[FloatArray, int | None]:
    """Values of fixed choices; `pays` (R, c), `stop` (n, c). Names a state that never stops."""
    values = np.where((choice == STOP)[:, None], stop, 0.0)
    moving = np.flatnonzero(choice >= 0)
    if not moving.size:
        return values, None
    chain = rows.matrix[choice[moving]]
    ends = (choice == STOP).astype(float)
    while True:
        more = (chain @ ends > 0) & (ends[moving] == 0)
        if not more.any():
            break
        ends[moving[more]] = 1.0
    if (ends == 0).any():
        return values, int(np.flatnonzero(ends == 0)[0])
    stopping = np.flatnonzero(choice == STOP)
    into = chain[:, stopping]
    leave = np.asarray(into.sum(axis=1)).ravel()
    square = sp.csr_array(chain[:, moving])
    right = pays[choice[moving]] + into @ stop[stopping]
    values[moving] = solve_part(square, np.arange(moving.size), leave, right)
    return values, None


def solve_stopping(rows: Rows, pays: FloatArray, stop: FloatArray) -> Stopping:
    """Best expected sum from every state.

    Parameters
    ----------
    pays : (R,)
    stop : (n,)
        Payment for stopping, -inf where that is impossible.

    Raises
    ------
    ModelError
        If some state cannot stop surely.
    """
    size = stop.size
    choice = surely_stopping(rows, np.isfinite(stop))
    if (choice == -2).any():
        raise ModelError(f"from state {int(np.flatnonzero(choice == -2)[0])} nothing surely ends")
    scale = max(float(np.abs(pays).max(initial=0.0)), 1e-300)
    finite_stop = np.where(np.isfinite(stop), stop, 0.0)
    seen = set()
    iterations = 0
    while True:
        values, endless = evaluate_choice(rows, pays[:, None], finite_stop[:, None], choice)
        values = values[:, 0]
        iterations += 1
        if endless is not None:
            return Stopping(values, choice, endless, iterations)
        best, which = best_rows(rows, pays + rows.matrix @ values, size)
        which = np.where(stop >= best, STOP, which)
        best = np.maximum(best, stop)
        slack = 8 * EPS * (scale + np.abs(values).max(initial=0.0))
        better = best > values + slack
        seen.add(choice.tobytes())
        new = np.where(better, which, choice)
        if not better.any() or new.tobytes() in seen:
            return Stopping(values, choice, None, iterations)
        choice = new


def upper_values(rows: Rows, pays: FloatArray, stop: FloatArray) -> FloatArray:
    """(n,) certified upper bounds of the optimal values.

    With `extra` paid per step, values V of the richer problem satisfy ``V >= pays + P V`` with
    `extra` to spare, so rounding cannot break it; then V bounds every policy that stops surely.
    Returns +inf where no `extra` up to the size of the payments will do (going round pays).
    """
    scale = float(np.abs(pays).max(initial=0.0))
    scale += float(np.abs(stop[np.isfinite(stop)]).max(initial=0.0))
    extra = 64 * EPS * max(scale, 1e-300)
    while extra <= max(scale, 1e-300):
        richer = solve_stopping(rows, pays + extra, stop)
        if richer.endless is None:
            best, _ = best_rows(rows, pays + rows.matrix @ richer.values, stop.size)
            if (np.maximum(best, stop) <= richer.values).all():
                return richer.values
        extra *= 16.0
    return np.full(stop.size, np.inf)


def compose(
    model: FiniteMDP,
    rows: Rows,
    choice: IntArray,
    labels: IntArray,
    staying: BoolArray,
    inside: IntArray,
) -> IntArray:
    """A policy (S,) of the model from choices of the merged process and actions `inside` (S,).

    A label that is left is steered, by staying pairs, to the state of its exit.
    """
    actions = inside.copy()
    for state in np.flatnonzero(choice != STOP):
        door, action = divmod(int(rows.pairs[choice[state]]), model.num_actions)
        if state <= labels.max():
            part = labels == state
            steer = leading_to(model, np.arange(part.size) == door, staying)
            actions[part] = steer[part]
        actions[door] = action
    return actions
