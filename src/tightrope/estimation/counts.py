"""Empirical model of a tabular problem, as sufficient statistics that do not grow with time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightrope.kernels.counts import count_episodes
from tightrope.types import FloatArray, IntArray, ProblemSpec

FIRST_SLOTS = 8


@dataclass(kw_only=True, eq=False)
class Counts:
    """Visits, successors and sums of every pair; an unvisited pair has a self-loop.

    Attributes
    ----------
    visits : (S, A) int64
    start, stop : (S*A,) int64
        Entries of each row in `successors` (int32), `tallies` (int64) and `p_hat` (float64).
    reward_sums : (S, A), cost_sums : (m, S, A)
    """

    visits: IntArray
    start: IntArray
    stop: IntArray
    successors: IntArray
    tallies: IntArray
    p_hat: FloatArray
    reward_sums: FloatArray
    cost_sums: FloatArray


def empty_counts(spec: ProblemSpec) -> Counts:
    """No visits; every row is the self-loop of an unvisited pair."""
    shape = (spec.num_states, spec.num_actions)
    rows, slots = shape[0] * shape[1], min(spec.num_states, FIRST_SLOTS)
    start = np.arange(rows, dtype=np.int64) * slots
    successors = np.zeros(rows * slots, dtype=np.int32)
    p_hat = np.zeros(rows * slots)
    successors[start] = np.repeat(np.arange(spec.num_states), spec.num_actions)
    p_hat[start] = 1.0
    return Counts(
        visits=np.zeros(shape, dtype=np.int64),
        start=start,
        stop=start + 1,
        successors=successors,
        tallies=np.zeros(rows * slots, dtype=np.int64),
        p_hat=p_hat,
        reward_sums=np.zeros(shape),
        cost_sums=np.zeros((spec.num_costs, *shape)),
    )


def add_episodes(
    counts: Counts, states: IntArray, actions: IntArray, rewards: FloatArray, costs: FloatArray
) -> None:
    """Count every transition of n episodes, the last step of each included.

    Shapes: states (n, H + 1), actions (n, H), rewards (n, H), costs (n, H, m).
    """
    done, total = 0, actions.size
    while done < total:
        slots = counts.successors.size // counts.start.size
        done = count_episodes(
            states, actions, rewards, costs, done, counts.visits, counts.start, counts.stop, slots,
            counts.successors, counts.tallies, counts.p_hat, counts.reward_sums, counts.cost_sums,
        )  # fmt: skip
        if done < total:
            _widen(counts, min(2 * slots, counts.visits.shape[0]))


def _widen(counts: Counts, slots: int) -> None:
    """Give every row room for `slots` successors."""
    rows = counts.start.size
    old = counts.successors.size // rows
    for name in ("successors", "tallies", "p_hat"):
        wide = np.zeros((rows, slots), dtype=getattr(counts, name).dtype)
        wide[:, :old] = getattr(counts, name).reshape(rows, old)
        setattr(counts, name, wide.ravel())
    lengths = counts.stop - counts.start
    counts.start = np.arange(rows, dtype=np.int64) * slots
    counts.stop = counts.start + lengths


def means(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """Mean rewards (S, A) and costs (m, S, A) so far; 0 where nothing was seen [CON, Eq. (6)]."""
    n = np.maximum(counts.visits, 1)
    return counts.reward_sums / n, counts.cost_sums / n
