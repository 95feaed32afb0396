"""Planning for the total criterion: the best expected undiscounted sum until paying stops.

A policy ends if it surely reaches states where it can stay for ever and pay nothing (neither reward
nor cost). Only policies that end are admitted: for the others a total is infinite or does not
exist. States from which no policy ends are therefore avoided, whatever is paid on the way there.
Stationary policies suffice.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, StochasticPolicy
from tightrope.model.structure import end_components, leading_to, pair_owner
from tightrope.planning import constrained, lp
from tightrope.planning.constrained import Engine, Flow, Least
from tightrope.planning.criteria import evaluate_stationary, frequencies
from tightrope.planning.generation import Response
from tightrope.planning.solution import Solution
from tightrope.planning.stopping import (
    Rows,
    collapse,
    compose,
    solve_stopping,
    surely_stopping,
    upper_values,
)
from tightrope.types import BoolArray, FloatArray, IntArray

SOLVERS = ("auto", "policy-iteration", "lp", "column-generation")


class Course(NamedTuple):
    """The process with its resting places merged, as far as it can end."""

    model: FiniteMDP
    rows: Rows
    can_stop: BoolArray  #: (n,) merged states where paying can stop
    merged: IntArray  #: (S,)
    labels: IntArray  #: (S,) resting place, -1 elsewhere
    resting: BoolArray  #: (S, A) pairs that pay nothing and stay in it
    initial: FloatArray  #: (n,)


def plan_total(model: FiniteMDP, *, solver: str = "auto", tolerance: float = 1e-9) -> Solution:
    """The best expected sum of rewards from the initial law, over policies that end.

    Parameters
    ----------
    solver : 'auto', 'policy-iteration' (without costs), 'lp', 'column-generation' (with costs)
    tolerance : relative gap at which the answer counts as solved

    Returns
    -------
    Solution
        UNBOUNDED if a round trip pays, and can be afforded, again and again.

    Raises
    ------
    ModelError
        If from some start state no policy ends; it is named.

    Examples
    --------
    >>> model = FiniteMDP(transitions=[[[0.5, 0.5]], [[0.0, 1.0]]], rewards=[[-1.0], [0.0]],
    ...                   criterion="total")
    >>> plan_total(model).value
    -2.0
    """
    if solver == "value-iteration":
        raise ConfigError(
            "the total criterion has no value iteration: without a discount the size of the last "
            "change bounds nothing; policy iteration is exact: solver='policy-iteration'"
        )
    if solver not in SOLVERS:
        raise ConfigError(f"solver for total models must be one of {SOLVERS}, got {solver!r}")
    constrained.check_settings(tolerance)
    started = time.perf_counter()
    course = course_of(model)
    if model.num_costs:
        solver = "column-generation" if solver == "column-generation" else "lp"
        return constrained.plan(model, engine_of(course), solver, tolerance, started, {})
    if solver == "lp":
        flow = flow_program(course, model.rewards, model.costs, model.capacities)
        status, iterations = flow.status, flow.iterations
        actions: IntArray = flow_table(course, flow.measure).argmax(axis=1)
    else:
        status, actions, iterations = best_actions(course, model.rewards)
    solver = "lp" if solver == "lp" else "policy-iteration"
    policy, value, upper = None, None, np.inf
    if status is Status.SOLVED:
        policy = DeterministicPolicy(actions)
        value = evaluate_stationary(model, policy).value
        upper = max(value, upper_bound(course, model.rewards))
        if upper - value > tolerance * max(1.0, abs(value)):
            status = Status.NOT_CONVERGED
    statistics: dict[str, Any] = {"iterations": iterations}
    return Solution(
        status=status,
        solver=solver,
        value=value,
        policy=policy,
        costs=np.zeros(0),
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.zeros(0),
        lower_bound=-np.inf if value is None else value,
        upper_bound=upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        statistics=statistics,
    )


def course_of(model: FiniteMDP) -> Course:
    """Merge resting places, drop what cannot end or cannot be reached; see `Course`."""
    matrix, owner = model.matrix(), pair_owner(model)
    pays = np.abs(np.concatenate([model.rewards[None], model.costs])).max(axis=0)
    free = model.available & (pays == 0)
    labels, resting = end_components(matrix, owner, free.ravel())
    resting &= labels[owner] >= 0
    rows, merged = collapse(matrix, owner, model.available.ravel() & ~resting, labels)
    size = int(merged.max()) + 1
    can_stop = np.zeros(size, dtype=bool)
    can_stop[merged[labels >= 0]] = True
    initial = np.zeros(size)
    np.add.at(initial, merged, model.initial)
    dead = surely_stopping(rows, can_stop) == -2
    stuck = np.flatnonzero(dead[merged] & (model.initial > 0))
    if stuck.size:
        raise ModelError(
            f"from state {model.state_name(int(stuck[0]))} no policy surely ends (reaches states "
            "where it can stay and pay nothing), so its total is infinite or does not exist; "
            "choose Average() or Discounted()"
        )
    kept = (rows.matrix @ dead.astype(np.float64) == 0) & ~dead[rows.owner]
    seen = initial > 0
    while True:
        usable = kept & seen[rows.owner]
        new = (usable.astype(np.float64) @ rows.matrix > 0) & ~seen
        if not new.any():
            break
        seen |= new
    rows = Rows(rows.matrix[usable], rows.owner[usable], rows.pairs[usable])
    # what is dead or out of reach has no rows left; it may stop, so that it asks for nothing
    return Course(
        model,
        rows,
        can_stop | dead | ~seen,
        merged,
        labels,
        resting.reshape(model.available.shape),
        initial,
    )


def stop_values(course: Course) -> FloatArray:
    """What stopping is worth: 0 where it is allowed, otherwise minus infinity."""
    return np.where(course.can_stop, 0.0, -np.inf)


def best_actions(course: Course, rewards: FloatArray) -> tuple[Status, IntArray, int]:
    """An optimal deterministic policy (S,) for rewards (S, A); UNBOUNDED if a round trip pays."""
    found = solve_stopping(course.rows, rewards.ravel()[course.rows.pairs], stop_values(course))
    inside = np.where(
        course.labels >= 0, course.resting.argmax(axis=1), course.model.available.argmax(axis=1)
    )
    if found.endless is not None:
        return Status.UNBOUNDED, inside, found.iterations
    actions = compose(
        course.model, course.rows, found.choice, course.labels, course.resting, inside
    )
    return Status.SOLVED, actions, found.iterations


def upper_bound(course: Course, rewards: FloatArray) -> float:
    """Certified upper bound of the best total from the initial law; inf if a round trip pays.

    Round trips that pay exactly nothing are merged, as they may be made for ever.
    """
    pays, stop = rewards.ravel()[course.rows.pairs], stop_values(course)
    rows = course.rows
    labels, staying = end_components(rows.matrix, rows.owner, pays == 0.0)
    outer, merged = collapse(rows.matrix, rows.owner, ~staying, labels)
    merged_stop = np.full(int(merged.max()) + 1, -np.inf)
    np.maximum.at(merged_stop, merged, stop)
    values = upper_values(outer, pays[outer.pairs], merged_stop)[merged]
    start = course.initial > 0
    return float(course.initial[start] @ values[start])


def dual_bound(
    course: Course, multipliers: FloatArray, costs: FloatArray, limits: FloatArray
) -> float:
    """Certified upper bound of the constrained optimum from multipliers (m,) >= 0.

    At the optimal multipliers a round trip may pay exactly nothing after its price, which rounding
    can turn into a gain; slightly larger multipliers, whose bound is as valid, rule that out.
    """
    for more in (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8):
        prices = multipliers + more * (1.0 + multipliers)
        mixed = course.model.rewards - np.tensordot(prices, costs, axes=1)
        bound = upper_bound(course, mixed)
        if np.isfinite(bound):
            return bound + float(prices @ limits)
    return np.inf


def flow_table(course: Course, measure: FloatArray) -> FloatArray:
    """(S, A) the stationary policy of a flow; resting places that are left are steered out of.

    Where the flow leaves a resting place only sometimes no stationary policy follows it (resting
    for ever and leaving at last exclude each other).
    """
    model = course.model
    mass = measure.sum(axis=1)
    used = mass > 1e-12 * max(1.0, float(mass.max(initial=0.0)))
    steer = leading_to(model, used, course.resting)
    left = np.zeros(course.can_stop.size, dtype=bool)
    left[course.merged[used]] = True
    resting = (course.labels >= 0) & ~left[course.merged]
    steer = np.where(resting, course.resting.argmax(axis=1), steer)
    counts = np.where(used[:, None], measure, np.eye(model.num_actions)[steer])
    return counts / counts.sum(axis=1, keepdims=True)


def engine_of(course: Course) -> Engine:
    """What the constrained planner needs to know of the total criterion."""
    model = course.model
    rewards, costs = model.rewards, model.costs * model.signs[:, None, None]
    limits = model.capacities * model.signs

    def respond(weight: float, multipliers: FloatArray) -> Response:
        mixed = weight * rewards - np.tensordot(multipliers, costs, axes=1)
        status, actions, _ = best_actions(course, mixed)
        if status is Status.UNBOUNDED:
            raise ModelError(
                f"at reward weight {weight:g} and multipliers {multipliers} a round trip pays, so "
                "column generation has no best response; use solver='lp'"
            )
        policy = DeterministicPolicy(actions)
        value = evaluate_stationary(model, policy)
        if weight == 0.0:
            bound = upper_bound(course, mixed)
        else:
            bound = dual_bound(course, multipliers, costs, limits) - float(multipliers @ limits)
        return Response(policy, np.append(value.value, model.signs * value.costs), bound)

    def program() -> Flow:
        flow = flow_program(course, rewards, costs, limits)
        if flow.status is not Status.SOLVED:
            return Flow(flow.status, None, flow.multipliers, np.inf, flow.iterations)
        upper = dual_bound(course, flow.multipliers, costs, limits)
        policy = StochasticPolicy(flow_table(course, flow.measure))
        return Flow(flow.status, policy, flow.multipliers, upper, flow.iterations)

    def stationary(policy: MixturePolicy) -> Policy:
        measure = frequencies(model, policy)[1]
        measure.ravel()[course.resting.ravel()] = 0.0
        return StochasticPolicy(flow_table(course, measure))

    sizes = np.abs(np.concatenate([rewards[None], costs])).max(axis=(1, 2))
    return Engine(
        respond, program, sizes, stationary, lambda: least_violation(course, costs, limits)
    )


def least_violation(course: Course, costs: FloatArray, limits: FloatArray) -> Least | None:
    """The policy that minimises the largest excess over a limit, by the flow program.

    None if no stationary policy has the program's flow. (Column generation would need best
    responses, which do not exist where some weighting of the costs makes a round trip pay.)
    """
    flow = flow_program(course, np.zeros(costs.shape[1:]), costs, limits, relief=True)
    if flow.status is not Status.SOLVED:
        return None
    policy = StochasticPolicy(flow_table(course, flow.measure))
    signs = course.model.signs
    try:
        excess = (signs * evaluate_stationary(course.model, policy).costs - limits).max()
    except ModelError:
        return None
    if excess > flow.excess + 1e-9 * max(1.0, float(np.abs(limits).max())):
        return None
    best = Least(policy, flow.multipliers, -np.inf)
    # at the program's own weights a round trip may be free, which rounding can turn into a gain
    steps = [10.0**k * unit for k in range(-12, -7) for unit in np.eye(limits.size)]
    for more in (np.zeros(limits.size), *steps):
        weights = flow.multipliers + more
        weights = weights / weights.sum()
        least = -upper_bound(course, -np.tensordot(weights, costs, axes=1))
        if least - weights @ limits > best.certified - best.weights @ limits:
            best = Least(policy, weights, least)
            if least - weights @ limits >= (1.0 - 1e-6) * flow.excess:
                break
    return best


class Visits(NamedTuple):
    """Solution of the flow program of the total criterion."""

    status: Status
    measure: FloatArray  #: (S, A) expected visits
    multipliers: FloatArray  #: (m,) >= 0
    iterations: int
    excess: float = 0.0  #: over the limits


def flow_program(
    course: Course,
    rewards: FloatArray,
    costs: FloatArray,
    limits: FloatArray,
    *,
    relief: bool = False,
) -> Visits:
    """``max r y`` over visits y >= 0 and stops z >= 0 with ``costs y <= limits`` and balance
    ``sum y(out of j) - sum P y + z(j) = initial(j)``.

    With `relief` all limits may be exceeded by one more variable, at a price of 1 for each unit.
    """
    rows, size, m = course.rows, course.can_stop.size, limits.size
    count = rows.pairs.size
    stops = np.flatnonzero(course.can_stop)
    join = sp.csr_array((np.ones(count), (rows.owner, np.arange(count))), shape=(size, count))
    leave = sp.csr_array(
        (np.ones(stops.size), (stops, np.arange(stops.size))), shape=(size, stops.size)
    )
    balance = sp.hstack([join - rows.matrix.T, leave])
    flat = costs.reshape(m, rewards.size)[:, rows.pairs]
    wide = sp.csr_array(np.hstack([flat, np.zeros((m, stops.size))]))
    matrix = sp.csc_array(sp.vstack([balance, wide]) if m else balance)
    low = np.concatenate([course.initial, np.full(m, -np.inf)])
    objective = np.concatenate([rewards.ravel()[rows.pairs], np.zeros(stops.size)])
    if relief:
        column = np.concatenate([np.zeros(size), -np.ones(m)])[:, None]
        matrix = sp.csc_array(sp.hstack([matrix, sp.csc_array(column)]))
        objective = np.append(objective, -1.0)
    answer = lp.maximise(objective, matrix, low, np.concatenate([course.initial, limits]))
    measure, multipliers = np.zeros(rewards.size), np.full(m, np.nan)
    if answer.status is Status.SOLVED:
        measure[rows.pairs] = np.maximum(answer.x[:count], 0.0)
        multipliers = np.maximum(answer.row_duals[size:], 0.0)
    excess = float(answer.x[-1]) if relief and answer.x.size else 0.0
    table = measure.reshape(rewards.shape)
    return Visits(answer.status, table, multipliers, answer.iterations, excess)
