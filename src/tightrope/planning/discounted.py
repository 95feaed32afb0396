"""Planning for the discounted criterion, with the values inside a certified bound.

A value vector V is never returned because a policy looks settled: the bounds are those of the
Bellman residual, ``V <= V* <= V + max (T V - V) / (1 - discount)`` for the exact values V of the
returned policy.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.kernels import average as kernels
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, StochasticPolicy
from tightrope.planning import constrained, lp
from tightrope.planning.average import HYBRID, choose_solver, hybrid_sweeps
from tightrope.planning.constrained import Engine, Flow
from tightrope.planning.criteria import (
    PLAIN_DISCOUNT,
    discounted_values,
    discounted_visits,
    evaluate_stationary,
)
from tightrope.planning.generation import Response
from tightrope.planning.solution import Solution
from tightrope.planning.stopping import EPS
from tightrope.types import BoolArray, Discounted, FloatArray, IntArray

SOLVERS = ("auto", "value-iteration", "policy-iteration", "lp", "column-generation")
INNER_SWEEPS = 20  # of fixed policy between two maximisations


def plan_discounted(
    model: FiniteMDP,
    *,
    solver: str = "auto",
    tolerance: float = 1e-9,
    max_sweeps: int = 1_000_000,
) -> Solution:
    """The best expected discounted sum from the initial law.

    Parameters
    ----------
    solver : 'auto', 'policy-iteration', 'value-iteration', 'lp', 'column-generation'
        With costs, column generation (the first two name the solver inside) or the whole program.
    tolerance : relative gap at which the answer counts as solved
    max_sweeps : of value iteration

    'auto' is policy iteration for up to 300 states, then value iteration; where that or the program
    has not converged, as happens near discount 1 and with slow mixing, policy iteration goes on
    from there, and ``statistics['policy_iterations']`` says so.

    Examples
    --------
    >>> model = FiniteMDP(transitions=[[[0.0, 1.0]], [[0.0, 1.0]]], rewards=[[-3.0], [-2.0]],
    ...                   criterion="discounted", discount=0.9)
    >>> plan_discounted(model).state_values.round(9)
    array([-21., -20.])
    """
    if solver not in SOLVERS:
        raise ConfigError(f"solver for discounted models must be one of {SOLVERS}, got {solver!r}")
    constrained.check_settings(tolerance, max_sweeps)
    started = time.perf_counter()
    solver = choose_solver(model, solver)
    if model.num_costs:
        engine = engine_of(model, solver, tolerance, max_sweeps)
        return constrained.plan(model, engine, solver, tolerance, started, {})
    if solver == "lp":
        everywhere = np.full(model.num_states, 1.0 / model.num_states)
        flow = flow_program(model, everywhere, model.costs, model.capacities)
        actions = np.where(model.available, flow.measure, -1.0).argmax(axis=1)
        counts = {"iterations": flow.iterations}
    else:
        actions, counts = best_actions(model, model.rewards, solver, tolerance, max_sweeps)
        if solver == HYBRID and "policy_iterations" not in counts:
            solver = "value-iteration"
    values, below, above = certified(model, model.rewards, actions)
    if solver == "lp" and above + below > tolerance * max(1.0, float(np.abs(values).max())):
        # HiGHS leaves out coefficients below 1e-9
        best = best_actions(model, model.rewards, "policy-iteration", tolerance, 1, actions)
        actions, counts["policy_iterations"] = best[0], best[1]["iterations"]
        values, below, above = certified(model, model.rewards, actions)
    value = float(model.initial @ values)
    mean = _mean_error(model, values)
    solved = above + below <= tolerance * max(1.0, float(np.abs(values).max()))
    statistics: dict[str, Any] = {**counts, "largest_error": above}
    return Solution(
        status=Status.SOLVED if solved else Status.NOT_CONVERGED,
        solver=solver,
        value=value,
        policy=DeterministicPolicy(actions),
        costs=np.zeros(0),
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.zeros(0),
        lower_bound=value - (below + mean),
        upper_bound=value + (above + mean),
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        statistics=statistics,
        state_values=values,
    )


def discount_of(model: FiniteMDP) -> float:
    """The model's discount; an error for other criteria."""
    if not isinstance(model.criterion, Discounted):
        raise ModelError(f"expected a discounted model, got criterion {model.criterion}")
    return model.criterion.discount


def certified(
    model: FiniteMDP, rewards: FloatArray, actions: IntArray
) -> tuple[FloatArray, float, float]:
    """Values (S,) of a deterministic policy, and by how much, at most, they and the optimum differ.

    The policy's true values are at least ``values - below``, the optimal ones at most
    ``values + above``; both hold with all rounding errors.
    """
    level, relative, more, error = _improvements(model, rewards, actions)
    own = (np.arange(actions.size), actions)
    rest = (1.0 - discount_of(model)) * (1.0 - 4 * EPS)
    rounding = 2 * EPS * float(np.abs(level + relative).max())
    above = max(0.0, float((more + error).max())) / rest + rounding
    below = max(0.0, float((error - more)[own].max())) / rest + rounding
    return level + relative, below, above


def _mean_error(model: FiniteMDP, values: FloatArray) -> float:
    """Rounding of the mean of values (S,) over the initial law."""
    return 2 * np.count_nonzero(model.initial) * EPS * float(np.abs(values).max())


def _improvements(
    model: FiniteMDP, rewards: FloatArray, actions: IntArray
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """A policy's values as ``level + relative`` (S,), and what other actions add to them (S, A),
    with bounds of its rounding errors.

    Near discount 1 values are a thousand times their differences and more. So the level is kept
    apart, ``r + discount P w - w - (1 - discount) level``: what is left of it after one step of
    refinement has the rounding errors of the differences w, not of the values.
    """
    discount, states = discount_of(model), np.arange(actions.size)
    chain = sp.csr_array(model.matrix()[states * model.num_actions + actions])
    pays = rewards[states, actions]
    values = discounted_values(chain, pays[:, None], discount)[:, 0]
    level, relative = float(values[0]), values - values[0]
    more, error = _added(model, rewards, level, relative)
    if discount > PLAIN_DISCOUNT:
        change = discounted_values(chain, more[states, actions][:, None], discount)[:, 0]
        level, relative = level + float(change[0]), relative + (change - change[0])
        more, error = _added(model, rewards, level, relative)
    return level, relative, more, error


def _added(
    model: FiniteMDP, rewards: FloatArray, level: float, relative: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(S, A) ``r + discount P v - v`` for ``v = level + relative``, and bounds of its errors."""
    t, discount = model.tables(), discount_of(model)
    owner = np.repeat(np.arange(relative.size), model.num_actions)
    due = (1.0 - discount) * (level + relative)
    # divided by the discount, so that the kernel has exact probabilities; small ones do no harm
    unit = discount if discount >= 0.5 else 1.0
    more, error = np.empty((2, owner.size))
    kernels.differences(
        t.start,
        t.stop,
        t.indices,
        t.data * (discount / unit),
        owner,
        np.ascontiguousarray(rewards).ravel() / unit,
        due / unit,
        relative,
        np.zeros(relative.size),
        more,
        error,
    )
    more, error = (unit * x.reshape(rewards.shape) for x in (more, error))
    error = error * (1.0 + 4 * EPS) + EPS * np.abs(more)
    error += 4 * EPS * (np.abs(rewards) + np.abs(due)[:, None])
    if unit == 1.0:
        error += 2 * EPS * float(np.ptp(relative))
    gone = ~model.available
    more[gone], error[gone] = -np.inf, 0.0
    return more, error


def best_actions(
    model: FiniteMDP,
    rewards: FloatArray,
    solver: str,
    tolerance: float,
    max_sweeps: int,
    start: IntArray | None = None,
) -> tuple[IntArray, dict[str, int]]:
    """An optimal deterministic policy for rewards (S, A), and the iterations it took.

    Policy iteration begins at the actions `start` (S,), if they are given.
    """
    counts: dict[str, int] = {}
    if solver != "policy-iteration":
        sweeps = hybrid_sweeps(model, max_sweeps) if solver == HYBRID else max_sweeps
        start, done = _value_iteration(model, rewards, tolerance, sweeps)
        counts["iterations"] = done
        if solver == "value-iteration":
            return start, counts
        values, below, above = certified(model, rewards, start)
        if above + below <= tolerance * max(1.0, float(np.abs(values).max())):
            return start, counts
    actions = model.available.argmax(axis=1) if start is None else start
    seen: set[bytes] = set()
    while True:
        seen.add(actions.tobytes())
        level, relative, improvement, error = _improvements(model, rewards, actions)
        own = (np.arange(actions.size), actions)
        slack = error + 2.0 * float((np.abs(improvement) + error)[own].max())
        if solver == HYBRID:  # large models: no further than the tolerance asks
            size = max(1.0, abs(level), float(np.abs(level + relative).max()))
            slack = np.maximum(slack, 0.1 * tolerance * size * (1.0 - discount_of(model)))
        beyond = np.where(improvement > slack, improvement, -np.inf)
        better = np.isfinite(beyond).any(axis=1)
        improved = np.where(better, beyond.argmax(axis=1), actions)
        if not better.any() or improved.tobytes() in seen:
            counts["policy_iterations" if counts else "iterations"] = len(seen)
            return actions, counts
        actions = improved


def _value_iteration(
    model: FiniteMDP, rewards: FloatArray, tolerance: float, max_sweeps: int
) -> tuple[IntArray, int]:
    t = model.tables()
    discount = discount_of(model)
    values, actions = np.zeros(model.num_states), np.zeros(model.num_states, dtype=np.int64)
    size = max(float(np.abs(rewards).max()) / (1.0 - discount), 1e-300)
    sweeps, _, _ = kernels.discounted_iteration(
        t.start,
        t.stop,
        t.indices,
        t.data,
        np.array(rewards),
        t.available,
        discount,
        INNER_SWEEPS,
        max(0.1 * tolerance * min(1.0, size), 8 * EPS * INNER_SWEEPS * size),
        max_sweeps,
        values,
        actions,
    )
    return actions, int(sweeps)


class Visits(NamedTuple):
    """Solution of the discounted flow program."""

    status: Status
    measure: FloatArray  #: (S, A) expected discounted visits
    values: FloatArray  #: (S,) duals of the balance rows
    multipliers: FloatArray  #: (m,) >= 0
    iterations: int


def flow_program(
    model: FiniteMDP, initial: FloatArray, costs: FloatArray, limits: FloatArray
) -> Visits:
    """``max r y`` over visits y >= 0 with ``costs y <= limits`` (m, S, A) and balance
    ``sum_a y(j,a) - discount sum P(j|i,a) y(i,a) = initial(j)``."""
    states, m = model.num_states, limits.size
    exist = np.flatnonzero(model.available.ravel())
    owner = exist // model.num_actions
    join = sp.csr_array((np.ones(exist.size), (owner, np.arange(exist.size))))
    balance = join - discount_of(model) * model.matrix()[exist].T
    flat = costs.reshape(m, states * model.num_actions)[:, exist]
    matrix = sp.csc_array(sp.vstack([balance, sp.csr_array(flat)]) if m else balance)
    low = np.concatenate([initial, np.full(m, -np.inf)])
    rewards = model.rewards.ravel()[exist]
    answer = lp.maximise(rewards, matrix, low, np.concatenate([initial, limits]))
    measure = np.zeros(states * model.num_actions)
    if answer.status is not Status.SOLVED:
        nothing, none = measure.reshape(model.available.shape), np.full(m, np.nan)
        return Visits(answer.status, nothing, np.zeros(states), none, answer.iterations)
    measure[exist] = np.maximum(answer.x, 0.0)
    return Visits(
        answer.status,
        measure.reshape(model.available.shape),
        answer.row_duals[:states],
        np.maximum(answer.row_duals[states:], 0.0),
        answer.iterations,
    )


def policy_of(measure: FloatArray, available: BoolArray) -> StochasticPolicy:
    """The stationary policy with given visits (S, A); uniform where there are none."""
    counts = np.where(measure.sum(axis=1, keepdims=True) > 0, measure, available)
    return StochasticPolicy(counts / counts.sum(axis=1, keepdims=True))


def engine_of(model: FiniteMDP, solver: str, tolerance: float, max_sweeps: int) -> Engine:
    """What the constrained planner needs to know of the discounted criterion."""
    costs = model.costs * model.signs[:, None, None]
    limits = model.capacities * model.signs
    horizon = 1.0 / (1.0 - discount_of(model))
    inner = solver if solver in ("value-iteration", HYBRID) else "policy-iteration"

    sizes = np.abs(np.concatenate([model.rewards[None], costs])).max(axis=(1, 2)) * horizon

    def rounding(weight: float, multipliers: FloatArray, values: FloatArray) -> float:
        """Of the mean of the values, of the mixed rewards behind them, and of the limits' price."""
        parts = weight * sizes[0] + float(multipliers @ (sizes[1:] + np.abs(limits)))
        return _mean_error(model, values) + (multipliers.size + 2) * EPS * parts

    last: IntArray | None = None  # the next multipliers are near: so is their best policy

    def respond(weight: float, multipliers: FloatArray) -> Response:
        nonlocal last, inner
        mixed = weight * model.rewards - np.tensordot(multipliers, costs, axes=1)
        actions, counts = best_actions(model, mixed, inner, 0.1 * tolerance, max_sweeps, last)
        last = actions
        if "policy_iterations" in counts:  # value iteration did not get there: not again
            inner = "policy-iteration"
        policy = DeterministicPolicy(actions)
        values, _, above = certified(model, mixed, actions)
        value = evaluate_stationary(model, policy)
        upper = float(model.initial @ values) + above + rounding(weight, multipliers, values)
        return Response(policy, np.append(value.value, model.signs * value.costs), upper)

    def program() -> Flow:
        flow = flow_program(model, model.initial, costs, limits)
        if flow.status is not Status.SOLVED:
            return Flow(flow.status, None, flow.multipliers, np.inf, flow.iterations)
        mixed = model.rewards - np.tensordot(flow.multipliers, costs, axes=1)
        values = flow.values
        more, error = _added(model, mixed, float(values[0]), values - values[0])
        rest = (1.0 - discount_of(model)) * (1.0 - 4 * EPS)
        bound = float(model.initial @ values) + max(0.0, float((more + error).max())) / rest
        bound += 2 * EPS * float(np.abs(values).max()) + rounding(1.0, flow.multipliers, values)
        policy = policy_of(flow.measure, model.available)
        upper = bound + float(flow.multipliers @ limits)
        return Flow(flow.status, policy, flow.multipliers, upper, flow.iterations)

    def stationary(policy: MixturePolicy) -> Policy:
        return policy_of(discounted_visits(model, policy), model.available)

    return Engine(respond, program, sizes, stationary)
