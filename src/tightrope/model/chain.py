"""Markov chains of policies: stationary laws, gain, bias, span, mixing, diameter.

Stationary laws and hitting probabilities are computed by elimination without subtraction
(Grassmann, Taksar, Heyman, Operations Research 33, 1985): every number that is added is >= 0, so
each entry keeps its relative accuracy however slowly the chain mixes. Row sums are never used;
a state's chance of leaving is the sum of what leaves it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import gmres, splu

from tightrope.errors import ConfigError, ModelError
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, StochasticPolicy, check_policy
from tightrope.model.structure import (
    chain_classes,
    communicating_classes,
    count_policies,
    deterministic_policies,
    is_communicating,
    is_unichain,
    is_weakly_communicating,
    leading_to,
    maximal_end_components,
)
from tightrope.types import FloatArray, IntArray

__all__ = [
    "absorption",
    "chain_classes",
    "communicating_classes",
    "contraction",
    "diameter",
    "ends_error",
    "gain",
    "gain_and_bias",
    "gth",
    "is_communicating",
    "is_unichain",
    "is_weakly_communicating",
    "maximal_end_components",
    "mixing_time",
    "policy_chain",
    "policy_table",
    "sigma",
    "solve_absorbing",
    "solve_part",
    "solve_sparse",
    "span",
    "stationary",
    "stationary_laws",
]

DENSE_LIMIT = 2000  # states of one class up to which elimination is dense
BATCH_ENTRIES = 4_000_000
POWER_STEPS = 300  # of power iteration for large chains, before a system is solved instead


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


Table = Any  # a chain, sparse or dense


def _table(chain: Table) -> Table:
    """Small chains dense: slicing a sparse matrix costs more than eliminating a small one."""
    small = 4 * chain.shape[0] <= DENSE_LIMIT and not isinstance(chain, np.ndarray)
    return chain.toarray() if small else chain


def _block(table: Table, rows: IntArray, columns: IntArray) -> Table:
    if isinstance(table, np.ndarray):
        return table[np.ix_(rows, columns)]
    return table[rows][:, columns]


def _dense(table: Table) -> FloatArray:
    return table if isinstance(table, np.ndarray) else table.toarray()


def solve_part(
    chain: Table, part: IntArray, leave: FloatArray, right: FloatArray, scale: float = 1.0
) -> FloatArray:
    """`solve_absorbing` on some states of a chain; sparse methods when they are many."""
    inner = _block(_table(chain), part, part) * scale
    if part.size <= DENSE_LIMIT:
        return solve_absorbing(_dense(inner), leave, right)
    return solve_sparse(sp.csr_array(sp.eye_array(part.size) - inner), right)


def solve_sparse(system: sp.csr_array, right: FloatArray) -> FloatArray:
    """Large systems: GMRES, which is quick where mixing is; if it stalls, sparse elimination.

    (Elimination fills up on random graphs, where GMRES needs some dozens of products; on the
    slowly mixing chains where GMRES stalls, neighbours are few and elimination is cheap.)
    """
    out = np.zeros_like(right)
    for c in range(right.shape[1]):
        out[:, c], _ = gmres(system, right[:, c], rtol=1e-13, atol=0.0, restart=60, maxiter=5)
    off = np.abs(right - system @ out).max(axis=0)
    if (off <= 1e-12 * np.maximum(np.abs(right).max(axis=0), 1e-300)).all():
        return out
    factor = splu(sp.csc_array(system))
    out = factor.solve(right)
    return out + factor.solve(right - system @ out)


def _law_of(block: Table) -> FloatArray:
    """Stationary law of an irreducible block; beyond `DENSE_LIMIT` by sparse methods."""
    size = block.shape[0]
    if size <= DENSE_LIMIT:
        return gth(_dense(block))
    backward = sp.csr_array(block.T)
    law = np.full(size, 1.0 / size)
    for _ in range(POWER_STEPS):  # enough where mixing is quick; lazily, for periodic chains
        new = 0.1 * law + 0.9 * (backward @ law)
        change = float(np.abs(new - law).sum())
        law = new
        if change <= 1e-14:
            return law / law.sum()
    inner = sp.csr_array((sp.eye_array(size - 1) - block[1:, 1:]).T)
    law = np.concatenate([[1.0], solve_sparse(inner, block[[0]][:, 1:].toarray().T)[:, 0]])
    return law / law.sum()


def policy_table(model: FiniteMDP, policy: DeterministicPolicy | StochasticPolicy) -> FloatArray:
    """A stationary policy as (S, A) probabilities; ModelError if it does not fit the model."""
    check_policy(policy, model.available, None)
    if isinstance(policy, StochasticPolicy):
        return policy.probabilities
    return np.eye(model.num_actions)[policy.actions]


def policy_chain(
    model: FiniteMDP, policy: DeterministicPolicy | StochasticPolicy
) -> tuple[sp.csr_array, FloatArray]:
    """The chain (S, S) of a stationary policy, and what a step pays: (S, 1+m), reward first."""
    table = policy_table(model, policy)
    states, actions = model.num_states, model.num_actions
    pays = np.concatenate([model.rewards[None], model.costs])
    per_step = np.einsum("sa,ksa->sk", table, pays)
    if isinstance(policy, DeterministicPolicy):
        return model.matrix()[np.arange(states) * actions + policy.actions], per_step
    pick = sp.csr_array(
        (table.flatten(), np.arange(states * actions), np.arange(0, states * actions + 1, actions)),
        shape=(states, states * actions),
    )
    pick.eliminate_zeros()
    return sp.csr_array(pick @ model.matrix()), per_step


def stationary_laws(chain: sp.csr_array) -> tuple[FloatArray, IntArray]:
    """One stationary law for each recurrent class: (K, S), and the (S,) classes (-1 transient)."""
    chain = sp.csr_array(chain)
    labels = chain_classes(chain)
    return _laws(_table(chain), labels), labels


def _laws(table: Table, labels: IntArray) -> FloatArray:
    laws = np.zeros((labels.max() + 1, labels.size))
    for k in range(laws.shape[0]):
        part = np.flatnonzero(labels == k)
        laws[k, part] = _law_of(_block(table, part, part))
    return laws


def stationary(chain: sp.csr_array) -> FloatArray:
    """The stationary law (S,) of a chain with one recurrent class.

    Raises
    ------
    ModelError
        If the chain has several recurrent classes; it names a state of two of them.

    Examples
    --------
    >>> stationary(sp.csr_array([[0.9, 0.1], [0.3, 0.7]]))
    array([0.75, 0.25])
    """
    laws, labels = stationary_laws(chain)
    if laws.shape[0] > 1:
        first, second = (int(np.flatnonzero(labels == k)[0]) for k in (0, 1))
        raise ModelError(
            f"the chain has {laws.shape[0]} recurrent classes (states {first} and {second} never "
            "meet), so it has no unique stationary law; see stationary_laws and absorption"
        )
    return laws[0]


def absorption(chain: sp.csr_array) -> tuple[FloatArray, IntArray]:
    """Chance (S, K) of ending in each recurrent class, and the (S,) classes."""
    chain = sp.csr_array(chain)
    labels = chain_classes(chain)
    return _ends(_table(chain), labels), labels


def _ends(table: Table, labels: IntArray) -> FloatArray:
    if labels.max() == 0:
        return np.ones((labels.size, 1))
    ends = np.zeros((labels.size, labels.max() + 1))
    inside, outside = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    ends[inside, labels[inside]] = 1.0
    if outside.size:
        into = table[outside] @ ends
        ends[outside] = solve_part(table, outside, into.sum(axis=1), into)
    return ends


def ends_error(transient: int) -> float:
    """Bound of the relative error of chances of ending in a class, from so many states."""
    return 8.0 * (transient + 8) * float(np.finfo(np.float64).eps)


def gain(chain: sp.csr_array, rewards: FloatArray) -> FloatArray:
    """Long-run mean reward per step from every state; `rewards` and the result are (S, ...)."""
    chain = sp.csr_array(chain)
    table, labels = _table(chain), chain_classes(chain)
    return _ends(table, labels) @ (_laws(table, labels) @ np.asarray(rewards, dtype=np.float64))


def gain_and_bias(chain: sp.csr_array, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gain g and bias h of every state: ``g + h = r + P h``, ``g = P g``, and P* h = 0.

    Parameters
    ----------
    chain : (S, S) sparse or dense
    rewards : (S,) or (S, c)

    Returns
    -------
    gain, bias : as `rewards`

    Examples
    --------
    A periodic chain has a gain and a bias like any other.

    >>> gain_and_bias(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]), np.array([1.0, 0.0]))
    (array([0.5, 0.5]), array([ 0.25, -0.25]))
    """
    chain = sp.csr_array(chain)
    shape = np.shape(rewards)
    pays = np.asarray(rewards, dtype=np.float64).reshape(shape[0], -1)
    table, labels = _table(chain), chain_classes(chain)
    laws = _laws(table, labels)
    gains = _ends(table, labels) @ (laws @ pays)
    bias = np.zeros_like(pays)
    for k, law in enumerate(laws):
        part = np.flatnonzero(labels == k)
        centre = part[int(law[part].argmax())]
        rest = part[part != centre]
        if rest.size:
            leave = _dense(_block(table, rest, np.array([centre])))[:, 0]
            bias[rest] = solve_part(table, rest, leave, pays[rest] - gains[rest])
        bias[part] -= law @ bias
    inside, outside = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if outside.size:
        into = _block(table, outside, inside)
        right = pays[outside] - gains[outside] + into @ bias[inside]
        bias[outside] = solve_part(table, outside, into.sum(axis=1), right)
    return gains.reshape(shape), bias.reshape(shape)


def span(values: FloatArray) -> float:
    """Largest minus smallest entry."""
    return float(np.max(values) - np.min(values))


# ------------------------------------------------------------------------------------ mixing


def contraction(model: FiniteMDP) -> float:
    """Largest total-variation distance between rows of two different states, over all actions.

    ``max over x != y, a, a' of 1/2 |p(.|x,a) - p(.|y,a')|_1``: the factor by which one step brings
    two laws together under every policy (Assumption 3 of Wei et al. 2020). 0 with one state.
    """
    table = model.matrix().toarray().reshape(model.num_states, model.num_actions, -1)
    largest = 0.0
    for x in range(model.num_states):
        for row in table[x, model.available[x]]:
            later = table[x + 1 :][model.available[x + 1 :]]
            block = max(1, BATCH_ENTRIES // model.num_states)
            for first in range(0, later.shape[0], block):
                apart = np.abs(later[first : first + block] - row).sum(axis=1)
                largest = max(largest, 0.5 * float(apart.max()))
            if largest >= 1.0:
                return 1.0
    return largest


def mixing_time(model: FiniteMDP) -> float:
    """t_mix of Assumption 3 of Wei et al. 2020, exact: ``max(1, -1 / ln contraction)``.

    Infinite where the one-step contraction is 1 (as in RiverSwim): the assumption fails there.
    """
    factor = contraction(model)
    if factor >= 1.0:
        return math.inf
    return 1.0 if factor <= 0.0 else max(1.0, -1.0 / math.log(factor))


def sigma(model: FiniteMDP, features: FloatArray, max_policies: int = 200_000) -> float:
    """sigma of Assumption 5 of Wei et al. 2020, exact by enumeration.

    The least eigenvalue of ``sum_x nu(x) Phi(x, pi(x)) Phi(x, pi(x))'`` is concave in the
    occupancy, so its least value over all policies is attained at a deterministic one.

    Parameters
    ----------
    features : (S, A, d)

    Raises
    ------
    ConfigError
        With more than `max_policies` deterministic policies.
    ModelError
        If some policy has two recurrent classes (the assumption has no meaning there).
    """
    count = count_policies(model)
    if count > max_policies:
        raise ConfigError(
            f"sigma needs all {count} deterministic policies, the limit is {max_policies}; "
            "declare sigma instead"
        )
    states = np.arange(model.num_states)
    table = model.matrix().toarray().reshape(model.num_states, model.num_actions, -1)
    outer = np.einsum("sai,saj->saij", features, features)
    positive = bool((table[model.available] > 0).all())
    smallest = math.inf
    batch: list[IntArray] = []
    size = max(1, BATCH_ENTRIES // (model.num_states * (model.num_states + features.shape[2] ** 2)))
    for i, actions in enumerate(deterministic_policies(model)):
        batch.append(actions)
        if len(batch) < size and i + 1 < count:
            continue
        chosen = np.array(batch)
        batch = []
        chains = table[states, chosen]
        if positive:
            laws = gth(chains)
        else:
            laws = np.array([stationary(sp.csr_array(chain)) for chain in chains])
        grams = np.einsum("ps,psij->pij", laws, outer[states, chosen])
        smallest = min(smallest, float(np.linalg.eigvalsh(grams)[:, 0].min()))
    return max(0.0, smallest)


def diameter(model: FiniteMDP) -> float:
    """Largest over pairs of states of the least expected number of steps from one to the other.

    Exact by policy iteration, one target after the other; infinite unless the model communicates.
    Jaksch, Ortner, Auer, JMLR 11 (2010), Definition 1.
    """
    if not is_communicating(model):
        return math.inf
    return max(float(_hitting_times(model, target).max()) for target in range(model.num_states))


def _hitting_times(model: FiniteMDP, target: int) -> FloatArray:
    """(S,) least expected number of steps to `target`, in a communicating model."""
    states, actions = model.num_states, model.num_actions
    matrix = model.matrix()
    rest = np.flatnonzero(np.arange(states) != target)
    times = np.zeros(states)
    if not rest.size:
        return times
    choice = leading_to(model, np.arange(states) == target, model.available)
    while True:
        chain = matrix[np.arange(states) * actions + choice]
        leave = chain[rest][:, [target]].toarray().ravel()
        times[rest] = solve_part(chain, rest, leave, np.ones((rest.size, 1)))[:, 0]
        steps = np.where(model.available.ravel(), 1.0 + matrix @ times, np.inf)
        steps = steps.reshape(states, actions)
        better = steps.min(axis=1) < times * (1.0 - 1e-12)
        better[target] = False
        if not better.any():
            return times
        choice = np.where(better, steps.argmin(axis=1), choice)
