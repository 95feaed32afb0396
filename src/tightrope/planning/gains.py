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
from tightrope.model.chain import DENSE_LIMIT, gain, gain_and_bias
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.structure import leading_to, maximal_end_components, pair_owner
from tightrope.planning import lp
from tightrope.planning.stopping import (
    EPS,
    Rows,
    collapse,
    compose,
    solve_stopping,
    upper_values,
)
from tightrope.types import BoolArray, FloatArray, IntArray

APERIODIC_STEP = 0.9  # of the change; 1 would never settle on periodic models


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
    gain: FloatArray  #: (S,) of the policy, exact
    bias: FloatArray  #: (S,) of the policy, exact (large models: of the last sweep)
    upper: FloatArray  #: (S,) certified upper bounds of the optimal gain
    iterations: int


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


def ahead(frame: Frame, rewards: FloatArray, values: FloatArray) -> FloatArray:
    """(S, A) ``r + P v - v``, -inf where the action does not exist."""
    out = rewards + (frame.matrix @ values).reshape(rewards.shape) - values[:, None]
    return np.where(frame.model.available, out, -np.inf)


def gain_upper(frame: Frame, rewards: FloatArray, bias: FloatArray) -> FloatArray:
    """(S,) certified upper bounds of the optimal gain, from any vector `bias`.

    Inside an end component ``max (r + P h - h)`` bounds the gain for every h; between components
    the best of these bounds that can be reached is a stopping problem.
    """
    best = np.where(frame.staying, ahead(frame, rewards, bias), -np.inf).max(axis=1)
    inside = frame.labels >= 0
    upper = np.full(frame.parts, -np.inf)
    np.maximum.at(upper, frame.labels[inside], best[inside])
    return spread_bounds(frame, upper + 4 * EPS * float(np.abs(bias).max()))


def spread_bounds(frame: Frame, upper: FloatArray) -> FloatArray:
    """From bounds (K,) in the end components to bounds (S,) everywhere."""
    if frame.parts == 1:
        return np.full(frame.labels.size, upper[0])
    stop = np.full(int(frame.merged.max()) + 1, -np.inf)
    stop[: frame.parts] = upper
    between = upper_values(frame.exits, np.zeros(frame.exits.pairs.size), stop)[frame.merged]
    return np.minimum(between, upper.max())  # however slowly a policy may come to a component


def report(frame: Frame, rewards: FloatArray, actions: IntArray, iterations: int) -> Gains:
    """Evaluate a deterministic policy exactly and bound the optimum by its bias."""
    pays = rewards[np.arange(actions.size), actions]
    gains, bias = gain_and_bias(chain_of(frame, actions), pays)
    return Gains(actions, gains, bias, gain_upper(frame, rewards, bias), iterations)


def by_policy_iteration(
    frame: Frame, rewards: FloatArray, start: IntArray | None = None, max_iterations: int = 10_000
) -> Gains:
    """Multichain policy iteration: first the gain is improved, then the bias at equal gain.

    Actions change only where that is a strict improvement beyond rounding, so ties cannot cycle.
    """
    states = np.arange(rewards.shape[0])
    actions = frame.model.available.argmax(axis=1) if start is None else start.copy()
    scale = max(float(np.abs(rewards).max()), 1e-300)
    seen: set[bytes] = set()
    iterations = 0
    while True:
        gains, bias = gain_and_bias(chain_of(frame, actions), rewards[states, actions])
        iterations += 1
        seen.add(actions.tobytes())
        slack = 64 * EPS * scale
        more_gain = ahead(frame, np.zeros_like(rewards), gains)
        better = more_gain.max(axis=1) > slack
        choice = more_gain.argmax(axis=1)
        if not better.any():
            slack += 16 * EPS * float(np.abs(bias).max())
            more = ahead(frame, rewards, bias) - gains[:, None]
            more = np.where(more_gain >= -64 * EPS * scale, more, -np.inf)
            better = more.max(axis=1) > slack
            choice = more.argmax(axis=1)
        improved = np.where(better, choice, actions)
        if not better.any() or improved.tobytes() in seen or iterations >= max_iterations:
            return Gains(actions, gains, bias, gain_upper(frame, rewards, bias), iterations)
        actions = improved


def by_value_iteration(
    frame: Frame, rewards: FloatArray, tolerance: float = 1e-10, max_sweeps: int = 200_000
) -> Gains:
    """Relative value iteration inside the end components, policy iteration between them."""
    t = frame.tables
    bias = np.zeros(rewards.shape[0])
    lower, upper = np.zeros(frame.parts), np.zeros(frame.parts)
    inside = np.zeros(rewards.shape[0], dtype=np.int64)
    span = max(float(np.ptp(rewards)), 1e-300)
    sweeps = kernels.relative_iteration(
        t.start,
        t.stop,
        t.indices,
        t.data,
        np.ascontiguousarray(rewards),
        frame.staying,
        frame.labels.astype(np.int64),
        APERIODIC_STEP,
        max(tolerance * max(1.0, span), 8 * EPS * span),
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
    bound = spread_bounds(frame, upper + 4 * EPS * float(np.abs(bias).max()))
    if rewards.shape[0] > DENSE_LIMIT:  # the exact bias costs as much as all the sweeps
        pays = rewards[np.arange(actions.size), actions]
        return Gains(actions, gain(chain_of(frame, actions), pays), bias, bound, int(sweeps))
    found = report(frame, rewards, actions, int(sweeps))
    return found._replace(upper=np.minimum(found.upper, bound))


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


def by_linear_program(frame: Frame, rewards: FloatArray) -> tuple[Status, Gains]:
    """The best gain from every state at once: all states get initial mass."""
    states = rewards.shape[0]
    none = np.zeros((0, *rewards.shape))
    flow = flow_program(frame, rewards, none, np.zeros(0), np.full(states, 1.0 / states))
    actions = flow_table(frame, flow.frequency, flow.passing).argmax(axis=1)
    found = report(frame, rewards, actions, flow.iterations)
    bound = gain_upper(frame, rewards, flow.bias)
    return flow.status, found._replace(upper=np.minimum(found.upper, bound))
