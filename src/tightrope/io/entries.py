"""From lines of (state, action, next state, probability) to the parts of a model, located."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, ModelError
from tightrope.model.checks import FLOAT32_EPS
from tightrope.types import FloatArray, IntArray

MAX_ROWS = 2**29


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Transitions as a file has them, in any order.

    Attributes
    ----------
    states, actions, nexts : (n,) int64, counted from 0
    probabilities : (n,)
    where : (i) -> str
        Place of entry i in the file, for messages.
    state_name, action_name : (i) -> str
    """

    states: IntArray
    actions: IntArray
    nexts: IntArray
    probabilities: FloatArray
    where: Callable[[int], str]
    state_name: Callable[[int], str] = str
    action_name: Callable[[int], str] = str

    def pair(self, i: int) -> str:
        state, action = int(self.states[i]), int(self.actions[i])
        return f"(state {self.state_name(state)}, action {self.action_name(action)})"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the entries give: keywords of `FiniteMDP`, and where each stored entry came from.

    Attributes
    ----------
    fields : dict
        ``transitions_*`` and ``available``.
    order : (nnz,) int64
        Entry of the file behind each stored transition; -1 for a loop that `deadlock` added.
    rows : (nnz,) int64
        Row ``s*A + a`` of each stored transition.
    """

    fields: dict[str, Any]
    order: IntArray
    rows: IntArray

    def realised(self, values: FloatArray) -> FloatArray:
        """A column of the file aligned with the stored transitions; 0 on added loops."""
        return np.where(self.order >= 0, values[self.order], 0.0)

    def table(self, values: FloatArray) -> FloatArray | None:
        """The column as (S, A) if it depends on the pair alone, else None."""
        shape = self.fields["transitions_shape"][:2]
        stored = self.realised(values)
        out = np.zeros(int(np.prod(shape)))
        out[self.rows] = stored
        return out.reshape(shape) if (out[self.rows] == stored).all() else None

    def rewards(self, values: FloatArray) -> dict[str, Any]:
        """``rewards`` if the column depends on the pair alone, else ``rewards_next``."""
        means = self.table(values)
        return {"rewards_next": self.realised(values)} if means is None else {"rewards": means}

    def costs(self, columns: Mapping[str, FloatArray]) -> dict[str, Any]:
        """``cost_names`` and ``costs``, or ``costs_next`` if one depends on the next state."""
        if not columns:
            return {}
        tables = [self.table(values) for values in columns.values()]
        names = {"cost_names": list(columns)}
        if any(means is None for means in tables):
            return {"costs_next": np.stack([self.realised(v) for v in columns.values()]), **names}
        return {"costs": np.stack([means for means in tables if means is not None]), **names}


def assemble(
    entries: Entries, num_states: int, num_actions: int, *, deadlock: str = "error"
) -> Parts:
    """Sort the entries, check them and say which lines are at fault.

    Zero probabilities are outside the support. A pair without entries does not exist. A state
    without any is an error, or with ``deadlock="absorb"`` gets a free loop under action 0.
    """
    if deadlock not in ("error", "absorb"):
        raise ConfigError(f"deadlock must be 'error' or 'absorb', got {deadlock!r}")
    if num_states * num_actions > MAX_ROWS:
        raise ModelError(
            f"{entries.where(-1)}: {num_states} states and {num_actions} actions make more than "
            f"{MAX_ROWS:,} pairs; number the actions of each state from 0"
        )
    _check_probabilities(entries)
    rows = entries.states * num_actions + entries.actions
    order = np.flatnonzero(entries.probabilities > 0)
    key = rows[order] * num_states + entries.nexts[order]
    if (np.diff(key) <= 0).any():
        sorting = np.argsort(key, kind="stable")
        order, key = order[sorting], key[sorting]
        _check_doubled(entries, order, key)
    rows = rows[order]
    _check_sums(entries, order, rows)
    available = np.zeros((num_states, num_actions), dtype=bool)
    available.reshape(-1)[rows] = True
    dead = np.flatnonzero(~available.any(axis=1))
    if dead.size and deadlock == "error":
        raise ModelError(
            f"{entries.where(-1)}: state {entries.state_name(int(dead[0]))} has no action; "
            "numbers count from 0 and every state needs one, an absorbing state a loop with "
            "probability 1 (deadlock='absorb' adds it, with reward and cost 0)"
        )
    nexts, data = entries.nexts[order], entries.probabilities[order]
    if dead.size:
        at = np.searchsorted(rows, dead * num_actions)
        rows, order = np.insert(rows, at, dead * num_actions), np.insert(order, at, -1)
        nexts, data = np.insert(nexts, at, dead), np.insert(data, at, 1.0)
        available[dead, 0] = True
    counts = np.bincount(rows, minlength=available.size)
    fields = {
        "transitions_data": data,
        "transitions_indices": nexts.astype(np.int32),
        "transitions_indptr": np.concatenate([[0], np.cumsum(counts)]),
        "transitions_shape": (num_states, num_actions, num_states),
        "available": available,
    }
    return Parts(fields=fields, order=order, rows=rows)


def _check_probabilities(entries: Entries) -> None:
    fine = np.isfinite(entries.probabilities) & (entries.probabilities >= 0)
    if not fine.all():
        i = int(np.flatnonzero(~fine)[0])
        raise ModelError(
            f"{entries.where(i)}: probability of {entries.pair(i)} to state "
            f"{entries.state_name(int(entries.nexts[i]))} is {entries.probabilities[i]}, expected "
            "a finite number >= 0"
        )


def _check_doubled(entries: Entries, order: IntArray, key: IntArray) -> None:
    same = np.flatnonzero(np.diff(key) == 0)
    if same.size:
        first, second = int(order[same[0]]), int(order[same[0] + 1])
        raise ModelError(
            f"{entries.where(second)}: {entries.pair(second)} to state "
            f"{entries.state_name(int(entries.nexts[second]))} was given before "
            f"({entries.where(first)}); keep one, with the whole probability"
        )


def _check_sums(entries: Entries, order: IntArray, rows: IntArray) -> None:
    if not rows.size:
        return
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows) > 0]))
    sums = np.add.reduceat(entries.probabilities[order], starts)
    lengths = np.diff(np.concatenate([starts, [rows.size]]))
    bad = np.flatnonzero(np.abs(sums - 1.0) > 8 * FLOAT32_EPS * np.sqrt(lengths))
    if bad.size:
        i = int(order[starts[bad[0]]])
        raise ModelError(
            f"{entries.where(i)}: probabilities of {entries.pair(i)} sum to "
            f"{sums[bad[0]]:.10g} over {lengths[bad[0]]} lines, expected 1; is a transition "
            "missing or wrong? (nothing is divided by its sum unless you do it)"
        )
