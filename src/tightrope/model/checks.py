"""What a model must satisfy: each fault is a `ModelError` with its place.

The functions take the model as far as it is built: sizes, criterion, names and mask first, then the
transitions, then rewards and costs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError, ModelWarning
from tightrope.model.tables import (
    as_sequence,
    by_name,
    check_known,
    check_names,
    labelled,
    next_values,
    real_array,
)
from tightrope.types import BoolArray, Episodic, FloatArray, IntArray

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP

MASK_HINT = "; if the action does not exist there, say so with available=(S, A) bool"
FLOAT32_EPS = float(np.finfo(np.float32).eps)
FLOAT64_EPS = float(np.finfo(np.float64).eps)


def words_of_row(model: FiniteMDP, row: int) -> str:
    """Where row ``h*S*A + s*A + a`` stands, in words."""
    stage, rest = divmod(row, model.num_states * model.num_actions)
    state, action = divmod(rest, model.num_actions)
    words = [f"stage {stage}"] if stage else []
    words.append(labelled("state", state, model.state_names))
    words.append(labelled("action", action, model.action_names))
    return f"({', '.join(words)})"


def check_available(model: FiniteMDP, available: Any) -> BoolArray:
    """(S, A) booleans, every action by default; ModelError if a state has none."""
    shape = (model.num_states, model.num_actions)
    if available is None:
        return np.ones(shape, dtype=bool)
    mask = np.array(available)
    if mask.shape != shape:
        raise ModelError(f"available has shape {mask.shape}, expected (S, A) = {shape}")
    if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise ModelError("available must hold booleans (or 0 and 1)")
    mask = mask.astype(bool)
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise ModelError(
            f"{labelled('state', int(empty[0]), model.state_names)} has no available action; "
            "every state needs at least one (an absorbing state keeps one that returns to it)"
        )
    return mask


def check_rows(model: FiniteMDP, matrix: sp.csr_array) -> tuple[sp.csr_array, float, BoolArray]:
    """Non-negative rows that sum to one; rows of unavailable actions are emptied.

    Returns the matrix, the largest correction and which of the given entries were kept.
    """
    open_rows = np.tile(model.available.ravel(), model.num_tables)
    lengths = np.diff(matrix.indptr)
    entry_row = np.repeat(np.arange(matrix.shape[0]), lengths)
    used = open_rows[entry_row]
    bad = np.flatnonzero(used & ~(np.isfinite(matrix.data) & (matrix.data >= 0)))
    if bad.size:
        k = int(bad[0])
        raise ModelError(
            f"transition {words_of_row(model, int(entry_row[k]))} to state {matrix.indices[k]} is "
            f"{matrix.data[k]}, expected a finite probability >= 0"
        )
    kept = used & (matrix.data > 0)
    if not kept.all():
        counts = np.bincount(entry_row[kept], minlength=matrix.shape[0])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        matrix = sp.csr_array((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)
        lengths, entry_row = counts, entry_row[kept]
    sums = np.bincount(entry_row, weights=matrix.data, minlength=matrix.shape[0])
    off = np.abs(sums - 1.0) * open_rows
    # float32-born rows are off by some 1e-7, longer ones by more
    allowed = 8 * FLOAT32_EPS * np.sqrt(np.maximum(lengths, 1))
    bad = np.flatnonzero(off > allowed)
    if bad.size:
        row = int(bad[0])
        if lengths[row] == 0:
            raise ModelError(
                f"row {words_of_row(model, row)} is all zero, expected probabilities that sum to 1"
                + MASK_HINT
            )
        raise ModelError(
            f"row {words_of_row(model, row)} sums to {sums[row]:.10g}, expected 1; is a transition "
            "missing or wrong? (nothing is divided by its sum unless you do it)"
        )
    correct = off > 4 * FLOAT64_EPS * np.maximum(lengths, 1)
    if not correct.any():
        return matrix, 0.0, kept
    largest = float(off[correct].max())
    data = matrix.data / np.where(correct, sums, 1.0)[entry_row]
    fixed = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    if largest > 1e-12:
        warnings.warn(
            f"{int(correct.sum())} transition rows did not sum to 1 exactly and were divided "
            f"by their sums; the largest correction is {largest:.3g}",
            ModelWarning,
            stacklevel=3,
        )
    return fixed, largest, kept


def check_next(
    model: FiniteMDP, values: Any, name: str, axes: str | None, stored: tuple[int, IntArray]
) -> FloatArray:
    """Realised values aligned with the stored transitions (one channel).

    `stored` is the number of entries that were passed, and which of them each stored entry is.
    """
    values = next_values(values, name, axes)
    entry_row = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    if values.shape == model.table_shape() or values.shape == model.table_shape()[-3:]:
        flat = values.reshape(-1, model.num_states)
        out = flat[entry_row % flat.shape[0], model.indices]
    elif sp.issparse(values) and values.shape == (model.indptr.size - 1, model.num_states):
        out = np.asarray(values[entry_row, model.indices]).reshape(-1)
    elif values.shape == stored[:1]:
        out = values[stored[1]]
    else:
        raise ModelError(
            f"{name} has shape {values.shape}, expected (S, A, S) = {model.table_shape()[-3:]} or "
            f"one value per stored transition ({stored[0]},)"
        )
    bad = np.flatnonzero(~np.isfinite(out))
    if bad.size:
        row = int(np.searchsorted(model.indptr, bad[0], side="right") - 1)
        raise ModelError(
            f"{name} {words_of_row(model, row)} to state {model.indices[bad[0]]} is {out[bad[0]]}, "
            "expected a finite number"
        )
    return out


def mean_of_next(model: FiniteMDP, values: FloatArray) -> FloatArray:
    """Mean over next states of values (nnz,) that are stored beside the transitions."""
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    mean = np.bincount(rows, weights=model.data * values, minlength=model.indptr.size - 1)
    return np.asarray(mean, dtype=np.float64).reshape(model.table_shape()[:-1])


def check_table(
    model: FiniteMDP, table: Any, name: str, values_next: FloatArray | None
) -> FloatArray:
    """A finite (S, A) or (H, S, A) table; zero where the action is not available."""
    shape = (model.num_states, model.num_actions)
    if table is None:
        assert values_next is not None
        return mean_of_next(model, values_next)
    out = np.asarray(table)
    if out.shape == (model.num_states,) and model.num_states != model.num_actions:
        raise ModelError(
            f"{name} has shape {out.shape}; for rewards of the state alone, r(s), pass "
            f"np.repeat(r[:, None], {model.num_actions}, axis=1)"
        )
    stages = model.criterion.horizon if isinstance(model.criterion, Episodic) else None
    if out.shape != shape and (stages is None or out.shape != (stages, *shape)):
        expected = f"(S, A) = {shape}" + (f" or (H, S, A) = {(stages, *shape)}" if stages else "")
        raise ModelError(f"{name} has shape {out.shape}, expected {expected}")
    out = np.where(model.available, out, 0.0)
    bad = np.argwhere(~np.isfinite(out))
    if bad.size:
        place = tuple(bad[0])
        row = int(np.ravel_multi_index(place, out.shape))
        raise ModelError(
            f"{name} {words_of_row(model, row)} is {out[place]}, expected a finite number"
            + (MASK_HINT if out[place] == -np.inf else "")
        )
    if values_next is not None:
        mean = mean_of_next(model, values_next)
        worst = np.abs(mean - out)
        place = np.unravel_index(int(worst.argmax()), worst.shape)
        if worst[place] > 1e-8 * max(1.0, float(np.abs(out).max())):
            row = int(np.ravel_multi_index(place, worst.shape))
            raise ModelError(
                f"{name} {words_of_row(model, row)} is "
                f"{np.broadcast_to(out, worst.shape)[place]:.10g} but the realised values of "
                f"the transitions there have mean {mean[place]:.10g}"
            )
    return out


def check_costs(
    model: FiniteMDP,
    costs: FloatArray | None,
    costs_next: list[FloatArray] | None,
    capacities: Any,
    senses: Sequence[str] | Mapping[str, str] | None,
    cost_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Names, tables, capacities and senses of the costs."""
    if costs is not None:
        shape = costs.shape
        if costs.size and (len(shape) < 3 or shape[-2:] != (model.num_states, model.num_actions)):
            raise ModelError(
                f"costs has shape {shape}, expected (m, S, A) = (m, {model.num_states}, "
                f"{model.num_actions}) or (m, H, S, A); for one cost pass costs[None]"
            )
    count = len(costs) if costs is not None else len(costs_next or ())
    if costs_next is not None and len(costs_next) != count:
        raise ModelError(f"costs_next has {len(costs_next)} costs, costs has {count}")
    for label, value in (("capacities", capacities), ("senses", senses)):
        if value is not None and not isinstance(value, Mapping) and np.size(value) != count:
            raise ModelError(f"{label} has length {np.size(value)}, expected m = {count} costs")
    names = check_names(cost_names, count, "cost_names")
    if names is None:
        names = ("cost",) if count == 1 else tuple(f"cost_{i}" for i in range(count))
    if count and capacities is None:
        raise ModelError(
            f"capacities are missing: expected m = {count} numbers, such as "
            f"capacities={dict.fromkeys(names, 1.0)}"
        )
    tables = [
        check_table(
            model,
            None if costs is None else costs[i],
            f"costs '{names[i]}'",
            None if costs_next is None else costs_next[i],
        )
        for i in range(count)
    ]
    capacities = by_name(capacities, names, "capacities")
    if isinstance(senses, Mapping):
        check_known(senses, names, "senses")
        senses = [senses.get(name, "<=") for name in names]
    if senses is not None:
        senses = as_sequence(senses, "senses", "'<=' or '>='")
    limits = real_array([] if capacities is None else capacities, "capacities").reshape(-1)
    if np.isnan(limits).any() or (~np.isfinite(limits)).any():
        i = int(np.flatnonzero(~np.isfinite(limits))[0])
        raise ModelError(f"capacity of '{names[i]}' is {limits[i]}, expected a finite number")
    kinds = ("<=",) * count if senses is None else tuple(str(sense) for sense in senses)
    for name, kind in zip(names, kinds):
        if kind not in ("<=", ">="):
            raise ModelError(f"sense of '{name}' is {kind!r}, expected '<=' or '>='")
    shape = (model.num_states, model.num_actions)
    return {
        "num_costs": count,
        "cost_names": names,
        "costs": np.stack(tables) if count else np.zeros((0, *shape)),
        "costs_next": None
        if costs_next is None
        else np.array(costs_next, dtype=np.float64).reshape(count, model.data.size),
        "capacities": limits,
        "senses": kinds,
    }


def check_initial(model: FiniteMDP, initial: Any) -> FloatArray:
    """The start law (S,), by default in state 0; ModelError unless it is a distribution."""
    if initial is None:
        out = np.zeros(model.num_states)
        out[0] = 1.0
        return out
    out = real_array(initial, "initial")
    if out.shape != (model.num_states,):
        raise ModelError(f"initial has shape {out.shape}, expected (S,) = ({model.num_states},)")
    bad = np.flatnonzero(~(np.isfinite(out) & (out >= 0)))
    if bad.size:
        raise ModelError(
            f"initial probability of {labelled('state', int(bad[0]), model.state_names)} is "
            f"{out[bad[0]]}, expected a finite number >= 0"
        )
    total = math.fsum(out)
    if abs(total - 1.0) > 8 * FLOAT32_EPS * math.sqrt(model.num_states):
        raise ModelError(f"initial sums to {total:.10g}, expected 1")
    return out if abs(total - 1.0) <= 4 * FLOAT64_EPS * model.num_states else out / total
