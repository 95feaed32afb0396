"""Linear MDPs: a finite model with features, or continuous states with a finite action set.

[LIN] is Wei et al. (2020), Learning infinite-horizon average-reward MDPs with linear function
approximation.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from tightrope.errors import ModelError
from tightrope.model.features import FeatureMap, check_features, feature_rows
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Feedback, FloatArray, ProblemSpec

SIGMA_POLICIES = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearMDP:
    """A finite average-reward model, its features, and what is declared to be known of it.

    Attributes
    ----------
    model : FiniteMDP
    features : (S, A, d)
        Checked against [LIN, Assumption 2]: norm at most sqrt(2), full rank, constant in the span.
    knowledge : dict
        ``span`` of the optimal bias, ``mixing_time``, ``sigma``; only what is given.
    """

    model: FiniteMDP
    features: FloatArray
    knowledge: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_features(self.features, self.model.available)

    def spec(self, *, feedback: Feedback = "sampled") -> ProblemSpec:
        """What a learner may know."""
        return self.model.spec(
            feedback=feedback, features=self.features, knowledge=dict(self.knowledge)
        )

    def linearity_error(self) -> float:
        """Largest distance of rewards and transitions from the span of the features.

        0 for a linear MDP: ``p(y|x,a) = phi'mu(y)`` and ``r = phi'theta`` [LIN, Assumption 2].
        """
        rows = feature_rows(self.features, self.model.available)
        flat = self.model.available.ravel()
        targets = np.column_stack(
            [self.model.rewards.ravel()[flat], self.model.matrix().toarray()[flat]]
        )
        fitted = rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
        return float(np.abs(fitted - targets).max())


@dataclass(frozen=True, kw_only=True, eq=False)
class ContinuousLinearMDP:
    """States in [0, 1], simplex features, next states from a mixture of mixtures of Betas.

    ``p(.|x, a) = sum_i phi_i(x, a) mu_i`` and ``mu_i = sum_j shares[i, j] Beta(alphas[j], betas[j])``,
    ``r(x, a) = phi(x, a)'theta``.

    Attributes
    ----------
    features : FeatureMap
        Linear between the knots of `table`, so that J* can be integrated exactly.
    table : (K, A, d)
        Features, rows of the simplex, at K equidistant knots of [0, 1].
    theta : (d,)
    shares : (d, J), alphas, betas : (J,)
    knowledge : dict
    """

    features: FeatureMap
    table: FloatArray
    theta: FloatArray
    shares: FloatArray
    alphas: FloatArray
    betas: FloatArray
    knowledge: dict[str, float] = field(default_factory=dict)

    def mean_rewards(self, points: FloatArray) -> FloatArray:
        """(n, A) mean rewards at points (n,)."""
        return self.features(points) @ self.theta


def interpolated_features(table: FloatArray) -> FeatureMap:
    """Features on [0, 1], linear between equidistant knots: table is (K, A, d)."""
    table = np.asarray(table, dtype=np.float64)
    knots, num_actions, dimension = table.shape

    def function(points: FloatArray) -> FloatArray:
        place = np.clip(points[:, 0], 0.0, 1.0) * (knots - 1)
        left = np.minimum(place.astype(np.int64), knots - 2)
        share = (place - left)[:, None, None]
        return (1.0 - share) * table[left] + share * table[left + 1]

    return FeatureMap(
        function=function, num_actions=num_actions, dimension=dimension, name="interpolated"
    )


# --------------------------------------------------------- assumptions 3 and 5


def contraction_time(model: FiniteMDP) -> float:
    """t_mix of [LIN, Assumption 3], exact: max(1, -1/ln delta) with delta the largest total
    variation between two rows of different states; infinite if delta = 1 (RiverSwim).

    >>> model = FiniteMDP(transitions=[[[0.5, 0.5]] * 2, [[0.25, 0.75]] * 2],
    ...     rewards=np.zeros((2, 2)), criterion="average", axes="sas")
    >>> round(contraction_time(model), 6)   # delta = 1/4
    1.0
    """
    rows = model.matrix().toarray()[model.available.ravel()]
    owner = np.repeat(np.arange(model.num_states), model.available.sum(axis=1))
    delta = 0.0
    for state in range(model.num_states):
        mine, others = rows[owner == state], rows[owner > state]
        if others.size:
            distance = 0.5 * np.abs(mine[:, None, :] - others[None, :, :]).sum(axis=2)
            delta = max(delta, float(distance.max()))
    if delta >= 1.0 - 1e-12:
        return math.inf
    return max(1.0, -1.0 / math.log(delta)) if delta > 0 else 1.0


def stationary_law(transitions: FloatArray) -> FloatArray:
    """Stationary law (S,) of a chain (S, S) with one recurrent class."""
    size = len(transitions)
    system = np.vstack([transitions.T - np.eye(size), np.ones((1, size))])
    law, _, rank, _ = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)
    if rank < size:
        raise ModelError("the chain has several recurrent classes: its stationary law is not one")
    return np.maximum(law, 0.0)


def excitation(model: FiniteMDP, features: FloatArray) -> tuple[float, bool]:
    """sigma of [LIN, Assumption 5]: the least eigenvalue of ``E_nu E_pi phi phi'`` over policies.

    The least is reached at a deterministic policy (the eigenvalue is concave in the occupancy).

    Returns
    -------
    float, bool
        sigma, and whether all deterministic policies were tried; with more than 65,536 of them a
        seeded sample is tried and the number is only an upper bound.
    """
    matrix = model.dense()
    choices = [np.flatnonzero(row) for row in model.available]
    exact = math.prod(len(c) for c in choices) <= SIGMA_POLICIES
    if exact:
        policies = itertools.product(*choices)
    else:
        rng = np.random.default_rng(0)
        policies = (tuple(rng.choice(c) for c in choices) for _ in range(2000))  # type: ignore[assignment]
    states = np.arange(model.num_states)
    least = math.inf
    for policy in policies:
        actions = np.array(policy)
        law = stationary_law(matrix[states, actions])
        phi = features[states, actions]
        least = min(least, float(np.linalg.eigvalsh(phi.T @ (phi * law[:, None]))[0]))
    return max(0.0, least), exact
