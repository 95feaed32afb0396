"""The projection as a quadratic program: reference twin and fallback of `planning.projection`.

Within an L1 ball the mass ``radius/2`` may be taken from anywhere and put anywhere, and only totals
by next state matter. So q(x, a) with the masses m of the next layer is feasible if and only if some
K(x, a, y) has ``0 <= K <= p_bar q``, ``sum_y K = (1 - radius/2)_+ q``, ``sum_{x,a} K <= m(y)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import require
from tightrope.kernels import projection as kernels
from tightrope.planning.confidence import Confidence
from tightrope.planning.projection import Projector
from tightrope.types import FloatArray, IntArray


class Program(NamedTuple):
    """``equal @ v = right``, ``less @ v <= 0``, ``v >= 0`` with v = (q of the R rows, K).

    `entries` are the numbers of the layout's entries that K holds (none into the last layer). The
    first rows of `less` belong to the inner states, in order.
    """

    equal: sp.csc_array
    right: FloatArray
    less: sp.csc_array
    entries: IntArray


def aggregated_program(confidence: Confidence) -> Program:
    """The constraints of the aggregated program."""
    layout = confidence.layout
    start, rows = layout.layer_start, layout.half.size
    layers = start.size - 2
    row_state = confidence.pairs // confidence.shape[1]
    count = int(layout.entry_start[layout.state_row[start[layers - 1]]])
    entries = np.arange(count)
    row, state = entry_rows(layout)[:count], layout.entry_state[:count]
    inner = int(start[layers] - start[1])
    used = np.unique(row)
    number = np.zeros(rows, dtype=np.int64)
    number[used] = np.arange(used.size)
    ones, width = np.ones(count), rows + count

    def matrix(data: FloatArray, row: IntArray, column: IntArray, height: int) -> sp.csr_array:
        return sp.csr_array((data, (row, column)), shape=(height, width))

    mass = matrix(np.ones(rows), confidence.layers[row_state], np.arange(rows), layers)
    kept = matrix(ones, number[row], rows + entries, used.size) - matrix(
        1.0 - layout.half[used], number[used], used, used.size
    )
    later = np.flatnonzero(row_state >= start[1])
    room = matrix(ones, state - start[1], rows + entries, inner) - matrix(
        np.ones(later.size), row_state[later] - start[1], later, inner
    )
    bound = matrix(ones, entries, rows + entries, count) - matrix(
        layout.entry_prob[:count], entries, row, count
    )
    right = np.zeros(layers + used.size)
    right[:layers] = 1.0
    return Program(
        sp.vstack([mass, kept], format="csc"),
        right,
        sp.vstack([room, bound], format="csc"),
        entries,
    )


def entry_rows(layout: kernels.Layout) -> IntArray:
    """The row of each entry."""
    return np.repeat(np.arange(layout.half.size), np.diff(layout.entry_start))


def solve_program(
    confidence: Confidence, z: FloatArray, *, solver: str = "piqp", tol: float = 1e-10
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Solve the aggregated program with PIQP (extra `qp`) or CVXPY (extra `convex`).

    Returns
    -------
    q : (R,) occupancies of the layout's rows, as accurate as the solver
    flow : (number of entries,)
    heights : (S,) multipliers of the masses, least 0 in each layer
    """
    target = np.asarray(z, dtype=np.float64).ravel()[confidence.pairs]
    program = aggregated_program(confidence)
    solve = _with_piqp if solver == "piqp" else _with_cvxpy
    v, dual = solve(program, target, tol)
    start = confidence.layout.layer_start
    heights = np.zeros(confidence.shape[0])
    heights[start[1] : start[-2]] = dual[: start[-2] - start[1]]
    for k in range(1, start.size - 2):
        heights[start[k] : start[k + 1]] -= heights[start[k] : start[k + 1]].min()
    return v[: target.size], v[target.size :], heights


def _with_piqp(program: Program, target: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
    piqp = require("piqp", "qp")
    solver, size = piqp.SparseSolver(), program.equal.shape[1]
    solver.settings.eps_abs = solver.settings.eps_duality_gap_abs = tol
    solver.settings.eps_rel = solver.settings.eps_duality_gap_rel = 0.0
    solver.settings.max_iter = 500
    weight, linear = np.zeros(size), np.zeros(size)
    weight[: target.size], linear[: target.size] = 1.0, -target
    height = program.less.shape[0]
    solver.setup(
        sp.diags_array(weight, format="csc"),
        linear,
        program.equal,
        program.right,
        program.less,
        np.full(height, -np.inf),
        np.zeros(height),
        np.zeros(size),
        np.full(size, np.inf),
    )
    solver.solve()
    return np.array(solver.result.x), np.array(solver.result.z_u)


def _with_cvxpy(program: Program, target: FloatArray, tol: float) -> tuple[FloatArray, FloatArray]:
    cvxpy = require("cvxpy", "convex")
    v = cvxpy.Variable(program.equal.shape[1], nonneg=True)
    less = program.less @ v <= 0.0
    problem = cvxpy.Problem(
        cvxpy.Minimize(0.5 * cvxpy.sum_squares(v[: target.size] - target)),
        [program.equal @ v == program.right, less],
    )
    problem.solve(
        solver=cvxpy.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=200
    )
    return np.array(v.value), np.array(less.dual_value)


def improve_with_program(projector: Projector, z: FloatArray, tol: float) -> None:
    """Replace the projector's result by that of the quadratic program, if that certifies more.

    The program's flow is rolled forward to a feasible q, and its multipliers give the dual value:
    the certificate does not rest on the solver's own accuracy.
    """
    confidence = projector.confidence
    accuracy = min(1e-9, 0.1 * tol * tol)
    q, flow, heights = solve_program(confidence, z, tol=accuracy)
    layout = confidence.layout
    trial = Projector(confidence, heights=heights)
    row = entry_rows(layout)[: flow.size]
    used = q[row] > 0.0
    trial.fractions[: flow.size][used] = flow[used] / q[row[used]]
    kernels.fit_fractions(layout, trial.fractions)
    trial.project(z, tol, max_rounds=1, max_steps=0)
    if trial.gap < projector.gap:
        for name in ("heights", "fractions", "landing", "gap", "distance"):
            setattr(projector, name, getattr(trial, name))
        projector.occupancy[:] = trial.occupancy
