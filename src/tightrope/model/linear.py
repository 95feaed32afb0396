"""Linear MDPs: a finite model with features, or continuous states with a finite action set.

[LIN] is Wei et al. (2020), Learning infinite-horizon average-reward MDPs with linear function
approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tightrope.model.features import FeatureMap, check_features, feature_rows
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Feedback, FloatArray, ProblemSpec


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


def finite_model(problem: FiniteMDP | LinearMDP) -> FiniteMDP:
    """The model itself, without features and declared knowledge."""
    return problem.model if isinstance(problem, LinearMDP) else problem


@dataclass(frozen=True, kw_only=True, eq=False)
class ContinuousLinearMDP:
    """States in [0, 1], simplex features, next states from a mixture of mixtures of Betas.

    ``p(.|x, a) = sum_i phi_i(x, a) mu_i``, ``r(x, a) = phi(x, a)'theta`` and
    ``mu_i = sum_j shares[i, j] Beta(alphas[j], betas[j])``.

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
