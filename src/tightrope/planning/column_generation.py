"""The constrained episodic optimum by column generation over dynamic programs [CON, Eq. (14)].

Dantzig-Wolfe: the Lagrangian inner problem ``max_pi V_r - lambda @ V_c`` is one backward induction,
so columns are deterministic policies and the master has m + 1 rows. The optimum is a mixture of at
most m + 1 deterministic policies, and every dynamic program gives an upper bound,

    lambda @ capacity + max_pi (V_r(pi) - lambda @ V_c(pi))  >=  optimum   for every lambda >= 0,

so the answer carries its own certificate. Four programs are solved side by side, which costs little
more than one: at the master's multipliers and at three points near where these are going. Phase 1
minimises the largest excess over a capacity; its duals are the Farkas weights of an infeasible
model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.errors import Status
from tightrope.kernels import columns, episodic
from tightrope.model.mdp import Tables
from tightrope.types import FloatArray, IntArray

FEASIBLE_EPS = 1e-13  # excess over a capacity, of that cost's largest entry, per step
STATUSES = {
    columns.RUNNING: Status.NOT_CONVERGED,
    columns.STUCK: Status.NOT_CONVERGED,
    columns.OPTIMAL: Status.SOLVED,
    columns.INFEASIBLE: Status.INFEASIBLE,
}
PARALLEL_ENTRIES = 200_000  # transitions a stage above which both cores pay


class Columns(NamedTuple):
    """What column generation found.

    If the status is INFEASIBLE, `weights` are those of the policy of least violation, `multipliers`
    the Farkas weights (they sum to 1), and `lower`, `upper` bound the least violation. Otherwise
    `multipliers` are those at which a dynamic program proved `upper`.
    """

    status: Status
    programs: int  #: dynamic programs solved
    slots: IntArray  #: (k,) where the basic policies stand in the pool, k <= m + 1
    weights: FloatArray  #: (k,) > 0, sum 1
    values: FloatArray  #: (k, 1 + m) reward and (signed) costs of each
    multipliers: FloatArray  #: (m,) >= 0
    lower: float
    upper: float


FIRST_POINTS = np.array([[0.0], [0.1], [0.5], [2.0]])  # times largest reward to largest cost
FIRST, ALL = np.zeros(1, dtype=np.int64), np.ones(1)


def everywhere(horizon: int, num_states: int) -> tuple[IntArray, IntArray]:
    """Every state at every stage, as `kernels.episodic.reach` would say it."""
    return (
        np.tile(np.arange(num_states, dtype=np.int32), (2, 1)),
        np.full(horizon, num_states, dtype=np.int64),
    )


def pool_size(num_costs: int) -> int:
    """Columns kept at a time: enough that none of use is dropped, few enough for large models."""
    return 4 * (num_costs + 1) + 16


def solve(
    tables: Tables,
    horizon: int,
    capacities: FloatArray,
    pool: IntArray,
    *,
    reach: tuple[IntArray, IntArray] | None = None,
    warm: int = 0,
    multipliers: FloatArray | None = None,
    tolerance: float = 1e-9,
    max_programs: int = 10_000,
) -> Columns:
    """Column generation on plain arrays.

    Parameters
    ----------
    tables : costs signed so that ``cost <= capacity`` is satisfaction
    capacities : (m,) signed alike
    pool : (P, H, S) int32, P >= m + 5, written
        Room for the columns; the first `warm` < P policies are given, and are evaluated first.
    reach : of `kernels.episodic.reach`
        Columns are found there, elsewhere `pool` is left as given. None: everywhere.
    multipliers : (m,) >= 0
        Where the first dynamic program is solved, and near which the given policies are best. From
        such a start the optimum is few columns away, and programs are solved one by one; without
        it four side by side, first at 0 and at three sizes of the multipliers.
    tolerance : on (upper - lower) / max(1, |lower|)
    """
    m = capacities.size
    stages = max(1, tables.start.size // tables.available.size)
    large = tables.data.size // stages > PARALLEL_ENTRIES
    if m == 0:  # no master: one program is the optimum
        respond = episodic.best_response_parallel if large else episodic.best_response
        best = float(respond(*tables, horizon, 1.0, capacities, pool[0]))
        found = np.array([[best]])
        return Columns(Status.SOLVED, 1, FIRST, ALL, found, capacities, best, best)
    # the master works on rewards and costs of size about 1
    scale = np.array([largest(table) for table in (tables.rewards, *tables.costs)])
    unit = scale[1:].min()
    z_coef, limits = unit / scale[1:], capacities / scale[1:]
    size = pool.shape[0]
    values, priced, weights = np.zeros((size, 1 + m)), np.zeros((size, m)), np.ones(size)
    basis, x, y = np.zeros(m + 1, dtype=np.int64), np.zeros(m + 1), np.zeros(m + 1)
    if multipliers is None:
        duals, lanes = np.zeros(m), episodic.LANES
        points = FIRST_POINTS * (scale[0] / scale[1:])
    else:
        duals, lanes = multipliers.copy(), 1
        points = np.tile(duals, (episodic.LANES, 1))
    if warm:
        values[:warm] = episodic.evaluate_actions(*tables, horizon, pool[:warm]) / scale
        priced[:warm] = duals
    if reach is None:
        reach = everywhere(horizon, tables.initial.size)
    best_point = np.zeros(m)
    slots = warm + np.arange(episodic.LANES)
    totals = np.empty((1 + m, episodic.LANES))
    feasible_eps = FEASIBLE_EPS * horizon
    numbers = np.array([-np.inf, np.inf, -np.inf, np.inf, tolerance, 0.1 * feasible_eps, unit])
    codes = np.array([0, warm, columns.RUNNING, lanes, lanes])
    one = episodic.best_response_parallel if large else episodic.best_response
    four = episodic.best_responses_parallel if large else episodic.best_responses
    programs, fresh = 0, lanes
    while codes[columns.OUTCOME] == columns.RUNNING and programs < max_programs:
        weight = 0.0 if codes[columns.PHASE] == 1 else 1.0
        if fresh == 1:
            totals[0, 0] = one(*tables, horizon, weight, points[0], pool[slots[0]])
        else:
            four(*tables, horizon, *reach, weight, points, pool, slots, totals)
        if weight == 0.0 or fresh == 1:
            for slot in slots[:fresh].tolist():
                found = episodic.evaluate_actions(*tables, horizon, pool[slot : slot + 1])
                values[slot] = found[0] / scale
        programs += fresh
        columns.add_columns(
            totals, scale, capacities, points, slots, values, priced, weights, best_point,
            numbers, codes,
        )  # fmt: skip
        code, phase, best = columns.master(
            codes[columns.USED], values, limits, z_coef, feasible_eps, basis,
            codes[columns.PHASE], x, y,
        )  # fmt: skip
        columns.advance(
            code, phase, best, scale, limits, values, basis, x, y, duals, priced, weights,
            best_point, points, slots, numbers, codes,
        )  # fmt: skip
        fresh = int(codes[columns.FRESH])
    status = STATUSES[codes[columns.OUTCOME]]
    # unless infeasibility is proved, what is proved is the bound at the best multipliers
    infeasible = status is Status.INFEASIBLE
    lower, upper = numbers[2:4] if infeasible else numbers[:2]
    # plain lists: a learner comes here every episode, and NumPy is slow on a few numbers
    basic = [(j, w) for j, w in zip(basis.tolist(), x.tolist()) if j < pool.shape[0] and w > 0]
    chosen = np.array([j for j, _ in basic], dtype=np.int64)
    mixed = np.array([w for _, w in basic])
    mixed /= sum(mixed.tolist())
    return Columns(
        status, programs, chosen, mixed, values[chosen] * scale,
        duals if infeasible else best_point, float(lower), float(upper),
    )  # fmt: skip


def largest(table: FloatArray) -> float:
    """Largest absolute entry, or 1 if there is none."""
    return max(float(table.max()), -float(table.min())) or 1.0
