"""Reading transition tables and names in the forms that users have them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError


def labelled(kind: str, index: int, names: tuple[str, ...] | None) -> str:
    return f"{kind} {index} '{names[index]}'" if names else f"{kind} {index}"


def check_names(names: Sequence[str] | None, count: int, label: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    out = tuple(str(name) for name in names)
    if len(out) != count:
        raise ModelError(f"{label} has {len(out)} names, expected {count}")
    if len(set(out)) != len(out):
        twice = next(name for name in out if out.count(name) > 1)
        raise ModelError(f"{label} holds '{twice}' twice")
    return out


def check_known(given: Mapping[str, Any], names: Sequence[str], label: str) -> None:
    for name in given:
        if name not in names:
            raise ModelError(f"{label} name '{name}' is no cost of this model: {', '.join(names)}")


def split_named_costs(
    costs: Mapping[str, Any], capacities: Any, cost_names: Sequence[str] | None
) -> tuple[list[str], Any, Any]:
    names = list(costs)
    if cost_names is not None and list(cost_names) != names:
        raise ModelError("costs are a mapping with names: leave cost_names out")
    if capacities is not None and not isinstance(capacities, Mapping):
        raise ModelError("costs are given by name, so capacities must be too: {name: number}")
    return names, ([np.asarray(costs[name]) for name in names] if names else None), capacities


def csr_from_parts(data: Any, indices: Any, indptr: Any, shape: Any) -> sp.csr_array:
    shape = tuple(int(n) for n in np.asarray(shape).ravel())
    if len(shape) not in (3, 4) or min(shape) < 1 or shape[-1] != shape[-3]:
        raise ModelError(f"transitions_shape is {shape}, expected (S, A, S) or (H, S, A, S)")
    data = np.asarray(data, dtype=np.float64)
    indices, indptr = np.asarray(indices), np.asarray(indptr)
    rows = math.prod(shape[:-1])
    if data.ndim != 1 or indices.shape != data.shape:
        raise ModelError(
            f"transitions_data {data.shape} and transitions_indices {indices.shape} must be 1-d "
            "and of one length"
        )
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ModelError("transitions_indices and transitions_indptr must hold integers")
    if indptr.shape != (rows + 1,):
        raise ModelError(f"transitions_indptr has shape {indptr.shape}, expected ({rows + 1},)")
    if indptr[0] != 0 or indptr[-1] != data.size or (np.diff(indptr) < 0).any():
        raise ModelError(f"transitions_indptr must rise from 0 to {data.size}")
    if data.size and not (indices.min() >= 0 and indices.max() < shape[-1]):
        raise ModelError(f"transitions_indices must be in 0..{shape[-1] - 1}")
    matrix = CsrTable((data, indices, indptr), shape=(rows, shape[-1]))
    matrix.table_shape = shape
    return matrix


class CsrTable(sp.csr_array):
    """A CSR matrix that remembers the shape of the table that it flattens."""

    table_shape: tuple[int, ...] | None = None


def is_staged(transitions: Any) -> bool:
    if sp.issparse(transitions):
        shape = getattr(transitions, "table_shape", None)
        return shape is not None and len(shape) == 4
    return np.ndim(transitions) == 4


def leading_table_shape(rewards: Any, available: Any, costs: Any) -> tuple[int, int] | None:
    for table in (rewards, available, costs):
        if table is not None and np.ndim(table) >= 2:
            return np.shape(table)[-2], np.shape(table)[-1]
    return None


def transition_matrix(
    transitions: Any, table_shape: tuple[int, int] | None, axes: str | None
) -> tuple[sp.csr_array, int, int, int]:
    """Flatten any accepted form to CSR; returns (matrix, S, A, number of tables)."""
    if sp.issparse(transitions):
        remembered = getattr(transitions, "table_shape", None)
        if remembered is not None:
            shape = remembered
        else:
            rows, num_states = transitions.shape
            if table_shape is None or rows % (num_states * table_shape[1]):
                raise ModelError(
                    f"a sparse matrix of shape {transitions.shape} needs rewards of shape (S, A) "
                    "with S*A (or H*S*A) rows in the matrix"
                )
            tables = rows // (num_states * table_shape[1])
            shape = (tables, num_states, table_shape[1], num_states)
        matrix = sp.csr_array(transitions).astype(np.float64)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sort_indices()
            if not matrix.has_canonical_format:
                row = first_duplicate(matrix)
                raise ModelError(
                    f"row {row} of the transition matrix names a next state twice; add the "
                    "probabilities up (scipy: matrix.sum_duplicates())"
                )
        return matrix, shape[-1], shape[-2], (shape[0] if len(shape) == 4 else 1)
    try:
        dense = np.array(transitions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"transitions are not a rectangular array of numbers ({error})") from error
    if dense.ndim not in (3, 4) or dense.size == 0:
        raise ModelError(
            f"transitions have shape {dense.shape}, expected (S, A, S) or (H, S, A, S)"
        )
    order = axis_order(dense.shape, axes)
    if order == "ass":
        dense = np.swapaxes(dense, -3, -2)
    *_, num_states, num_actions, last = dense.shape
    if num_states != last:
        raise ModelError(
            f"transitions have shape {dense.shape}, expected (S, A, S) or (H, S, A, S)"
        )
    matrix = sp.csr_array(np.ascontiguousarray(dense).reshape(-1, last))
    return matrix, num_states, num_actions, (dense.shape[0] if dense.ndim == 4 else 1)


def axis_order(shape: tuple[int, ...], axes: str | None) -> str:
    first, second, third = shape[-3:]
    if axes is not None:
        order = "".join(letter for letter in axes.lower() if letter.isalpha()).removeprefix("h")
        if order not in ("sas", "ass"):
            raise ModelError(f"axes must be 'sas' or 'ass', got {axes!r}")
        return order
    if first == second == third and first > 1:
        raise ModelError(
            f"transitions of shape {shape} may be (S, A, S) or (A, S, S): say axes='sas' or "
            "axes='ass'"
        )
    if second == third and first != third:
        raise ModelError(
            f"transitions of shape {shape} look like (A, S, S): say axes='ass', or pass (S, A, S)"
        )
    return "sas"


def first_duplicate(matrix: sp.csr_array) -> int:
    same = (np.diff(matrix.indices) == 0) & (
        np.diff(np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))) == 0
    )
    return int(np.searchsorted(matrix.indptr, np.flatnonzero(same)[0], side="right") - 1)
