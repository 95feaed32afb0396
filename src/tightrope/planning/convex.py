"""Concave objectives under convex constraints by column generation [CON, Eq. (15)].

    max_rho  max_{r in [r +- radius]} f(rho . r)   s.t.   min_{c in [c +- radius]} g(rho . c) <= 0

Since rho >= 0, a policy reaches of every channel exactly the interval [rho.(x - b), rho.(x + b)],
so f and g see few numbers z = (y, u), and what all policies reach together is a convex set whose
support function is one dynamic program:

 max_z up @ z - down @ z  =  max_pi V(sum_j up_j (x_j + b_j) - down_j (x_j - b_j)).

Columns are deterministic policies; the master (`planning.masters`) is a program over mixtures,
and its prices give the next dynamic program and with it an upper bound of the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, mixture
from tightrope.planning.conic import Function, conic_master, is_conic
from tightrope.planning.convex_columns import ConvexColumns, Reach, first_columns, solve
from tightrope.planning.masters import CutMaster, Master
from tightrope.planning.solution import LeastViolation, Solution
from tightrope.types import FloatArray, as_number

FEW_CHANNELS = 16  # with more the default tolerance is coarser
PROBES = 12  # points at which callables are tried before planning


def plan_convex(
    model: FiniteMDP,
    *,
    objective: Function | None = None,
    constraint: Function | Sequence[Function] | None = None,
    reward_channels: Mapping[str, Any] | None = None,
    reward_radius: Any = None,
    cost_radius: Any = None,
    within: tuple[float, float] | None = None,
    tolerance: float | None = None,
    max_programs: int = 2_000,
) -> Solution:
    """The best concave objective of the expected rewards under convex constraints on the costs.

    Parameters
    ----------
    objective : concave f of the expected rewards y, (n,) in the order of the channels
        A function of a CVXPY vector that returns an expression, an expression in CVXPY variables
        named after the channels, or a callable that returns (value, supergradient). Default: the
        sum of y.
    constraint : convex g, or several, of the expected costs u, (m,): ``g(u) <= 0``
        In the same forms; a callable returns a subgradient. Default: the model's own capacities.
    reward_channels : mapping from name to (S, A) or (H, S, A)
        What f sees; the default is the model's reward, named 'reward'.
    reward_radius, cost_radius : (S, A), or (n, S, A) and (m, S, A), >= 0
        The box of [CON, Eq. (15)]: f and g see the best reward and cost within this distance.
    within : (low, high)
        Also keep y and u in this range (``(0, H)`` keeps every true value when rewards and costs
        are in [0, 1]); recorded in the statistics.
    tolerance : relative gap, > 0; by default 1e-8, and 1e-6 with more than 16 channels
    max_programs : >= 1
        Dynamic programs before the answer is `not_converged`, with the gap that is left. Each adds
        a column to a master that grows with them: an entropy over 64 channels takes some 350 (20 s)
        to 1e-6, and several times as long to 1e-8.

    Returns
    -------
    Solution
        `value` is f and `costs` are the policy's expected costs, both evaluated again;
        `multipliers` (m,) are the gains in f per unit by which a cost is forgiven. The statistics
        hold `rewards`, `constraint_values` and, with a box, the chosen `optimistic` values.

    Raises
    ------
    ConfigError
        If f is not concave or g not convex (with the witness), or f is defined for no policy that
        keeps g; if tolerance or max_programs is no such number.

    Examples
    --------
    Share visits fairly between two goals:

    >>> import cvxpy as cp
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> solution = plan_convex(model, objective=lambda y: cp.log(y))
    >>> round(solution.value, 6) == round(float(np.log(1.53628844)), 6)
    True
    """
    started = time.perf_counter()
    names, reach, free = _channels(model, reward_channels, reward_radius, cost_radius)
    if tolerance is None:
        tolerance = 1e-8 if len(names) <= FEW_CHANNELS else 1e-6
    if not 0 < as_number(tolerance, "tolerance") < np.inf:
        raise ConfigError(f"tolerance must be a number > 0, got {tolerance}")
    if not isinstance(max_programs, int) or max_programs < 1:
        raise ConfigError(f"max_programs must be a whole number >= 1, got {max_programs!r}")
    actions = first_columns(reach)
    low, high = reach.ends(actions)
    limits = (low.min(axis=0), high.max(axis=0))
    master = make_master(
        names, model.signs, model.capacities, limits, objective, constraint, within
    )
    described: dict[str, Any] = {"channels": names}
    if within is not None:
        described["within"] = tuple(within)
    if isinstance(master, CutMaster):
        _probe(master, *limits)
    found = solve(reach, master, actions, tolerance=tolerance, max_programs=max_programs)
    return _report(model, free, reach, master, found, started, described)


def _channels(
    model: FiniteMDP, rewards: Mapping[str, Any] | None, reward_radius: Any, cost_radius: Any
) -> tuple[list[str], Reach, Reach]:
    """Channel names; what is reached with the box and without it."""
    tables = model.tables()
    shape = (model.num_states, model.num_actions)
    given = {"reward": model.rewards} if rewards is None else dict(rewards)
    if not given:
        raise ConfigError("reward_channels is empty: expected at least one reward")
    clash = sorted(set(given) & set(model.cost_names))
    if clash:
        raise ConfigError(f"reward channel '{clash[0]}' has the name of a cost")
    stacked = []
    for name, table in given.items():
        array = np.asarray(table, dtype=np.float64)
        if array.shape not in (shape, (model.horizon, *shape)) or not np.isfinite(array).all():
            raise ConfigError(
                f"reward channel '{name}' has shape {array.shape}, expected finite numbers of "
                f"shape {shape} or {(model.horizon, *shape)}"
            )
        stacked.append(array.reshape(-1, *shape))
    stacked += list(tables.costs)
    stages = max(table.shape[0] for table in stacked)
    channels = np.stack([np.broadcast_to(table, (stages, *shape)) for table in stacked])
    free = Reach(tables, model.horizon, channels, None)
    names = [*given, *model.cost_names]
    if reward_radius is None and cost_radius is None:
        return names, free, free
    radii = [
        _radius("reward_radius", reward_radius, len(given), shape),
        _radius("cost_radius", cost_radius, model.num_costs, shape),
    ]
    return names, Reach(tables, model.horizon, channels, np.concatenate(radii)), free


def _radius(name: str, given: Any, count: int, shape: tuple[int, int]) -> FloatArray:
    radius = np.asarray(0.0 if given is None else given, dtype=np.float64)
    if radius.shape not in ((), shape, (count, *shape)) or not (radius >= 0).all():
        raise ConfigError(
            f"{name} has shape {radius.shape}, expected numbers >= 0 of shape {shape} "
            f"or {(count, *shape)}"
        )
    return np.broadcast_to(radius, (count, *shape))[:, None]


def make_master(
    names: list[str], signs: FloatArray, capacities: FloatArray,
    limits: tuple[FloatArray, FloatArray], objective: Function | None,
    constraint: Function | Sequence[Function] | None, within: tuple[float, float] | None,
) -> Master:  # fmt: skip
    """The master for what the user gave.

    Parameters
    ----------
    names : of the n channels, rewards first, then the m costs
    limits : smallest and largest value of every channel
    """
    count = len(names) - signs.size
    given: list[Function] = (
        list(constraint) if isinstance(constraint, list | tuple) else [constraint]
    )
    if constraint is None:
        given = []
    elif signs.size == 0:
        raise ConfigError("a constraint needs costs, and this model has none")
    if within is not None and not within[0] < within[1]:
        raise ConfigError(f"within must be (low, high) with low < high, got {within}")
    functions = [f for f in (objective, *given) if f is not None]
    conic = [is_conic(f, count if f is objective else signs.size) for f in functions]
    if any(conic) and not all(conic):
        raise ConfigError(
            "give the objective and the constraints either all as CVXPY expressions or all as "
            "callables that return (value, gradient)"
        )
    rows = list(zip(signs, capacities)) if constraint is None else []
    if any(conic):
        return conic_master(names, count, objective, given, rows, within)
    given += [_linear(sign, i, capacity) for i, (sign, capacity) in enumerate(rows)]
    if objective is None:
        objective = _total
    return CutMaster(objective, given, count, *limits, within)


def _total(y: FloatArray) -> tuple[float, FloatArray]:
    return float(y.sum()), np.ones(y.size)


def _linear(sign: float, i: int, capacity: float) -> Function:
    """``sign * (u_i - capacity)`` with its gradient."""

    def g(u: FloatArray) -> tuple[float, FloatArray]:
        gradient = np.zeros(u.size)
        gradient[i] = sign
        return sign * (float(u[i]) - capacity), gradient

    return g


def _probe(master: CutMaster, low: FloatArray, high: FloatArray) -> None:
    """Try the callables inside the box of all values; a wrong curvature shows as a broken plane."""
    if master.within is not None:
        low, high = low.clip(*master.within), high.clip(*master.within)
    rng = np.random.default_rng(0)
    for _ in range(PROBES):
        master.evaluate(low + (high - low) * rng.random(low.size))


def _report(
    model: FiniteMDP, free: Reach, reach: Reach, master: Master, found: ConvexColumns,
    started: float, statistics: dict[str, Any],
) -> Solution:  # fmt: skip
    """Evaluate the mixture again, with and without the box."""
    count = reach.n - model.num_costs
    policy = mixture([DeterministicPolicy(a.copy()) for a in found.actions], found.weights)
    true = found.weights @ free.ends(found.actions)[0]
    low, high = (found.weights @ ends for ends in reach.ends(found.actions))
    chosen = np.clip(found.z, low, high)
    value, g = master.evaluate(chosen)
    infeasible = found.status is Status.INFEASIBLE
    nothing = infeasible or not np.isfinite(value)  # f may not be defined at what was reached
    statistics |= {
        "dynamic_programs": found.programs,
        "rewards": true[:count],
        "constraint_values": g,
        "largest_excess": float(g.max(initial=0.0)),
    }
    if reach.boxed:
        statistics["optimistic"] = chosen
    multipliers = -found.prices[count:] + 0.0
    least = None
    if infeasible:
        statistics["least_bounds"] = (found.lower, found.upper)
        least = LeastViolation(
            policy=policy, value=value, costs=true[count:], shortfall=float(g.max()),
            weights=multipliers, certified=found.lower,
        )  # fmt: skip
    return Solution(
        status=found.status,
        solver="convex-columns",
        value=None if nothing else value,
        policy=None if nothing else policy,
        costs=true[count:],
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.full(model.num_costs, np.nan) if infeasible else multipliers,
        lower_bound=-np.inf if nothing else min(value, found.upper),
        upper_bound=-np.inf if infeasible else found.upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        least_violation=least,
        statistics=statistics,
    )
