"""The optimistic fixed point of FOPO: a cone program for every choice of maximising actions.

[LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020), Algorithm 1. The program is

    max J  s.t.  w = Gram^-1 sum phi (r - J + v(x')) + b,   v(y) = max_a phi(y, a)'w,
                 |b|_Gram <= beta,  |w| <= radius,  -1 <= J <= 1

and, among its maximisers, the least |b|_Gram, then the least |w|. With the maximising action of
every next state fixed it is a second-order cone program; branch and bound over these actions is
exact. At a node the states not yet decided have ``max_a phi'w <= v <= U``. The answer is polished
on its active constraints (`tightrope.planning.fixed_point_polish`).
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import Status, require
from tightrope.planning.fixed_point_polish import Cell, polish
from tightrope.types import BoolArray, FloatArray, IntArray

TIE = 1e-7  #: objectives this close count as equal
SINGULAR = 1e-9
STEP_FRACTIONS = (0.99, 0.9, 0.7)  #: towards the cone; shorter where the solver goes in circles


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPoint:
    """Answer of `solve_fixed_point`.

    Attributes
    ----------
    status : Status
        SOLVED if `gain` is proved to be the maximum within 1e-7 and the ties are broken exactly.
        INFEASIBLE if no w, b and J satisfy the constraints (beta or radius is too small); gain,
        bound, weights and slack are then NaN. NOT_CONVERGED if nodes ran out, a cone program could
        not be solved, or the method is 'local'; the bound still holds.
    gain : float
        J of the returned point, which satisfies every constraint; NaN if none was found.
    upper_bound : float
        No feasible J is larger.
    weights, slack : (d,)
        w and b.
    slack_norm : float
        ``|b|_Gram``.
    selection : (S,) int
        A maximising action of each state.
    nodes : int
        Cone programs solved.
    """

    status: Status
    gain: float
    upper_bound: float
    weights: FloatArray
    slack: FloatArray
    slack_norm: float
    selection: IntArray
    nodes: int

    @property
    def gap(self) -> float:
        """Upper bound minus gain."""
        return self.upper_bound - self.gain

    @property
    def proved(self) -> bool:
        """Whether `gain` is proved to be the maximum within 1e-7, ties broken or not."""
        return self.status is Status.SOLVED or self.gap <= TIE


@dataclass(frozen=True, kw_only=True, eq=False)
class _Program:
    """The statistics in the coordinates ``u = L' b`` with Gram = L L', so |u| = |b|_Gram."""

    features: FloatArray  #: (n, A, d) of the next states seen
    available: BoolArray  #: (n, A)
    root: FloatArray  #: (d, d) L'
    ones: FloatArray  #: (d,) L^-1 sum phi
    rewards: FloatArray  #: (d,) L^-1 sum phi r
    successors: FloatArray  #: (d, n) L^-1 sum phi 1{x' = y}
    beta: float
    radius: float
    solves: list[int] = field(default_factory=lambda: [0])


class _Undecided(Exception):
    """A cone program was neither solved nor proved infeasible."""


@dataclass(frozen=True, eq=False)
class _Point:
    bound: float  #: lower bound of the minimum of the relaxation
    weights: FloatArray
    gain: float
    values: FloatArray  #: (n,) v, of free states the variable
    slack: FloatArray  #: u
    pressed: BoolArray  #: inequalities, then the balls of u and w, that hold with equality


def solve_fixed_point(
    features: FloatArray,
    gram: FloatArray,
    reward_sum: FloatArray,
    feature_sum: FloatArray,
    successor_sum: FloatArray,
    *,
    beta: float,
    radius: float,
    available: BoolArray | None = None,
    method: str = "exact",
    node_limit: int = 5000,
    start: IntArray | None = None,
) -> FixedPoint:
    """Solve FOPO's program [LIN, Eq. (2)].

    Parameters
    ----------
    features : (S, A, d)
    gram : (d, d)
        ``lambda I + sum phi phi'``.
    reward_sum, feature_sum : (d,)
        ``sum phi r`` and ``sum phi``.
    successor_sum : (d, S)
        ``sum phi 1{x' = y}``.
    method : 'exact' (branch and bound) or 'local' (fix the maximisers, solve, update)
        Local solutions carry the upper bound of the root relaxation.
    node_limit : int
        Cone programs that branch and bound may solve.
    start : (S,) int or None
        A selection to try first.

    Raises
    ------
    MissingExtraError
        Without a conic solver (extra ``convex``).
    """
    num_states, num_actions, _ = features.shape
    if available is None:
        available = np.ones((num_states, num_actions), dtype=bool)
    seen = np.flatnonzero(np.abs(successor_sum).sum(axis=0) > 0)
    lower = np.linalg.cholesky(gram)
    program = _Program(
        features=features[seen],
        available=available[seen],
        root=np.array(lower.T, dtype=np.float64),
        ones=_solve(lower, feature_sum),
        rewards=_solve(lower, reward_sum),
        successors=_solve(lower, successor_sum[:, seen]),
        beta=beta,
        radius=radius,
    )
    starts = [] if start is None else [np.asarray(start)[seen]]
    exact = method == "exact"
    best, bound, done = _minimise(program, None, starts, node_limit if exact else 0)
    if best is None:
        return _nothing(program, num_states, upper=min(1.0, -bound), proved=done)
    capped = best.gain >= 1.0 - TIE
    upper = 1.0 if capped else min(1.0, -bound)
    if capped:  # J is at its cap and says nothing about w
        chosen = [_maximisers(program, best.weights)]
        tied, _, done = _minimise(program, 1.0, chosen, node_limit if exact else 0)
        best, done = (best, False) if tied is None else (tied, done and exact)
    best = _polished(program, best, 1.0 if capped else None)
    gain, weights = best.gain, _least_weights(program, best)
    scores = np.where(available, features @ weights, -np.inf)
    slack = _solve(lower.T, best.slack)
    return FixedPoint(
        status=Status.SOLVED if done else Status.NOT_CONVERGED,
        gain=gain,
        upper_bound=upper if not done else max(gain, min(upper, gain + TIE)),
        weights=weights,
        slack=slack,
        slack_norm=float(np.linalg.norm(best.slack)),
        selection=first_best(scores),
        nodes=program.solves[0],
    )


def _nothing(program: _Program, num_states: int, *, upper: float, proved: bool) -> FixedPoint:
    """No feasible point: there is none, or none was found."""
    nowhere = np.full(len(program.ones), np.nan)
    return FixedPoint(
        status=Status.INFEASIBLE if proved else Status.NOT_CONVERGED,
        gain=np.nan,
        upper_bound=np.nan if proved else upper,
        weights=nowhere,
        slack=nowhere,
        slack_norm=np.nan,
        selection=np.zeros(num_states, dtype=np.int32),
        nodes=program.solves[0],
    )


def _solve(matrix: np.ndarray, right: np.ndarray) -> FloatArray:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)


def first_best(scores: FloatArray) -> IntArray:
    """First action within 1e-9 (relative) of the best of each row."""
    best = scores.max(axis=-1, keepdims=True)
    return (scores >= best - 1e-9 * np.maximum(1.0, np.abs(best))).argmax(axis=-1).astype(np.int32)


# ------------------------------------------------------------ branch and bound


def _minimise(
    program: _Program, gain: float | None, starts: list[IntArray], node_limit: int
) -> tuple[_Point | None, float, bool]:
    """Least of -J, or of |b|^2 / 2 at a given J, over all selections.

    `node_limit` counts all cone programs of `program`, those of an earlier call too.

    Returns the best point (None if none was found), a lower bound, and whether the bound is met;
    without a point, whether there is none.
    """
    count = len(program.features)
    free = np.full(count, -1)
    least = -1.0 if gain is None else 0.0
    try:
        root = _relaxation(program, free, gain)
    except _Undecided:
        return _root_undecided(program, gain, starts), least, False
    if root is None:
        return None, np.inf, True
    best: _Point | None = None
    for selection in [*starts, _maximisers(program, root.weights)]:
        best = _better(program, best, _local(program, selection, gain))
    ticket = itertools.count()
    heap = [(root.bound, next(ticket), free, root)]
    lost: list[float] = []  # bounds of nodes that no cone program could decide
    while heap and program.solves[0] < node_limit:
        bound, _, fixed, point = heap[0]
        if best is not None and bound > _objective(best, gain) + TIE:
            break
        if best is not None and _final(program, best, gain):
            break
        heapq.heappop(heap)
        excess = point.values - _values(program, point.weights)
        excess[fixed >= 0] = 0.0
        if excess.size == 0 or excess.max() <= 1e-9 * max(1.0, program.radius):
            best = _better(program, best, point)
            continue
        state = int(np.argmax(excess * np.linalg.norm(program.successors, axis=0)))
        best = _better(program, best, _local(program, _maximisers(program, point.weights), gain))
        for action in np.flatnonzero(program.available[state]):
            child = fixed.copy()
            child[state] = action
            try:
                solved = _relaxation(program, child, gain)
            except _Undecided:
                lost.append(bound)
                continue
            if solved is None:
                continue
            if best is None or solved.bound <= _objective(best, gain) + TIE:
                heapq.heappush(heap, (solved.bound, next(ticket), child, solved))
    open_bounds = [*lost, *(entry[0] for entry in heap)]
    if best is None:
        return None, min(open_bounds, default=np.inf), not open_bounds
    lower = min([_objective(best, gain), *open_bounds])
    open_ties = min(open_bounds, default=np.inf) <= _objective(best, gain) + TIE
    return best, lower, _final(program, best, gain) or not open_ties


def _root_undecided(program: _Program, gain: float | None, starts: list[IntArray]) -> _Point | None:
    """The best of the starts: with no bound of the root, nothing can be proved."""
    best: _Point | None = None
    for selection in starts:
        best = _better(program, best, _local(program, selection, gain))
    return best


def _least_weights(program: _Program, best: _Point) -> FloatArray:
    """Least |w| with the same J and b; they determine w unless the system is singular."""
    selection = _maximisers(program, best.weights)
    seen = np.arange(len(selection))
    system = program.root - program.successors @ program.features[seen, selection]
    scales = np.linalg.svd(system, compute_uv=False)
    if scales[-1] > SINGULAR * scales[0]:
        return best.weights
    try:
        point = _relaxation(program, selection, best.gain, slack=best.slack)
    except _Undecided:
        point = None
    return best.weights if point is None else point.weights


def _polished(program: _Program, best: _Point, gain: float | None) -> _Point:
    """The point on its active constraints, to rounding; as it is where that cannot be done."""
    selection = _maximisers(program, best.weights)
    try:
        point = _relaxation(program, selection, gain)
    except _Undecided:
        return best
    if point is None or _better(program, best, point) is best:
        point = best if point is None else dataclasses.replace(best, pressed=point.pressed)
    chosen = np.arange(len(selection))
    rows = _ordering(program, selection)
    fixed = program.features[chosen, selection]
    found = polish(
        Cell(
            matrix=program.root - program.successors @ fixed,
            ones=program.ones,
            rewards=program.rewards,
            rows=rows,
            beta=program.beta,
            radius=program.radius,
            gain=gain,
        ),
        point.weights,
        point.gain,
        point.pressed[len(point.pressed) - 2 - len(rows) : -2],
        bool(point.pressed[-1]),
    )
    if found is None:
        return best
    weights, level = found
    slack = program.root @ weights + program.ones * level - program.rewards
    slack -= program.successors @ (fixed @ weights)
    better = _Point(best.bound, weights, level, _values(program, weights), slack, point.pressed)
    return better if _objective(better, gain) <= _objective(best, gain) + TIE else best


def _ordering(program: _Program, selection: IntArray) -> FloatArray:
    """Rows phi_a - phi_chosen of every other action of every state, as `_inequalities` has them."""
    rows = [
        program.features[state, action] - program.features[state, chosen]
        for state, chosen in enumerate(selection)
        for action in np.flatnonzero(program.available[state])
        if action != chosen
    ]
    return np.array(rows).reshape(-1, len(program.ones))


def _final(program: _Program, best: _Point, gain: float | None) -> bool:
    """Whether nothing can be better: J at its cap, or b = 0 where that fixed point is unique.

    With b = 0 the values satisfy v = max_a phi'Gram^-1(.. + sum phi v(x')), which has one solution
    if this map contracts in the maximum norm, as with one-hot features.
    """
    if gain is None:
        return best.gain >= 1.0 - TIE
    if np.linalg.norm(best.slack) > TIE or not len(program.features):
        return False
    shares = _solve(program.root, program.successors)
    rows = np.abs(program.features @ shares).sum(axis=2)
    return bool(rows[program.available].max() < 1.0)


def _objective(point: _Point, gain: float | None) -> float:
    return -point.gain if gain is None else 0.5 * float(point.slack @ point.slack)


def _better(program: _Program, best: _Point | None, other: _Point | None) -> _Point | None:
    """The better of two feasible points: larger J, less |b|, then less |w|, each within TIE."""
    if best is None or other is None:
        return other if best is None else best
    for mine, theirs in (
        (-best.gain, -other.gain),
        (float(np.linalg.norm(best.slack)), float(np.linalg.norm(other.slack))),
        (float(np.linalg.norm(best.weights)), float(np.linalg.norm(other.weights))),
    ):
        if abs(mine - theirs) > TIE * max(1.0, abs(mine)):
            return best if mine < theirs else other
    return best


def _local(program: _Program, selection: IntArray, gain: float | None) -> _Point | None:
    """Fix the maximisers, solve, update, until they repeat; then the cell of the last ones."""
    seen: set[bytes] = set()
    try:
        while selection.tobytes() not in seen and len(seen) < 20:
            seen.add(selection.tobytes())
            point = _relaxation(program, selection, gain, ordered=False)
            if point is None or _consistent(program, selection, point.weights):
                break
            selection = _maximisers(program, point.weights)
        return _relaxation(program, selection, gain)
    except _Undecided:
        return None  # a start less; what is not found here stays open in the tree


def _maximisers(program: _Program, weights: FloatArray) -> IntArray:
    if not len(program.features):
        return np.zeros(0, dtype=np.int64)
    scores = np.where(program.available, program.features @ weights, -np.inf)
    return first_best(scores).astype(np.int64)


def _values(program: _Program, weights: FloatArray) -> FloatArray:
    if not len(program.features):
        return np.zeros(0)
    return np.where(program.available, program.features @ weights, -np.inf).max(axis=1)


def _consistent(program: _Program, selection: IntArray, weights: FloatArray) -> bool:
    chosen = np.take_along_axis(program.features @ weights, selection[:, None], 1)[:, 0]
    return bool((_values(program, weights) - chosen <= 1e-9 * program.radius).all())


# ------------------------------------------------------------- one cone program


def _relaxation(
    program: _Program,
    fixed: IntArray,
    gain: float | None,
    *,
    ordered: bool = True,
    slack: FloatArray | None = None,
) -> _Point | None:
    """The cone program of a node; None if no point satisfies it.

    Variables x = (w, J, v of the free states, u). `fixed` (n,) holds actions, -1 where free.
    With `gain` J is fixed and |u|^2 / 2 minimised. `ordered=False` drops the inequalities that
    make fixed actions maximisers. With `slack` u stays there and |w|^2 / 2 is minimised.

    Raises _Undecided if the solver gives up.
    """
    clarabel = require("clarabel", "convex")
    program.solves[0] += 1
    dimension, free = len(program.ones), np.flatnonzero(fixed < 0)
    chosen = np.flatnonzero(fixed >= 0)
    of_chosen = program.features[chosen, fixed[chosen]]
    size = 2 * dimension + 1 + free.size
    first_free, first_slack = dimension + 1, dimension + 1 + free.size
    equations = np.zeros((dimension, size))
    equations[:, :dimension] = program.root - program.successors[:, chosen] @ of_chosen
    equations[:, dimension] = program.ones
    equations[:, first_free:first_slack] = -program.successors[:, free]
    equations[:, first_slack:] = -np.eye(dimension)
    parts, sides, cones = [equations], [program.rewards], [clarabel.ZeroConeT(dimension)]
    if gain is not None:
        row = np.zeros((1, size))
        row[0, dimension] = 1.0
        parts.append(row)
        sides.append(np.array([gain]))
        cones.append(clarabel.ZeroConeT(1))
    rows, limits = _inequalities(program, fixed, free, chosen, size, ordered, gain is None)
    if limits.size:
        parts.append(rows)
        sides.append(limits)
        cones.append(clarabel.NonnegativeConeT(limits.size))
    origin = np.zeros(dimension)
    balls = [(first_slack, program.beta, origin), (0, program.radius, origin)]
    if slack is not None:
        balls[0] = (first_slack, TIE * max(1.0, float(np.linalg.norm(slack))), slack)
    for first, limit, centre in balls:
        ball = np.zeros((dimension + 1, size))
        ball[1:, first : first + dimension] = -np.eye(dimension) / limit
        side = np.eye(dimension + 1)[0]
        side[1:] = -centre / limit
        parts.append(ball)
        sides.append(side)
        cones.append(clarabel.SecondOrderConeT(dimension + 1))
    objective, quadratic = np.zeros(size), np.zeros(size)
    if slack is not None:
        quadratic[:dimension] = 1.0
    elif gain is None:
        objective[dimension] = -1.0
    else:
        quadratic[first_slack:] = 1.0
    data = _compressed(np.diag(quadratic)), objective, _compressed(np.vstack(parts))
    for fraction in STEP_FRACTIONS:
        solution = clarabel.DefaultSolver(
            *data, np.concatenate(sides), cones, _settings(clarabel, fraction)
        ).solve()
        if str(solution.status) == "PrimalInfeasible":
            return None
        if str(solution.status) in ("Solved", "AlmostSolved", "InsufficientProgress"):
            break
    else:
        raise _Undecided(str(solution.status))
    x = np.array(solution.x)
    room, force = np.array(solution.s), np.array(solution.z)  # the balls' rows are divided by R
    first_ball = len(room) - 2 * (dimension + 1)
    places = [*range(first_ball - limits.size, first_ball), first_ball, first_ball + dimension + 1]
    heads = room[places]
    for i in (-2, -1):
        heads[i] -= np.linalg.norm(room[places[i] + 1 :][:dimension])
    values = _values(program, x[:dimension]) if free.size < len(fixed) else np.zeros(len(fixed))
    values[free] = x[first_free:first_slack]
    return _Point(
        min(solution.obj_val, solution.obj_val_dual),
        x[:dimension],
        float(x[dimension]) if gain is None else gain,
        values,
        x[first_slack:],
        force[places] > heads,
    )


def _compressed(table: FloatArray) -> sp.csc_matrix:
    """Sparse columns of a small dense table, several times faster than scipy's conversion."""
    columns, rows = np.nonzero(table.T)
    counts = np.bincount(columns, minlength=table.shape[1])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return sp.csc_matrix((table[rows, columns], rows, pointers), shape=table.shape)


def _settings(clarabel: Any, fraction: float) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    settings.max_step_fraction = fraction
    return settings


def _inequalities(
    program: _Program,
    fixed: IntArray,
    free: IntArray,
    chosen: IntArray,
    size: int,
    ordered: bool,
    bounded: bool,
) -> tuple[FloatArray, FloatArray]:
    """Rows and right-hand sides of ``row @ x <= limit``."""
    dimension = len(program.ones)
    rows, limits = [], []

    def add(weights: FloatArray, place: int | None, factor: float, limit: float) -> None:
        row = np.zeros(size)
        row[:dimension] = weights
        if place is not None:
            row[place] = factor
        rows.append(row)
        limits.append(limit)

    if bounded:
        for sign in (1.0, -1.0):
            add(np.zeros(dimension), dimension, sign, 1.0)
    for state in chosen if ordered else ():
        mine = program.features[state, fixed[state]]
        for action in np.flatnonzero(program.available[state]):
            if action != fixed[state]:
                add(program.features[state, action] - mine, None, 0.0, 0.0)
    for i, state in enumerate(free):
        place, own = dimension + 1 + i, program.features[state][program.available[state]]
        for phi in own:
            # max_a phi'w <= v <= phi_a'w + radius max_b |phi_b - phi_a|
            add(phi, place, -1.0, 0.0)
            spread = float(np.linalg.norm(own - phi, axis=1).max())
            add(-phi, place, 1.0, program.radius * spread)
        add(np.zeros(dimension), place, 1.0, program.radius * np.linalg.norm(own, axis=1).max())
        if len(own) == 2:  # the concave envelope of the larger of two
            half = 0.5 * float(np.linalg.norm(own[1] - own[0])) * program.radius
            add(-0.5 * own.sum(axis=0), place, 1.0, half)
    return np.array(rows).reshape(-1, size), np.array(limits)
