"""Loop-free models: layered states, exact unrolling of any episodic model, and the way back.

[BOBW] Germano et al. 2023, Section 3.1: layers X_0 = {x_0}, ..., X_L = {x_L}, transitions only
from one layer to the next, rewards in [0, 1], constraints G in [-1, 1] with expected total <= 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    Policy,
    StochasticPolicy,
    probabilities,
)
from tightrope.types import Episodic, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredMDP:
    """A loop-free model whose states are sorted by layer.

    Attributes
    ----------
    model : FiniteMDP
        Criterion Episodic(L); its costs are G, its capacities 0; x_L returns to itself for nothing.
    offsets : (L + 2,) int64
        Layer k holds the states ``offsets[k] .. offsets[k + 1] - 1``.
    scale : (m,)
        g_i = signs_i (c_i - capacity_i / L) / scale_i; 1 unless that leaves [-1, 1].
    reward_scale, reward_shift : float
        r = (reward - shift) / scale, per step of the source; 1 and 0 unless rescaling was asked.
    source : FiniteMDP or None
        What was unrolled.
    origin, stage : (S,) int64
        State and step of the source; -1 for an added start layer and for x_L.
    copied : (S, A) int64
        The source's action behind each action: the action itself, or the state's first available
        one where the action does not exist in the source.
    """

    model: FiniteMDP
    offsets: IntArray
    scale: FloatArray
    reward_scale: float = 1.0
    reward_shift: float = 0.0
    source: FiniteMDP | None = None
    origin: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    stage: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    copied: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    @property
    def num_layers(self) -> int:
        """L: the number of layer transitions in an episode."""
        return self.offsets.size - 2

    @property
    def layers(self) -> IntArray:
        """(S,) layer of each state."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, np.diff(self.offsets)))
        return f"LayeredMDP(layers ({sizes}), A={self.model.num_actions}, m={self.model.num_costs})"


def layered(
    transitions: Any,
    *,
    layers: Sequence[int],
    rewards: Any,
    constraints: Any = None,
    cost_names: Sequence[str] | None = None,
) -> LayeredMDP:
    """A loop-free model from its layer sizes and tables.

    Parameters
    ----------
    transitions : (S, A, S) or sparse (S*A, S)
        Rows of the last state are ignored.
    layers : sizes |X_0|, ..., |X_L|; the first and the last are 1
    rewards : (S, A) in [0, 1]
    constraints : (m, S, A) in [-1, 1]

    Raises
    ------
    ModelError
        If a transition skips or stays in a layer, or a value is out of its range; with the place.

    Examples
    --------
    >>> P = np.zeros((3, 2, 3)); P[0, :, 1] = 1; P[1, :, 2] = 1
    >>> layered(P, layers=(1, 1, 1), rewards=[[0, 1], [0, 1], [0, 0]])
    LayeredMDP(layers (1, 1, 1), A=2, m=0)
    """
    offsets = layer_offsets(layers)
    rewards = np.array(rewards, dtype=np.float64)
    last = int(offsets[-1]) - 1
    num_actions = rewards.shape[-1]
    expected = ((last + 1) * num_actions, last + 1)
    if sp.issparse(transitions):
        table = sp.csr_array(transitions)
    else:
        dense = np.asarray(transitions, dtype=np.float64)
        table = sp.csr_array(dense.reshape(-1, dense.shape[-1]))
    if table.shape != expected:
        raise ModelError(
            f"transitions have {table.shape[0]} rows of length {table.shape[1]}, expected "
            f"{expected[0]} of length {expected[1]} for layers {tuple(layers)}"
        )
    end = sp.csr_array(np.eye(last + 1)[[last] * num_actions])
    matrix = sp.vstack([table[: last * num_actions], end], format="csr")
    costs = None if constraints is None else np.array(constraints, dtype=np.float64)
    model = FiniteMDP(
        transitions=sp.csr_array(matrix),
        rewards=rewards,
        costs=costs,
        capacities=None if costs is None else np.zeros(len(costs)),
        cost_names=cost_names,
        criterion=Episodic(offsets.size - 2),
    )
    check_layers(model, offsets)
    check_ranges(model.rewards, model.costs)
    return LayeredMDP(model=model, offsets=offsets, scale=np.ones(model.num_costs))


def layer_offsets(sizes: Sequence[int]) -> IntArray:
    """(L + 2,) first state of each layer, and the number of states."""
    counts = np.asarray(sizes, dtype=np.int64)
    if counts.ndim != 1 or counts.size < 2 or (counts < 1).any():
        raise ModelError(f"layer sizes must be at least two numbers >= 1, got {tuple(sizes)}")
    if counts[0] != 1 or counts[-1] != 1:
        raise ModelError(f"the first and the last layer must have one state, got {tuple(sizes)}")
    return np.concatenate([[0], np.cumsum(counts)])


def check_layers(model: FiniteMDP, offsets: IntArray) -> None:
    """ModelError, naming state, action and layers, unless every transition goes one layer on."""
    layer = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    state, action = np.divmod(rows, model.num_actions)
    inside = state < model.num_states - 1
    bad = np.flatnonzero(inside & (layer[model.indices] != layer[state] + 1))
    if bad.size:
        x, a, y = int(state[bad[0]]), int(action[bad[0]]), int(model.indices[bad[0]])
        raise ModelError(
            f"(state {model.state_name(x)}, action {model.action_name(a)}) in layer {layer[x]} "
            f"goes to state {model.state_name(y)} in layer {layer[y]}, expected layer "
            f"{layer[x] + 1}: a loop-free model may not skip a layer or stay in one"
        )


def check_ranges(rewards: FloatArray, constraints: FloatArray, where: str = "") -> None:
    """ModelError, with the place, unless rewards are in [0, 1] and constraints in [-1, 1]."""
    for table, low, name in ((rewards, 0.0, "reward"), (constraints, -1.0, "constraint")):
        bad = np.argwhere(~((table >= low) & (table <= 1.0)))
        if bad.size:
            place = tuple(int(i) for i in bad[0])
            raise ModelError(
                f"{name} {place}{where} is {table[place]:.10g}, expected a number in "
                f"[{low:.0f}, 1]; rescale it by a recorded map (tr.unroll(model, rescale=True))"
            )


def unroll(model: FiniteMDP, *, rescale: bool = False) -> LayeredMDP:
    """The loop-free model that copies every state per step: same values, costs and policies.

    The start is the single start state, or an added start layer where the initial law is spread.
    Capacities become constraints g_i = signs_i (c_i - capacity_i / L) / scale_i over all L layer
    transitions, with scale_i = 1 unless a value would leave [-1, 1]. An action that does not exist
    in a state becomes a copy of the state's first available action.

    Parameters
    ----------
    rescale : bool
        Map rewards outside [0, 1] into it by a recorded shift and scale; refused without it.

    Raises
    ------
    ModelError
        If the model is not episodic, or its rewards leave [0, 1] and `rescale` is False.

    Examples
    --------
    >>> model = FiniteMDP(transitions=np.full((3, 2, 3), 1 / 3), rewards=np.eye(3, 2),
    ...     costs=np.ones((1, 3, 2)) / 2, capacities=[1.0], criterion=Episodic(2))
    >>> loop_free = unroll(model)
    >>> loop_free, loop_free.model.costs[0, 0]
    (LayeredMDP(layers (1, 3, 1), A=2, m=1), array([0., 0.]))
    """
    horizon, num_states, num_actions = model.horizon, model.num_states, model.num_actions
    start = np.flatnonzero(model.initial)
    single = start.size == 1
    first_step = 1 if single else 0
    sizes = [1] + [num_states] * (horizon - first_step) + [1]
    offsets = layer_offsets(sizes)
    total = int(offsets[-1])
    origin = np.full(total, -1, dtype=np.int64)
    stage = np.full(total, -1, dtype=np.int64)
    if single:
        origin[0], stage[0] = start[0], 0
    body = np.arange(1, total - 1)
    origin[body] = (body - 1) % num_states
    stage[body] = (body - 1) // num_states + first_step

    first_available = model.available.argmax(axis=1)
    copied = np.where(model.available, np.arange(num_actions), first_available[:, None])
    copied = np.where((origin >= 0)[:, None], copied[origin], np.arange(num_actions))
    inside = origin >= 0
    steps, states, actions = stage[inside, None], origin[inside, None], copied[inside]
    rewards = np.zeros((total, num_actions))
    rewards[inside] = _at(model.rewards, steps, states, actions)
    shift, scale = _reward_map(rewards[inside], rescale)
    rewards[inside] = (rewards[inside] - shift) / scale
    costs = np.zeros((model.num_costs, total, num_actions))
    for i in range(model.num_costs):
        costs[i, inside] = _at(model.costs[i], steps, states, actions)
    num_layers = offsets.size - 2
    g = model.signs[:, None, None] * (costs - model.capacities[:, None, None] / num_layers)
    g[:, -1] = 0.0
    g_scale = np.maximum(1.0, np.abs(g).max(axis=(1, 2), initial=0.0))
    result = FiniteMDP(
        transitions=_unrolled_matrix(model, offsets, origin, stage, copied),
        rewards=rewards,
        costs=g / g_scale[:, None, None],
        capacities=np.zeros(model.num_costs),
        cost_names=model.cost_names if model.num_costs else None,
        action_names=model.action_names,
        criterion=Episodic(num_layers),
    )
    return LayeredMDP(
        model=result,
        offsets=offsets,
        scale=g_scale,
        reward_scale=scale,
        reward_shift=shift,
        source=model,
        origin=origin,
        stage=stage,
        copied=copied,
    )


def _at(table: FloatArray, steps: IntArray, states: IntArray, actions: IntArray) -> FloatArray:
    return table[steps, states, actions] if table.ndim == 3 else table[states, actions]


def _reward_map(rewards: FloatArray, rescale: bool) -> tuple[float, float]:
    low, high = float(rewards.min()), float(rewards.max())
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    if not rescale:
        raise ModelError(
            f"rewards lie in [{low:.6g}, {high:.6g}], expected [0, 1]; unroll(model, rescale=True) "
            "maps them there and records the map"
        )
    shift = min(low, 0.0)
    return shift, max(high - shift, 1e-300)


def _unrolled_matrix(
    model: FiniteMDP, offsets: IntArray, origin: IntArray, stage: IntArray, copied: IntArray
) -> sp.csr_array:
    """CSR rows ``x*A + a`` of the unrolled model."""
    total, num_actions = copied.shape
    last_step = model.horizon - 1
    blocks = []
    if origin[0] < 0:
        start = sp.csr_array(np.ones(num_actions)[:, None] * model.initial[None, :])
        blocks.append(_shifted(start, 1, total))
    for k in range(offsets.size - 2):
        x = np.arange(offsets[k], offsets[k + 1])
        if origin[x[0]] < 0:
            continue
        rows = (origin[x, None] * num_actions + copied[x]).ravel()
        if stage[x[0]] == last_step:
            blocks.append(_shifted(sp.csr_array(np.ones((rows.size, 1))), total - 1, total))
        else:
            matrix = model.matrix(int(stage[x[0]]))[rows]
            blocks.append(_shifted(matrix, int(offsets[k + 1]), total))
    blocks.append(_shifted(sp.csr_array(np.ones((num_actions, 1))), total - 1, total))
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def _shifted(matrix: sp.csr_array, first: int, total: int) -> sp.csr_array:
    """The same rows with column 0 moved to column `first` of `total`."""
    matrix = sp.csr_array(matrix)
    return sp.csr_array(
        (matrix.data, matrix.indices + first, matrix.indptr), shape=(matrix.shape[0], total)
    )


def unroll_policy(loop_free: LayeredMDP, policy: Policy) -> StochasticPolicy:
    """A policy of the source, (S, A) or (H, S, A), as one of the loop-free model."""
    source = _source(loop_free)
    if isinstance(policy, MixturePolicy):
        raise ModelError("unroll the components of a mixture one by one")
    table = probabilities(policy, source.num_actions)
    out = np.full(_shape(loop_free), 1.0 / source.num_actions)
    inside = loop_free.origin >= 0
    origin, stage = loop_free.origin[inside], loop_free.stage[inside]
    out[inside] = table[stage, origin] if table.ndim == 3 else table[origin]
    return StochasticPolicy(out)


def fold_policy(loop_free: LayeredMDP, policy: Policy) -> StochasticPolicy:
    """A policy of the loop-free model as (H, S, A) of the source; uniform where it says nothing."""
    source = _source(loop_free)
    if isinstance(policy, MixturePolicy):
        raise ModelError("fold the components of a mixture one by one")
    if isinstance(policy, DeterministicPolicy) and policy.staged:
        raise ModelError("a loop-free model's policy does not differ by step")
    out = np.repeat(
        (source.available / source.available.sum(axis=1, keepdims=True))[None],
        source.horizon,
        axis=0,
    )
    table, place = _folded(loop_free, probabilities(policy, source.num_actions))
    out[place] = table
    return StochasticPolicy(out)


def unroll_occupancy(loop_free: LayeredMDP, occupancy: FloatArray) -> FloatArray:
    """Occupancy (H, S, A) of the source as (S, A) of the loop-free model."""
    source = _source(loop_free)
    out = np.zeros(_shape(loop_free))
    inside = loop_free.origin >= 0
    out[inside] = occupancy[loop_free.stage[inside], loop_free.origin[inside]]
    if loop_free.origin[0] < 0:
        out[0] = 1.0 / source.num_actions
    return out


def fold_occupancy(loop_free: LayeredMDP, occupancy: FloatArray) -> FloatArray:
    """Occupancy (S, A) of the loop-free model as (H, S, A) of the source."""
    source = _source(loop_free)
    out = np.zeros((source.horizon, source.num_states, source.num_actions))
    table, place = _folded(loop_free, occupancy)
    out[place] = table
    return out


def _folded(
    loop_free: LayeredMDP, table: FloatArray
) -> tuple[FloatArray, tuple[IntArray, IntArray]]:
    """Rows of the source and where they go; copies of an action add up."""
    inside = np.flatnonzero(loop_free.origin >= 0)
    added = np.zeros((inside.size, table.shape[1]))
    rows = np.repeat(np.arange(inside.size), table.shape[1])
    np.add.at(added, (rows, loop_free.copied[inside].ravel()), table[inside].ravel())
    return added, (loop_free.stage[inside], loop_free.origin[inside])


def _source(loop_free: LayeredMDP) -> FiniteMDP:
    if loop_free.source is None:
        raise ModelError("this loop-free model was not unrolled from an episodic one")
    return loop_free.source


def _shape(loop_free: LayeredMDP) -> tuple[int, int]:
    return loop_free.model.num_states, loop_free.model.num_actions
