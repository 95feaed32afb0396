"""Which states can reach which: communicating classes, end components, chain structure.

Everything here is about the graph of the support, never about the sizes of the probabilities.

References: Puterman, Markov Decision Processes (1994), sections 8.3 and 9.5; de Alfaro, Formal
verification of probabilistic systems (1997), section 3.3 (maximal end components).
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from tightrope.model.mdp import FiniteMDP
from tightrope.types import BoolArray, IntArray

MAX_POLICIES = 20_000  # brute force over deterministic policies stops here
MAX_CANDIDATES = 64  # states tried as "met under every policy"


def strong_components(
    matrix: sp.csr_array, owner: IntArray, allowed: BoolArray, num_states: int
) -> IntArray:
    """(S,) strongly connected component of each state, over the rows that are allowed."""
    lengths = np.diff(matrix.indptr)
    kept = np.repeat(allowed, lengths)
    tails = np.repeat(owner, lengths)[kept]
    heads = matrix.indices[kept]
    graph = sp.coo_array(
        (np.ones(heads.size, dtype=np.int8), (tails, heads)), shape=(num_states, num_states)
    )
    return connected_components(graph.tocsr(), directed=True, connection="strong")[1]


def end_components(
    matrix: sp.csr_array, owner: IntArray, allowed: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Maximal end components of a ragged process.

    Parameters
    ----------
    matrix : (R, S) sparse
        One row of probabilities for each state-action pair.
    owner : (R,) int
        The state to which each row belongs.
    allowed : (R,) bool
        Rows that may be used.

    Returns
    -------
    labels : (S,) int
        0..K-1 for the states of an end component, -1 for states that lie in none (these are
        transient under every policy).
    staying : (R,) bool
        Allowed rows that keep the process inside its component.
    """
    num_states = matrix.shape[1]
    lengths = np.diff(matrix.indptr)
    entry_row = np.repeat(np.arange(matrix.shape[0]), lengths)
    staying = allowed & (lengths > 0)
    while True:
        labels = strong_components(matrix, owner, staying, num_states)
        leaves = labels[owner[entry_row]] != labels[matrix.indices]
        escapes = np.zeros(matrix.shape[0], dtype=bool)
        escapes[entry_row[leaves]] = True
        if not (staying & escapes).any():
            break
        staying = staying & ~escapes
    inside = np.zeros(num_states, dtype=bool)
    inside[owner[staying]] = True
    names = np.full(labels.max() + 1, -1)
    used = np.unique(labels[inside])
    names[used] = np.arange(used.size)
    return np.where(inside, names[labels], -1), staying


def pair_owner(model: FiniteMDP) -> IntArray:
    """(S*A,) state of each row of ``model.matrix()``."""
    return np.repeat(np.arange(model.num_states), model.num_actions)


def maximal_end_components(model: FiniteMDP) -> tuple[IntArray, BoolArray]:
    """Labels (S,) of the maximal end components, -1 outside, and the pairs (S, A) that stay.

    >>> chain = FiniteMDP(transitions=[[[0.0, 1.0]], [[0.0, 1.0]]], rewards=[[0.0], [1.0]],
    ...                   criterion="average")
    >>> maximal_end_components(chain)[0]
    array([-1,  0])
    """
    labels, staying = end_components(model.matrix(), pair_owner(model), model.available.ravel())
    return labels, staying.reshape(model.available.shape)


def communicating_classes(model: FiniteMDP) -> IntArray:
    """(S,) class of each state: two states share one if each can reach the other."""
    return strong_components(
        model.matrix(), pair_owner(model), model.available.ravel(), model.num_states
    )


def is_communicating(model: FiniteMDP) -> bool:
    """Whether every state can be reached from every other under some policy."""
    return bool(communicating_classes(model).max() == 0)


def is_weakly_communicating(model: FiniteMDP) -> bool:
    """Whether all states but some that are transient under every policy communicate.

    Then the optimal gain does not depend on the start. It holds exactly if there is one maximal
    end component.
    """
    return bool(maximal_end_components(model)[0].max() == 0)


def is_unichain(model: FiniteMDP) -> bool | None:
    """Whether every stationary policy has a single recurrent class; None if left undecided.

    Deciding this is NP-hard in general (Tsitsiklis 2007). Settled here: models with two disjoint
    end components (no), models with a state that every policy meets from everywhere (yes), and
    models with at most 20,000 deterministic policies (by trying all).
    """
    labels, staying = maximal_end_components(model)
    if labels.max() > 0:
        return False
    matrix, owner = model.matrix(), pair_owner(model)
    core = np.flatnonzero(labels == 0)
    visits = np.bincount(matrix.indices, minlength=model.num_states)
    for state in core[np.argsort(-visits[core], kind="stable")][:MAX_CANDIDATES]:
        touches = np.zeros(matrix.shape[0], dtype=bool)
        entry_row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        touches[entry_row[matrix.indices == state]] = True
        rest = staying.ravel() & ~touches & (owner != state)
        if end_components(matrix, owner, rest)[0].max() < 0:
            return True
    if count_policies(model) > MAX_POLICIES:
        return None
    states = np.arange(model.num_states)
    for actions in deterministic_policies(model):
        chain = matrix[states * model.num_actions + actions]
        if chain_classes(chain).max() > 0:
            return False
    return True


def chain_classes(chain: sp.csr_array) -> IntArray:
    """(S,) recurrent class 0..K-1 of each state of a Markov chain (S, S), -1 where transient.

    >>> chain_classes(sp.csr_array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    array([-1,  0,  1])
    """
    chain = sp.csr_array(chain)
    states = np.arange(chain.shape[0])
    labels = strong_components(chain, states, np.ones(chain.shape[0], dtype=bool), chain.shape[0])
    tails = np.repeat(states, np.diff(chain.indptr))
    leaving = labels[tails] != labels[chain.indices]
    closed = np.ones(labels.max() + 1, dtype=bool)
    closed[labels[tails[leaving]]] = False
    # classes are numbered by their first state, so that the numbers do not depend on the search
    first = np.full(closed.size, chain.shape[0])
    np.minimum.at(first, labels, states)
    order = np.flatnonzero(closed)
    order = order[np.argsort(first[order])]
    names = np.full(closed.size, -1)
    names[order] = np.arange(order.size)
    return names[labels]


def count_policies(model: FiniteMDP) -> int:
    """Number of deterministic stationary policies, exactly."""
    count = 1
    for actions in model.available.sum(axis=1):
        count *= int(actions)
    return count


def deterministic_policies(model: FiniteMDP):
    """Every deterministic stationary policy as an (S,) array of actions, in order."""
    for actions in itertools.product(*(np.flatnonzero(row) for row in model.available)):
        yield np.array(actions)


def leading_to(model: FiniteMDP, targets: BoolArray, allowed: BoolArray) -> IntArray:
    """(S,) an allowed action of each state with a chance of coming nearer to a target.

    Where the targets cannot be reached, and at the targets, the first available action.
    """
    matrix = model.matrix()
    choice = model.available.argmax(axis=1)
    reached = targets.astype(np.float64)
    while True:
        leads = ((matrix @ reached) > 0).reshape(allowed.shape) & allowed
        new = leads.any(axis=1) & (reached == 0)
        if not new.any():
            return choice
        choice[new] = leads[new].argmax(axis=1)
        reached[new] = 1.0
