"""Linear MDPs: a finite model with features, or continuous states with a finite action set.

[LIN] is Wei et al. (2020), Learning infinite-horizon average-reward MDPs with linear function
approximation.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np

from tightrope.errors import ModelError
from tightrope.model import chain
from tightrope.model.features import FeatureMap, check_features, feature_rows, normalise
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import StochasticPolicy
from tightrope.types import Average, Feedback, FloatArray, ProblemSpec


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
    reward_scale : float
        What the rewards of the original problem were divided by (`with_features`); gains and spans
        times this are the original's.
    """

    model: FiniteMDP
    features: FloatArray
    knowledge: dict[str, float] = field(default_factory=dict)
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        check_features(self.features, self.model.available)

    def spec(self, *, feedback: Feedback = "sampled") -> ProblemSpec:
        """What a learner may know."""
        return self.model.spec(
            feedback=feedback, features=self.features, knowledge=dict(self.knowledge)
        )

    def linearity_error(self) -> float:
        """Of rewards and transitions, from the span of the features: see `linearity_error`."""
        return linearity_error(self.model, self.features)


def bias_linearity_error(model: FiniteMDP, features: FloatArray, *, policies: int = 4) -> float:
    """Largest distance of q^pi from the span of the features, relative to its size.

    [LIN, Assumption 4] asks for 0 with every policy. The distance is a rational function of the
    policy, so if it is 0 at one drawn at random it is 0 at all, with probability 1; `policies` are
    drawn, from a fixed seed. A linear model has it [LIN, Lemma 14].

    >>> from tightrope.problems.linear import linear_mdp
    >>> problem = linear_mdp()
    >>> bias_linearity_error(problem.model, problem.features) < 1e-9
    True
    """
    rng, worst = np.random.default_rng(0), 0.0
    rows = feature_rows(features, model.available)
    for _ in range(policies):
        table = rng.exponential(size=model.available.shape) * model.available
        table /= table.sum(axis=1, keepdims=True)
        kernel, _ = chain.policy_chain(model, StochasticPolicy(table))
        gain, bias = chain.gain_and_bias(kernel, (table * model.rewards).sum(axis=1))
        after = (model.matrix() @ bias).reshape(model.available.shape)
        q = (model.rewards - gain[:, None] + after)[model.available]
        off = q - rows @ np.linalg.lstsq(rows, q, rcond=None)[0]
        worst = max(worst, float(np.abs(off).max()) / max(1.0, float(np.ptp(q))))
    return worst


def with_features(model: FiniteMDP, features: FloatArray) -> LinearMDP:
    """The model with features as the learners of [LIN] want both.

    Features are normalised (Lemma 8, `tr.features.normalise`); rewards outside [-1, 1] are divided
    by their largest size, which `reward_scale` records.

    >>> from tightrope.problems.average import access_control
    >>> from tightrope.model.features import one_hot
    >>> model = access_control()
    >>> fitted = with_features(model, one_hot(model.available))
    >>> fitted.reward_scale, fitted.features.shape
    (8.0, (44, 2, 84))
    """
    if model.rewards_next is not None:
        raise ModelError("with_features takes mean rewards r(s, a), the model has rewards_next")
    scale = max(1.0, float(np.abs(model.rewards[model.available]).max()))
    return LinearMDP(
        model=model.replace(rewards=model.rewards / scale) if scale > 1.0 else model,
        features=normalise(features, model.available).features,
        reward_scale=scale,
    )


def linearity_error(model: FiniteMDP, features: FloatArray) -> float:
    """Largest distance of rewards and transitions from the span of the features.

    0 for a linear MDP: ``p(y|x,a) = phi'mu(y)`` and ``r = phi'theta`` [LIN, Assumption 2].
    """
    rows, flat = feature_rows(features, model.available), model.available.ravel()
    targets = np.column_stack([model.rewards.ravel()[flat], model.matrix().toarray()[flat]])
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

    @property
    def content_hash(self) -> str:
        """sha256 over the numbers that define the process."""
        digest = hashlib.sha256()
        for part in (self.table, self.theta, self.shares, self.alphas, self.betas):
            digest.update(str(part.shape).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def spec(self, **known: float) -> ProblemSpec:
        """What a learner may know; `known` adds to `knowledge`.

        Raises ModelError if the features break their scaling (at a knot, where norms are largest).
        """
        check_features(self.table)
        rewards = self.table @ self.theta
        return ProblemSpec(
            num_states=0,
            num_actions=self.table.shape[1],
            num_costs=0,
            criterion=Average(),
            available=np.ones((1, self.table.shape[1]), dtype=bool),  # alike at every point
            initial=np.zeros(0),
            cost_names=(),
            capacities=np.zeros(0),
            signs=np.zeros(0),
            staged=False,
            reward_range=(float(rewards.min()), float(rewards.max())),
            cost_ranges=np.zeros((0, 2)),
            feedback="mean",
            features=self.features,
            knowledge={**known, **self.knowledge},
        )


@dataclass(frozen=True, eq=False)
class LinearPolicy:
    """A policy of points: by scores ``phi'w + bonus |phi|`` of the features at the point.

    Attributes
    ----------
    features : FeatureMap
    weights : (P, d)
        One row a stage; stages repeat with period P.
    inverse : (d, d) or None, bonus, cap : float
        ``|phi| = sqrt(phi' inverse phi)``; scores are cut at `cap` from above.
    greedy : bool
        The first best action, or exp(score), normalised.
    """

    features: FeatureMap
    weights: FloatArray
    inverse: FloatArray | None = None
    bonus: float = 0.0
    cap: float = math.inf
    greedy: bool = True

    def probabilities(self, points: np.ndarray, stage: int = 0) -> FloatArray:
        """(n, A) at points (n,)."""
        rows = self.features(points)
        scores = rows @ self.weights[stage]
        if self.inverse is not None:
            scores = scores + self.bonus * widths(rows, self.inverse)
        scores = np.minimum(scores, self.cap)
        best = scores.max(axis=1, keepdims=True)
        if self.greedy:
            first = (scores >= best - 1e-9 * np.maximum(1.0, np.abs(best))).argmax(axis=1)
            return np.eye(scores.shape[1])[first]
        chances = np.exp(scores - best)
        return chances / chances.sum(axis=1, keepdims=True)


def widths(rows: FloatArray, inverse: FloatArray) -> FloatArray:
    """(n, A) norms sqrt(phi' inverse phi) of rows (n, A, d)."""
    return np.sqrt(np.maximum(0.0, np.einsum("nad,nad->na", rows @ inverse, rows)))


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
