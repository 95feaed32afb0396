"""Staying out: a null action for problems with hard budgets [CON, Section 5]."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.model.mdp import FiniteMDP
from tightrope.problems.gridworlds import MARS_ROVER_SMALL_MAP, mars_rover

NULL, OUT = "null", "out"


def with_null_action(model: FiniteMDP, *, anywhere: bool = False) -> FiniteMDP:
    """The model with a last action 'null' that leads to a last state 'out', for nothing.

    In 'out' every action stays there, with reward 0 and cost 0. The null action exists at the start
    of an episode only: every initial state gets a copy, to which nothing returns. With `anywhere`
    it exists in every state, so that an episode can be left at any step (no copies are then made).

    >>> from tightrope.problems import mars_rover
    >>> with_null_action(mars_rover())
    FiniteMDP(S=66, A=5, m=1, Episodic(horizon=30), 922 transitions)
    """
    if model.staged:
        raise ModelError("with_null_action needs tables that do not differ by step")
    S, A, m = model.num_states, model.num_actions, model.num_costs
    if NULL in (model.action_names or ()):
        raise ModelError(f"the model already has an action '{NULL}'")
    starts = np.flatnonzero(model.initial > 0)
    copied = np.zeros(0, dtype=np.int64) if anywhere else starts
    source = np.append(np.arange(S), copied)  # the state whose rows each new state has
    count, out = source.size + 1, source.size
    indptr: list[int] = [0]
    indices: list[np.ndarray] = []
    entries: list[np.ndarray] = []
    for s in range(count):
        for a in range(A + 1):
            if s == out or a == A:  # to 'out'; -1 stands for a value of 0
                indices.append(np.array([out]))
                entries.append(np.array([-1]))
            else:
                row = int(source[s]) * A + a
                span = np.arange(model.indptr[row], model.indptr[row + 1])
                indices.append(model.indices[span])
                entries.append(span)
            indptr.append(indptr[-1] + len(indices[-1]))
    entry = np.concatenate(entries)

    def carried(values: np.ndarray, otherwise: float) -> np.ndarray:
        return np.where(entry >= 0, values[..., entry], otherwise)

    transitions = sp.csr_array(
        (carried(model.data, 1.0), np.concatenate(indices), indptr), shape=(count * (A + 1), count)
    )
    available = np.zeros((count, A + 1), dtype=bool)
    available[:out, :A] = model.available[source]
    available[out] = True
    available[: S if anywhere else 0, A] = True
    available[S:, A] = True
    rewards, costs = np.zeros((count, A + 1)), np.zeros((m, count, A + 1))
    rewards[:out, :A], costs[:, :out, :A] = model.rewards[source], model.costs[:, source]
    initial = np.zeros(count)
    if anywhere:
        initial[:S] = model.initial
    else:
        initial[S:out] = model.initial[starts]
    names = [model.state_name(int(s)) for s in source]
    names[S:] = [f"start {name}" for name in names[S:]]
    actions = [model.action_name(a) for a in range(A)]
    return FiniteMDP(
        transitions=transitions,
        rewards=rewards,
        costs=costs if m else None,
        capacities=model.capacities if m else None,
        senses=list(model.senses) if m else None,
        cost_names=list(model.cost_names) if m else None,
        rewards_next=None if model.rewards_next is None else carried(model.rewards_next, 0.0),
        costs_next=None if model.costs_next is None else carried(model.costs_next, 0.0),
        criterion=model.criterion,
        initial=initial,
        available=available,
        state_names=[*names, OUT],
        action_names=[*actions, NULL],
    )


def rover_knapsack(
    *,
    map: str = MARS_ROVER_SMALL_MAP,
    horizon: int = 15,
    slip: float = 0.1,
    capacity: float = 0.3,
    anywhere: bool = False,
) -> FiniteMDP:
    """Mars rover with a null action, on the 4x4 map: hard budgets over many episodes [CON, Sec. 5].

    The budget of K episodes is K times `capacity` unless a learner is given another. Stationary
    optimum per episode at the default: 1.61125956; the dynamic optimum of 500 episodes takes some
    seconds (`planning.dynamic_optimum`). `anywhere`: see `with_null_action`.

    >>> rover_knapsack()
    FiniteMDP(S=18, A=5, m=1, Episodic(horizon=15), 226 transitions)
    """
    model = mars_rover(map=map, horizon=horizon, slip=slip, capacity=capacity)
    return with_null_action(model, anywhere=anywhere)
