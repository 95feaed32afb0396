"""The constrained optimum of endless processes: one frame for average, discounted and total."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import MixturePolicy, Policy, mixture
from tightrope.planning.criteria import evaluate_stationary
from tightrope.planning.generation import Respond, generate
from tightrope.planning.solution import LeastViolation, Solution
from tightrope.types import FloatArray

SAME = 1e-9  # excess, and relative gap at the most, at which a stationary policy is taken
SWITCH = (
    "no single stationary policy found earns this: draw one of the policies at the start, or follow"
    " one policy that switches once, for good"
)


class Flow(NamedTuple):
    """Answer of a linear program over frequencies or visits."""

    status: Status
    policy: Policy | None
    multipliers: FloatArray
    upper: float  #: certified from the duals
    iterations: int


class Least(NamedTuple):
    """A policy of least violation, and the weights that prove it; see `LeastViolation`."""

    policy: Policy
    weights: FloatArray
    certified: float


class Engine(NamedTuple):
    """What differs between the criteria."""

    respond: Respond
    program: Callable[[], Flow]
    scale: FloatArray  #: (1 + m,) sizes of reward and costs of a policy
    stationary: Callable[[MixturePolicy], Policy]  #: one stationary policy in place of a mixture
    least: Callable[[], Least | None] | None = None  #: by a program, where responses may not exist


def check_settings(tolerance: float, max_sweeps: int = 1) -> None:
    """ConfigError unless the settings of a planner make sense."""
    if not 0.0 <= tolerance < 1.0:
        raise ConfigError(f"tolerance is a relative gap, expected 0 <= tolerance < 1, {tolerance=}")
    if not max_sweeps >= 1:
        raise ConfigError(f"max_sweeps must be at least 1, got {max_sweeps}")


def plan(
    model: FiniteMDP,
    engine: Engine,
    solver: str,
    tolerance: float,
    started: float,
    statistics: dict[str, Any],
) -> Solution:
    """Solve by the linear program (`solver` 'lp') or by column generation, and certify.

    If no stationary policy has the program's frequencies, or there is no feasible one, column
    generation (started at the program's multipliers) supplies the policy or the least violation.
    """
    signs = model.signs
    limits = model.capacities * signs
    scale = np.where(engine.scale > 0, engine.scale, 1.0)
    upper, start, weight = np.inf, np.zeros(model.num_costs), 1.0
    near = min(SAME, 0.9 * tolerance)
    single = {"stationary": True, "must_switch": None}
    if solver == "lp":
        flow = engine.program()
        statistics["simplex_iterations"] = flow.iterations
        if flow.status is Status.INFEASIBLE:
            least = engine.least() if engine.least is not None else None
            if least is not None:
                return _infeasible(model, least, solver, started, statistics)
            start, weight = 1.0 / scale[1:], 0.0
        elif flow.status is Status.NOT_CONVERGED and engine.least is None:
            pass  # the program failed, as it may where mixing is slow: responses exist
        elif flow.status is not Status.SOLVED:
            none = np.full(model.num_costs, np.nan)
            return _answer(model, flow.status, solver, None, none, np.inf, started, statistics)
        else:
            upper, start = flow.upper, flow.multipliers
            if _within(model, flow.policy, start, upper, scale, near):
                statistics.update(single)
                return _answer(
                    model, Status.SOLVED, solver, flow.policy, start, upper, started, statistics
                )
    found = generate(
        engine.respond,
        limits,
        scale,
        multipliers=start,
        reward_weight=weight,
        tolerance=0.9 * tolerance,  # of the master; the policy is evaluated once more
    )
    statistics["dynamic_programs"] = found.programs
    if found.status is Status.INFEASIBLE:
        worst = Least(
            mixture(list(found.policies), found.weights),
            found.multipliers,
            -engine.respond(0.0, found.multipliers).upper,
        )
        return _infeasible(model, worst, solver, started, statistics)
    policy = mixture(list(found.policies), found.weights)
    upper = min(upper, found.upper)
    statistics.update(single)
    if isinstance(policy, MixturePolicy):
        one: Policy | None = engine.stationary(policy)
        if solver != "lp" and not _within(model, one, found.multipliers, upper, scale, near):
            one = engine.program().policy
        if one is not None and _within(model, one, found.multipliers, upper, scale, near):
            policy = one
        else:
            statistics.update(stationary=False, must_switch=SWITCH)
    answer = _answer(
        model, found.status, solver, policy, found.multipliers, upper, started, statistics
    )
    if answer.status is Status.SOLVED and not answer.gap <= tolerance:
        answer = dataclasses.replace(answer, status=Status.NOT_CONVERGED)
    return answer


def _lower(model: FiniteMDP, value: float, costs: FloatArray, multipliers: FloatArray) -> float:
    """What is left of a policy's value when it pays for its excess over the capacities."""
    excess = np.maximum(model.signs * (costs - model.capacities), 0.0)
    return value - float(multipliers @ excess)


def _within(
    model: FiniteMDP,
    policy: Policy | None,
    multipliers: FloatArray,
    upper: float,
    scale: FloatArray,
    near: float,
) -> bool:
    """Whether a policy keeps the capacities, and is `near` the bound (a relative gap)."""
    if policy is None:
        return False
    try:
        value, costs = evaluate_stationary(model, policy)
    except ModelError:  # a total criterion's flow whose policy does not end
        return False
    excess = (model.signs * (costs - model.capacities) / scale[1:]).max()
    lower = _lower(model, value, costs, multipliers)
    return bool(excess <= SAME and upper - lower <= near * max(1.0, abs(value)))


def _answer(
    model: FiniteMDP,
    status: Status,
    solver: str,
    policy: Policy | None,
    multipliers: FloatArray,
    upper: float,
    started: float,
    statistics: dict[str, Any],
) -> Solution:
    value, costs = None, np.full(model.num_costs, np.nan)
    lower = -np.inf
    if policy is not None:
        value, costs = evaluate_stationary(model, policy)
        lower = _lower(model, value, costs, multipliers)
        upper = max(upper, value)
        statistics["largest_excess"] = float((model.signs * (costs - model.capacities)).max())
    return Solution(
        status=status,
        solver=solver,
        value=value,
        policy=policy,
        costs=costs,
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=multipliers,
        lower_bound=lower,
        upper_bound=upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        statistics=statistics,
    )


def _infeasible(
    model: FiniteMDP, found: Least, solver: str, started: float, statistics: dict[str, Any]
) -> Solution:
    value, costs = evaluate_stationary(model, found.policy)
    least = LeastViolation(
        policy=found.policy,
        value=value,
        costs=costs,
        shortfall=float((model.signs * (costs - model.capacities)).max()),
        weights=found.weights,
        certified=found.certified,
    )
    answer = _answer(
        model,
        Status.INFEASIBLE,
        solver,
        None,
        np.full(model.num_costs, np.nan),
        -np.inf,
        started,
        statistics,
    )
    return dataclasses.replace(answer, costs=costs, least_violation=least)
