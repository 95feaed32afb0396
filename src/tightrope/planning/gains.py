"""The best gain without constraints, three independent ways, each with certified bounds.

Multichain models are the general case: the optimal gain may differ between states.

* policy iteration for multichain models [Puterman 1994, section 9.2],
* relative value iteration in every maximal end component, and a stopping problem between them,
* linear programs: one block if the gain is the same everywhere, two blocks if not
  [Puterman 1994, 8.8.1 and 9.3; Hordijk and Kallenberg 1979].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import Status
from tightrope.kernels import average as kernels
from tightrope.model.chain import (
    DENSE_LIMIT,
    TooSlowError,
    chain_classes,
    ends_error,
    evaluator,
    gain,
    part_solver,
)
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.structure import leading_to, maximal_end_components, pair_owner
from tightrope.planning import lp
from tightrope.planning.stopping import (
    EPS,
    LARGE_ROUNDING,
    Rows,
    collapse,
    compose,
    refine,
    solve_stopping,
    upper_values,
)
from tightrope.types import BoolArray, FloatArray, IntArray

APERIODIC_STEP = 0.9  # of the change; 1 would never settle on periodic models
ROUNDING = 64  # rounding errors of the rewards up to which an evaluation is not refined


class Frame(NamedTuple):
    """What does not depend on the rewards."""

    model: FiniteMDP
    matrix: sp.csr_array  #: (S*A, S)
    tables: Tables
    labels: IntArray  #: (S,) maximal end component, -1 outside
    staying: BoolArray  #: (S, A) pairs that stay inside it
    exits: Rows  #: all other pairs, end components merged into one state each
    merged: IntArray  #: (S,) state of the merged process

    @property
    def parts(self) -> int:
        """Number of maximal end components."""
        return int(self.labels.max()) + 1


class Gains(NamedTuple):
    """A policy and what is certain of the optimum."""

    actions: IntArray  #: (S,)
    gain: FloatArray  #: (S,) of the policy
    bias: FloatArray  #: (S,) of the policy (large models: of the last sweep)
    lower: FloatArray  #: (S,) certified lower bounds of the policy's gain
    upper: FloatArray  #: (S,) certified upper bounds of the optimal gain
    iterations: int


class Evaluated(NamedTuple):
    """A policy's gain and bias (S,), each the unevaluated sum of two floats."""

    gain: FloatArray
    gain_low: FloatArray
    bias: FloatArray
    bias_low: FloatArray


def frame_of(model: FiniteMDP) -> Frame:
    """Structure of a model: its end components and what leads from one to another."""
    matrix, owner = model.matrix(), pair_owner(model)
    labels, staying = maximal_end_components(model)
    leaving = model.available.ravel() & ~staying.ravel()
    exits, merged = collapse(matrix, owner, leaving, labels)
    return Frame(model, matrix, model.tables(), labels, staying, exits, merged)


def chain_of(frame: Frame, actions: IntArray) -> sp.csr_array:
    """The chain (S, S) of a deterministic policy."""
    rows = np.arange(actions.size) * frame.model.num_actions + actions
    return frame.matrix[rows]


def differences(
    frame: Frame, rewards: FloatArray, level: FloatArray, high: FloatArray, low: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(S, A) ``r - level + P h - h`` for ``h = high + low``, and bounds of its rounding errors.

    -inf and 0 where the action does not exist.
    """
    t, width = frame.tables, rewards.shape[1]
    out, error = np.empty(rewards.size), np.empty(rewards.size)
    owner = np.repeat(np.arange(rewards.shape[0]), width)
    pays = np.ascontiguousarray(rewards).ravel()
    kernels.differences(
        t.start, t.stop, t.indices, t.data, owner, pays, level, high, low, out, error
    )
    gone = ~frame.model.available.ravel()
    out[gone], error[gone] = -np.inf, 0.0
    return out.reshape(rewards.shape), error.reshape(rewards.shape)


def gain_upper(
    frame: Frame, rewards: FloatArray, bias: FloatArray, low: FloatArray | None = None
) -> FloatArray:
    """(S,) certified upper bounds of the optimal gain, from any vector ``bias + low``.

    Inside an end component ``max (r + P h - h)`` bounds the gain for every h; between components
    the best of these bounds that can be reached is a stopping problem.
    """
    none = np.zeros(bias.size)
    out, error = differences(frame, rewards, none, bias, none if low is None else low)
    best = np.where(frame.staying, out + error, -np.inf).max(axis=1)
    inside = frame.labels >= 0
    upper = np.full(frame.parts, -np.inf)
    np.maximum.at(upper, frame.labels[inside], best[inside])
    return spread_bounds(frame, upper)


def gain_lower(
    frame: Frame,
    rewards: FloatArray,
    actions: IntArray,
    gains: FloatArray,
    bias: FloatArray,
    low: FloatArray,
    gain_low: FloatArray | None = None,
) -> FloatArray:
    """(S,) certified lower bounds of a policy's gain, from its computed gain and any bias.

    In a recurrent class ``min (r + P h - h)`` is no larger than the gain. Chances of ending in a
    class are computed without subtraction, so each has a small relative error; of large chains,
    the error is at most what ``P g - g`` leaves over times the steps on the way, for g with what
    does not fit into one float, `gain_low`.
    """
    states, none = np.arange(bias.size), np.zeros(bias.size)
    out, error = (x[states, actions] for x in differences(frame, rewards, none, bias, low))
    chain = chain_of(frame, actions)
    labels = chain_classes(chain)
    inside = labels >= 0
    least, known = np.full(labels.max() + 1, np.inf), np.zeros(labels.max() + 1)
    np.minimum.at(least, labels[inside], (out - error)[inside])
    known[labels[inside]] = gains[inside]
    slip = max(0.0, float((known - least).max()))
    moving = np.flatnonzero(~inside)
    if least.size > 1 and moving.size <= DENSE_LIMIT:
        slip += ends_error(moving.size) * float(np.abs(known).max())
    elif least.size > 1:
        rest = none if gain_low is None else gain_low
        off, error = differences(frame, np.zeros_like(rewards), none, gains, rest)
        left = float((np.abs(off) + error)[states, actions][moving].max())
        leave = np.asarray(chain[moving][:, inside].sum(axis=1)).ravel()
        steps = none.copy()
        solve = part_solver(chain, moving, leave, proved=False)
        steps[moving] = solve(np.ones((moving.size, 1)))[:, 0]
        sure = steps.min() >= 0 and ((steps - chain @ steps)[moving] >= 0.5).all()
        apart = float(np.ptp(known))
        slip += min(apart, 2.0 * float(steps.max()) * left) if sure else apart
        slip += float(np.abs(rest).max()) + EPS * float(np.abs(gains).max())
    return gains - slip * (1.0 + 4 * EPS)


def spread_bounds(frame: Frame, upper: FloatArray) -> FloatArray:
    """From bounds (K,) in the end components to bounds (S,) everywhere."""
    if frame.parts == 1:
        return np.full(frame.labels.size, upper[0])
    stop = np.full(int(frame.merged.max()) + 1, -np.inf)
    stop[: frame.parts] = upper
    between = upper_values(frame.exits, np.zeros(frame.exits.pairs.size), stop)[frame.merged]
    return np.minimum(between, upper.max())  # however slowly a policy may come to a component


def gain_floor(frame: Frame, rewards: FloatArray, actions: IntArray, bias: FloatArray) -> float:
    """A certified lower bound of a policy's gain from every state, from any bias."""
    none, states = np.zeros(bias.size), np.arange(bias.size)
    out, error = differences(frame, rewards, none, bias, none)
    inside = chain_classes(chain_of(frame, actions)) >= 0
    return float((out - error)[states, actions][inside].min())


def certified(
    frame: Frame, rewards: FloatArray, actions: IntArray, found: Evaluated, iterations: int
) -> Gains:
    """Bounds of an evaluated policy and of the optimum by its bias."""
    return Gains(
        actions,
        found.gain,
        found.bias,
        gain_lower(frame, rewards, actions, found.gain, found.bias, found.bias_low, found.gain_low),
        gain_upper(frame, rewards, found.bias, found.bias_low),
        iterations,
    )


def evaluated(frame: Frame, rewards: FloatArray, actions: IntArray) -> Evaluated:
    """Gain and bias of a deterministic policy, refined until what they leave over is rounding.

    Where mixing takes 1e12 steps the bias is 1e12 times the rewards, and one float for each number
    cannot hold the differences between neighbours that decide which action is better.
    """
    states = np.arange(actions.size)
    chain, pays = chain_of(frame, actions), rewards[states, actions]
    evaluate = evaluator(chain)
    gains, bias = (x[:, 0] for x in evaluate(pays[:, None]))
    gain_low, bias_low = np.zeros(states.size), np.zeros(states.size)
    none = np.zeros_like(rewards)
    if np.ptp(gains) > 0:
        moving = np.flatnonzero(chain_classes(chain) < 0)
        ended = np.setdiff1d(states, moving)
        leave = np.asarray(chain[moving][:, ended].sum(axis=1)).ravel()
        solve = part_solver(chain, moving, leave, proved=False)

        def missing() -> FloatArray:
            out, _ = differences(frame, none, none[:, 0], gains, gain_low)
            return out[states, actions]

        def correct(left: FloatArray) -> FloatArray:
            more = np.zeros(states.size)
            if moving.size:
                more[moving] = solve(left[moving, None])[:, 0]
            return more

        refine(gains, gain_low, missing, correct, 0.0)

    def left_over() -> FloatArray:
        return differences(frame, rewards, gains, bias, bias_low)[0][states, actions]

    rounding = ROUNDING if states.size <= DENSE_LIMIT else LARGE_ROUNDING
    room = rounding * EPS * max(float(np.abs(pays).max()), 1e-300)
    refine(bias, bias_low, left_over, lambda left: evaluate(left[:, None])[1][:, 0], room)
    return Evaluated(gains, gain_low, bias, bias_low)


def by_policy_iteration(
    frame: Frame, rewards: FloatArray, start: IntArray | None = None, max_iterations: int = 10_000
) -> Gains:
    """Multichain policy iteration: first the gain is improved, then the bias at equal gain.

    Actions change only where that is a strict improvement beyond rounding, so ties cannot cycle.
    """
    actions = frame.model.available.argmax(axis=1) if start is None else start.copy()
    none = np.zeros(rewards.shape[0])
    seen: set[bytes] = set()
    iterations = 0
    while True:
        found = evaluated(frame, rewards, actions)
        iterations += 1
        seen.add(actions.tobytes())
        better, choice, equal = np.zeros(none.size, dtype=bool), actions, frame.model.available
        if np.ptp(found.gain) > 0:
            more, error = differences(
                frame, np.zeros_like(rewards), none, found.gain, found.gain_low
            )
            better, choice, slack = _better(more, error, actions)
            equal = more >= -slack
        if not better.any():
            more, error = differences(frame, rewards, found.gain, found.bias, found.bias_low)
            better, choice, _ = _better(more, error, actions, equal)
        improved = np.where(better, choice, actions)
        if not better.any() or improved.tobytes() in seen or iterations >= max_iterations:
            return certified(frame, rewards, actions, found, iterations)
        actions = improved


def _better(
    more: FloatArray, error: FloatArray, actions: IntArray, usable: BoolArray | None = None
) -> tuple[BoolArray, IntArray, FloatArray]:
    """Where an action adds more (S, A) than rounding may, which adds most, and what rounding may.

    What the policy's own actions seem to add is what its evaluation left over.
    """
    states = np.arange(actions.size)
    slack = error + 2.0 * float((np.abs(more) + error)[states, actions].max())
    beyond = more > slack if usable is None else usable & (more > slack)
    score = np.where(beyond, more, -np.inf)
    return np.asarray(beyond.any(axis=1)), score.argmax(axis=1), slack


def by_value_iteration(
    frame: Frame, rewards: FloatArray, tolerance: float = 1e-10, max_sweeps: int = 200_000
) -> Gains:
    """Relative value iteration inside the end components, policy iteration between them."""
    t = frame.tables
    bias = np.zeros(rewards.shape[0])
    lower, upper = np.zeros(frame.parts), np.zeros(frame.parts)
    inside = np.zeros(rewards.shape[0], dtype=np.int64)
    sweeps = kernels.relative_iteration(
        t.start,
        t.stop,
        t.indices,
        t.data,
        np.ascontiguousarray(rewards),
        frame.staying,
        frame.labels.astype(np.int64),
        APERIODIC_STEP,
        max(tolerance, 8 * EPS * float(np.abs(rewards).max())),
        max_sweeps,
        bias,
        lower,
        upper,
        inside,
    )
    stop = np.full(int(frame.merged.max()) + 1, -np.inf)
    stop[: frame.parts] = 0.5 * (lower + upper)
    between = solve_stopping(frame.exits, np.zeros(frame.exits.pairs.size), stop)
    actions = compose(frame.model, frame.exits, between.choice, frame.labels, frame.staying, inside)
    if rewards.shape[0] > DENSE_LIMIT:  # the exact bias costs as much as all the sweeps
        pays = rewards[np.arange(actions.size), actions]
        try:
            gains = gain(chain_of(frame, actions), pays)
        except TooSlowError:  # then no more is known than the bounds
            gains = np.full(bias.size, gain_floor(frame, rewards, actions, bias))
        low = gain_lower(frame, rewards, actions, gains, bias, np.zeros(bias.size))
        return Gains(actions, gains, bias, low, gain_upper(frame, rewards, bias), int(sweeps))
    found = certified(frame, rewards, actions, evaluated(frame, rewards, actions), int(sweeps))
    return found._replace(upper=np.minimum(found.upper, gain_upper(frame, rewards, bias)))


# --------------------------------------------------------------------------- linear programs


class FlowAnswer(NamedTuple):
    """Solution of the flow program of the average criterion."""

    status: Status
    frequency: FloatArray  #: (S, A) long-run share of time
    passing: FloatArray  #: (S, A) visits on the way (two-block program), else 0
    bias: FloatArray  #: (S,) duals of the balance rows
    multipliers: FloatArray  #: (m,) >= 0
    iterations: int


def flow_program(
    frame: Frame, rewards: FloatArray, costs: FloatArray, limits: FloatArray, initial: FloatArray
) -> FlowAnswer:
    """``max r x`` over long-run frequencies x with ``costs x <= limits``.

    With one end component the frequencies are those with balance and mass 1. With several the
    second block y carries the initial law to them:
    ``sum_a x(j,a) + sum_a y(j,a) - sum P(j|i,a) y(i,a) = initial(j)``.
    """
    states, width = rewards.shape
    stay = np.flatnonzero(frame.staying.ravel())
    exist = np.flatnonzero(frame.model.available.ravel())
    join = sp.csr_array(
        (np.ones(states * width), (np.arange(states * width), np.arange(states * width) // width)),
        shape=(states * width, states),
    )
    balance = sp.csr_array((join - frame.matrix).T)
    flat_costs = costs.reshape(limits.size, states * width)
    if frame.parts == 1:
        blocks = [[balance[:, stay]], [np.ones((1, stay.size))], [flat_costs[:, stay]]]
        equal = np.append(np.zeros(states), 1.0)
        second = 0
    else:
        none = np.zeros((limits.size, exist.size))
        blocks = [
            [balance[:, stay], sp.csr_array((states, exist.size))],
            [sp.csr_array(join.T)[:, stay], balance[:, exist]],
            [flat_costs[:, stay], none],
        ]
        equal = np.concatenate([np.zeros(states), initial])
        second = exist.size
    if not limits.size:
        blocks.pop()
    matrix = sp.csc_array(sp.block_array(blocks))
    objective = np.concatenate([rewards.ravel()[stay], np.zeros(second)])
    low = np.concatenate([equal, np.full(limits.size, -np.inf)])
    answer = lp.maximise(objective, matrix, low, np.concatenate([equal, limits]))
    frequency, passing = np.zeros(states * width), np.zeros(states * width)
    bias, multipliers = np.zeros(states), np.zeros(limits.size)
    if answer.status is Status.SOLVED:
        frequency[stay] = np.maximum(answer.x[: stay.size], 0.0)
        passing[exist[:second]] = np.maximum(answer.x[stay.size :], 0.0)
        bias = answer.row_duals[:states]
        multipliers = np.maximum(answer.row_duals[equal.size :], 0.0)
    shape = (states, width)
    return FlowAnswer(
        answer.status,
        frequency.reshape(shape),
        passing.reshape(shape),
        bias,
        multipliers,
        answer.iterations,
    )


def flow_table(frame: Frame, frequency: FloatArray, passing: FloatArray) -> FloatArray:
    """(S, A) the stationary policy of a flow: x where x > 0, else y, else towards x."""
    dust = 1e-12
    x = np.where(frequency > dust * frequency.max(), frequency, 0.0)
    y = np.where(passing > dust * max(1.0, passing.max()), passing, 0.0)
    counts = np.where(x.sum(axis=1, keepdims=True) > 0, x, y)
    mass = counts.sum(axis=1)
    steer = leading_to(frame.model, x.sum(axis=1) > 0, frame.model.available)
    rest = np.eye(frame.model.num_actions)[steer]
    safe = np.where(mass > 0, mass, 1.0)
    table = np.where((mass > 0)[:, None], counts / safe[:, None], rest)
    return table / table.sum(axis=1, keepdims=True)


def by_linear_program(frame: Frame, rewards: FloatArray) -> Gains:
    """The best gain from every state at once: all states get initial mass."""
    states = rewards.shape[0]
    none = np.zeros((0, *rewards.shape))
    flow = flow_program(frame, rewards, none, np.zeros(0), np.full(states, 1.0 / states))
    actions = flow_table(frame, flow.frequency, flow.passing).argmax(axis=1)
    found = certified(frame, rewards, actions, evaluated(frame, rewards, actions), flow.iterations)
    return found._replace(upper=np.minimum(found.upper, gain_upper(frame, rewards, flow.bias)))
