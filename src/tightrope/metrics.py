"""Regret and constraint violation, exactly, in every form, on the recording grid.

Per episode t let v_t and c_t be the exact expected reward and costs of what is played, v* the
certified optimum and xi the capacities. Then, cumulatively and never clipped,

* ``regret``            sum_t (v* - v_t), truly negative at times while constraints are violated;
* ``violation_i``       sum_t sign_i (c_ti - xi_i), signed;
* ``violation_plus_i``  sum_t [sign_i (c_ti - xi_i)]^+;
* ``sampled_*``         sums of what was realised.

[CON, Eqs. (2)-(3)] divide the first two by k: `average_regret`, `average_violation`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.errors import ConfigError, unknown_name
from tightrope.kernels.ledger import accumulate
from tightrope.types import FloatArray, IntArray

DENSE_ROWS = 5_000
ROWS_A_DECADE = 200


def recording_grid(total: int) -> IntArray:
    """Episodes (or steps) at which rows are written, from 1 to `total`.

    All up to 5,000, then 200 a decade, and at least 200 in the last fifth.

    >>> recording_grid(3)
    array([1, 2, 3])
    >>> grid = recording_grid(100_000)
    >>> len(grid), int(grid[-1]), int((grid > 80_000).sum()) >= 200
    (5460, 100000, True)
    """
    if total < 1:
        raise ConfigError(f"the number of episodes or steps must be >= 1, got {total}")
    dense = np.arange(1, min(total, DENSE_ROWS) + 1)
    if total <= DENSE_ROWS:
        return dense
    decades = np.log10(total / DENSE_ROWS)
    sparse = DENSE_ROWS * 10 ** np.linspace(0, decades, int(np.ceil(ROWS_A_DECADE * decades)) + 1)
    last = np.linspace(0.8 * total, total, ROWS_A_DECADE + 1)[1:]
    return np.unique(np.concatenate([dense, np.rint(sparse), np.rint(last)]).astype(np.int64))


def increments(
    exact: FloatArray, optimum: float, capacities: FloatArray, signs: FloatArray
) -> FloatArray:
    """(n, 1 + 2m) regret, signed violations and their positive parts of n episodes.

    `exact` is (n, 1 + m).

    >>> rows = increments(np.array([[1.2, 0.9], [0.6, 0.1]]), 0.9, np.array([0.5]), np.ones(1))
    >>> rows.round(12)
    array([[-0.3,  0.4,  0.4],
           [ 0.3, -0.4,  0. ]])
    """
    excess = signs * (exact[:, 1:] - capacities)
    return np.hstack([optimum - exact[:, :1], excess, np.maximum(excess, 0.0)])


class Ledger:
    """Running sums of a run, and its rows on the recording grid.

    Parameters
    ----------
    grid : increasing episode (or step) numbers
    optimum : value of the benchmark per episode (or step)
    capacities, signs : (m,)
    steps : steps of one episode, 1 for a single stream
    windowed : bool
        Reward and cost of a row are means since the row before (single streams), not the values of
        the episode itself.
    """

    def __init__(
        self, grid: IntArray, optimum: float, capacities: FloatArray, signs: FloatArray,
        *, steps: int, windowed: bool = False,
    ) -> None:  # fmt: skip
        m = capacities.size
        self.grid, self.steps, self.windowed = grid, steps, windowed
        self.benchmark = (float(optimum), np.array(capacities), np.array(signs))
        self.count = 0  #: episodes so far
        self.written = 0  #: rows so far
        # regret, violation (m), violation_plus (m), sampled (1 + m), exact sums (1 + m)
        self.carry = np.zeros(3 + 4 * m)
        self.sums = np.zeros((grid.size, 3 + 4 * m))
        self.values = np.zeros((grid.size, 1 + m))  #: exact values of the row's own episode

    def add(self, exact: FloatArray, sampled: FloatArray) -> bool:
        """Add n episodes: exact values (n or 1, 1 + m) and sampled totals (n, 1 + m).

        Returns whether a row was written.
        """
        before, start = self.written, self.count
        self.written = accumulate(
            exact, sampled, *self.benchmark, self.grid, start, before, self.carry, self.sums
        )
        self.count += len(sampled)
        if self.written == before:
            return False
        here = self.grid[before : self.written] - start - 1 if len(exact) > 1 else 0
        self.values[before : self.written] = exact[here]
        return True

    def columns(self) -> dict[str, np.ndarray]:
        """The written rows by the names of the contract."""
        m = self.benchmark[1].size
        grid, sums = self.grid[: self.written], self.sums[: self.written]
        values = self.values[: self.written]
        if self.windowed:
            lengths = np.diff(grid, prepend=0)[:, None]
            values = np.diff(sums[:, -1 - m :], axis=0, prepend=0.0) / lengths
        names = ["reward", *_numbered("cost", m), "regret", *_numbered("violation", m)]
        names += [*_numbered("violation_plus", m), "sampled_reward", *_numbered("sampled_cost", m)]
        rows = np.hstack([values, sums[:, : -1 - m]])
        out: dict[str, np.ndarray] = {"episode": grid.copy(), "steps": grid * self.steps}
        out.update({name: rows[:, i].copy() for i, name in enumerate(names)})
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a resumed run needs."""
        return {
            "count": np.array(self.count),
            "written": np.array(self.written),
            "carry": self.carry,
            "sums": self.sums[: self.written],
            "values": self.values[: self.written],
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        self.count, self.written = int(arrays["count"]), int(arrays["written"])
        self.carry = arrays["carry"].copy()
        self.sums[: self.written] = arrays["sums"]
        self.values[: self.written] = arrays["values"]


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name}_{i}" for i in range(count)]


def average_regret(columns: Any) -> FloatArray:
    """RewReg(k) = v* - mean of the values so far [CON, Eq. (2)], from a run's columns."""
    return np.asarray(columns["regret"]) / np.asarray(columns["episode"])


def average_violation(columns: Any) -> FloatArray:
    """ConsReg(k) = max_i of the mean excess so far [CON, Eq. (3)], from a run's columns."""
    episode = np.asarray(columns["episode"])
    sums: list[FloatArray] = []
    known = getattr(columns, "column_names", columns)  # an Arrow table lists them there
    while f"violation_{len(sums)}" in known:
        sums.append(np.asarray(columns[f"violation_{len(sums)}"]))
    if not sums:
        raise ConfigError("a problem without constraints has no violation")
    return np.max(sums, axis=0) / episode


def convex_regret(
    columns: Any, f: Any, g: Any, *, best: float, optimum: float, capacities: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """ConvexRewReg and ConvexConsReg [CON, Section 4] on a run's rows.

    ``best - f(mean of the rewards so far)`` and ``g(mean of the costs so far)``, for '<=' costs.

    Parameters
    ----------
    f, g : of the mean reward (a number) and of the mean costs (m,)
    best : f at the optimum of the concave problem
    optimum, capacities : the benchmark that the run's `regret` and `violation_i` are against

    >>> columns = {"episode": [1, 2], "regret": [0.5, 0.6], "violation_0": [0.2, 0.2]}
    >>> convex_regret(columns, np.sqrt, np.max, best=1.0, optimum=1.0, capacities=np.array([0.3]))
    (array([0.29289322, 0.16333997]), array([0.5, 0.4]))
    """
    reward = optimum - average_regret(columns)
    names = [f"violation_{i}" for i in range(len(capacities))]
    excess = np.array([columns[name] for name in names]) / np.asarray(columns["episode"])
    costs = (np.asarray(capacities)[:, None] + excess).T
    return (
        np.array([best - float(f(y)) for y in reward]),
        np.array([float(g(u)) for u in costs]),
    )


def hinge_of_sum(violation: FloatArray) -> FloatArray:
    """[sum of signed excesses]^+: the third form of a violation, from the first.

    >>> hinge_of_sum(np.array([0.4, 0.0, -0.2]))
    array([0.4, 0. , 0. ])
    """
    return np.maximum(np.asarray(violation), 0.0)


def window_mean(columns: Any, name: str, first: int, last: int) -> float:
    """Mean per episode of an exact quantity over episodes first..last, from the cumulative column.

    `name` is a cumulative column: `regret`, `violation_0`, `violation_plus_0`, `sampled_reward` ...
    The mean reward is the optimum minus that of `regret`; the mean cost is the capacity plus that
    of `violation_0` (minus, for a floor). Both first - 1 and last must be on the recording grid (0
    counts as on it).

    Raises ConfigError for other columns and for episodes off the grid.
    """
    if not name.startswith(("regret", "violation_", "sampled_")):
        raise ConfigError(
            f"'{name}' is not cumulative: take the mean of 'regret' from the optimum for the "
            "reward, add that of 'violation_i' to the capacity for a cost"
        )
    known = getattr(columns, "column_names", columns)  # an Arrow table lists them there
    if name not in known:
        raise unknown_name("column", name, known)
    if not 1 <= first <= last:
        raise ConfigError(f"expected 1 <= first <= last, got {first} and {last}")
    episode = np.asarray(columns["episode"])
    if (np.diff(episode) <= 0).any():
        raise ConfigError("expected the rows of one run in their order: filter the table first")
    values = np.asarray(columns[name], dtype=np.float64)

    def at(k: int) -> float:
        if k == 0:
            return 0.0
        place = int(np.searchsorted(episode, k))
        if place == episode.size or episode[place] != k:
            raise ConfigError(f"episode {k} is not on the recording grid of this run")
        return float(values[place])

    return (at(last) - at(first - 1)) / (last - first + 1)


def interval(values: FloatArray, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Mean over runs (axis 0) and the half width of its t interval; NaN width for one run.

    >>> mean, half = interval(np.array([[120.0], [150], [95], [180], [135]]))
    >>> float(mean[0]), round(float(half[0]), 4)
    (136.0, 39.6069)
    """
    from scipy.stats import t

    runs = np.asarray(values, dtype=np.float64)
    mean = runs.mean(axis=0)
    if len(runs) < 2:
        return mean, np.full_like(mean, np.nan)
    error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    return mean, t.ppf(0.5 + level / 2, len(runs) - 1) * error


def align(grid: IntArray, points: IntArray, values: FloatArray) -> FloatArray:
    """A step function given at `points`, read at `grid`: the last value at or before each.

    >>> align(np.array([0, 10, 15, 20, 30]), np.array([0, 15, 30]), np.array([0.0, 9.0, 12.0]))
    array([ 0.,  0.,  9.,  9., 12.])
    """
    place = np.searchsorted(points, grid, side="right") - 1
    if (place < 0).any():
        raise ConfigError(f"the run starts at {points[0]}, after the first grid point {grid[0]}")
    return np.asarray(values)[place]
