"""The constrained episodic optimum by column generation over dynamic programs [CON, Eq. (14)].

Dantzig-Wolfe: the Lagrangian inner problem ``max_pi V_r - lambda @ V_c`` is one backward induction,
so columns are deterministic policies and the master has m + 1 rows. The optimum is a mixture of at
most m + 1 deterministic policies, and every dynamic program gives an upper bound,

    lambda @ capacity + max_pi (V_r(pi) - lambda @ V_c(pi))  >=  optimum   for every lambda >= 0,

so the answer carries its own certificate. Phase 1 minimises the largest excess over a capacity; its
duals are the Farkas weights of an infeasible model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.errors import Status
from tightrope.kernels import episodic
from tightrope.model.mdp import Tables
from tightrope.types import FloatArray, IntArray

FEASIBLE_EPS = 1e-13  # of the largest cost, per step
PARALLEL_ENTRIES = 200_000  # transitions a stage above which both cores pay


class Columns(NamedTuple):
    """What column generation found.

    If the status is INFEASIBLE, `weights` are those of the policy of least violation, `multipliers`
    the Farkas weights (they sum to 1), and `lower`, `upper` bound the least violation.
    """

    status: Status
    programs: int  #: dynamic programs solved
    slots: IntArray  #: (k,) where the basic policies stand in the pool, k <= m + 1
    weights: FloatArray  #: (k,) > 0, sum 1
    values: FloatArray  #: (k, 1 + m) reward and (signed) costs of each
    multipliers: FloatArray  #: (m,) >= 0
    lower: float
    upper: float


def pool_size(num_costs: int) -> int:
    """Columns kept at a time: enough that none of use is dropped, few enough for large models."""
    return 4 * (num_costs + 1) + 8


def solve(
    tables: Tables,
    horizon: int,
    capacities: FloatArray,
    pool: IntArray,
    *,
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
    pool : (P, H, S) int32, P >= m + 2, written
        Room for the columns; the first `warm` < P policies are given, and are evaluated first.
    multipliers : (m,) >= 0
        Where the first dynamic program is solved; default 0.
    tolerance : on (upper - lower) / max(1, |lower|)
    """
    m = capacities.size
    respond = episodic.best_response
    if tables.data.size // max(1, tables.start.size // tables.available.size) > PARALLEL_ENTRIES:
        respond = episodic.best_response_parallel
    scale = np.ones(1 + m)  # the master works on rewards and costs of size about 1
    scale[0] = max(-tables.rewards.min(), tables.rewards.max()) or 1.0
    if m:
        scale[1:] = np.abs(tables.costs).reshape(m, -1).max(axis=1)
        scale[scale == 0.0] = 1.0
    cost_scale = scale[1:]
    limits = capacities / cost_scale
    z_coef = 1.0 / cost_scale
    feasible_eps = FEASIBLE_EPS * horizon * scale.max()
    duals = np.zeros(m) if multipliers is None else multipliers
    values = np.zeros((pool.shape[0], 1 + m))
    if warm:
        given = pool[:warm]
        values[:warm] = episodic.evaluate_actions(*tables, horizon, given) / scale
    basis = np.zeros(m + 1, dtype=np.int64)
    x, y = np.zeros(m + 1), np.zeros(m + 1)
    lower, upper, least, violation = -np.inf, np.inf, -np.inf, np.inf
    status, phase, used, slot, programs = Status.NOT_CONVERGED, 0, warm, warm, 0
    while programs < max_programs:
        objective = respond(*tables, horizon, 0.0 if phase == 1 else 1.0, duals, pool[slot])
        programs += 1
        values[slot] = episodic.evaluate_actions(*tables, horizon, pool[slot : slot + 1])[0] / scale
        used = max(used, slot + 1)
        if phase == 1:
            least = max(least, -objective - float(duals @ capacities))
        else:
            upper = min(upper, objective + float(duals @ capacities))
        code, phase, best, slot = episodic.master(
            used, values, limits, z_coef, feasible_eps, basis, phase, x, y
        )
        if code != episodic.SOLVED:
            break
        if phase == 1:
            violation = -best
            duals = np.maximum(y[:m], 0.0) / cost_scale
            if least > 0 and violation - least <= tolerance * max(1.0, violation):
                status = Status.INFEASIBLE
                break
        else:
            lower = best * scale[0]
            duals = np.maximum(y[:m], 0.0) * scale[0] / cost_scale
            if upper - lower <= tolerance * max(1.0, abs(lower)):
                status = Status.SOLVED
                break
    if phase == 1:
        lower, upper = least, violation
    basic = np.flatnonzero((basis < pool.shape[0]) & (x > 0))
    weights = x[basic] / x[basic].sum()
    return Columns(
        status, programs, basis[basic], weights, values[basis[basic]] * scale, duals, lower, upper
    )
