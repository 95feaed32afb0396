"""The master program for CVXPY expressions: cones, canonicalised once, solved by Clarabel.

`planning.masters` says what a master is. Needs the extra `convex`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tightrope.errors import ConfigError, Status, require
from tightrope.planning.masters import MasterPoint
from tightrope.types import FloatArray

MAX_COMPILED = 16
# cone programs of the last f and g, with what keeps their ids: they are slow to make
_COMPILED: dict[Any, tuple[ConicMaster, Any]] = {}

Function = Any
"""A CVXPY expression, a function of a CVXPY vector, or a callable returning (value, gradient)."""


def is_conic(function: Function, size: int) -> bool:
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


def conic_master(
    names: list[str], count: int, objective: Function | None, given: list[Function],
    rows: list[tuple[float, float]], within: tuple[float, float] | None,
) -> ConicMaster:  # fmt: skip
    """The master of f, the g_j and linear rows ``sign (u_i - capacity) <= 0``, from the cache.

    Parameters
    ----------
    names : of the channels, the first `count` of which are rewards
    """
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


class ConicMaster:
    """f and the g_j are CVXPY expressions, checked by the rules of disciplined convexity.

    Parameters
    ----------
    links : pairs (channel, CVXPY variable, index) that say which entry holds which channel
    """

    def __init__(
        self,
        objective: Any,
        constraints: Sequence[Any],
        links: Sequence[tuple[int, Any, int]],
        within: tuple[float, float] | None = None,
    ) -> None:
        cp = require("cvxpy", "convex")
        if not objective.is_concave():
            raise ConfigError(
                f"objective is not concave by the rules of disciplined convexity: "
                f"{objective} is {objective.curvature.lower()}"
            )
        for j, constraint in enumerate(constraints):
            if not constraint.is_convex():
                raise ConfigError(
                    f"constraint {j} is not convex by the rules of disciplined convexity: "
                    f"{constraint} is {constraint.curvature.lower()}"
                )
        self.objective, self.constraints, self.links = objective, list(constraints), list(links)
        self.num_constraints, self.within = len(self.constraints), within
        self._problems: dict[bool, tuple[Any, ...]] = {}
        self._constant = float("nan")
        self._cp = cp
        self.relief = 0.0  #: added to the right-hand side 0 of every constraint

    def evaluate(self, z: FloatArray) -> tuple[float, FloatArray]:
        values: dict[Any, FloatArray] = {}
        for channel, variable, index in self.links:
            values.setdefault(variable, np.zeros(variable.size))[index] = z[channel]
        for variable, value in values.items():
            variable.save_value(value.reshape(variable.shape))
        with np.errstate(invalid="ignore", divide="ignore"):  # nan or -inf outside of f's domain
            f = _number(self.objective.value)
            return f, np.array([_number(g.value) for g in self.constraints])

    def _compiled(self, least: bool) -> tuple[Any, ...]:
        """The cone program without columns, and the column of every link in it (-1: none)."""
        if least not in self._problems:
            cp = self._cp
            solver = require("cvxpy.reductions.solvers.conic_solvers.clarabel_conif", "convex")
            if least:
                t = cp.Variable(name="t")
                problem = cp.Problem(cp.Minimize(t), [cp.sum(g) <= t for g in self.constraints])
            else:
                problem = cp.Problem(
                    cp.Maximize(cp.sum(self.objective)),
                    [cp.sum(g) <= self.relief for g in self.constraints],
                )
            data, _, _ = problem.get_problem_data(cp.CLARABEL)
            first = data["param_prob"].var_id_to_col
            known = {variable.id for variable in problem.variables()}
            where = np.array(
                [first[v.id] + index if v.id in known else -1 for _, v, index in self.links]
            )
            matrix = data["A"].toarray()
            quadratic = 0.0 if data.get("P") is None else data["P"].toarray()
            cones = solver.dims_to_solver_cones(data["dims"])
            self._problems[least] = matrix, data["b"], data["c"], quadratic, cones, where
        return self._problems[least]

    def relax(self, relief: float) -> None:
        """Allow ``g <= relief``, for a set so thin that rounding would empty it."""
        self.relief = relief
        self._problems.pop(False, None)

    def solve(self, low: FloatArray, high: FloatArray, *, least: bool) -> MasterPoint:
        clarabel = require("clarabel", "convex")
        base, b, c, quadratic, base_cones, where = self._compiled(least)
        count, n = low.shape
        used = np.flatnonzero(where >= 0)
        channel = np.array([link[0] for link in self.links])[used]
        # rows: f and g | mixture | channels against columns | weights >= 0 | within
        exact = bool((low == high).all())
        pick = np.zeros((used.size, base.shape[1]))
        pick[np.arange(used.size), where[used]] = 1.0
        ends = [(pick, -high[:, channel].T)]
        if not exact:
            ends.append((-pick, low[:, channel].T))
        ends.append((np.zeros((count, base.shape[1])), -np.eye(count)))
        right = [b, np.ones(1), np.zeros(used.size * (len(ends) - 1) + count)]
        linked = (clarabel.ZeroConeT if exact else clarabel.NonnegativeConeT)(
            used.size * (len(ends) - 1)
        )
        cones = [*base_cones, clarabel.ZeroConeT(1), linked, clarabel.NonnegativeConeT(count)]
        if self.within is not None:
            blank = np.zeros((used.size, count))
            ends += [(pick, blank), (-pick, blank)]
            cones.append(clarabel.NonnegativeConeT(2 * used.size))
            right += [np.full(used.size, self.within[1]), np.full(used.size, -self.within[0])]
        blocks = [(base, np.zeros((base.shape[0], count)))]
        blocks += [(np.zeros((1, base.shape[1])), np.ones((1, count))), *ends]
        matrix = np.empty((sum(len(left) for left, _ in blocks), base.shape[1] + count))
        row = 0
        for left, beside in blocks:
            matrix[row : row + len(left), : base.shape[1]] = left
            matrix[row : row + len(left), base.shape[1] :] = beside
            row += len(left)
        hessian = np.zeros((matrix.shape[1],) * 2)
        hessian[: base.shape[1], : base.shape[1]] = quadratic
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
        answer = clarabel.DefaultSolver(
            _csc(hessian), np.append(c, np.zeros(count)), _csc(matrix),
            np.concatenate(right), cones, settings,
        ).solve()  # fmt: skip
        status = _status(str(answer.status))
        x, duals = np.array(answer.x), np.array(answer.z)
        at = base.shape[0]
        level, sides = float(duals[at]), duals[at + 1 : at + 1 + used.size * (1 if exact else 2)]
        up, down = np.zeros(n), np.zeros(n)
        np.add.at(up, channel, sides[: used.size])
        if exact:  # a price of either sign
            up, down = np.maximum(up, 0.0), np.maximum(-up, 0.0)
        else:
            np.add.at(down, channel, sides[used.size :])
            up, down = np.maximum(up, 0.0), np.maximum(down, 0.0)
        weights = np.maximum(x[base.shape[1] :], 0.0)
        z = weights @ high if exact else 0.5 * weights @ (low + high)
        if status is Status.SOLVED:
            z[channel] = x[where[used]]
        bound, value = -answer.obj_val_dual, -answer.obj_val
        if not least and status is Status.SOLVED:
            if np.isnan(self._constant):  # what canonicalisation dropped from f
                self._constant = self.evaluate(z)[0] - value
            bound, value = bound + self._constant, value + self._constant
        violation = -value if least else self.relief
        return MasterPoint(status, z, weights, up, down, level, bound, value, violation)


class _Csc(NamedTuple):
    """What Clarabel reads of a SciPy matrix, without SciPy's checks, which cost more than it."""

    data: FloatArray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, ...]
    has_canonical_format: bool = True


def _csc(dense: FloatArray) -> _Csc:
    columns, rows = np.nonzero(dense.T)
    indptr = np.searchsorted(columns, np.arange(dense.shape[1] + 1))
    return _Csc(dense.T[columns, rows], rows, indptr, dense.shape)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(np.sum(value))


def _status(name: str) -> Status:
    if name in ("Solved", "AlmostSolved", "InsufficientProgress"):
        return Status.SOLVED
    if name in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
        return Status.INFEASIBLE
    return Status.NOT_CONVERGED
