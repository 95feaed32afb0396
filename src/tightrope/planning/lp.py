"""Occupancy-measure programs in HiGHS, built sparse and never densely [CON, Eq. (14)]."""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np
import scipy.sparse as sp

from tightrope.errors import Status
from tightrope.model.mdp import Tables
from tightrope.planning.column_generation import largest
from tightrope.types import FloatArray

TOLERANCE = 1e-9


class HighsAnswer(NamedTuple):
    """Primal and dual solution of ``max objective @ x`` as HiGHS gives them."""

    status: Status
    x: FloatArray
    row_duals: FloatArray  #: gain in the objective per unit of a row's binding bound
    iterations: int


class EpisodicMeasure(NamedTuple):
    """Occupancy (H, S, A) and multipliers; of the least violation if infeasible."""

    status: Status
    measure: FloatArray
    multipliers: FloatArray
    iterations: int


class _QuietHighs(highspy.Highs):
    """HiGHS without callbacks: enabling those prints a banner on standard output."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()
        self.setOptionValue("output_flag", False)


def maximise(
    objective: FloatArray,
    matrix: sp.csc_array,
    row_lower: FloatArray,
    row_upper: FloatArray,
    *,
    options: dict[str, object] | None = None,
) -> HighsAnswer:
    """``max objective @ x`` over ``x >= 0`` with ``row_lower <= matrix @ x <= row_upper``."""
    highs = load(objective, matrix, row_lower, row_upper)
    for name, value in (options or {}).items():
        highs.setOptionValue(name, value)
    highs.run()
    code = highs.getModelStatus()
    kinds = highspy.HighsModelStatus
    # where presolve, or the dual simplex method, cannot tell
    for name, value in (("presolve", "off"), ("simplex_strategy", 4)):
        if code in (kinds.kUnboundedOrInfeasible, kinds.kUnknown):
            highs.clearSolver()
            highs.setOptionValue(name, value)
            highs.run()
            code = highs.getModelStatus()
    status = {
        kinds.kOptimal: Status.SOLVED,
        kinds.kInfeasible: Status.INFEASIBLE,
        kinds.kUnbounded: Status.UNBOUNDED,
    }.get(code, Status.NOT_CONVERGED)
    solution = highs.getSolution()
    return HighsAnswer(
        status,
        np.array(solution.col_value),
        np.array(solution.row_dual),
        int(highs.getInfo().simplex_iteration_count),
    )


def load(
    objective: FloatArray, matrix: sp.csc_array, row_lower: FloatArray, row_upper: FloatArray
) -> highspy.Highs:
    """A silent HiGHS instance that holds the program, with tolerances of 1e-9."""
    num_rows, num_columns = matrix.shape
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = num_columns, num_rows
    program.col_cost_ = objective
    program.col_lower_ = np.zeros(num_columns)
    program.col_upper_ = np.full(num_columns, highspy.kHighsInf)
    program.row_lower_, program.row_upper_ = row_lower, row_upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.indptr
    program.a_matrix_.index_ = matrix.indices
    program.a_matrix_.value_ = matrix.data
    program.sense_ = highspy.ObjSense.kMaximize
    highs = _QuietHighs()
    highs.setOptionValue("primal_feasibility_tolerance", TOLERANCE)
    highs.setOptionValue("dual_feasibility_tolerance", TOLERANCE)
    # it can cycle; programs of this kind take fewer pivots than this by far
    highs.setOptionValue("simplex_iteration_limit", 10_000 + 50 * (num_rows + num_columns))
    highs.passModel(program)
    return highs


def episodic_program(
    tables: Tables, horizon: int, capacities: FloatArray
) -> tuple[FloatArray, sp.csc_array, FloatArray, FloatArray]:
    """Eq. (14) as (objective, matrix, row_lower, row_upper).

    Variables are the available (h, s, a) in that order; rows are H*S flow balances, then m costs.
    """
    num_states, num_actions = tables.available.shape
    m = capacities.size
    pairs = np.flatnonzero(tables.available.ravel())
    per_stage = pairs.size
    columns = np.arange(horizon * per_stage)
    stage = columns // per_stage
    pair = np.tile(pairs, horizon)
    leave_rows = stage * num_states + pair // num_actions
    # arrivals of all stages but the last
    rows_of = pair[: (horizon - 1) * per_stage]
    if tables.start.size > num_states * num_actions:
        rows_of = rows_of + stage[: rows_of.size] * (num_states * num_actions)
    lengths = tables.stop[rows_of] - tables.start[rows_of]
    source = np.repeat(columns[: rows_of.size], lengths)
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    entry = np.repeat(tables.start[rows_of], lengths) + offsets
    arrive_rows = (stage[source] + 1) * num_states + tables.indices[entry]
    rows = [leave_rows, arrive_rows]
    cols = [columns, source]
    vals = [np.ones(columns.size), -tables.data[entry]]
    for i in range(m):
        rows.append(np.full(columns.size, horizon * num_states + i))
        cols.append(columns)
        vals.append(_column_values(tables.costs[i], stage, pair))
    matrix = sp.csc_array(
        (np.concatenate(vals), (np.concatenate(rows), np.concatenate(cols))),
        shape=(horizon * num_states + m, columns.size),
    )
    flow = np.zeros(horizon * num_states)
    flow[:num_states] = tables.initial
    row_lower = np.concatenate([flow, np.full(m, -highspy.kHighsInf)])
    row_upper = np.concatenate([flow, capacities])
    return _column_values(tables.rewards, stage, pair), matrix, row_lower, row_upper


def _column_values(table: FloatArray, stage: np.ndarray, pair: np.ndarray) -> FloatArray:
    flat = table.reshape(table.shape[0], -1)
    return flat[stage % flat.shape[0], pair]


def solve_episodic(tables: Tables, horizon: int, capacities: FloatArray) -> EpisodicMeasure:
    """The program of Eq. (14); if it is infeasible, the one of least violation."""
    # the solver's tolerances are for rewards and costs of size about 1
    m = capacities.size
    reward_size, *sizes = (largest(table) for table in (tables.rewards, *tables.costs))
    scale = np.array(sizes)
    tables = tables._replace(
        rewards=tables.rewards / reward_size, costs=tables.costs / scale[:, None, None, None]
    )
    program = episodic_program(tables, horizon, capacities / scale)
    objective, matrix, row_lower, row_upper = program
    answer = maximise(*program)
    unit = reward_size
    status = answer.status
    if status is Status.INFEASIBLE:
        # one more variable z >= 0: minimise z subject to costs - z <= capacities
        relief = np.zeros((matrix.shape[0], 1))
        unit = float(np.sqrt(scale.min() * scale.max()))
        relief[matrix.shape[0] - m :, 0] = -unit / scale
        wider = sp.hstack([matrix, sp.csc_array(relief)], format="csc")
        price = np.append(np.zeros(objective.size), -1.0)
        answer = maximise(price, wider, row_lower, row_upper)
        if answer.status is not Status.SOLVED:
            status = Status.NOT_CONVERGED
    measure = np.zeros((horizon, tables.available.size))
    if answer.x.size:
        measure[:, tables.available.ravel()] = answer.x[: objective.size].reshape(horizon, -1)
    multipliers = np.zeros(m)
    if m:
        multipliers = np.maximum(answer.row_duals[-m:], 0.0) * unit / scale
    return EpisodicMeasure(
        status, measure.reshape(horizon, *tables.available.shape), multipliers, answer.iterations
    )
