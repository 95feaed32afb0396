"""Column generation for the criteria of endless processes: deterministic policies under a master.

The scheme is that of `tightrope.planning.column_generation` (whose master it uses), with the
dynamic program behind a function: `respond(reward_weight, multipliers)` returns a deterministic
policy that maximises ``reward_weight * reward - multipliers @ cost`` and a certified upper bound of
that objective over all policies. Costs are signed so that ``cost <= limit`` is satisfaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tightrope.errors import Status
from tightrope.kernels import columns
from tightrope.model.policy import DeterministicPolicy
from tightrope.types import FloatArray

FEASIBLE_EPS = 1e-12  # excess over a capacity, in units of that cost


class Response(NamedTuple):
    """A best response."""

    policy: DeterministicPolicy
    values: FloatArray  #: (1 + m,) its reward and signed costs, exactly evaluated
    upper: float  #: no policy has a larger weighted objective


Respond = Callable[[float, FloatArray], Response]


class Generated(NamedTuple):
    """What column generation found; in an INFEASIBLE case, about the least violation."""

    status: Status
    policies: list[DeterministicPolicy]  #: at most m + 1
    weights: FloatArray  #: > 0, sum 1
    values: FloatArray  #: (k, 1 + m)
    multipliers: FloatArray  #: (m,) >= 0; Farkas weights (sum 1) when infeasible
    lower: float
    upper: float
    programs: int  #: dynamic programs solved


def generate(
    respond: Respond,
    limits: FloatArray,
    scale: FloatArray,
    *,
    multipliers: FloatArray | None = None,
    reward_weight: float = 1.0,
    tolerance: float = 1e-9,
    max_programs: int = 2_000,
) -> Generated:
    """The best mixture of deterministic policies within the limits, with bounds.

    Parameters
    ----------
    limits : (m,) signed capacities
    scale : (1 + m,) > 0
        Rough sizes of the reward and of the costs of a policy.
    multipliers, reward_weight : where the first program is solved; default 0 and 1
    tolerance : on (upper - lower) / max(1, |lower|)
    """
    m = limits.size
    cost_scale = scale[1:]
    unit = float(cost_scale.min(initial=np.inf))
    z_coef = unit / cost_scale
    pool: list[DeterministicPolicy] = []
    values = np.zeros((max_programs, 1 + m))
    basis = np.zeros(m + 1, dtype=np.int64)
    x, y = np.zeros(m + 1), np.zeros(m + 1)
    duals = np.zeros(m) if multipliers is None else np.asarray(multipliers, dtype=np.float64)
    lower, upper, least, violation = -np.inf, np.inf, -np.inf, np.inf
    status, phase, last = Status.NOT_CONVERGED, 0, 0
    seen: set[bytes] = set()
    while len(pool) < max_programs:
        reply = respond(reward_weight, duals)
        values[len(pool)] = reply.values / scale
        pool.append(reply.policy)
        known = reply.policy.actions.tobytes()
        repeated, seen = known in seen, seen | {known}
        if reward_weight == 0.0:
            least = max(least, -reply.upper - float(duals @ limits))
        else:
            upper = min(upper, reply.upper + float(duals @ limits))
        code, phase, best = columns.master(
            len(pool), values, limits / cost_scale, z_coef, FEASIBLE_EPS, basis, phase, x, y
        )
        if code != columns.SOLVED:
            break
        reward_weight = 0.0 if phase == 1 else 1.0
        if phase == 1:
            violation = -best * unit
            duals = np.maximum(y[:m], 0.0) * unit / cost_scale
            size = max(violation, float(duals @ cost_scale))
            if least > 0 and violation - least <= tolerance * size:
                status = Status.INFEASIBLE
                break
        else:
            lower = best * scale[0]
            duals = np.maximum(y[:m], 0.0) * scale[0] / cost_scale
            if upper - lower <= tolerance * max(1.0, abs(lower)):
                status = Status.SOLVED
                break
        if repeated and phase == last:  # nothing new to add: the bounds are as good as they get
            break
        last = phase
    if phase == 1:
        lower, upper = least, violation
    basic = np.flatnonzero((basis < len(pool)) & (x > 0))
    weights = x[basic] / x[basic].sum()
    policies = [pool[i] for i in basis[basic]]
    return Generated(
        status, policies, weights, values[basis[basic]] * scale, duals, lower, upper, len(pool)
    )
