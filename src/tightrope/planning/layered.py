"""Exact planning in loop-free models with G q <= 0: OPT, the feasibility margin rho, safe policies.

[BOBW] Germano et al. 2023, Eq. (5) and Section 3.5. Every answer is the re-evaluated value of a
policy, with a bound from the other side by one dynamic program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from tightrope.errors import ModelError, Status
from tightrope.kernels.layered import layered_minimum, layered_occupancy, policy_of
from tightrope.model.layered import LayeredMDP
from tightrope.types import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredPlan:
    """An optimum over the occupancies of a loop-free model.

    Attributes
    ----------
    status : Status
    value : float
        Re-evaluated total of the objective under `policy`; NaN if infeasible.
    upper_bound : float
        No feasible policy does better: a dynamic program on the Lagrangian at `multipliers`.
    policy, occupancy : (S, A)
    constraints : (m,)
        Re-evaluated totals of the constraints.
    multipliers : (m,) >= 0
    """

    status: Status
    value: float
    upper_bound: float
    policy: FloatArray
    occupancy: FloatArray
    constraints: FloatArray
    multipliers: FloatArray

    @property
    def gap(self) -> float:
        return self.upper_bound - self.value


def occupancy_of(loop_free: LayeredMDP, policy: FloatArray) -> FloatArray:
    """q(x, a) of a policy (S, A), exactly."""
    model = loop_free.model
    out = np.empty((model.num_states, model.num_actions))
    policy = np.ascontiguousarray(policy, dtype=np.float64)
    layered_occupancy(model.indptr, model.indices, model.data, policy, out)
    return out


def best_policy(loop_free: LayeredMDP, losses: FloatArray) -> tuple[float, IntArray]:
    """Least expected total of `losses` (S, A) and a deterministic policy (S,) that has it."""
    model = loop_free.model
    actions = np.zeros(model.num_states, dtype=np.int64)
    losses = np.ascontiguousarray(losses, dtype=np.float64)
    value = layered_minimum(model.indptr, model.indices, model.data, losses, actions)
    return float(value), actions


def flow_matrix(loop_free: LayeredMDP) -> tuple[sp.csr_array, FloatArray]:
    """Equalities ``B q.ravel() = b`` of the occupancies (pairs of x_L left out)."""
    model = loop_free.model
    acting = model.num_states - 1
    pairs = acting * model.num_actions
    out = sp.csr_array(
        (np.ones(pairs), np.arange(pairs), np.arange(acting + 1) * model.num_actions),
        shape=(acting, pairs),
    )
    arrive = model.matrix()[:pairs, :acting].T
    right = np.zeros(acting)
    right[0] = 1.0
    return sp.csr_array(out - arrive), right


def solve_occupancy_program(
    loop_free: LayeredMDP,
    objective: FloatArray,
    rows: FloatArray,
    extra: FloatArray | None = None,
) -> tuple[Status, FloatArray, FloatArray]:
    """max <objective, q> + e s.t. <rows_i, q> + extra_i e <= 0, over occupancies and a number e.

    Without `extra` there is no e. Returns the status, q (S, A) and the multipliers of the rows.
    """
    model = loop_free.model
    flow, right = flow_matrix(loop_free)
    pairs = flow.shape[1]
    cost = -objective.reshape(-1)[:pairs]
    limits = rows.reshape(len(rows), objective.size)[:, :pairs]
    bounds: list[tuple[float | None, float | None]] = [(0.0, None)] * pairs
    if extra is not None:
        cost = np.append(cost, -1.0)
        limits = np.hstack([limits, extra[:, None]])
        flow = sp.csr_array(sp.hstack([flow, sp.csr_array((flow.shape[0], 1))]))
        bounds.append((None, None))
    result = scipy.optimize.linprog(
        cost,
        A_ub=limits if len(limits) else None,
        b_ub=np.zeros(len(limits)) if len(limits) else None,
        A_eq=flow,
        b_eq=right,
        bounds=bounds,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    occupancy = np.zeros((model.num_states, model.num_actions))
    if result.status == 2:
        return Status.INFEASIBLE, occupancy, np.zeros(len(rows))
    if result.status != 0:
        return Status.NOT_CONVERGED, occupancy, np.zeros(len(rows))
    occupancy.reshape(-1)[:pairs] = np.maximum(result.x[:pairs], 0.0)
    multipliers = -result.ineqlin.marginals if len(rows) else np.zeros(0)
    return Status.SOLVED, occupancy, np.maximum(multipliers, 0.0)


def policy_from(occupancy: FloatArray) -> FloatArray:
    """q(x, a)/q(x), uniform where q(x) = 0."""
    policy = np.empty_like(occupancy)
    policy_of(np.ascontiguousarray(occupancy), policy)
    return policy


def plan_layered(
    loop_free: LayeredMDP,
    rewards: FloatArray | None = None,
    constraints: FloatArray | None = None,
) -> LayeredPlan:
    """OPT = max <rewards, q> s.t. <constraints_i, q> <= 0 over the occupancies of the model.

    [BOBW, Eq. (5)]. The tables default to the model's own.

    Examples
    --------
    >>> from tightrope.model.layered import layered
    >>> P = np.zeros((2, 2, 2)); P[0, :, 1] = 1
    >>> one = layered(P, layers=(1, 1), rewards=[[0, 1], [0, 0]],
    ...     constraints=[[[-0.5, 0.5], [0, 0]]])
    >>> plan = plan_layered(one)
    >>> round(plan.value, 9), round(plan.upper_bound, 9), plan.policy[0]
    (0.5, 0.5, array([0.5, 0.5]))
    """
    model = loop_free.model
    r = model.rewards if rewards is None else np.asarray(rewards, dtype=np.float64)
    g = model.costs if constraints is None else np.asarray(constraints, dtype=np.float64)
    status, occupancy, multipliers = solve_occupancy_program(loop_free, r, g)
    policy = policy_from(occupancy)
    q = occupancy_of(loop_free, policy)
    upper = -best_policy(loop_free, np.tensordot(multipliers, g, axes=1) - r)[0]
    return LayeredPlan(
        status=status,
        value=float((r * q).sum()) if status is Status.SOLVED else np.nan,
        upper_bound=upper if status is Status.SOLVED else np.nan,
        policy=policy,
        occupancy=q,
        constraints=np.tensordot(g, q, axes=2),
        multipliers=multipliers,
    )


def margin(loop_free: LayeredMDP, constraints: FloatArray) -> LayeredPlan:
    """rho = max_q min_i -<constraints_i, q>: the margin by which G q <= 0 can be met.

    [BOBW, Section 3.5], for one table G (m, S, A) or a stack of all that must be met at once.
    The plan's `value` is the margin of the returned policy and `upper_bound` certifies it.
    """
    g = np.asarray(constraints, dtype=np.float64)
    if not len(g):
        raise ModelError("the feasibility margin needs at least one constraint")
    nothing = np.zeros(g.shape[1:])
    status, occupancy, weights = solve_occupancy_program(
        loop_free, nothing, g, extra=np.ones(len(g))
    )
    policy = policy_from(occupancy)
    q = occupancy_of(loop_free, policy)
    totals = np.tensordot(g, q, axes=2)
    weights = weights / max(weights.sum(), 1e-300)
    return LayeredPlan(
        status=status,
        value=float(-totals.max()),
        upper_bound=-best_policy(loop_free, np.tensordot(weights, g, axes=1))[0],
        policy=policy,
        occupancy=q,
        constraints=totals,
        multipliers=weights,
    )


Separation = Callable[[FloatArray], tuple[FloatArray, float]]
"""Occupancy (S, A) -> the worst table (S, A) of a family and its total under the occupancy."""

CUT_TOLERANCE = 1e-9


def with_cuts(
    loop_free: LayeredMDP,
    separate: Separation,
    objective: FloatArray | None = None,
    *,
    max_rounds: int = 500,
) -> LayeredPlan:
    """Planning against a family of constraint tables too large to write down: cutting planes.

    Without an objective: rho = max_q min over the family of -<g, q>. With one: the best policy
    whose every table of the family has a total <= 0 (the best fixed policy safe in every episode).
    """
    model = loop_free.model
    shape = (model.num_states, model.num_actions)
    occupancy = occupancy_of(loop_free, np.full(shape, 1.0 / shape[1]))
    tables: list[FloatArray] = []
    bound = -np.inf
    for _ in range(max_rounds):
        table, total = separate(occupancy)
        if total <= bound + CUT_TOLERANCE:
            break
        tables.append(table)
        stack = np.stack(tables)
        plan = (
            margin(loop_free, stack)
            if objective is None
            else plan_layered(loop_free, objective, stack)
        )
        if plan.status is not Status.SOLVED:
            return plan
        occupancy = plan.occupancy
        bound = -plan.value if objective is None else 0.0
    else:
        raise ModelError(f"cutting planes did not settle in {max_rounds} rounds")
    return plan
