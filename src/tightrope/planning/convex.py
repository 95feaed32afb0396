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

import importlib
import importlib.util
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from tightrope.errors import ConfigError, Status, require
from tightrope.kernels import episodic
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.policy import DeterministicPolicy, mixture
from tightrope.planning.masters import ConicMaster, CutMaster, Master, MasterPoint
from tightrope.planning.solution import LeastViolation, Solution
from tightrope.types import FloatArray, IntArray

FEASIBLE_EPS = 1e-9  # of the largest channel value: a smaller violation is rounding
DROP_EPS = 1e-13  # weights below are no part of a mixture
PROBES = 12  # points at which callables are tried before planning

MAX_COMPILED = 16
_COMPILED: dict[
    Any, tuple[ConicMaster, Any]
] = {}  # cone programs of the last f and g: they are slow to make

Function = Any
"""A CVXPY expression, a function of a CVXPY vector, or a callable returning (value, gradient)."""


class ConvexColumns(NamedTuple):
    """What the column generation found; of the least violation if the status is INFEASIBLE."""

    status: Status
    programs: int  #: dynamic programs solved
    actions: IntArray  #: (k, H, S) the policies of the mixture
    weights: FloatArray  #: (k,) > 0, sum 1
    z: FloatArray  #: (n,) chosen channel values
    prices: FloatArray  #: (n,) gain in the objective per unit of a channel
    lower: float  #: bounds of the objective, or of the least max_j g_j
    upper: float


class Reach:
    """What policies reach: n channels (n, 1|H, S, A) with radii, and one dynamic program each."""

    def __init__(
        self, tables: Tables, horizon: int, channels: FloatArray, radius: FloatArray | None
    ) -> None:
        self.n, self.horizon = channels.shape[0], horizon
        self.boxed = radius is not None
        stacked = channels
        if radius is not None:
            stacked = np.concatenate([channels - radius, channels + radius])
        blank = np.zeros((1, *tables.available.shape))
        self.tables = tables._replace(rewards=blank, costs=np.ascontiguousarray(stacked))

    def respond(self, up: FloatArray, down: FloatArray) -> tuple[float, IntArray]:
        """``max_pi up @ high - down @ low`` and its policy (H, S)."""
        prices = np.concatenate([down, -up]) if self.boxed else down - up
        actions = np.empty((self.horizon, self.tables.available.shape[0]), dtype=np.int32)
        best = episodic.best_response(*self.tables, self.horizon, 0.0, prices, actions)
        return float(best), actions

    def ends(self, actions: IntArray) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest values, (k, n) each, of k policies (k, H, S)."""
        values = episodic.evaluate_actions(*self.tables, self.horizon, actions)[:, 1:]
        return values[:, : self.n], values[:, -self.n :]


def first_columns(reach: Reach, extra: IntArray | None = None) -> IntArray:
    """The policies that maximise and minimise each channel, after those that are given."""
    unit = np.eye(reach.n)
    none = np.zeros(reach.n)
    found = [reach.respond(unit[j], none)[1] for j in range(reach.n)]
    found += [reach.respond(none, unit[j])[1] for j in range(reach.n)]
    actions = np.stack(found)
    return actions if extra is None else np.concatenate([extra, actions])


def solve(
    reach: Reach,
    master: Master,
    actions: IntArray,
    *,
    tolerance: float = 1e-8,
    max_programs: int = 2_000,
) -> ConvexColumns:
    """Column generation from the policies `actions` (k, H, S).

    Parameters
    ----------
    tolerance : on (upper - lower) / max(1, |lower|)
    """
    low, high = reach.ends(actions)
    scale = max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))
    if isinstance(master, CutMaster) and not master.f.points:
        middle = 0.5 * (low + high).mean(axis=0)
        master.evaluate(middle if master.within is None else middle.clip(*master.within))
    pool, programs = list(actions), len(actions)
    # phase 1 minimises the largest g; it is entered only if the first columns cannot keep g
    least = False
    lower, upper = -np.inf, np.inf
    best: MasterPoint | None = None
    status = Status.NOT_CONVERGED
    while programs < max_programs:
        point = master.solve(low, high, least=least)
        if point.status is Status.INFEASIBLE and not least and master.num_constraints:
            least, upper = True, np.inf
            continue
        if point.status is not Status.SOLVED:
            break
        violation = point.violation
        support, fresh = reach.respond(point.up, point.down)
        programs += 1
        upper = min(upper, point.bound + max(0.0, support - point.level))
        if (least or violation <= FEASIBLE_EPS * scale) and (best is None or point.value >= lower):
            lower, best = point.value, point
        if least and violation <= 0.0 and lower > -np.inf:
            least, lower, upper, best = False, -np.inf, np.inf, None
        elif best is not None and upper - lower <= tolerance * max(1.0, abs(lower)):
            if not least:
                status = Status.SOLVED
                break
            if violation > FEASIBLE_EPS * scale or not isinstance(master, ConicMaster):
                status = Status.INFEASIBLE
                break
            master.relax(FEASIBLE_EPS * scale)
            least, lower, upper, best = False, -np.inf, np.inf, None
        pool.append(fresh)
        ends = reach.ends(fresh[None])
        low, high = np.vstack([low, ends[0]]), np.vstack([high, ends[1]])
    if best is None:
        none = np.zeros(reach.n)
        best = MasterPoint(status, low[0], np.ones(1), none, none, 0.0, np.inf, -np.inf, np.inf)
    keep, weights = _few(best.weights, low, high)
    if least:
        lower, upper = -upper, -lower
    return ConvexColumns(
        status, programs, np.stack([pool[k] for k in keep]), weights, best.z,
        best.up - best.down, lower, upper,
    )  # fmt: skip


def _few(weights: FloatArray, low: FloatArray, high: FloatArray) -> tuple[IntArray, FloatArray]:
    """At most 2n + 1 columns whose mixture has the same lowest and highest values."""
    weights = np.append(weights, np.zeros(low.shape[0] - weights.size))
    used = np.flatnonzero(weights > DROP_EPS)
    w = weights[used] / weights[used].sum()
    ends = low[used].T if (low == high).all() else np.vstack([low[used].T, high[used].T])
    scale = np.maximum(1.0, np.abs(ends).max(axis=1, keepdims=True))
    system = np.vstack([ends / scale, np.ones(used.size)])
    basic, residual = nnls(system, system @ w)
    if residual < 1e-11:
        w = basic
    keep = w > 0
    return used[keep], w[keep] / w[keep].sum()


# ------------------------------------------------------------------------------------ for users


def plan_convex(
    model: FiniteMDP,
    *,
    objective: Function | None = None,
    constraint: Function | Sequence[Function] | None = None,
    reward_channels: Mapping[str, Any] | None = None,
    reward_radius: Any = None,
    cost_radius: Any = None,
    within: tuple[float, float] | None = None,
    tolerance: float = 1e-8,
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
    tolerance : relative gap

    Returns
    -------
    Solution
        `value` is f and `costs` are the policy's expected costs, both evaluated again;
        `multipliers` (m,) are the gains in f per unit by which a cost is forgiven. The statistics
        hold `rewards`, `constraint_values` and, with a box, the chosen `optimistic` values.

    Raises
    ------
    ConfigError
        If f is not concave or g not convex (with the witness), or f is nowhere defined.

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
    conic = [_is_conic(f, count if f is objective else signs.size) for f in functions]
    if any(conic) and not all(conic):
        raise ConfigError(
            "give the objective and the constraints either all as CVXPY expressions or all as "
            "callables that return (value, gradient)"
        )
    rows = list(zip(signs, capacities)) if constraint is None else []
    if any(conic):
        return _conic(names, count, objective, given, rows, within)
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


def _is_conic(function: Function, size: int) -> bool:
    """Whether the user gave CVXPY expressions; an error for what is neither form."""
    if _is_expression(function):
        return True
    if not callable(function):
        raise ConfigError(
            f"expected a CVXPY expression, a function of a CVXPY vector, or a callable that "
            f"returns (value, gradient); got {function!r}"
        )
    cvxpy = importlib.util.find_spec("cvxpy")
    if cvxpy is not None:
        cp = importlib.import_module("cvxpy")
        try:
            answer = function(cp.Variable(size))
        except Exception:  # a callable for arrays may fail in any way on a symbol
            answer = None
        if _is_expression(answer):
            return True
    answer = function(np.ones(size))
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ConfigError(
            f"a function of {size} numbers must return a CVXPY expression (of a CVXPY vector) "
            f"or (value, gradient) (of an array); it returned {answer!r}"
        )
    return False


def _is_expression(thing: Any) -> bool:
    return hasattr(thing, "is_dcp") and not isinstance(thing, type)


def _conic(
    names: list[str], count: int, objective: Function | None, given: list[Function],
    rows: list[tuple[float, float]], within: tuple[float, float] | None,
) -> ConicMaster:  # fmt: skip
    cp = require("cvxpy", "convex")
    vectors = {"rewards": (cp.Variable(count, name="rewards"), 0)}
    if len(names) > count:
        vectors["costs"] = (cp.Variable(len(names) - count, name="costs"), count)

    def expression(function: Function, which: str) -> Any:
        found = function if _is_expression(function) else function(vectors[which][0])
        if found.size != 1:
            raise ConfigError(f"f and g must be single numbers, got shape {found.shape}: {found}")
        return found

    functions = (objective, *given)  # kept below, so that their ids stay theirs
    key = (tuple(map(id, functions)), tuple(names), count, tuple(rows), within)
    if key in _COMPILED:
        return _COMPILED[key][0]
    y = vectors["rewards"][0]
    f = cp.sum(y) if objective is None else expression(objective, "rewards")
    g = [expression(function, "costs") for function in given]
    g += [sign * (vectors["costs"][0][i] - capacity) for i, (sign, capacity) in enumerate(rows)]
    links = [(first + i, v, i) for v, first in vectors.values() for i in range(v.size)]
    own = {v.id for v, _ in vectors.values()}
    for variable in {v.id: v for e in (f, *g) for v in e.variables()}.values():
        if variable.id in own:
            continue
        if variable.name() in vectors and variable.size == vectors[variable.name()][0].size:
            first = vectors[variable.name()][1]
            links += [(first + i, variable, i) for i in range(variable.size)]
        elif variable.name() in names and variable.size == 1:
            links.append((names.index(variable.name()), variable, 0))
        else:
            raise ConfigError(
                f"the variable '{variable.name()}' of shape {variable.shape} is no channel: name "
                f"scalars after {names}, or vectors 'rewards' ({count}) and 'costs'"
            )
    while len(_COMPILED) >= MAX_COMPILED:
        _COMPILED.pop(next(iter(_COMPILED)))
    master = ConicMaster(f, g, links, within)
    _COMPILED[key] = (master, functions)
    return master


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
        value=None if infeasible else value,
        policy=None if infeasible else policy,
        costs=true[count:],
        capacities=model.capacities,
        cost_names=model.cost_names,
        multipliers=np.full(model.num_costs, np.nan) if infeasible else multipliers,
        lower_bound=-np.inf if infeasible else min(value, found.upper),
        upper_bound=-np.inf if infeasible else found.upper,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
        least_violation=least,
        statistics=statistics,
    )
