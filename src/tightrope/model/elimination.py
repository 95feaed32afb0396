"""Elimination without subtraction: stationary laws and absorbing chains, however slow.

Grassmann, Taksar, Heyman, Operations Research 33 (1985): every number that is added is >= 0, so
each entry keeps its relative accuracy however slowly the chain mixes. Diagonals are never read; a
state's chance of leaving is the sum of what leaves it.

Small chains are eliminated state by state in a dense table. Large sparse ones go block by block,
along an order in which few states are ever half done (reverse Cuthill-McKee): what a block leaves
behind is added to the dense table of its neighbours alone, the front, by matrix products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from tightrope.errors import ModelError
from tightrope.types import FloatArray, IntArray

BLOCK = 32  # states eliminated at once; more where the front is wide
WIDE = 1000
WIDE_BLOCK = 256
FRONT_LIMIT = 6000  # states of a front; its table takes 8 bytes for each pair


class TooSlowError(ModelError):
    """A chain that mixes too slowly for iteration and is too large and entangled to eliminate."""


def gth(chain: FloatArray) -> FloatArray:
    """Stationary law of an irreducible chain, accurate in every entry.

    Parameters
    ----------
    chain : (..., n, n)
        Transition probabilities; the diagonal is not read. Leading axes are a batch.

    Returns
    -------
    (..., n) laws

    Raises
    ------
    ModelError
        If the chain is reducible in the order of its states.

    Examples
    --------
    >>> gth(np.array([[0.0, 1e-12], [3e-12, 0.0]]))
    array([0.75, 0.25])
    """
    work = np.array(chain, dtype=np.float64)
    size = work.shape[-1]
    for k in range(size - 1, 0, -1):
        leave = work[..., k, :k].sum(axis=-1)
        if not (leave > 0).all():
            raise ModelError(f"the chain is reducible: state {k} leads to no earlier state")
        work[..., :k, k] /= leave[..., None]
        if work.ndim == 2:
            _add_outer(work[:k, :k], work[:k, k], work[k, :k])
        else:
            work[..., :k, :k] += work[..., :k, k, None] * work[..., None, k, :k]
    law = np.zeros(work.shape[:-1])
    law[..., 0] = 1.0
    for k in range(1, size):
        law[..., k] = (law[..., :k] * work[..., :k, k]).sum(axis=-1)
        # dividing by the largest keeps a steep law from overflowing
        law[..., : k + 1] /= np.maximum(law[..., k], 1.0)[..., None]
    return law / law.sum(axis=-1, keepdims=True)


def _add_outer(table: FloatArray, left: FloatArray, right: FloatArray) -> None:
    """``table += outer(left, right)`` that skips zeros where there are many (banded chains)."""
    rows, columns = np.flatnonzero(left), np.flatnonzero(right)
    if 4 * rows.size * columns.size < table.size:
        table[np.ix_(rows, columns)] += left[rows, None] * right[columns]
    else:
        table += left[:, None] * right


def solve_absorbing(inner: FloatArray, leave: FloatArray, right: FloatArray) -> FloatArray:
    """Solve ``x = right + inner x`` where ``inner`` rows and `leave` sum to one.

    Parameters
    ----------
    inner : (n, n) >= 0, the diagonal is not read
    leave : (n,) >= 0
        Chance of leaving for good in a step; it stands for ``1 - inner.sum(axis=1)``.
    right : (n, c)

    Returns
    -------
    (n, c), accurate in every entry where `right` is >= 0
    """
    inner, leave = np.array(inner), np.array(leave)
    out = np.array(right, dtype=np.float64)
    size = leave.size
    for k in range(size - 1, -1, -1):
        total = leave[k] + inner[k, :k].sum()
        if not total > 0:
            raise ModelError(f"state {k} of the transient part never leaves it")
        inner[k, :k] /= total
        leave[k] /= total
        out[k] /= total
        into = inner[:k, k]
        _add_outer(inner[:k, :k], into, inner[k, :k])
        leave[:k] += into * leave[k]
        out[:k] += into[:, None] * out[k]
    for k in range(1, size):
        out[k] += inner[k, :k] @ out[:k]
    return out


class Block(NamedTuple):
    """States that were eliminated together."""

    own: IntArray  #: (b,)
    front: IntArray  #: (f,) states still there that they lead to or are led to from
    inside: FloatArray  #: (b, b) expected visits among them before they are left
    out: FloatArray  #: (b, f) chances of a step to the front
    into: FloatArray  #: (f, b) expected visits after a step from the front


class Elimination(NamedTuple):
    """An eliminated chain; `core` (k,) are the states that are left, `table` (k, k) their chain."""

    blocks: list[Block]
    core: IntArray
    table: FloatArray


def eliminate(chain: sp.csr_array, leave: FloatArray | None = None) -> Elimination | None:
    """Eliminate a sparse chain; None if a front is wider than `FRONT_LIMIT`.

    Parameters
    ----------
    chain : (n, n) >= 0
    leave : (n,) >= 0, optional
        Chance of leaving for good in a step; without it the chain must be irreducible, and a block
        of states is left as the core.
    """
    try:
        found = _eliminate(chain, leave, BLOCK, WIDE_BLOCK)
        if found is None or all(np.isfinite(block.inside).all() for block in found.blocks):
            return found
    except ModelError:
        pass  # the same: chances of leaving a block that are too small for a float
    return _eliminate(chain, leave, 1, 1)  # in a very steep chain: state by state


def _eliminate(
    chain: sp.csr_array, leave: FloatArray | None, narrow: int, wide: int
) -> Elimination | None:
    size = chain.shape[0]
    pattern = sp.csr_array((np.ones(chain.nnz), chain.indices, chain.indptr), shape=chain.shape)
    order = reverse_cuthill_mckee(sp.csr_array(pattern + pattern.T), symmetric_mode=True)
    order = order.astype(np.int64)
    columns = sp.csc_array(chain)
    leaving = np.zeros(size) if leave is None else np.array(leave, dtype=np.float64)
    end = size if leave is not None else size - min(BLOCK, size)
    blocks: list[Block] = []
    done = np.zeros(size, dtype=bool)
    where = np.full(size, -1)
    front, extra = np.zeros(0, dtype=np.int64), np.zeros((0, 0))
    first = 0
    while first < end:
        own = order[first : min(end, first + (narrow if front.size < WIDE else wide))]
        first += own.size
        count = own.size
        done[own] = True
        rows, cols = sp.coo_array(chain[own]), sp.coo_array(columns[:, own])
        near = np.zeros(size, dtype=bool)
        near[front] = near[rows.col] = near[cols.row] = True
        new = np.flatnonzero(near & ~done)
        if new.size > FRONT_LIMIT:
            return None
        where[own], where[new] = np.arange(count), count + np.arange(new.size)
        step = np.zeros((count, count + new.size))  # what leads from these states to both
        kept = where[rows.col] >= 0
        step[rows.row[kept], where[rows.col[kept]]] = rows.data[kept]
        back = np.zeros((new.size, count))
        kept = where[cols.row] >= count
        back[where[cols.row[kept]] - count, cols.col[kept]] = cols.data[kept]
        place = where[front]
        mine, rest = np.flatnonzero(place < count), np.flatnonzero(place >= count)
        step[np.ix_(place[mine], place)] += extra[mine]
        back[np.ix_(place[rest] - count, place[mine])] += extra[np.ix_(rest, mine)]
        out = step[:, count:]
        total = leaving[own] + out.sum(axis=1)
        inside = solve_absorbing(step[:, :count], total, np.eye(count))
        into = back @ inside
        fresh = into @ out
        fresh[np.ix_(place[rest] - count, place[rest] - count)] += extra[np.ix_(rest, rest)]
        leaving[new] += into @ leaving[own]
        blocks.append(Block(own, new, inside, out, into))
        where[own] = where[new] = -1
        front, extra = new, fresh
    core = order[end:]
    table = chain[core][:, core].toarray()
    where[core] = np.arange(core.size)
    table[np.ix_(where[front], where[front])] += extra
    return Elimination(blocks, core, table)


def eliminated_law(found: Elimination, size: int) -> FloatArray:
    """(n,) stationary law of an irreducible chain that was eliminated down to its core."""
    law = np.zeros(size)
    law[found.core] = gth(found.table)
    for block in reversed(found.blocks):
        law[block.own] = law[block.front] @ block.into
        law /= max(1.0, float(law[block.own].max()))  # keeps a steep law from overflowing
    return law / law.sum()


def eliminated_solve(found: Elimination, right: FloatArray) -> FloatArray:
    """(n, c) solution of ``x = right + chain x``, for a chain eliminated with `leave`."""
    out = np.array(right, dtype=np.float64)
    for block in found.blocks:
        out[block.front] += block.into @ out[block.own]
    for block in reversed(found.blocks):
        out[block.own] = block.inside @ (out[block.own] + block.out @ out[block.front])
    return out
