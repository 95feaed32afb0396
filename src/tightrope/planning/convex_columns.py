"""The column generation of concave-convex planning; `planning.convex` says what it solves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from tightrope.errors import ConfigError, Status
from tightrope.kernels import episodic
from tightrope.model.mdp import Tables
from tightrope.planning.conic import ConicMaster
from tightrope.planning.masters import CutMaster, Master, MasterPoint
from tightrope.types import FloatArray, IntArray

FEASIBLE_EPS = 1e-9  # of the largest channel value: a smaller violation is rounding
DROP_EPS = 1e-13  # weights below are no part of a mixture
RAY_EPS = 1e-7  # of a ray's size: a policy that beats a certificate by less does not beat it


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

    Raises
    ------
    ConfigError
        If f is defined for no policy that keeps g.
    """
    low, high = reach.ends(actions)
    scale = max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))
    if isinstance(master, CutMaster) and not master.f.points:
        middle = 0.5 * (low + high).mean(axis=0)
        master.evaluate(middle if master.within is None else middle.clip(*master.within))
    if isinstance(master, ConicMaster) and master.relief:
        master.relax(0.0)  # it comes from a cache
    pool, programs = list(actions), len(actions)
    # phase 1 minimises the largest g; it is entered only if the first columns cannot keep g
    least = False
    kept = not master.num_constraints  # whether some mixture of the columns keeps g
    lower, upper = -np.inf, np.inf
    best: MasterPoint | None = None
    status = Status.NOT_CONVERGED
    while programs < max_programs:
        point = master.solve(low, high, least=least)
        if point.status is Status.INFEASIBLE and not least:
            if not kept:
                least, upper = True, np.inf
                continue
            # f is defined nowhere that keeps g: go where the certificate of that fails
            beyond = _beyond(reach, point)
            programs += 1
            if beyond is None:
                if not isinstance(master, ConicMaster) or master.relief:
                    raise ConfigError(
                        "the objective is defined for no policy that keeps the constraints: prices "
                        f"{point.up - point.down} on the channels separate its domain from "
                        "everything that policies reach"
                    )
                master.relax(FEASIBLE_EPS * scale)
                continue
            pool.append(beyond)
            ends = reach.ends(beyond[None])
            low, high = np.vstack([low, ends[0]]), np.vstack([high, ends[1]])
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
            least, lower, upper, best, kept = False, -np.inf, np.inf, None, True
        elif best is not None and upper - lower <= tolerance * max(1.0, abs(lower)):
            if not least:
                status = Status.SOLVED
                break
            if violation > FEASIBLE_EPS * scale or not isinstance(master, ConicMaster):
                status = Status.INFEASIBLE
                break
            master.relax(FEASIBLE_EPS * scale)
            least, lower, upper, best, kept = False, -np.inf, np.inf, None, True
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


def _beyond(reach: Reach, point: MasterPoint) -> IntArray | None:
    """A policy (H, S) that breaks the certificate ``up @ high - down @ low <= level``, if any."""
    size = max(float(point.up.max()), float(point.down.max()), abs(point.level), 1e-300)
    support, fresh = reach.respond(point.up / size, point.down / size)
    return fresh if support - point.level / size > RAY_EPS else None


def _few(weights: FloatArray, low: FloatArray, high: FloatArray) -> tuple[IntArray, FloatArray]:
    """At most 2n + 1 columns whose mixture has the same lowest and highest values.

    With many channels least squares may not end; the mixture then stays as it is.
    """
    weights = np.append(weights, np.zeros(low.shape[0] - weights.size))
    used = np.flatnonzero(weights > DROP_EPS)
    w = weights[used] / weights[used].sum()
    ends = low[used].T if (low == high).all() else np.vstack([low[used].T, high[used].T])
    scale = np.maximum(1.0, np.abs(ends).max(axis=1, keepdims=True))
    system = np.vstack([ends / scale, np.ones(used.size)])
    try:
        basic, residual = nnls(system, system @ w)
    except RuntimeError:  # SciPy's way of saying that it ran out of iterations
        residual = np.inf
    if residual < 1e-11:
        w = basic
    keep = w > 0
    return used[keep], w[keep] / w[keep].sum()
