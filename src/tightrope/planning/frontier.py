"""The frontier: the optimum as a function of one capacity, with certified error and breakpoints.

The optimum is concave and piecewise linear in a capacity t, ``v(t) = min over price >= 0 of
L(price) + price t`` with ``L(price) = max_pi V_r - price V_c``. One dynamic program at a price
gives a point of the frontier and the supporting line there, so the frontier lies between the
polyline of the points and the lower envelope of the lines. The segment with the largest error is
split at the price that is its own slope, until the error is small, or until every segment is an
edge (then the polyline is exact, at two programs a breakpoint).

With several costs the others keep their capacities, and a program is a column generation over them.
Method: Aneja and Nair, Management Science 25 (1979); sandwich bounds: Rote, Computing 48 (1992).
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tightrope.errors import PlanError, Status, unknown_name
from tightrope.kernels import episodic as kernels
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy
from tightrope.planning.column_generation import everywhere
from tightrope.planning.episodic import signed_tables
from tightrope.planning.generation import Respond, Response, generate
from tightrope.types import Average, Discounted, Episodic, FloatArray

ROUNDING = 1e-12  # of the values compared: an improvement below this is none
SAME_COST = 1e-13  # of the largest cost: points closer than this are one

FIRST_SLOT = np.zeros(kernels.LANES, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """The optimum against one capacity.

    Attributes
    ----------
    name : the cost whose capacity varies
    capacities : (k,) ascending
        Breakpoints of the achieved polyline, from one end to the other.
    values : (k,) what is achieved there
    prices, levels : (n,)
        Supporting lines ``levels + prices * sign * capacity``, upper bounds everywhere.
    sign : +1.0 for '<=', -1.0 for '>=' (a floor)
    error : float
        Largest certified distance between polyline and upper bound.
    exact : bool
        Whether every segment is an edge of the frontier, up to rounding.
    programs : int
        Dynamic programs solved.
    """

    name: str
    capacities: FloatArray
    values: FloatArray
    prices: FloatArray
    levels: FloatArray
    sign: float
    error: float
    exact: bool
    programs: int
    seconds: float
    model_hash: str

    @property
    def least_capacity(self) -> float:
        """The tightest capacity that some policy keeps (for a floor, the highest)."""
        return float(self.capacities[0] if self.sign > 0 else self.capacities[-1])

    @property
    def binds_until(self) -> float:
        """The capacity from which on it no longer matters."""
        return float(self.capacities[-1] if self.sign > 0 else self.capacities[0])

    def at(self, capacity: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Certified lower and upper bound of the optimum at a capacity (or several).

        Both are -inf where the capacity cannot be kept.
        """
        where = self.sign * np.asarray(capacity, dtype=np.float64)
        points, values = self.sign * self.capacities, self.values
        if self.sign < 0:
            points, values = points[::-1], values[::-1]
        low = np.interp(where, points, values)
        lines = self.levels + self.prices * where[..., None]
        high = np.maximum(lines.min(axis=-1), low)
        out = where < points[0]
        return np.where(out, -np.inf, low), np.where(out, -np.inf, high)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists; ``multipliers`` are the slopes of the segments."""
        slopes = np.diff(self.values) / np.diff(self.capacities)
        return {
            "name": self.name,
            "capacities": self.capacities.tolist(),
            "values": self.values.tolist(),
            "multipliers": (self.sign * slopes).tolist(),
            "least_capacity": self.least_capacity,
            "binds_until": self.binds_until,
            "error": self.error,
            "exact": self.exact,
            "programs": self.programs,
            "seconds": self.seconds,
            "model_hash": self.model_hash,
        }


class Support(NamedTuple):
    """A point of the frontier and the line that supports it there."""

    where: float  #: signed cost
    value: float
    price: float  #: inf at the tightest end
    level: float  #: no policy has ``value - price * cost`` above this


class Segment(NamedTuple):
    """Two neighbours, the line that supports each on the inner side, and the error between."""

    left: Support
    right: Support
    steep: Support  #: whose line is taken at the left end
    flat: Support  #: whose line is taken at the right end
    error: float


def frontier(
    model: FiniteMDP, name: str, *, error: float = 1e-7, exact: bool = False, limit: int = 100_000
) -> Frontier:
    """The optimum as a function of the capacity of one cost.

    Parameters
    ----------
    name : a cost of the model; the others keep their capacities
    error : certified distance (in the units of the value) at which to stop
    exact : go on until every segment is an edge
    limit : on the number of programs; the error reported is then larger

    Raises
    ------
    ConfigError
        If no cost has that name.
    PlanError
        If the other capacities cannot be kept.

    Examples
    --------
    >>> model = FiniteMDP(transitions=[[[1, 0], [0, 1]]] * 2, rewards=[[2.0, 1.0], [0.0, 0.5]],
    ...                   costs=[[[1.0, 0.0], [0.0, 0.0]]], capacities=[0.5], criterion="average",
    ...                   axes="sas")
    >>> found = frontier(model, "cost", exact=True)
    >>> found.capacities, found.values
    (array([0., 1.]), array([0.5, 2. ]))
    """
    if name not in model.cost_names:
        raise unknown_name("cost", name, model.cost_names)
    started = time.perf_counter()
    oracle = _Oracle(model, model.cost_names.index(name))
    first, last = oracle.ends()
    done, finished, exact_now = _refine(oracle, first, last, -1.0 if exact else error, limit)
    points = _polyline(first, last, done, SAME_COST * oracle.cost_size)
    sign = float(model.signs[oracle.index])
    where = sign * np.array([point.where for point in points])
    values = np.array([point.value for point in points])
    order = np.argsort(where, kind="stable")
    lines = [line for line in oracle.lines if np.isfinite(line.price)]
    return Frontier(
        name=name,
        capacities=where[order],
        values=values[order],
        prices=np.array([line.price for line in lines]),
        levels=np.array([line.level for line in lines]),
        sign=sign,
        error=finished,
        exact=exact_now,
        programs=oracle.programs,
        seconds=time.perf_counter() - started,
        model_hash=model.content_hash,
    )


def least_capacities(model: FiniteMDP) -> dict[str, float | None]:
    """The tightest capacity of each cost that some policy keeps (for a floor, the highest).

    The other costs keep their capacities; None where they cannot.

    >>> from tightrope.problems import box
    >>> round(least_capacities(box())["cost"], 8)
    0.0332552
    """
    found: dict[str, float | None] = {}
    for index, name in enumerate(model.cost_names):
        try:
            where = _Oracle(model, index).tightest().where
        except PlanError:
            found[name] = None
        else:
            found[name] = float(model.signs[index] * where)
    return found


def _refine(
    oracle: _Oracle, first: Support, last: Support, error: float, limit: int
) -> tuple[list[Segment], float, bool]:
    """Split the worst segment until its error is small; returns segments, error, whether exact."""
    near = SAME_COST * oracle.cost_size
    closed: list[Segment] = []
    heap: list[tuple[float, int, Segment]] = []
    count = 0

    def push(left: Support, right: Support, steep: Support, flat: Support) -> None:
        nonlocal count
        if right.where - left.where > near:
            gap = _apex(left, right, steep, flat)
            count += 1
            heapq.heappush(heap, (-gap, count, Segment(left, right, steep, flat, gap)))

    push(first, last, first, last)
    while heap and -heap[0][0] > error and oracle.programs < limit:
        segment = heapq.heappop(heap)[2]
        left, right = segment.left, segment.right
        price = max(_slope(left, right), 0.0)
        new = oracle.at(price)
        above = new.level - (left.value - price * left.where)
        size = max(abs(left.value), abs(right.value), price * abs(right.where), 1e-300)
        at_left = new.where <= left.where + near  # news only if the tightest point was dominated
        if (
            above <= ROUNDING * size
            or new.where >= right.where - near
            or (at_left and new.value <= left.value + ROUNDING * size)
        ):
            closed.append(segment._replace(error=max(0.0, above)))
            continue
        if not at_left:
            push(left, new, segment.steep, new)
        push(new, right, new, segment.flat)
    rest = [entry[2] for entry in heap]
    every = closed + rest
    largest = max((segment.error for segment in every), default=0.0)
    return every, largest, not rest and largest <= 1e-11 * max(1.0, abs(last.value))


def _apex(left: Support, right: Support, steep: Support, flat: Support) -> float:
    """Largest distance between the chord of two points and the lower of their two lines."""
    where = left.where
    if np.isfinite(steep.price) and steep.price > flat.price:
        where = (flat.level - steep.level) / (steep.price - flat.price)
        where = min(max(where, left.where), right.where)
    elif np.isfinite(steep.price):
        where = right.where
    high = flat.level + flat.price * where
    share = (where - left.where) / (right.where - left.where)
    return max(0.0, high - (1 - share) * left.value - share * right.value)


def _polyline(first: Support, last: Support, segments: list[Segment], near: float) -> list[Support]:
    """The breakpoints from left to right: the concave hull of the points found."""
    points = {first, last}
    for segment in segments:
        points.update((segment.left, segment.right))
    out: list[Support] = []
    for point in sorted(points, key=lambda p: (p.where, p.value)):
        if out and point.where - out[-1].where <= near:
            if point.value > out[-1].value:
                out[-1] = point._replace(where=out[-1].where)
        elif not out or point.value > out[-1].value:
            while len(out) > 1 and _slope(out[-2], out[-1]) <= _slope(out[-1], point):
                out.pop()  # on or below the line of its neighbours: no breakpoint
            out.append(point)
    return out


def _slope(left: Support, right: Support) -> float:
    return (right.value - left.value) / (right.where - left.where)


class _Oracle:
    """Points and supporting lines of the frontier; counts the dynamic programs."""

    def __init__(self, model: FiniteMDP, index: int) -> None:
        self.model, self.index = model, index
        self.others = np.flatnonzero(np.arange(model.num_costs) != index)
        self.programs = 0
        self.lines: list[Support] = []
        self._respond, scale = best_responses(model)
        self.scale = np.where(scale > 0, scale, 1.0)
        self.size, self.cost_size = float(self.scale[0]), float(self.scale[1 + index])

    def ends(self) -> tuple[Support, Support]:
        """The tightest point, and the one that the reward alone would choose."""
        return self.tightest(), self.at(0.0)

    def tightest(self) -> Support:
        """The point where no policy costs less."""
        least, _, cost = self._solve(0.0, 1.0)
        return Support(cost, least, np.inf, 0.0)

    def at(self, price: float) -> Support:
        """The point of the frontier where its slope is `price`."""
        value, level, cost = self._solve(1.0, price)
        found = Support(cost, value, price, level)
        self.lines.append(found)
        return found

    def _solve(self, weight: float, price: float) -> tuple[float, float, float]:
        """(value, certified upper bound of the objective, signed cost) of the best response to
        ``weight * value - price * cost`` within the other capacities."""
        m, index, others = self.model.num_costs, self.index, self.others

        if not others.size:
            reply = self._respond(weight, np.array([price]))
            self.programs += 1
            return float(reply.values[0]), reply.upper, float(reply.values[1])
        full: dict[bytes, FloatArray] = {}

        def respond(share: float, multipliers: FloatArray) -> Response:
            prices = np.zeros(m)
            prices[index], prices[others] = share * price, multipliers
            reply = self._respond(share * weight, prices)
            self.programs += 1
            full[reply.policy.actions.tobytes()] = reply.values
            mixed = weight * reply.values[0] - price * reply.values[1 + index]
            return reply._replace(values=np.append(mixed, reply.values[1 + others]))

        limits = (self.model.capacities * self.model.signs)[others]
        sizes = np.append(weight * self.size + price * self.cost_size, self.scale[1 + others])
        found = generate(respond, limits, sizes, tolerance=1e-12)
        if found.status is Status.INFEASIBLE:
            from tightrope.planning import plan

            raise PlanError("the other capacities cannot be kept", plan(self.model))
        parts = np.array([full[policy.actions.tobytes()] for policy in found.policies])
        values = found.weights @ parts
        return float(values[0]), found.upper, float(values[1 + index])


def best_responses(model: FiniteMDP) -> tuple[Respond, FloatArray]:
    """Best responses under the model's criterion, and sizes (1 + m,) of reward and costs."""
    if isinstance(model.criterion, Average):
        from tightrope.planning import average

        frame = average.frame_of(model)
        engine = average.engine_of(frame, "policy-iteration", 1e-9, 200_000)
        return engine.respond, engine.scale
    if isinstance(model.criterion, Discounted):
        from tightrope.planning import discounted

        engine = discounted.engine_of(model, "policy-iteration", 1e-9, 1_000_000)
        return engine.respond, engine.scale
    if not isinstance(model.criterion, Episodic):
        from tightrope.planning import total

        engine = total.engine_of(total.course_of(model))
        return engine.respond, engine.scale
    tables, _ = signed_tables(model)
    horizon = model.horizon
    reach = everywhere(horizon, model.num_states)

    def respond(weight: float, multipliers: FloatArray) -> Response:
        # the kernel that every plan compiles, with the same multipliers in all lanes
        points = np.tile(multipliers, (kernels.LANES, 1))
        pool = np.empty((1, horizon, model.num_states), dtype=np.int32)
        totals = np.empty((1 + model.num_costs, kernels.LANES))
        kernels.best_responses(*tables, horizon, *reach, weight, points, pool, FIRST_SLOT, totals)
        values = kernels.evaluate_actions(*tables, horizon, pool)[0]
        return Response(DeterministicPolicy(pool[0]), values, float(totals[0, 0]))

    sizes = [float(np.abs(table).max()) for table in (model.rewards, *model.costs)]
    return respond, horizon * np.array(sizes)
