"""Markov chains of policies: stationary laws, gain, bias, span, mixing, diameter.

Stationary laws and hitting probabilities are computed by elimination without subtraction (see
`tightrope.model.elimination`), so that each entry keeps its relative accuracy however slowly the
chain mixes. Large chains are first tried by iteration, whose answer is taken only where a bound of
its error is small: a small last change or residual proves nothing where mixing is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import gmres, splu

from tightrope.errors import ConfigError, ModelError
from tightrope.model.elimination import (
    FRONT_LIMIT,
    Elimination,
    TooSlowError,
    eliminate,
    eliminated_law,
    eliminated_solve,
    gth,
    solve_absorbing,
)
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
    "TooSlowError",
    "absorption",
    "chain_classes",
    "communicating_classes",
    "contraction",
    "diameter",
    "ends_error",
    "evaluator",
    "gain",
    "gain_and_bias",
    "gth",
    "is_communicating",
    "is_unichain",
    "is_weakly_communicating",
    "maximal_end_components",
    "mixing_time",
    "part_solver",
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

DENSE_LIMIT = 500  # states of one class up to which elimination is dense
ACCURACY = 1e-9  # of what iteration finds for more states, relative to its largest entry
EPS = float(np.finfo(np.float64).eps)
BATCH_ENTRIES = 4_000_000
POWER_STEPS = 300  # of power iteration for large chains, before a system is solved instead


Table = Any  # a chain, sparse or dense


def _table(chain: Table) -> Table:
    """Small chains dense: slicing a sparse matrix costs more than eliminating a small one."""
    small = chain.shape[0] <= DENSE_LIMIT and not isinstance(chain, np.ndarray)
    return chain.toarray() if small else chain


def _block(table: Table, rows: IntArray, columns: IntArray) -> Table:
    if isinstance(table, np.ndarray):
        return table[np.ix_(rows, columns)]
    return table[rows][:, columns]


def _dense(table: Table) -> FloatArray:
    return table if isinstance(table, np.ndarray) else table.toarray()


Solver = Callable[[FloatArray], FloatArray]  # from right-hand sides (n, c) to solutions


def solve_part(
    chain: Table, part: IntArray, leave: FloatArray, right: FloatArray, scale: float = 1.0
) -> FloatArray:
    """`solve_absorbing` on some states of a chain, by other methods when they are many.

    Raises
    ------
    TooSlowError
        If no method that is left for so many states could be shown to be accurate.
    """
    return part_solver(chain, part, leave, scale)(right)


def part_solver(
    chain: Table, part: IntArray, leave: FloatArray, scale: float = 1.0, *, proved: bool = True
) -> Solver:
    """`solve_part` as a function of the right-hand side; large chains are eliminated once at most.

    Large parts are tried by GMRES, which is quick where mixing is. A small residual alone proves
    nothing where it is not: the error is at most the residual times the expected time to leave,
    which is solved for too. Where that bound exceeds `ACCURACY` the part is eliminated. With
    `proved` false a small residual is enough, and so is sparse LU where elimination is too large.
    """
    inner = _block(_table(chain), part, part) * scale
    if part.size <= DENSE_LIMIT:
        table = _dense(inner)
        return lambda right: solve_absorbing(table, leave, right)
    inner = sp.csr_array(inner)
    inner.setdiag(0.0)
    inner.eliminate_zeros()
    system = sp.csr_array(sp.diags_array(leave + inner.sum(axis=1)) - inner)
    found: list[Elimination] = []

    def solve(right: FloatArray) -> FloatArray:
        if not found:
            out = _iterated(system, np.column_stack([right, np.ones(part.size)][: 1 + proved]))
            if out is not None and proved:
                out, times = out[:, :-1], out[:, -1:]
                largest = np.maximum(np.abs(out).max(axis=0), 1e-300)
                off = np.abs(right - system @ out).max(axis=0) + 4 * EPS * largest
                # at least half a step is paid for in each state, so twice these times are enough
                sure = times.min() >= 0 and (system @ times).min() >= 0.5
                if not (sure and (2.0 * times.max() * off <= ACCURACY * largest).all()):
                    out = None
            if out is not None:
                return out
            eliminated = eliminate(inner, leave)
            if eliminated is None:
                if not proved:
                    factor = splu(sp.csc_array(system))
                    out = factor.solve(right)
                    return out + factor.solve(right - system @ out)
                raise TooSlowError(_too_slow(part.size))
            found.append(eliminated)
        return eliminated_solve(found[0], right)

    return solve


def _too_slow(size: int) -> str:
    return (
        f"a part of {size} states mixes too slowly for iteration, and more than {FRONT_LIMIT} of "
        "them hang together, too many to eliminate: its long run is not known to any accuracy"
    )


def _iterated(system: sp.csr_array, right: FloatArray) -> FloatArray | None:
    """Solution (n, c) by GMRES, or None where its residual does not become small."""
    out = np.zeros_like(right)
    for c in range(right.shape[1]):
        out[:, c], _ = gmres(system, right[:, c], rtol=1e-13, atol=0.0, restart=60, maxiter=5)
    off = np.abs(right - system @ out).max(axis=0)
    small = off <= 1e-12 * np.maximum(np.abs(right).max(axis=0), 1e-300)
    return out if small.all() else None


def solve_sparse(system: sp.csr_array, right: FloatArray) -> FloatArray:
    """Large systems of any kind: GMRES, and sparse LU where that stalls."""
    out = _iterated(system, right)
    if out is not None:
        return out
    factor = splu(sp.csc_array(system))
    out = factor.solve(right)
    return out + factor.solve(right - system @ out)


def _law_of(block: Table) -> FloatArray:
    """Stationary law of an irreducible block."""
    size = block.shape[0]
    if size <= DENSE_LIMIT:
        return gth(_dense(block))
    block = sp.csr_array(block)
    law = _power_law(block)
    if law is not None:
        return law
    found = eliminate(block)
    if found is None:
        raise TooSlowError(_too_slow(size))
    return eliminated_law(found, size)


def _power_law(block: sp.csr_array) -> FloatArray | None:
    """The law by power iteration, None unless its error is shown to be at most `ACCURACY`.

    A small change is no proof: where mixing is slow, every change is small. But the distance from
    the law is at most the sum of ``4 |x P - x| T``, if T is at least half the expected time to get
    to some state (two copies of the chain differ no longer than that).
    """
    size = block.shape[0]
    backward = sp.csr_array(block.T)
    law = np.full(size, 1.0 / size)
    for _ in range(POWER_STEPS):  # lazily, for periodic chains
        new = 0.1 * law + 0.9 * (backward @ law)
        change = float(np.abs(new - law).sum())
        law = new / new.sum()
        if change <= 1e-14:
            break
    else:
        return None
    centre = int(law.argmax())
    moving = sp.csr_array(block)
    moving.setdiag(0.0)
    out = np.asarray(moving.sum(axis=1)).ravel()
    rest = np.flatnonzero(np.arange(size) != centre)
    system = sp.csr_array(sp.diags_array(out) - moving)
    times = _iterated(system[rest][:, rest], np.ones((size - 1, 1)))
    if times is None or times.min() < 0 or (system[rest][:, rest] @ times).min() < 0.5:
        return None
    flow = out * law
    left = np.abs(law @ moving - flow) + 32 * EPS * flow  # with the rounding errors of its terms
    error = 4.0 * float(left[rest] @ times[:, 0])
    return law if error <= ACCURACY else None


def _gain_of(block: Table, pays: FloatArray) -> FloatArray:
    """(c,) mean of pays (n, c) under the law of an irreducible block.

    Large blocks: the mean is between the least and the largest entry of ``P^k pays`` for every k,
    which meet where mixing is quick. Nothing else needs to be known of the law then.
    """
    if block.shape[0] > DENSE_LIMIT:
        values, size = pays, np.maximum(np.abs(pays).max(axis=0), 1e-300)
        for _ in range(POWER_STEPS):
            values = 0.1 * values + 0.9 * (block @ values)
            low, high = values.min(axis=0), values.max(axis=0)
            if (high - low <= 1e-13 * size).all():
                return 0.5 * (low + high)
    return _law_of(block) @ pays


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
    """Bound of the relative error of chances of ending in a class, from so many states.

    For up to `DENSE_LIMIT` states, as elimination takes no differences.
    """
    return 8.0 * (transient + 8) * EPS


def gain(chain: sp.csr_array, rewards: FloatArray) -> FloatArray:
    """Long-run mean reward per step from every state; `rewards` and the result are (S, ...).

    Raises
    ------
    TooSlowError
        A ModelError: with thousands of states, where mixing is too slow for any method.
    """
    chain = sp.csr_array(chain)
    table, labels = _table(chain), chain_classes(chain)
    shape = np.shape(rewards)
    pays = np.asarray(rewards, dtype=np.float64).reshape(shape[0], -1)
    parts = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
    means = np.array([_gain_of(_block(table, part, part), pays[part]) for part in parts])
    return (_ends(table, labels) @ means).reshape(shape)


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
    shape = np.shape(rewards)
    pays = np.asarray(rewards, dtype=np.float64).reshape(shape[0], -1)
    gains, bias = evaluator(chain)(pays)
    return gains.reshape(shape), bias.reshape(shape)


def evaluator(chain: sp.csr_array) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """`gain_and_bias` as a function of rewards (S, c): a chain is analysed once for many."""
    chain = sp.csr_array(chain)
    table, labels = _table(chain), chain_classes(chain)
    laws, ends = _laws(table, labels), _ends(table, labels)
    solvers: list[tuple[IntArray, Solver | None, IntArray, FloatArray]] = []
    for k, law in enumerate(laws):
        part = np.flatnonzero(labels == k)
        centre = part[int(law[part].argmax())]
        rest, solver = part[part != centre], None
        if rest.size:
            leave = _dense(_block(table, rest, np.array([centre])))[:, 0]
            solver = part_solver(table, rest, leave, proved=False)
        solvers.append((rest, solver, part, law))
    inside, outside = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
    if outside.size:
        into = _block(table, outside, inside)
        on_the_way = part_solver(table, outside, into.sum(axis=1), proved=False)

    def evaluate(pays: FloatArray) -> tuple[FloatArray, FloatArray]:
        gains = ends @ (laws @ pays)
        bias = np.zeros_like(pays)
        for rest, solver, part, law in solvers:
            if solver is not None:
                bias[rest] = solver(pays[rest] - gains[rest])
            bias[part] -= law @ bias
        if outside.size:
            bias[outside] = on_the_way(pays[outside] - gains[outside] + into @ bias[inside])
        return gains, bias

    return evaluate


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
