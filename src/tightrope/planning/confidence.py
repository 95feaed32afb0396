"""Confidence sets of loop-free models: L1 balls around estimated transition rows.

The set holds every transition function with ``sum_y |P(y|x,a) - p_bar(y|x,a)| <= radius(x,a)`` that
leads from each layer into the next one [BOBW, Eq. (10)].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError
from tightrope.kernels.projection import Layout
from tightrope.types import BoolArray, FloatArray, IntArray

ROW_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Confidence:
    """An L1 confidence set of a loop-free model; make it with `confidence_set`.

    Attributes
    ----------
    layers : (S,) int
        Layer of each state. States are numbered layer by layer; layer 0 is one state.
    p_bar : (S*A, S) CSR
        Estimated rows ``s*A + a``; rows with a vacuous radius (>= 2), of actions that do not exist
        and of the last layer are left out.
    radius : (S, A)
        L1 radii >= 0; from 2 on every distribution over the next layer is allowed.
    available : (S, A) bool
    layout : Layout
        The same as arrays for the kernels, over the available pairs only.
    pairs : (R,) int
        Number ``s*A + a`` of each row of the layout.
    """

    layers: IntArray
    p_bar: sp.csr_array
    radius: FloatArray
    available: BoolArray
    layout: Layout
    pairs: IntArray

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return self.available.shape[0], self.available.shape[1]


def confidence_set(
    layers: Sequence[int] | IntArray,
    p_bar: Any,
    radius: FloatArray | float,
    *,
    available: BoolArray | None = None,
) -> Confidence:
    """Check the parts of a confidence set and lay them out for the kernels.

    Parameters
    ----------
    layers : (S,) int
        Layer of each state, rising from 0 in steps of at most 1; one state in layer 0.
    p_bar : (S, A, S) array or (S*A, S) sparse
        Estimated transition rows. They must be distributions over the next layer, except where the
        radius is vacuous (>= 2): there they are not read, and may be zero.
    radius : (S, A) or a number
    available : (S, A) bool
        Which actions exist; the default is all. Every state but those of the last layer needs one.

    Raises
    ------
    ModelError
        With the state and action where a row, a radius or a layer is not as described.

    Examples
    --------
    >>> p_bar = np.zeros((4, 2, 4))
    >>> p_bar[0, :, 1:3] = [[0.9, 0.1], [0.2, 0.8]]
    >>> p_bar[1:3, :, 3] = 1.0
    >>> confidence_set([0, 1, 1, 2], p_bar, 0.5).shape
    (4, 2)
    """
    layers = np.asarray(layers)
    if layers.ndim != 1 or layers.size < 2 or layers.dtype.kind not in "iu":
        raise ModelError(f"layers must be (S,) whole numbers with S >= 2, got {layers!r}")
    steps = np.diff(layers)
    if layers[0] != 0 or (steps < 0).any() or (steps > 1).any():
        place = int(np.flatnonzero((steps < 0) | (steps > 1))[0]) + 1 if layers[0] == 0 else 0
        raise ModelError(
            "states must be numbered layer by layer, from layer 0 and without a gap; state "
            f"{place} is in layer {layers[place]}"
        )
    if layers[-1] < 1 or (layers == 0).sum() != 1:
        raise ModelError(
            f"expected one state in layer 0 and at least two layers, got {(layers == 0).sum()} "
            f"states in layer 0 of {layers[-1] + 1}; fold an initial law into one start state"
        )
    states = layers.size
    rows = _as_rows(p_bar, states)
    actions = rows.shape[0] // states
    radius = np.array(np.broadcast_to(np.asarray(radius, dtype=np.float64), (states, actions)))
    exists = (
        np.ones((states, actions), dtype=np.bool_)
        if available is None
        else np.array(available, dtype=np.bool_)
    )
    if exists.shape != (states, actions):
        raise ModelError(f"available has shape {exists.shape}, expected {(states, actions)}")
    if not (radius >= 0.0).all():
        x, a = (int(i) for i in np.argwhere(~(radius >= 0.0))[0])
        raise ModelError(f"radius of (state {x}, action {a}) is {radius[x, a]}, expected >= 0")
    inner = layers < layers[-1]
    exists[~inner] = False
    if not exists[inner].any(axis=1).all():
        lost = int(np.flatnonzero(inner & ~exists.any(axis=1))[0])
        raise ModelError(f"state {lost} has no available action")
    rows = _kept_rows(rows, layers, (radius < 2.0) & exists)
    pairs = np.flatnonzero(exists)
    layout = _layout(layers, rows[pairs], radius.ravel()[pairs], exists)
    for array in (radius, exists, pairs):
        array.setflags(write=False)
    return Confidence(
        layers=layers.astype(np.int64),
        p_bar=rows,
        radius=radius,
        available=exists,
        layout=layout,
        pairs=pairs,
    )


def confidence_from_counts(
    layers: Sequence[int] | IntArray,
    counts: Any,
    *,
    episodes: int,
    delta: float,
    scale: float = 1.0,
    available: BoolArray | None = None,
) -> Confidence:
    """The confidence set of [BOBW, Eq. (10)] from transition counts frozen at an epoch's start.

    Parameters
    ----------
    layers : (S,) int
    counts : (S, A, S) array or (S*A, S) sparse
        How often (x, a) was followed by y. N(x, a) is the sum over y.
    episodes : int
        T, the number of episodes of the whole run.
    delta : float in (0, 1)
    scale : float > 0
        Multiplies the radius; 1 as proved.

    Notes
    -----
    ``radius = sqrt(2 |X_{k+1}| log(T |X| |A| / delta) / max(1, N))``; a pair never visited may go
    anywhere, so its radius is at least 2.
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta!r}")
    if not episodes >= 1:
        raise ConfigError(f"episodes must be >= 1, got {episodes!r}")
    if not scale > 0.0:
        raise ConfigError(f"scale must be > 0, got {scale!r}")
    layers = np.asarray(layers)
    states = layers.size
    rows = _as_rows(counts, states)
    actions = rows.shape[0] // states
    if not ((rows.data >= 0.0) & np.isfinite(rows.data)).all():
        raise ModelError("counts must be finite numbers >= 0")
    visits = np.asarray(rows.sum(axis=1), dtype=np.float64)
    width = np.append(np.bincount(layers), 1)[layers + 1].repeat(actions)
    log_term = np.log(episodes * states * actions / delta)
    radius = scale * np.sqrt(2.0 * width * log_term / np.maximum(1.0, visits))
    radius[visits == 0] = np.maximum(2.0, radius[visits == 0])
    means = rows.copy()
    means.data = means.data / np.repeat(np.maximum(1.0, visits), np.diff(rows.indptr))
    return confidence_set(layers, means, radius.reshape(states, actions), available=available)


def transition_rows(
    confidence: Confidence, fractions: FloatArray, landing: FloatArray
) -> sp.csr_array:
    """Transition rows (S*A, S): the fractions, plus what a row may send anywhere times `landing`.

    `landing` (S,) is a distribution over each layer but the first.
    """
    layout, (states, actions) = confidence.layout, confidence.shape
    rows = sp.csr_array(
        (fractions, layout.entry_state, layout.entry_start), shape=(confidence.pairs.size, states)
    )
    free = np.maximum(0.0, 1.0 - np.asarray(rows.sum(axis=1)))
    layer = confidence.layers[confidence.pairs // actions] + 1
    places = sp.csr_array(
        (landing, (confidence.layers, np.arange(states))), shape=(layer.max() + 1, states)
    )
    rows = rows + sp.diags_array(free) @ places[layer]
    spread = sp.csr_array(
        (np.ones(confidence.pairs.size), (confidence.pairs, np.arange(confidence.pairs.size))),
        shape=(states * actions, confidence.pairs.size),
    )
    return sp.csr_array(spread @ rows)


def _as_rows(table: Any, states: int) -> sp.csr_array:
    """(S, A, S) array or (S*A, S) sparse matrix as CSR with sorted columns."""
    if not sp.issparse(table):
        table = np.asarray(table, dtype=np.float64)
        if table.ndim != 3 or table.shape[0] != states or table.shape[2] != states:
            raise ModelError(
                f"expected a table of shape ({states}, A, {states}), got {table.shape}"
            )
        table = table.reshape(-1, states)
    rows = sp.csr_array(table, dtype=np.float64)
    if rows.shape[1] != states or rows.shape[0] % states or not rows.shape[0]:
        raise ModelError(f"expected a matrix of shape ({states}*A, {states}), got {rows.shape}")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _kept_rows(rows: sp.csr_array, layers: IntArray, kept: BoolArray) -> sp.csr_array:
    """The rows that are read, checked and scaled to sum to 1 exactly; the others empty."""
    actions = kept.shape[1]
    size = np.diff(rows.indptr)
    entry_row = np.repeat(np.arange(rows.shape[0]), size)
    use = kept.ravel()[entry_row] & (rows.data != 0.0)
    entry_row, column, data = entry_row[use], rows.indices[use], rows.data[use]
    wrong = np.flatnonzero(~(data > 0.0) | (layers[column] != layers[entry_row // actions] + 1))
    if wrong.size:
        i = wrong[0]
        x, a = divmod(int(entry_row[i]), actions)
        raise ModelError(
            f"p_bar of (state {x}, action {a}) to state {column[i]} is {data[i]:.6g}; expected "
            f"probabilities into layer {layers[x] + 1} only (state {column[i]} is in layer "
            f"{layers[column[i]]})"
        )
    total = np.bincount(entry_row, weights=data, minlength=rows.shape[0])
    off = np.flatnonzero(kept.ravel() & ~(np.abs(total - 1.0) <= ROW_SUM_TOLERANCE))
    if off.size:
        x, a = divmod(int(off[0]), actions)
        raise ModelError(
            f"p_bar of (state {x}, action {a}) sums to {total[off[0]]:.10g}, expected 1 "
            "(only a radius >= 2 may leave it out)"
        )
    start = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(entry_row, minlength=rows.shape[0]), out=start[1:])
    return sp.csr_array((data / total[entry_row], column, start), shape=rows.shape)


def _layout(layers: IntArray, rows: sp.csr_array, radius: FloatArray, exists: BoolArray) -> Layout:
    states = layers.size
    layer_start = np.zeros(int(layers[-1]) + 2, dtype=np.int64)
    np.cumsum(np.bincount(layers), out=layer_start[1:])
    state_row = np.zeros(states + 1, dtype=np.int64)
    np.cumsum(exists.sum(axis=1), out=state_row[1:])
    return Layout(
        layer_start,
        state_row,
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32),
        rows.data,
        0.5 * radius,
    )
