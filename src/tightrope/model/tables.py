"""Reading transition tables and names in the forms that users have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError, did_you_mean
from tightrope.types import FloatArray, IntArray


def labelled(kind: str, index: int, names: tuple[str, ...] | None) -> str:
    """A state, action or cost for a message: its number, and its name if there are any."""
    return f"{kind} {index} '{names[index]}'" if names else f"{kind} {index}"


def real_array(values: Any, name: str) -> FloatArray:
    """A new float64 array; ModelError for text, complex numbers, ragged lists and the like."""
    if sp.issparse(values):
        raise ModelError(f"{name} is a sparse matrix, expected an array: pass {name}.toarray()")
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":  # Fraction, Decimal, very large integers
            others = [x for x in array.flat if not isinstance(x, Real | Decimal)]
            if others:
                raise ModelError(f"{name} holds {others[0]!r}, expected numbers")
        elif array.dtype.kind not in "biuf":
            first = array.ravel()[:1].tolist()
            raise ModelError(f"{name} holds {first[0] if first else array!r}, expected numbers")
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{name} is not a rectangular array of numbers ({error})") from error


def check_names(names: Sequence[str] | None, count: int, label: str) -> tuple[str, ...] | None:
    """The names as a tuple; ModelError unless they are `count` distinct ones."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ModelError(f"{label} is {names!r}, expected a list of {count} names")
    out = tuple(str(name) for name in names)
    if len(out) != count:
        raise ModelError(f"{label} has {len(out)} names, expected {count}")
    if len(set(out)) != len(out):
        twice = next(name for name in out if out.count(name) > 1)
        raise ModelError(f"{label} holds '{twice}' twice")
    return out


def check_known(given: Mapping[str, Any], names: Sequence[str], label: str) -> None:
    """ModelError, with the nearest name, if a key is no name of a cost."""
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ModelError(
                f"{label} name '{name}' is no cost of this model: {', '.join(names)}{hint}"
            )


def by_name(values: Any, names: Sequence[str], label: str) -> Any:
    """A mapping from cost names as a list in the model's order; anything else unchanged."""
    if not isinstance(values, Mapping):
        return values
    check_known(values, names, label)
    for name in names:
        if name not in values:
            raise ModelError(f"{label} lack '{name}'")
    return [values[name] for name in names]


def as_sequence(values: Any, label: str, item: str) -> Any:
    """The values themselves; ModelError unless they are a list, one `item` a cost."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ModelError(f"{label} is {values!r}, expected a list with one {item} per cost")
    return values


def split_named_costs(
    costs: Mapping[str, Any], capacities: Any, cost_names: Sequence[str] | None
) -> tuple[list[str], Any, Any]:
    """Names, tables and capacities of costs that were given by name."""
    names = list(costs)
    if cost_names is not None and list(cost_names) != names:
        raise ModelError("costs are a mapping with names: leave cost_names out")
    if capacities is not None and not isinstance(capacities, Mapping):
        raise ModelError("costs are given by name, so capacities must be too: {name: number}")
    tables = [real_array(costs[name], f"costs '{name}'") for name in names]
    stages = [table.shape for table in tables if table.ndim == 3]
    if stages:  # a cost that does not differ by step, beside one that does
        tables = [
            np.broadcast_to(table, stages[0]) if table.shape == stages[0][1:] else table
            for table in tables
        ]
    for name, table in zip(names, tables):
        if table.shape != tables[0].shape:
            raise ModelError(
                f"costs '{name}' has shape {table.shape}, '{names[0]}' has {tables[0].shape}"
            )
    return names, (np.stack(tables) if names else None), capacities


def csr_from_parts(data: Any, indices: Any, indptr: Any, shape: Any) -> sp.csr_array:
    """The CSR matrix of a model file's parts; ModelError where they do not fit together."""
    given = real_array(shape, "transitions_shape").ravel()
    shape = tuple(int(n) for n in given if n.is_integer())
    whole = len(shape) == given.size and len(shape) in (3, 4)
    if not whole or min(shape) < 1 or shape[-1] != shape[-3]:
        raise ModelError(
            f"transitions_shape is {tuple(given.tolist())}, expected (S, A, S) or (H, S, A, S)"
        )
    data = real_array(data, "transitions_data")
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
    """Whether transitions have one table a step."""
    if sp.issparse(transitions):
        shape = getattr(transitions, "table_shape", None)
        return shape is not None and len(shape) == 4
    return np.ndim(transitions) == 4


def leading_table_shape(rewards: Any, available: Any, costs: Any) -> tuple[int, int] | None:
    """(S, A) of the first table that was given, None without any."""
    for table in (rewards, costs, available):
        if table is not None and np.ndim(table) >= 2:
            return np.shape(table)[-2], np.shape(table)[-1]
    return None


def transition_matrix(
    transitions: Any, table_shape: tuple[int, int] | None, axes: str | None
) -> tuple[sp.csr_array, int, int, int, IntArray | None]:
    """Flatten any accepted form to CSR with sorted rows ``h*S*A + s*A + a``.

    Returns (matrix, S, A, number of tables, order); `order` says where each stored entry stood in
    the CSR matrix that was passed, None if it stood there already or none was passed.
    """
    if sp.issparse(transitions):
        return _from_sparse(transitions, table_shape, axes)
    if isinstance(transitions, list | tuple) and any(sp.issparse(part) for part in transitions):
        return _from_sparse_list(transitions, axes)
    dense = real_array(transitions, "transitions")
    if dense.ndim not in (3, 4) or dense.size == 0:
        raise ModelError(
            f"transitions have shape {dense.shape}, expected (S, A, S) or (H, S, A, S)"
        )
    if axis_order(dense.shape, axes) == "ass":
        dense = np.swapaxes(dense, -3, -2)
    *_, num_states, num_actions, last = dense.shape
    if num_states != last:
        raise ModelError(
            f"transitions have shape {dense.shape}, expected (S, A, S) or (H, S, A, S)"
        )
    matrix = sp.csr_array(np.ascontiguousarray(dense).reshape(-1, last))
    return matrix, num_states, num_actions, (dense.shape[0] if dense.ndim == 4 else 1), None


def _from_sparse(
    transitions: Any, table_shape: tuple[int, int] | None, axes: str | None
) -> tuple[sp.csr_array, int, int, int, IntArray | None]:
    shape = getattr(transitions, "table_shape", None)
    if shape is None:
        rows, num_states = transitions.shape
        if table_shape is None or rows % (num_states * table_shape[1]):
            raise ModelError(
                f"a sparse matrix of shape {transitions.shape} needs rewards of shape (S, A) "
                "with S*A (or H*S*A) rows in the matrix"
            )
        tables = rows // (num_states * table_shape[1])
        shape = (tables, num_states, table_shape[1], num_states)
        if axes is not None and axis_order(shape, axes) == "ass":
            row = np.arange(rows).reshape(tables, table_shape[1], num_states)
            transitions = sp.csr_array(transitions)[np.swapaxes(row, 1, 2).ravel()]
    matrix = sp.csr_array(transitions).astype(np.float64)
    order = None
    if not matrix.has_canonical_format:
        places = sp.csr_array(
            (np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape, copy=True
        )
        places.sort_indices()
        order = places.data
        matrix = sp.csr_array(
            (matrix.data[order], places.indices, matrix.indptr), shape=matrix.shape
        )
        if not matrix.has_canonical_format:
            raise ModelError(
                f"row {first_duplicate(matrix)} of the transition matrix names a next state "
                "twice; add the probabilities up (scipy: matrix.sum_duplicates())"
            )
    return matrix, shape[-1], shape[-2], (shape[0] if len(shape) == 4 else 1), order


def _from_sparse_list(
    parts: Sequence[Any], axes: str | None
) -> tuple[sp.csr_array, int, int, int, None]:
    """A sparse (S, S) matrix per action ('ass'), or (A, S) per state ('sas')."""
    shapes = {tuple(np.shape(part)) for part in parts}
    if len(shapes) > 1 or not all(sp.issparse(part) for part in parts):
        raise ModelError(
            f"a list of transition matrices must be all sparse and of one shape, got {shapes}"
        )
    shape = (len(parts), *shapes.pop())
    order = axis_order(shape, axes)
    num_actions, num_states = shape[:2] if order == "ass" else (shape[1], shape[0])
    if num_states != shape[2]:
        raise ModelError(f"{shape[0]} sparse matrices of shape {shape[1:]} are no (A, S, S)")
    matrix = sp.csr_array(sp.vstack(parts, format="csr"))
    if order == "ass":
        rows = np.arange(num_actions * num_states).reshape(num_actions, num_states)
        matrix = matrix[rows.T.ravel()]
    return sp.csr_array(matrix, dtype=np.float64), num_states, num_actions, 1, None


def next_values(values: Any, name: str, axes: str | None) -> Any:
    """Realised values as an array (or a CSR matrix over rows s*A + a) in the model's axis order."""
    if isinstance(values, list | tuple) and any(sp.issparse(part) for part in values):
        return _from_sparse_list(values, axes)[0]
    array = real_array(values, name)
    if array.ndim >= 3 and axes is not None and axis_order(array.shape, axes) == "ass":
        array = np.swapaxes(array, -3, -2)
    return array


def axis_order(shape: tuple[int, ...], axes: str | None) -> str:
    """'sas' or 'ass', as said or as the shape shows; ModelError where both fit."""
    first, second, third = shape[-3:]
    if axes is not None:
        order = "".join(c for c in str(axes).lower() if c.isalpha()).removeprefix("h")
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
    """The first row in which a column stands twice."""
    same = (np.diff(matrix.indices) == 0) & (
        np.diff(np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))) == 0
    )
    return int(np.searchsorted(matrix.indptr, np.flatnonzero(same)[0], side="right") - 1)
