"""The small master programs of concave-convex planning [CON, Eq. (15)].

A *channel* is a reward or a cost. A column is a policy's lowest and highest value of every channel,
``low`` and ``high`` (n,); they differ only if the model has a box. A master solves

    max f(y)   s.t.   g_j(u) <= 0,   low @ weights <= (y, u) <= high @ weights,   weights a mixture

or, in phase 1, ``min t`` s.t. ``g_j(u) <= t``. `CutMaster` keeps supporting planes of
callables and solves linear programs; `planning.conic` has the one for CVXPY expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError, Status
from tightrope.planning import lp
from tightrope.types import FloatArray

CONCAVE_EPS = 1e-7  # of the largest number in a comparison, before a callable is refused


class MasterPoint(NamedTuple):
    """A master's optimum: prices are the gain per unit of a channel's lower and upper side."""

    status: Status
    z: FloatArray  #: (n,) channel values
    weights: FloatArray  #: (k,)
    up: FloatArray  #: (n,) >= 0, paid for `high`
    down: FloatArray  #: (n,) >= 0, paid for `low`
    level: float  #: price of the mixture row: up @ high - down @ low <= level for every column
    bound: float  #: upper bound of the objective over these columns
    value: float  #: the objective at z
    violation: float  #: the largest g_j at z


class Master(Protocol):
    """What the column generation needs of f and g."""

    num_constraints: int
    within: tuple[float, float] | None  #: limits on every channel value

    def evaluate(self, z: FloatArray) -> tuple[float, FloatArray]: ...

    def solve(self, low: FloatArray, high: FloatArray, *, least: bool) -> MasterPoint: ...


# ------------------------------------------------------------------ callables: supporting planes

Callable_ = Callable[[FloatArray], tuple[float, FloatArray]]


class _Planes:
    """Supporting planes of one function, every new one checked against every old one."""

    def __init__(self, function: Callable_, kind: str, name: str, channels: slice) -> None:
        self.function, self.kind, self.name, self.channels = function, kind, name, channels
        self.points: list[FloatArray] = []
        self.values: list[float] = []
        self.slopes: list[FloatArray] = []

    def at(self, z: FloatArray) -> float:
        """The function's value at z; its plane there is kept."""
        point = z[self.channels].copy()
        answer = self.function(point.copy())
        value, slope = float(answer[0]), np.asarray(answer[1], dtype=np.float64).reshape(-1)
        if np.isnan(value) or slope.shape != point.shape:
            raise ConfigError(
                f"{self.name} must return (value, gradient of length {point.size}); at {point} "
                f"it returned value {value} and a gradient of shape {np.shape(answer[1])}"
            )
        if not np.isfinite(value) or not np.isfinite(slope).all():
            raise ConfigError(
                f"{self.name} is not finite at {point}: keep callables finite on every value "
                "that can be reached (see within=), or give a CVXPY expression"
            )
        self._check(point, value, slope)
        self.points.append(point)
        self.values.append(value)
        self.slopes.append(slope)
        return value

    def _check(self, point: FloatArray, value: float, slope: FloatArray) -> None:
        sign = 1.0 if self.kind == "concave" else -1.0
        for there, there_value, there_slope in zip(self.points, self.values, self.slopes):
            for at, f, grad, other, g in (
                (point, value, slope, there, there_value),
                (there, there_value, there_slope, point, value),
            ):
                plane = f + float(grad @ (other - at))
                allowed = CONCAVE_EPS * max(1.0, abs(f), abs(g), float(np.abs(grad).max()))
                if sign * (g - plane) > allowed:
                    side = "above" if sign > 0 else "below"
                    raise ConfigError(
                        f"{self.name} is not {self.kind}, or its gradient is wrong: at {other} "
                        f"its value {g:.9g} is {side} {plane:.9g}, the plane from {at} "
                        f"(value {f:.9g}, gradient {grad})"
                    )


class CutMaster:
    """f and the g_j are callables that return (value, super- or subgradient).

    Parameters
    ----------
    low, high : (n,) smallest and largest value of every channel over all policies
    """

    def __init__(
        self,
        objective: Callable_,
        constraints: Sequence[Callable_],
        num_rewards: int,
        low: FloatArray,
        high: FloatArray,
        within: tuple[float, float] | None = None,
    ) -> None:
        rewards, costs = slice(0, num_rewards), slice(num_rewards, low.size)
        self.f = _Planes(objective, "concave", "objective", rewards)
        self.g = [
            _Planes(function, "convex", f"constraint {j}" if j else "constraint", costs)
            for j, function in enumerate(constraints)
        ]
        self.num_constraints = len(constraints)
        self.low, self.high, self.within = low, high, within

    def evaluate(self, z: FloatArray) -> tuple[float, FloatArray]:
        return self.f.at(z), np.array([g.at(z) for g in self.g])

    def solve(self, low: FloatArray, high: FloatArray, *, least: bool) -> MasterPoint:
        # variables, all >= 0: z - self.low (n), weights (k), ceiling - t
        count, n = low.shape
        planes: list[FloatArray] = []
        limits: list[float] = []
        ceiling = 0.0
        width = n + count + 1

        def plane(function: _Planes, k: int, sign: float, with_t: bool) -> None:
            row = np.zeros(width)
            row[:n][function.channels] = -sign * function.slopes[k]
            at = function.points[k] - self.low[function.channels]
            limit = sign * (function.values[k] - float(function.slopes[k] @ at))
            if with_t:
                row[-1] = -1.0
                limit -= ceiling
            planes.append(row)
            limits.append(limit)

        if least:
            ceiling = self._extreme(self.g[0], 0, -1.0)
        else:
            ceiling = self._extreme(self.f, 0, 1.0)
            for k in range(len(self.f.points)):
                plane(self.f, k, 1.0, True)
        for g in self.g:
            for k in range(len(g.points)):
                plane(g, k, -1.0, least)
        if self.within is not None:
            planes += [*np.eye(n, width), *-np.eye(n, width)]
            limits += [*(self.within[1] - self.low), *(self.low - self.within[0])]
        link = np.zeros((2 * n + 1, width))
        link[:n, :n], link[:n, n : n + count] = np.eye(n), -(high - self.low).T
        link[n : 2 * n, :n], link[n : 2 * n, n : n + count] = -np.eye(n), (low - self.low).T
        link[-1, n : n + count] = 1.0
        matrix = sp.csc_array(np.vstack([link, *planes]))
        upper = np.concatenate([np.zeros(2 * n), [1.0], limits])
        lower = np.full(upper.size, -np.inf)
        lower[2 * n] = 1.0
        price = np.zeros(width)
        price[-1] = -1.0
        answer = lp.maximise(price, matrix, lower, upper)
        if answer.status is not Status.SOLVED:
            empty = np.zeros(0)
            return MasterPoint(
                answer.status, empty, empty, empty, empty, 0.0, -np.inf, -np.inf, np.inf
            )
        up, down = answer.row_duals[:n], answer.row_duals[n : 2 * n]
        up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
        level = float(answer.row_duals[2 * n] + (up - down) @ self.low)
        z, weights = answer.x[:n] + self.low, answer.x[n : n + count]
        value, each = self.evaluate(z)
        violation = float(each.max(initial=-np.inf))
        bound = ceiling - float(answer.x[-1])
        return MasterPoint(
            Status.SOLVED, z, weights, up, down, level, bound, -violation if least else value,
            violation,
        )  # fmt: skip

    def _extreme(self, function: _Planes, k: int, sign: float) -> float:
        """Largest value of one plane (times `sign`) over the box of all policies."""
        slope = sign * function.slopes[k]
        low, high = self.low[function.channels], self.high[function.channels]
        corner = np.where(slope > 0, high, low)
        return sign * function.values[k] + float(slope @ (corner - function.points[k])) + 1.0
