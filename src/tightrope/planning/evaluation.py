"""Exact evaluation of policies: what a policy earns and consumes, never by sampling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.kernels import episodic
from tightrope.model.mdp import FiniteMDP, require_model
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, check_policy
from tightrope.planning.occupancy import occupancy
from tightrope.types import Episodic, FloatArray, IntArray


class Evaluation(NamedTuple):
    """Expected reward and costs (m,) of a policy, in the units of the model's criterion."""

    value: float
    costs: FloatArray


def evaluate(model: FiniteMDP, policy: Policy) -> Evaluation:
    """Exact value and costs of any policy.

    Raises ModelError, with the place, if the policy does not fit the model.

    >>> from tightrope.model.policy import uniform_policy
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> value, costs = evaluate(model, uniform_policy(model.available))
    >>> round(value, 6), costs.round(6)
    (0.816909, array([0.81624]))
    """
    require_model(model, "evaluate")
    if not isinstance(model.criterion, Episodic):
        from tightrope.planning.criteria import evaluate_stationary

        return evaluate_stationary(model, policy)
    check_policy(policy, model.available, model.horizon)
    values = policy_values(model, policy)
    return Evaluation(float(values[0]), values[1:])


def policy_values(model: FiniteMDP, policy: Policy) -> FloatArray:
    """(1 + m,) expected reward and costs of an episode; the policy is taken as valid."""
    if isinstance(policy, MixturePolicy):
        if policy.actions is not None:
            return policy.weights @ action_values(model, policy.actions)
        return policy.weights @ np.array([policy_values(model, p) for p in policy.components])
    if isinstance(policy, DeterministicPolicy):
        actions = policy.actions if policy.staged else policy.actions[None]
        return action_values(model, actions[None])[0]
    measure = occupancy(model, policy)
    return np.array([(measure * model.rewards).sum(), *((measure * c).sum() for c in model.costs)])


def action_values(model: FiniteMDP, actions: IntArray) -> FloatArray:
    """(K, 1 + m) values of K deterministic policies, (K, H, S) or (K, 1, S)."""
    if actions.dtype != np.int32 or not actions.flags.carray:
        actions = np.array(actions, dtype=np.int32, order="C")
    return episodic.evaluate_actions(*model.tables(), model.horizon, actions)
