"""Hard budgets over K episodes [CON, Section 5]: the plan of Eq. (13) and the exact optimum.

The *stationary* benchmark keeps B_i / K per episode in expectation [CON, Eq. (1)]. The *dynamic*
one reacts to what is left and never exceeds a budget on any sample path; it is at most K times
the first [CON, Lemma D.1]. Where budgets are a few hundred units it is computed here exactly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tightrope.errors import ConfigError, ModelError
from tightrope.kernels import episodic
from tightrope.kernels.knapsack import budget_program
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.episodic import plan_episodic
from tightrope.planning.solution import Solution
from tightrope.types import FloatArray

NULL_EPS = 1e-12
MAX_CELLS = 20_000_000  # states times budget cells of the dynamic program
LATTICE_EPS = 1e-9
LARGEST_DENOMINATOR = 1_000


def plan_knapsack(
    model: FiniteMDP,
    *,
    budgets: Any,
    episodes: int,
    epsilon: float = 0.0,
    null_action: str | int | None = "null",
    solver: str = "auto",
    tolerance: float = 5e-9,
) -> Solution:
    """The best stationary policy with ``(1 - epsilon) B_i / K`` per episode [CON, Eq. (13)].

    Parameters
    ----------
    budgets : (m,) or a mapping from cost name to number, >= 0
        What all K episodes together may consume.
    episodes : K
    epsilon : in [0, 1)
    null_action : name or number
        The action that stays out of an episode; it is checked to give reward 0 and consumption 0.
        A model without one (`problems.with_null_action` adds it) may be infeasible: the solution
        then says the least achievable cost.
    solver, tolerance : of `plan_episodic`

    Raises
    ------
    ConfigError
        If epsilon is outside [0, 1), a budget negative, or the null action costs something.
    """
    limits = check_budgets(model, budgets, episodes)
    check_epsilon(epsilon)
    if (model.signs < 0).any():
        raise ConfigError("budgets bound costs from above: this model has a '>=' cost")
    has_null = find_null(model, null_action) is not None
    per_episode = (1.0 - epsilon) * limits / episodes
    solution = plan_episodic(
        model.replace(capacities=per_episode), solver=solver, tolerance=tolerance
    )
    statistics = solution.statistics | {
        "budgets": limits,
        "episodes": episodes,
        "epsilon": epsilon,
        "null_action": has_null,
    }
    return dataclasses.replace(solution, statistics=statistics)


def check_epsilon(epsilon: float) -> None:
    """ConfigError unless 0 <= epsilon < 1."""
    if not 0.0 <= epsilon < 1.0:
        raise ConfigError(
            f"epsilon must be in [0, 1), got {epsilon:.6g}: the plan keeps (1 - epsilon) of the "
            "budgets, and at 1 nothing but the null episode is left"
        )


def check_budgets(model: FiniteMDP, budgets: Any, episodes: int) -> FloatArray:
    """(m,) budgets; ConfigError with the place if they or the episodes are no such numbers."""
    number = isinstance(episodes, int | float | np.number) and not isinstance(episodes, bool)
    if not (number and 1 <= episodes < np.inf and int(episodes) == episodes):
        raise ConfigError(f"episodes must be a whole number >= 1, got {episodes!r}")
    if model.num_costs == 0:
        raise ConfigError("budgets need costs, and this model has none")
    if isinstance(budgets, Mapping):
        unknown = sorted(set(budgets) ^ set(model.cost_names))
        if unknown:
            raise ConfigError(f"budgets must name the costs {model.cost_names}; see '{unknown[0]}'")
        budgets = [budgets[name] for name in model.cost_names]
    limits = np.array(budgets, dtype=np.float64).reshape(-1)
    if limits.shape != (model.num_costs,):
        raise ConfigError(f"got {limits.size} budgets, expected m = {model.num_costs}")
    bad = np.flatnonzero(~(np.isfinite(limits) & (limits >= 0)))
    if bad.size:
        i = int(bad[0])
        raise ConfigError(
            f"budget of '{model.cost_names[i]}' is {limits[i]}, expected a number >= 0: "
            "the least achievable consumption, that of the null episode, is 0"
        )
    return limits


def find_null(model: FiniteMDP, null_action: str | int | None) -> int | None:
    """Number of the null action, checked to give the null episode; None if there is none.

    Raises ConfigError if it earns or costs anything, also later in the episode.
    """
    names = model.action_names or ()
    if isinstance(null_action, str):
        if null_action not in names:
            return None
        null_action = names.index(null_action)
    if null_action is None:
        return None
    if not 0 <= null_action < model.num_actions:
        raise ConfigError(f"null_action is {null_action}, expected 0..{model.num_actions - 1}")
    starts = np.flatnonzero(model.initial > 0)
    missing = starts[~model.available[starts, null_action]]
    if missing.size:
        raise ConfigError(
            f"the null action '{model.action_name(null_action)}' is not available in the initial "
            f"state {model.state_name(int(missing[0]))}"
        )
    available = np.array(model.available)
    available[starts] = False
    available[starts, null_action] = True
    tables = model.tables()._replace(available=available)
    scratch = np.empty((model.horizon, model.num_states), dtype=np.int32)
    for name, table in [("reward", tables.rewards), *zip(model.cost_names, tables.costs)]:
        size = np.ascontiguousarray(np.abs(table))
        none = np.zeros((0, *size.shape))
        most = episodic.best_response(
            *tables._replace(rewards=size, costs=none), model.horizon, 1.0, np.zeros(0), scratch
        )
        if most > NULL_EPS:
            raise ConfigError(
                f"the null action '{model.action_name(null_action)}' must give the null episode, "
                f"but after it the {name} can still reach {most:.6g}; expected 0"
            )
    return int(null_action)


class DynamicOptimum(NamedTuple):
    """What the best policy that reacts to the remaining budgets earns in K episodes."""

    value: float  #: expected total reward; -inf if no policy keeps the budgets surely
    stationary: float  #: K times the stationary benchmark, an upper bound [CON, Lemma D.1]
    worth: FloatArray  #: (n_1, .., n_m) value for every remaining budget, in units


def dynamic_optimum(
    model: FiniteMDP, *, budgets: Any, episodes: int, unit: float | None = None,
    max_work: float = math.inf,
) -> DynamicOptimum:  # fmt: skip
    """The exact optimum with budgets that hold on every sample path [CON, Appendix D.2].

    A dynamic program over (episodes left, step, state, budgets left). Rewards and costs are those
    realised by transitions where the model has them, else the means, taken as certain.

    Parameters
    ----------
    unit : > 0
        Every realised cost must be a whole number of units; budgets are rounded down to units.
        Default: the largest unit that does.
    max_work : of transitions times budget cells that are worth their time (some 2e9 a second)

    Raises
    ------
    ConfigError
        If a cost is no multiple of the unit, or the program is too large.
    """
    limits = check_budgets(model, budgets, episodes)
    if unit is not None and not unit > 0:
        raise ConfigError(f"unit must be > 0, got {unit}")
    if model.staged:
        raise ModelError("the dynamic optimum needs tables that do not differ by step")
    lengths = np.diff(model.indptr)
    pays, costs = model.rewards_next, model.costs_next
    if pays is None:
        pays = np.repeat(model.rewards.ravel(), lengths)
    if costs is None:
        costs = np.repeat(model.costs.reshape(model.num_costs, -1), lengths, axis=1)
    unit = common_unit(costs) if unit is None else unit
    units = np.rint(costs / unit)
    off = np.abs(costs - units * unit)
    if costs.min() < 0 or off.max() > LATTICE_EPS * max(1.0, unit):
        i, k = np.unravel_index(int(off.argmax()), off.shape)
        raise ConfigError(
            f"cost '{model.cost_names[i]}' takes the value {costs[i, k]:.9g}, which is no whole "
            f"number >= 0 of units of {unit:.9g}"
        )
    sizes = np.floor(limits / unit + LATTICE_EPS).astype(np.int64) + 1
    cells = math.prod(int(n) for n in sizes)
    if cells * model.num_states > MAX_CELLS:
        raise ConfigError(
            f"the dynamic program has {model.num_states} states x {cells} budget cells, more than "
            f"{MAX_CELLS}; take a larger unit or smaller budgets"
        )
    work = float(model.data.size) * model.horizon * episodes * cells
    if work > max_work:
        raise ConfigError(
            f"the dynamic program takes {work:.2g} transitions ({episodes} episodes, {cells} "
            f"budget cells), more than {max_work:.2g}"
        )
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1).astype(np.int64)
    worth = np.empty(cells)
    t = model.tables()
    budget_program(
        t.start, t.stop, t.indices, t.data, np.array(pays), units.astype(np.int64), t.available,
        t.initial, model.horizon, strides, sizes, episodes, worth,
    )  # fmt: skip
    stationary = plan_episodic(model.replace(capacities=limits / episodes)).value
    return DynamicOptimum(
        float(worth[-1]),
        -np.inf if stationary is None else episodes * stationary,
        worth.reshape(sizes),
    )


def common_unit(costs: FloatArray) -> float:
    """The largest unit of which all costs are whole numbers; ConfigError if there is none.

    >>> round(common_unit(np.array([[0.0, 1.0, 1 / 30, 0.5]])), 6)
    0.033333
    """
    numerator, denominator = 0, 1
    for cost in np.unique(costs[costs > 0]):
        fraction = Fraction(float(cost)).limit_denominator(LARGEST_DENOMINATOR)
        if abs(float(fraction) - cost) > LATTICE_EPS:
            raise ConfigError(
                f"a cost of {cost:.9g} is no fraction with a denominator of at most "
                f"{LARGEST_DENOMINATOR}: give the unit of which all costs are whole numbers"
            )
        numerator = math.gcd(numerator, fraction.numerator)
        denominator = math.lcm(denominator, fraction.denominator)
    # gcd of reduced fractions: gcd of the numerators over the lcm of the denominators
    return numerator / denominator if numerator else 1.0
