"""Occupancy measures of episodic policies, and policies of occupancy measures [CON, Eq. (14)]."""

from __future__ import annotations

import numpy as np

from tightrope.errors import ModelError
from tightrope.kernels import episodic
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    Policy,
    StochasticPolicy,
    check_policy,
    probabilities,
)
from tightrope.types import BoolArray, FloatArray


def occupancy(model: FiniteMDP, policy: Policy) -> FloatArray:
    """(H, S, A) probability of being in state s at step h and taking action a.

    Each stage sums to 1. Raises ModelError if the policy does not fit the model.

    >>> from tightrope.model.policy import uniform_policy
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> rho = occupancy(model, uniform_policy(model.available))
    >>> rho.shape, bool(abs(rho.sum() - 30) < 1e-12)
    ((30, 64, 4), True)
    """
    check_policy(policy, model.available, model.horizon)
    if isinstance(policy, MixturePolicy):
        parts = [occupancy(model, part) for part in policy.components]
        return np.tensordot(policy.weights, np.stack(parts), axes=1)
    t = model.tables()
    table = probabilities(policy, model.num_actions)
    table = np.array(table if policy.staged else table[None], dtype=np.float64, order="C")
    return episodic.occupancy(
        t.start, t.stop, t.indices, t.data, t.available, t.initial, model.horizon, table
    )


def policy_from_occupancy(measure: FloatArray, available: BoolArray) -> StochasticPolicy:
    """The Markov policy with a given occupancy measure; uniform where no mass ever comes.

    >>> policy_from_occupancy(np.array([[[0.2, 0.6], [0.0, 0.0]]]), np.ones((2, 2), bool))
    StochasticPolicy(probabilities=array([[[0.25, 0.75],
            [0.5 , 0.5 ]]]))
    """
    if measure.ndim != 3 or measure.shape[1:] != available.shape:
        raise ModelError(f"occupancy has shape {measure.shape}, expected (H, *{available.shape})")
    if not np.isfinite(measure).all() or (measure < 0).any():
        raise ModelError("an occupancy measure must be finite and >= 0")
    mass = measure.sum(axis=2, keepdims=True)
    spread = available / available.sum(axis=1, keepdims=True)
    safe = np.where(mass > 0, mass, 1.0)
    return StochasticPolicy(np.where(mass > 0, measure / safe, spread))


def markov_policy(model: FiniteMDP, policy: Policy) -> DeterministicPolicy | StochasticPolicy:
    """A policy without mixing at the start that has the same occupancy measure."""
    if not isinstance(policy, MixturePolicy):
        return policy
    return policy_from_occupancy(occupancy(model, policy), model.available)
