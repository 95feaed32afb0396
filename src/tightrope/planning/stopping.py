"""Stopping problems: the best expected sum until a process is stopped, exactly, with a certificate.

States may stop for a final payment, or take one of their rows and be paid for it. The average
criterion uses it to choose between end components, the total criterion to end.

Policy iteration starts from a policy that stops surely and improves strictly, so a policy that does
not stop surely can only come out if going round pays (Bertsekas and Tsitsiklis 1991).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.kernels import average as kernels
from tightrope.model.chain import DENSE_LIMIT, part_solver
from tightrope.model.mdp import FiniteMDP
from tightrope.model.structure import leading_to
from tightrope.types import BoolArray, FloatArray, IntArray

EPS = float(np.finfo(np.float64).eps)
STOP = -1
REFINEMENTS = 12  # of an evaluation, at most
LARGE_ROUNDING = 4096  # rounding errors up to which large evaluations are not refined


class Rows(NamedTuple):
    """A ragged process: `matrix` (R, n) has one row of probabilities for each choice of a state."""

    matrix: sp.csr_array
    owner: IntArray  #: (R,) the state of each row, ascending
    pairs: IntArray  #: (R,) row ``s*A + a`` of the model from which each row comes


class Stopping(NamedTuple):
    """A solved stopping problem."""

    values: FloatArray  #: (n,)
    low: FloatArray  #: (n,) what of them does not fit into one float
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


def left_over(
    rows: Rows, pays: FloatArray, high: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(R,) ``pays + P v - v`` for ``v = high + low``, and bounds of its rounding errors."""
    out, error = np.empty(pays.size), np.empty(pays.size)
    start, stop = (x.astype(np.int64) for x in (rows.matrix.indptr[:-1], rows.matrix.indptr[1:]))
    indices = rows.matrix.indices.astype(np.int32)
    level = np.zeros(high.size)
    kernels.differences(
        start, stop, indices, rows.matrix.data, rows.owner, pays, level, high, low, out, error
    )
    return out, error


def evaluate_choice(
    rows: Rows,
    pays: FloatArray,
    stop: FloatArray,
    choice: IntArray,
    large_rounding: float = LARGE_ROUNDING,
) -> tuple[FloatArray, FloatArray, int | None]:
    """Values of fixed choices as the sum of two floats; or a state that never stops.

    Large processes are refined only up to so many rounding errors of one step; where stopping takes
    1e12 steps, these add up.
    """
    high, low = np.where(choice == STOP, stop, 0.0), np.zeros(stop.size)
    moving = np.flatnonzero(choice >= 0)
    if not moving.size:
        return high, low, None
    chain = rows.matrix[choice[moving]]
    ends = (choice == STOP).astype(float)
    while True:
        more = (chain @ ends > 0) & (ends[moving] == 0)
        if not more.any():
            break
        ends[moving[more]] = 1.0
    if (ends == 0).any():
        return high, low, int(np.flatnonzero(ends == 0)[0])
    into = chain[:, np.flatnonzero(choice == STOP)]
    leave = np.asarray(into.sum(axis=1)).ravel()
    square = sp.csr_array(chain[:, moving])
    solve = part_solver(square, np.arange(moving.size), leave, proved=False)
    chosen = Rows(chain, moving, rows.pairs[choice[moving]])
    due = pays[choice[moving]]

    def missing() -> FloatArray:
        return left_over(chosen, due, high, low)[0]

    def correct(left: FloatArray) -> FloatArray:
        more = np.zeros(stop.size)
        more[moving] = solve(left[:, None])[:, 0]
        return more

    high[moving] = solve((due + into @ stop[choice == STOP])[:, None])[:, 0]
    large = moving.size > DENSE_LIMIT
    scale = float(np.abs(due).max()) + float(np.abs(high).max())
    refine(high, low, missing, correct, large_rounding * EPS * scale if large else 0.0)
    return high, low, None


def refine(
    high: FloatArray,
    low: FloatArray,
    missing: Callable[[], FloatArray],
    correct: Callable[[FloatArray], FloatArray],
    room: float,
) -> None:
    """Iterative refinement of ``high + low`` in place, as long as it halves what is missing."""
    left = missing()
    for _ in range(REFINEMENTS):
        size = float(np.abs(left).max())
        if size <= room:
            return
        before = high.copy(), low.copy()
        more = low + correct(left)
        total = high + more
        low[:] = more - (total - high)
        high[:] = total
        left = missing()
        if not np.abs(left).max() < 0.5 * size:
            if not np.abs(left).max() < size:
                high[:], low[:] = before
            return


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
    choice = surely_stopping(rows, np.isfinite(stop))
    if (choice == -2).any():
        raise ModelError(f"from state {int(np.flatnonzero(choice == -2)[0])} nothing surely ends")
    finite_stop = np.where(np.isfinite(stop), stop, 0.0)
    seen = set()
    iterations = 0
    while True:
        high, low, endless = evaluate_choice(rows, pays, finite_stop, choice)
        iterations += 1
        if endless is not None:
            return Stopping(high, low, choice, endless, iterations)
        more, error = left_over(rows, pays, high, low)
        chosen = choice[choice >= 0]
        slack = error + 2.0 * float((np.abs(more) + error)[chosen].max(initial=0.0))
        best, which = best_rows(rows, np.where(more > slack, more, -np.inf), stop.size)
        sooner = (stop - high) - low
        ends = (choice != STOP) & (sooner > 8 * EPS * np.abs(high).max()) & (sooner >= best)
        better = np.isfinite(best) | ends
        seen.add(choice.tobytes())
        new = np.where(ends, STOP, np.where(better, which, choice))
        if not better.any() or new.tobytes() in seen:
            return Stopping(high, low, choice, None, iterations)
        choice = new


def upper_values(rows: Rows, pays: FloatArray, stop: FloatArray) -> FloatArray:
    """(n,) certified upper bounds of the optimal values.

    A vector V with ``V >= pays + P V`` and ``V >= stop`` bounds every policy that stops surely. So
    that rounding cannot break that, V has a little more than the values: `extra` for each step that
    the longest policy among the best ones takes. Returns +inf where no `extra` will do (going round
    pays, or costs next to nothing).
    """
    nothing = np.full(stop.size, np.inf)
    found = solve_stopping(rows, pays, stop)
    if found.endless is not None:
        return nothing
    finite = np.isfinite(stop)
    scale = max(float(np.abs(pays).max(initial=0.0)), float(np.abs(stop[finite]).max()), 1e-250)
    chosen = found.choice[found.choice >= 0]
    if chosen.size > DENSE_LIMIT:  # the policy is settled: now its values to the last digit
        ended = np.where(finite, stop, 0.0)
        values, low, _ = evaluate_choice(rows, pays, ended, found.choice, 0.0)
        found = found._replace(values=values, low=low)
    more, error = left_over(rows, pays, found.values, found.low)
    least = 4.0 * float((np.abs(more) + error)[chosen].max(initial=0.0))
    for margin in (1e-9, 1e-12, 1e-15):
        near = more >= -margin * scale
        tied = Rows(rows.matrix[near], rows.owner[near], rows.pairs[near])
        ends = np.where(stop >= found.values - margin * scale, 0.0, -np.inf)
        times = solve_stopping(tied, np.ones(tied.owner.size), ends)
        if times.endless is not None:
            continue
        extra = max(least, 1e-28 * scale)
        while extra <= scale:
            added = found.low + extra * times.values
            high = found.values + added
            low = added - (high - found.values)
            over, error = left_over(rows, pays, high, low)
            if (over + error <= 0).all() and ((high - stop) + low >= 0).all():
                return np.nextafter(high + low, np.inf)
            extra *= 16.0
    return nothing


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
