"""Planners for known models: each returns a policy with a certificate."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tightrope.errors import ConfigError, did_you_mean, unknown_name
from tightrope.model.mdp import FiniteMDP, require_model
from tightrope.planning.episodic import backward_induction, plan_episodic
from tightrope.planning.evaluation import Evaluation, evaluate
from tightrope.planning.occupancy import markov_policy, occupancy, policy_from_occupancy
from tightrope.planning.solution import LeastViolation, Solution
from tightrope.types import Average, Discounted, Episodic

if TYPE_CHECKING:
    from tightrope.planning.confidence import Confidence, confidence_from_counts, confidence_set
    from tightrope.planning.knapsack import DynamicOptimum, dynamic_optimum, plan_knapsack
    from tightrope.planning.lagrangian_planner import lagrangian
    from tightrope.planning.linear_oracle import OptimisticPlan, optimistic
    from tightrope.planning.projection import Projection, Projector, project

# Where the planners are that a plain plan does not need; imported on first use.
_HOMES = {
    "Confidence": "confidence",
    "DynamicOptimum": "knapsack",
    "OptimisticPlan": "linear_oracle",
    "Projection": "projection",
    "Projector": "projection",
    "confidence_from_counts": "confidence",
    "confidence_set": "confidence",
    "dynamic_optimum": "knapsack",
    "lagrangian": "lagrangian_planner",
    "optimistic": "linear_oracle",
    "plan_knapsack": "knapsack",
    "project": "projection",
}

__all__ = [
    "Confidence",
    "DynamicOptimum",
    "Evaluation",
    "LeastViolation",
    "OptimisticPlan",
    "Projection",
    "Projector",
    "Solution",
    "backward_induction",
    "confidence_from_counts",
    "confidence_set",
    "dynamic_optimum",
    "evaluate",
    "lagrangian",
    "markov_policy",
    "occupancy",
    "optimistic",
    "plan",
    "plan_episodic",
    "plan_knapsack",
    "policy_from_occupancy",
    "project",
]

SOLVERS = ("auto", "lp", "column-generation", "policy-iteration", "value-iteration")
CONVEX_OPTIONS = {"objective", "constraint", "reward_channels", "reward_radius", "cost_radius"}
KNAPSACK_OPTIONS = {"budgets", "episodes", "epsilon"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tightrope.planning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tightrope.planning.{_HOMES[name]}"), name)


def plan(model: FiniteMDP, *, solver: str = "auto", **options: Any) -> Solution:
    """The constrained optimum of a model under its own criterion, with a certificate.

    Parameters
    ----------
    solver : 'auto', 'lp', 'column-generation' (episodic), 'value-iteration', 'policy-iteration'
    options : those of the criterion's planner
        `objective`, `constraint`, `reward_channels`, ...: `planning.convex.plan_convex`;
        `budgets`, `episodes`, `epsilon`: `planning.knapsack.plan_knapsack`.

    Raises
    ------
    ModelError, ConfigError
        If `model` is no FiniteMDP; for an unknown solver or option, with the nearest name.

    Examples
    --------
    >>> from tightrope.problems import mars_rover
    >>> solution = plan(mars_rover())
    >>> solution.status.value, round(solution.value, 8), solution.multipliers.round(6)
    ('solved', 1.53628844, array([0.192982]))
    """
    require_model(model, "plan")
    if not isinstance(solver, str):
        raise ConfigError(f"solver must be one of {', '.join(SOLVERS)}, got {solver!r}")
    if solver not in SOLVERS:
        hint = did_you_mean(solver, SOLVERS)
        if hint:  # otherwise the criterion's planner lists its own
            raise ConfigError(f"unknown solver '{solver}'{hint}")
    planner = _planner(model, solver, options)
    known = _options_of(planner)
    if solver != "auto" and "solver" not in known:
        raise ConfigError(f"convex planning has one solver; leave solver out, got {solver!r}")
    if "solver" in known:
        options = {"solver": solver, **options}
    for name in options:
        if name not in known:
            raise unknown_name("option of plan", name, known)
    return planner(model, **options)


@functools.cache
def _options_of(planner: Callable[..., Solution]) -> list[str]:
    """The names of a planner's options; inspecting it takes as long as a tenth of a small plan."""
    return [*inspect.signature(planner).parameters][1:]


def _planner(model: FiniteMDP, solver: str, options: dict[str, Any]) -> Callable[..., Solution]:
    """The planner of a criterion, or what the options ask for."""
    if isinstance(model.criterion, Episodic):
        knapsack = sorted(KNAPSACK_OPTIONS & set(options))
        if not CONVEX_OPTIONS.isdisjoint(options):
            if knapsack:
                raise ConfigError(
                    f"'{knapsack[0]}' is for hard budgets, which take none of "
                    f"{sorted(CONVEX_OPTIONS)}"
                )
            from tightrope.planning.convex import plan_convex

            return plan_convex
        if knapsack:
            if not {"budgets", "episodes"} <= set(options):
                raise ConfigError(
                    "hard budgets are for all episodes together: give budgets= and episodes=K"
                )
            from tightrope.planning.knapsack import plan_knapsack

            return plan_knapsack
        if solver in ("value-iteration", "policy-iteration"):
            raise ConfigError(
                f"episodic models have no {solver}: an episode has a last step, so one pass of "
                "backward induction is exact; without costs solver='auto' is that pass"
            )
        return plan_episodic
    if isinstance(model.criterion, Average):
        from tightrope.planning.average import plan_average

        return plan_average
    if isinstance(model.criterion, Discounted):
        from tightrope.planning.discounted import plan_discounted

        return plan_discounted
    from tightrope.planning.total import plan_total

    return plan_total
