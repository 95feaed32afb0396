"""LagrConPlanner: the constrained optimum by projected steps on the multipliers [CON, Alg. 2].

    pi_n = argmax_pi V_r(pi) - lambda_n @ (V_c(pi) - capacity),
    lambda_{n+1} = max(0, lambda_n + step (V_c(pi_n) - capacity)),

with multipliers >= 0 (the paper's have the other sign), and the uniform mixture of pi_1 .. pi_N is
returned. It is a heuristic: the mixture may miss the capacity and the optimum, and both are
measured. Deviation: the paper subtracts the capacity from every step's cost; here it is subtracted
once, which has the same best responses and makes the objective a dual bound.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.kernels import episodic
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.policy import DeterministicPolicy, mixture
from tightrope.planning.episodic import plan_episodic, signed_tables
from tightrope.planning.evaluation import policy_values
from tightrope.planning.solution import Solution
from tightrope.types import FloatArray, IntArray, as_number, as_whole


class LagrangianPlan(NamedTuple):
    """The N best responses."""

    actions: IntArray  #: (N, H, S)
    values: FloatArray  #: (N, 1 + m) of each, costs signed
    trail: FloatArray  #: (N, m) multipliers after each
    upper: float  #: least dual bound


def iterate(
    tables: Tables,
    horizon: int,
    capacities: FloatArray,
    *,
    iterations: int,
    step: float,
    multipliers: FloatArray | None = None,
) -> LagrangianPlan:
    """Algorithm 2 on plain arrays, costs and capacities signed, from `multipliers` (default 0)."""
    m = capacities.size
    actions = np.empty((iterations, horizon, tables.initial.size), dtype=np.int32)
    values, trail = np.empty((iterations, 1 + m)), np.empty((iterations, m))
    duals = np.zeros(m) if multipliers is None else multipliers.copy()
    upper = episodic.lagrangian_iterations(
        *tables, horizon, capacities, step, duals, actions, values, trail
    )
    return LagrangianPlan(actions, values, trail, float(upper))


def lagrangian(
    model: FiniteMDP, *, iterations: int = 400, step: float = 0.05, compare: bool = True
) -> Solution:
    """The uniform mixture of N best responses, with what it misses.

    Parameters
    ----------
    iterations : N
    step : the multipliers' step, in units of value per squared cost
        The defaults are measured: over steps 0.02..10 and N of 10..2,000, on Mars rover, Box and
        eight random models with m = 1..3, larger steps lose more than smaller ones violate.
    compare : bool
        Solve exactly too; the statistics then hold `suboptimality`, the exact optimum minus the
        mixture's value (negative where it violates a capacity).

    Returns
    -------
    Solution
        Status SOLVED only if the mixture keeps the capacities and its gap is below 1e-6; otherwise
        NOT_CONVERGED. If no policy keeps the capacities, `compare` returns the exact planner's
        answer, with the least that can be achieved. `upper_bound` is the
        least dual bound, `multipliers` are the average.

    Examples
    --------
    >>> from tightrope.problems import mars_rover
    >>> solution = lagrangian(mars_rover())
    >>> solution.status.value, bool(abs(solution.value - 1.53628844) < 0.02)
    ('not_converged', True)
    """
    iterations = as_whole(iterations, "iterations", 1)
    if not 0 < as_number(step, "step") < np.inf:
        raise ConfigError(f"step must be a finite number > 0, got {step}")
    started = time.perf_counter()
    tables, limits = signed_tables(model)
    found = iterate(tables, model.horizon, limits, iterations=iterations, step=step)
    distinct, counts = np.unique(found.actions, axis=0, return_counts=True)
    policy = mixture([DeterministicPolicy(a) for a in distinct], counts / iterations)
    values = policy_values(model, policy)
    excess = float((model.signs * values[1:] - limits).max(initial=0.0))
    value = float(values[0])
    feasible = excess <= 1e-9 * max(1.0, float(np.abs(limits).max(initial=0.0)))
    closed = found.upper - value <= 1e-6 * max(1.0, abs(value))
    statistics = {
        "dynamic_programs": iterations,
        "largest_excess": excess,
        "distinct_policies": len(distinct),
    }
    if compare:
        exact = plan_episodic(model)
        if exact.status is Status.INFEASIBLE:
            return exact  # with its certificate and the least achievable costs
        statistics["suboptimality"] = np.nan if exact.value is None else exact.value - value
    return Solution(
        status=Status.SOLVED if feasible and closed else Status.NOT_CONVERGED,
        solver="lagrangian",
        value=value,
        policy=policy,
        costs=values[1:],
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=found.trail.mean(axis=0),
        lower_bound=value if feasible else -np.inf,
        upper_bound=found.upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        statistics=statistics,
    )
