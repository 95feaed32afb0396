"""Exact evaluation under the average, the discounted and the total criterion.

Any policy: deterministic, stochastic, or a mixture of which one component is drawn at the start.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.model.chain import (
    DENSE_LIMIT,
    absorption,
    chain_classes,
    gain,
    policy_chain,
    policy_table,
    solve_part,
    solve_sparse,
    stationary_laws,
)
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import MixturePolicy, Policy
from tightrope.planning.evaluation import Evaluation
from tightrope.types import Average, Discounted, Episodic, FloatArray

EPS = float(np.finfo(np.float64).eps)
SWEEPS = 500
VISIT_SWEEPS = 2000
PLAIN_DISCOUNT = 0.99  # up to here plain elimination loses no more than two digits


def evaluate_stationary(model: FiniteMDP, policy: Policy) -> Evaluation:
    """Exact value and costs (m,) of a policy from the initial law.

    Raises
    ------
    ModelError
        If the policy does not fit the model; total criterion: if it never stops paying.
    """
    values = model.initial @ state_values(model, policy)
    return Evaluation(float(values[0]), values[1:])


def state_values(model: FiniteMDP, policy: Policy) -> FloatArray:
    """(S, 1 + m) exact reward and costs of a policy from every state.

    Average: its gains. Total: nan at states that cannot be reached from the initial law.
    """
    if isinstance(policy, MixturePolicy):
        parts = np.stack([state_values(model, part) for part in policy.components])
        return np.tensordot(policy.weights, parts, axes=1)
    if isinstance(model.criterion, Episodic):
        raise ModelError("state_values is for the average, discounted and total criteria")
    chain, pays = policy_chain(model, policy)
    if isinstance(model.criterion, Average):
        return gain(chain, pays)
    if isinstance(model.criterion, Discounted):
        return discounted_values(chain, pays, model.criterion.discount)
    return _total_values(model, chain, pays)


def discounted_values(chain: sp.csr_array, pays: FloatArray, discount: float) -> FloatArray:
    """(S, c) solution of ``v = pays + discount P v``, near 1 by elimination without subtraction.

    Large chains are first tried by sweeps, whose error is bounded by the spread of the last change
    [Puterman 1994, 6.6.4]: quick where the chain mixes, however near to 1 the discount is.
    """
    size = chain.shape[0]
    if size > DENSE_LIMIT:
        values, factor = np.array(pays), discount / (1.0 - discount)
        for _ in range(SWEEPS):
            new = pays + discount * (chain @ values)
            low, high = (new - values).min(axis=0), (new - values).max(axis=0)
            size_of = np.abs(pays).max(axis=0) + np.ptp(values, axis=0)
            if (high - low <= 16 * EPS * size_of).all():
                return new + 0.5 * factor * (low + high)
            values = new - new.min(axis=0)  # the level is in the change: small numbers round less
    elif discount <= PLAIN_DISCOUNT:  # well conditioned: LAPACK is as good, and quicker
        return np.linalg.solve(np.eye(size) - discount * chain.toarray(), pays)
    return solve_part(chain, np.arange(size), np.full(size, 1.0 - discount), pays, discount)


def discounted_visits(model: FiniteMDP, policy: Policy) -> FloatArray:
    """(S, A) expected discounted visits from the initial law; they sum to 1 / (1 - discount)."""
    if isinstance(policy, MixturePolicy):
        parts = np.stack([discounted_visits(model, part) for part in policy.components])
        return np.tensordot(policy.weights, parts, axes=1)
    if not isinstance(model.criterion, Discounted):
        raise ModelError(f"expected a discounted model, got criterion {model.criterion}")
    chain, _ = policy_chain(model, policy)
    discount = model.criterion.discount
    if model.num_states > DENSE_LIMIT and discount**VISIT_SWEEPS <= EPS:  # the series itself
        backward = sp.csr_array(discount * chain.T)
        visits = model.initial
        for _ in range(VISIT_SWEEPS):
            visits = model.initial + backward @ visits
    else:
        inner = sp.eye_array(model.num_states) - discount * chain
        visits = np.maximum(solve_sparse(sp.csr_array(inner.T), model.initial[:, None])[:, 0], 0.0)
    return visits[:, None] * policy_table(model, policy)


def _total_values(model: FiniteMDP, chain: sp.csr_array, pays: FloatArray) -> FloatArray:
    reached = reachable(chain, model.initial > 0)
    labels = chain_classes(chain)
    paying = np.abs(pays).max(axis=1) > 0
    endless = np.flatnonzero((labels >= 0) & paying & reached)
    if endless.size:
        state = int(endless[0])
        channels = ("rewards", *(f"costs '{name}'" for name in model.cost_names))
        which = channels[int(np.flatnonzero(pays[state] != 0)[0])]
        raise ModelError(
            f"the policy never stops paying: once in state {model.state_name(state)} it returns "
            f"there for ever, with {which} of {pays[state][pays[state] != 0][0]:.10g} each time; "
            "the total criterion needs policies that end (a state that pays nothing for ever). "
            "Choose Average() or Discounted() otherwise"
        )
    values = np.where(reached[:, None], 0.0, np.nan) * np.ones(pays.shape[1])
    moving = np.flatnonzero((labels < 0) & reached)
    if moving.size:
        ended = np.flatnonzero((labels >= 0) & reached)
        leave = np.asarray(chain[moving][:, ended].sum(axis=1)).ravel()
        values[moving] = solve_part(chain, moving, leave, pays[moving])
    values[~reached] = 0.0 if not model.initial[~reached].any() else np.nan
    return values


def reachable(chain: sp.csr_array, start: np.ndarray) -> np.ndarray:
    """(S,) bool: states that can be reached from the start states."""
    seen = start.copy()
    while True:
        heads = (seen.astype(np.float64) @ chain) > 0
        if not (heads & ~seen).any():
            return seen
        seen |= heads


def frequencies(model: FiniteMDP, policy: Policy) -> tuple[FloatArray, FloatArray]:
    """Long-run shares of time (S, A), and expected visits (S, A) to transient pairs on the way.

    Both are from the initial law; the shares sum to 1.
    """
    if isinstance(policy, MixturePolicy):
        parts = [frequencies(model, part) for part in policy.components]
        shares = sum(w * part[0] for w, part in zip(policy.weights, parts))
        visits = sum(w * part[1] for w, part in zip(policy.weights, parts))
        return np.asarray(shares), np.asarray(visits)
    chain, _ = policy_chain(model, policy)
    table = policy_table(model, policy)
    laws, labels = stationary_laws(chain)
    ends, _ = absorption(chain)
    visits = np.zeros(model.num_states)
    moving = np.flatnonzero(labels < 0)
    if moving.size:
        inner = sp.eye_array(moving.size) - chain[moving][:, moving]
        visits[moving] = solve_sparse(sp.csr_array(inner.T), model.initial[moving][:, None])[:, 0]
    law = (model.initial @ ends) @ laws
    return law[:, None] * table, visits[:, None] * table
