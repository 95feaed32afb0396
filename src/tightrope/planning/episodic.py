"""Exact planning for the episodic criterion: two independent solvers, one kind of answer."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.kernels import episodic as kernels
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy
from tightrope.planning import column_generation
from tightrope.planning.evaluation import policy_values
from tightrope.planning.occupancy import policy_from_occupancy
from tightrope.planning.solution import LeastViolation, Solution
from tightrope.types import FloatArray

EXCESS_EPS = 1e-9  # what a solved plan may exceed a capacity by, of that cost's largest total
SOLVERS = ("auto", "column-generation", "lp")


def signed_tables(model: FiniteMDP) -> tuple[Tables, FloatArray]:
    """Tables and capacities in which every constraint reads ``cost <= capacity``."""
    tables = model.tables()
    signs = model.signs
    if (signs < 0).any():
        tables = tables._replace(costs=tables.costs * signs[:, None, None, None])
    return tables, model.capacities * signs


def backward_induction(
    model: FiniteMDP, *, multipliers: FloatArray | None = None, reward_weight: float = 1.0
) -> tuple[DeterministicPolicy, float]:
    """The best policy for ``reward_weight * reward - multipliers @ cost``, and its objective.

    `multipliers` (m,) may have any sign; the default is 0, the unconstrained problem.

    >>> from tightrope.problems import mars_rover
    >>> policy, value = backward_induction(mars_rover())
    >>> policy.actions.shape, round(value, 8)
    ((30, 64), 1.81682218)
    """
    prices = np.zeros(model.num_costs)
    if multipliers is not None:
        prices = np.array(multipliers, dtype=np.float64)
        if prices.shape != (model.num_costs,):
            raise ConfigError(
                f"multipliers have shape {prices.shape}, expected ({model.num_costs},)"
            )
    actions = np.empty((model.horizon, model.num_states), dtype=np.int32)
    objective = kernels.best_response(
        *model.tables(), model.horizon, float(reward_weight), prices, actions
    )
    return DeterministicPolicy(actions), float(objective)


def plan_episodic(model: FiniteMDP, *, solver: str = "auto", tolerance: float = 5e-9) -> Solution:
    """The constrained optimum of an episodic model.

    Parameters
    ----------
    solver : 'column-generation' (what 'auto' takes) or 'lp'
        Dynamic programs under a small master, or HiGHS on the whole sparse program.
    tolerance : > 0, relative gap at which column generation stops

    Raises ConfigError for another solver or tolerance.
    """
    if solver not in SOLVERS:
        raise ConfigError(f"solver for episodic models must be one of {SOLVERS}, got {solver!r}")
    number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    if not (number and 0.0 < tolerance < np.inf):
        raise ConfigError(f"tolerance must be a number > 0, got {tolerance!r}")
    started = time.perf_counter()
    answer = _by_lp(model) if solver == "lp" else _by_columns(model, tolerance)
    solver = "lp" if solver == "lp" else "column-generation"
    return _report(model, solver, started, *answer)


Answer = tuple[Status, Policy, FloatArray, float | None, dict[str, Any]]
"""Status, policy (of least violation if infeasible), multipliers or Farkas weights, the upper bound
that a dynamic program has proved (None: not yet), statistics."""


def _by_columns(model: FiniteMDP, tolerance: float) -> Answer:
    tables, capacities = signed_tables(model)
    size = column_generation.pool_size(model.num_costs)
    # where no episode can be, the policy is the first available action
    pool = np.zeros((size, model.horizon, model.num_states), dtype=np.int32)
    if not tables.available[:, 0].all():
        pool[:] = tables.available.argmax(axis=1)
    order = np.empty((2, model.num_states), dtype=np.int32)
    counts = np.zeros(model.horizon, dtype=np.int64)
    kernels.reach(
        tables.start, tables.stop, tables.indices, tables.available, tables.initial > 0, order,
        counts,
    )  # fmt: skip
    found = column_generation.solve(
        tables, model.horizon, capacities, pool, reach=(order, counts), tolerance=tolerance
    )
    components = tuple(DeterministicPolicy(pool[slot].copy()) for slot in found.slots)
    policy = MixturePolicy(components, found.weights) if len(components) > 1 else components[0]
    upper = None if found.status is Status.INFEASIBLE else found.upper
    return found.status, policy, found.multipliers, upper, {"dynamic_programs": found.programs}


def _by_lp(model: FiniteMDP) -> Answer:
    from tightrope.planning import lp

    tables, capacities = signed_tables(model)
    found = lp.solve_episodic(tables, model.horizon, capacities)
    policy = policy_from_occupancy(np.maximum(found.measure, 0.0), model.available)
    return found.status, policy, found.multipliers, None, {"simplex_iterations": found.iterations}


def _report(
    model: FiniteMDP, solver: str, started: float, status: Status, policy: Policy,
    multipliers: FloatArray, upper: float | None, statistics: dict[str, Any],
) -> Solution:  # fmt: skip
    """Evaluate the policy again and, unless it is known, prove a bound by one dynamic program."""
    values = policy_values(model, policy)
    excess = model.signs * (values[1:] - model.capacities)
    statistics["largest_excess"] = float(excess.max(initial=0.0))
    infeasible = status is Status.INFEASIBLE
    allowed = [EXCESS_EPS * model.horizon * column_generation.largest(c) for c in model.costs]
    kept = bool((excess <= allowed).all())
    if status is Status.SOLVED and not kept:
        status = Status.NOT_CONVERGED
    least = None
    if upper is None:
        tables, limits = signed_tables(model)
        scratch = np.empty((model.horizon, model.num_states), dtype=np.int32)
        objective = kernels.best_response(
            *tables, model.horizon, 0.0 if infeasible else 1.0, multipliers, scratch
        )
        upper = float(objective + multipliers @ limits)
        if infeasible:
            least = LeastViolation(
                policy=policy,
                value=float(values[0]),
                costs=values[1:],
                shortfall=float(excess.max()),
                weights=multipliers,
                certified=-float(objective),
            )
    return Solution(
        status=status,
        solver=solver,
        value=None if infeasible else float(values[0]),
        policy=None if infeasible else policy,
        costs=values[1:],
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.full(model.num_costs, np.nan) if infeasible else multipliers,
        lower_bound=float(values[0]) if kept and not infeasible else -np.inf,
        upper_bound=-np.inf if infeasible else upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        least_violation=least,
        statistics=statistics,
    )
