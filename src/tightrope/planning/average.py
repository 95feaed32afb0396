"""Planning for the average criterion: the best long-run mean per step, with or without costs.

The optimum with costs is the best mixture of deterministic stationary policies, drawn once at the
start (Derman 1970; Hordijk and Kallenberg 1984), and has at most m + 1 of them. Where one
stationary policy earns the same it is returned instead; in multichain and merely communicating
models there may be none, and then a single policy would have to switch once, for good, after it has
decided by chance where to stay. ``statistics['must_switch']`` says so.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.model.elimination import TooSlowError
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, StochasticPolicy
from tightrope.planning import constrained
from tightrope.planning.constrained import Engine
from tightrope.planning.criteria import evaluate_stationary, frequencies
from tightrope.planning.gains import (
    EPS,
    Frame,
    Gains,
    by_linear_program,
    by_policy_iteration,
    by_value_iteration,
    flow_program,
    flow_table,
    frame_of,
    gain_upper,
)
from tightrope.planning.generation import Response
from tightrope.planning.solution import Solution
from tightrope.types import FloatArray, IntArray

SOLVERS = ("auto", "value-iteration", "policy-iteration", "lp", "column-generation")
DENSE_STATES = 300  # up to here policy iteration, by dense elimination, is the default
HYBRID = "value-iteration, policy-iteration"
HYBRID_PRODUCTS = 5_000_000_000  # some seconds of value iteration, before policy iteration goes on
PROGRAM_STATES = 1000  # with costs, up to here the linear program is


def plan_average(
    model: FiniteMDP,
    *,
    solver: str = "auto",
    tolerance: float = 1e-9,
    max_sweeps: int = 200_000,
) -> Solution:
    """The best long-run mean per step from the initial law.

    Parameters
    ----------
    solver : 'auto', 'policy-iteration', 'value-iteration', 'lp', 'column-generation'
        Without costs, how the gain is found. With costs, the first two name the unconstrained
        solver inside column generation; 'lp' is the flow program (one block if the model is weakly
        communicating, two if it is multichain).
    tolerance : relative gap at which the answer counts as solved
    max_sweeps : of relative value iteration

    'auto' is policy iteration for up to 300 states and value iteration for more. Where that or the
    program has not converged (slow mixing: sweeps end too early, and HiGHS leaves out coefficients
    below 1e-9), policy iteration goes on from there and `solver` names both. The status is that of
    the gap alone; the bounds hold whatever the solver did, rounding errors included.

    Returns
    -------
    Solution
        ``statistics``: ``end_components``; ``weakly_communicating``; with costs ``stationary``
        and ``must_switch``. Without costs ``state_values`` (the gain from every state) and `bias`.

    Examples
    --------
    >>> model = FiniteMDP(transitions=[[[1, 0], [0, 1]], [[0.1, 0.9], [0.1, 0.9]]], axes="sas",
    ...                   rewards=[[1.0, 0.0], [1.3, 1.3]], criterion="average")
    >>> solution = plan_average(model)
    >>> round(solution.value * 11, 9), solution.policy.actions[0]
    (13.0, np.int64(1))
    """
    if solver not in SOLVERS:
        raise ConfigError(f"solver for average models must be one of {SOLVERS}, got {solver!r}")
    constrained.check_settings(tolerance, max_sweeps)
    started = time.perf_counter()
    frame = frame_of(model)
    solver = choose_solver(model, solver)
    statistics: dict[str, Any] = {
        "end_components": frame.parts,
        "weakly_communicating": frame.parts == 1,
    }
    if model.num_costs:
        engine = engine_of(frame, solver, tolerance, max_sweeps)
        return constrained.plan(model, engine, solver, tolerance, started, statistics)
    solver, found = best_gain(frame, model.rewards, solver, tolerance, max_sweeps)
    value = float(model.initial @ found.gain)
    lower = min(value, mean_bound(model, found.lower, -1.0))
    upper = max(value, mean_bound(model, found.upper, 1.0))
    solved = upper - lower <= tolerance * max(1.0, abs(value))
    statistics["iterations"] = found.iterations
    return Solution(
        status=Status.SOLVED if solved else Status.NOT_CONVERGED,
        solver=solver,
        value=value,
        policy=DeterministicPolicy(found.actions),
        costs=np.zeros(0),
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.zeros(0),
        lower_bound=lower,
        upper_bound=upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        statistics=statistics,
        state_values=found.gain,
        bias=found.bias,
    )


def choose_solver(model: FiniteMDP, solver: str) -> str:
    """What 'auto' and 'column-generation' stand for, by the size of the model."""
    if solver == "auto" and model.num_costs and model.num_states <= PROGRAM_STATES:
        return "lp"
    if solver in ("auto", "column-generation"):
        return "policy-iteration" if model.num_states <= DENSE_STATES else HYBRID
    return solver


def hybrid_sweeps(model: FiniteMDP, max_sweeps: int) -> int:
    """Sweeps of value iteration before policy iteration goes on."""
    return min(max_sweeps, max(1000, HYBRID_PRODUCTS // max(1, model.tables().data.size)))


def best_gain(
    frame: Frame,
    rewards: FloatArray,
    solver: str,
    tolerance: float,
    max_sweeps: int,
    start: IntArray | None = None,
) -> tuple[str, Gains]:
    """The best gain for given rewards (S, A) by the solver of that name, and the solver it took.

    Policy iteration begins at the actions `start` (S,), if they are given.
    """
    if solver == "policy-iteration":
        return solver, by_policy_iteration(frame, rewards, start)
    if solver == "lp":
        found = by_linear_program(frame, rewards)
    else:
        if solver == HYBRID:
            max_sweeps = hybrid_sweeps(frame.model, max_sweeps)
        found = by_value_iteration(frame, rewards, 0.5 * tolerance, max_sweeps)
    room = tolerance * np.maximum(1.0, np.abs(found.gain))
    if solver == "value-iteration" or (found.upper - found.lower <= room).all():
        return solver.partition(",")[0], found
    # mixing is slow: sweeps end too early, and HiGHS leaves out coefficients below 1e-9
    try:
        better = by_policy_iteration(frame, rewards, found.actions)
    except TooSlowError:  # a chain too large to eliminate: the bounds are as good as they get
        return solver.partition(",")[0], found
    return f"{solver.partition(',')[0]}, policy-iteration", better


def mean_bound(model: FiniteMDP, bounds: FloatArray, sign: float) -> float:
    """The mean of bounds (S,) over the initial law, moved by `sign` times its rounding error."""
    terms = 2 * np.count_nonzero(model.initial) * EPS
    return float(model.initial @ bounds) + sign * terms * float(np.abs(bounds).max())


def engine_of(frame: Frame, solver: str, tolerance: float, max_sweeps: int) -> Engine:
    """What the constrained planner needs to know of the average criterion."""
    model = frame.model
    rewards, costs = model.rewards, model.costs * model.signs[:, None, None]
    inner = solver if solver in ("value-iteration", HYBRID) else "policy-iteration"

    sizes = np.abs(np.concatenate([rewards[None], costs])).max(axis=(1, 2))

    def mixing_error(weight: float, multipliers: FloatArray) -> float:
        """Rounding of ``weight * rewards - multipliers @ costs``, and of the limits' price."""
        parts = weight * sizes[0] + float(multipliers @ (sizes[1:] + np.abs(model.capacities)))
        return (multipliers.size + 2) * EPS * parts

    last: IntArray | None = None  # the next multipliers are near: so is their best policy

    def respond(weight: float, multipliers: FloatArray) -> Response:
        nonlocal last, inner
        mixed = weight * rewards - np.tensordot(multipliers, costs, axes=1)
        used, found = best_gain(frame, mixed, inner, 0.1 * tolerance, max_sweeps, last)
        last = found.actions
        if used == HYBRID:  # value iteration did not get there: not again
            inner = "policy-iteration"
        policy = DeterministicPolicy(found.actions)
        value = evaluate_stationary(model, policy)
        upper = mean_bound(model, found.upper, 1.0) + mixing_error(weight, multipliers)
        return Response(policy, np.append(value.value, model.signs * value.costs), upper)

    def program() -> constrained.Flow:
        limits = model.capacities * model.signs
        flow = flow_program(frame, rewards, costs, limits, model.initial)
        policy, status = None, flow.status
        if status is Status.UNBOUNDED:  # a mean is not: coefficients below 1e-9 were left out
            status = Status.NOT_CONVERGED
        if status is Status.SOLVED:
            policy = StochasticPolicy(flow_table(frame, flow.frequency, flow.passing))
        mixed = rewards - np.tensordot(flow.multipliers, costs, axes=1)
        bound = mean_bound(model, gain_upper(frame, mixed, flow.bias), 1.0)
        bound += mixing_error(1.0, flow.multipliers)
        return constrained.Flow(
            status,
            policy,
            flow.multipliers,
            bound + float(flow.multipliers @ limits),
            flow.iterations,
        )

    def stationary(policy: MixturePolicy) -> Policy:
        return StochasticPolicy(flow_table(frame, *frequencies(model, policy)))

    return Engine(respond, program, sizes, stationary)
