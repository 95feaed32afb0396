"""MDP-EXP2: exponential weights over estimated state-action bias functions.

Reference: [LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020), Learning infinite-horizon
average-reward MDPs with linear function approximation, Algorithm 3.

Deviations:
1. N is rounded up and B up to a multiple of 2N; the threshold of M_k follows the rounded values.
2. A last epoch that T cuts short is played and not learnt from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError
from tightrope.learners.olsvi_fh import check_unit_rewards
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.learners.ucrl2 import check_stream
from tightrope.model.features import (
    FeatureMap,
    declared,
    dimension_of,
    feature_map_of,
    rows_at,
)
from tightrope.model.linear import LinearPolicy
from tightrope.model.policy import StochasticPolicy
from tightrope.types import BoolArray, FloatArray, IntArray, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings; a scale of 1 is as proved.

    Attributes
    ----------
    steps : int
        T, for which the constants are set.
    mixing_time, sigma : float or None
        Of [LIN, Assumptions 3 and 5]; None takes what the problem declares. "estimate", or None
        where nothing is declared: `tr.run` estimates them.
    length_scale, batch_scale, step_scale, threshold_scale : float
        Multiply N, B / N, eta, and the least eigenvalue that M_k must have.
    estimated : tuple of str
        Which constants are estimates; with any there is no guarantee.
    """

    steps: int
    mixing_time: float | Literal["estimate"] | None = None
    sigma: float | Literal["estimate"] | None = None
    length_scale: float = 1.0
    batch_scale: float = 1.0
    step_scale: float = 1.0
    threshold_scale: float = 1.0
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Constants:
    """N, B, eta and the threshold of an epoch."""

    length: int
    batch: int
    step: float
    threshold: float


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """[LIN, Theorem 7]; the guarantee is in expectation, so `delta` is not used."""
    return Config(steps=steps)


def constants(spec: ProblemSpec, config: Config, dimension: int) -> Constants:
    """Algorithm 3: N = 8 t_mix log T, B = 32 N log(dT) / sigma, eta, threshold B sigma / (24 N)."""
    time = declared(spec, "mixing_time", config.mixing_time, "mdp-exp2")
    sigma = declared(spec, "sigma", config.sigma, "mdp-exp2")
    length = max(1, math.ceil(config.length_scale * 8.0 * time * math.log(config.steps)))
    ratio = config.batch_scale * 32.0 * math.log(dimension * config.steps) / sigma
    batch = 2 * length * max(1, math.ceil(ratio / 2.0))
    step = min(math.sqrt(1.0 / (config.steps * time)), sigma / (24.0 * length))
    return Constants(
        length=length,
        batch=batch,
        step=config.step_scale * step,
        threshold=config.threshold_scale * batch * sigma / (24.0 * length),
    )


def check(spec: ProblemSpec, config: Config) -> None:
    """Rewards in [-1, 1], known t_mix and sigma, at least one whole epoch."""
    check_stream(spec, "mdp-exp2", points=True)
    check_unit_rewards(spec, "mdp-exp2")
    check_settings(
        "mdp-exp2",
        config,
        positive=("length_scale", "batch_scale", "step_scale"),
        not_negative=("threshold_scale",),
        counts=("steps",),
    )
    if config.steps < 2:
        raise ConfigError(f"steps must be at least 2, got {config.steps}")
    dimension = dimension_of(feature_map_of(spec))
    parts = constants(spec, config, dimension)
    sigma = declared(spec, "sigma", config.sigma, "mdp-exp2")
    if sigma > 2.0 / dimension * (1.0 + 1e-9):
        raise ConfigError(
            f"sigma = {sigma:g} is impossible: the trace of a Gram matrix of features with norm at "
            f"most sqrt(2) is at most 2, its least eigenvalue at most 2 / d = {2 / dimension:g}"
        )
    if parts.batch > config.steps:
        raise ConfigError(
            f"steps = {config.steps} is less than one epoch of B = {parts.batch} steps "
            f"(N = {parts.length}); run longer, or lower batch_scale or length_scale"
        )


@dataclass(kw_only=True, eq=False)
class State:
    """Only ``sum_j w_j`` (d,) is carried from epoch to epoch; the rest is for Info.

    `features` (S, A, d) is empty with continuous states, where the spec has a map.
    """

    spec: ProblemSpec
    config: Config
    epoch: int
    skipped: int
    least_eigenvalue: float
    features: FloatArray
    weights: FloatArray


def init(spec: ProblemSpec, config: Config) -> State:
    """Sum of weights 0: the first policy is uniform."""
    features = feature_map_of(spec)
    return State(
        spec=spec,
        config=config,
        epoch=1,
        skipped=0,
        least_eigenvalue=0.0,
        features=np.zeros((0, 0, 0)) if isinstance(features, FeatureMap) else features,
        weights=np.zeros(dimension_of(features)),
    )


def softmax(scores: FloatArray, available: BoolArray) -> FloatArray:
    """exp(scores), normalised over the available actions (..., A), for scores of any size.

    >>> softmax(np.array([1200.0, 1199.0, 0.0]), np.ones(3, dtype=bool)).round(8)
    array([0.73105858, 0.26894142, 0.        ])
    """
    scores = np.where(available, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def policy(state: State) -> StochasticPolicy | LinearPolicy:
    """pi_k(a|x) proportional to exp(eta sum_j phi(x, a)'w_j)."""
    scaled = constants(state.spec, state.config, len(state.weights)).step * state.weights
    if isinstance(state.spec.features, FeatureMap):
        return LinearPolicy(state.spec.features, scaled[None], greedy=False)
    return StochasticPolicy(softmax(state.features @ scaled, state.spec.available))


def horizon(state: State) -> Stop:
    """One epoch of B steps."""
    return Stop("steps", constants(state.spec, state.config, len(state.weights)).batch)


def trajectories(experience: Experience, length: int) -> tuple[np.ndarray, IntArray, FloatArray]:
    """States, actions and rewards sums of Algorithm 3's trajectories of N steps every 2N steps.

    Trajectory m starts at step 2N(m - 1) + N + 1 of the epoch.
    """
    starts = np.arange(length, len(experience.actions) - length + 1, 2 * length)
    sums = np.concatenate([[0.0], np.cumsum(experience.rewards)])
    totals = sums[starts + length] - sums[starts]
    return experience.states[starts], experience.actions[starts], totals


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Algorithm 3: M_k, w_k, and the sum of weights."""
    spec, dimension = state.spec, len(state.weights)
    parts = constants(spec, state.config, dimension)
    if len(experience.actions) < parts.batch:  # T cut the epoch short
        return state, _info(state)
    states, actions, totals = trajectories(experience, parts.length)
    # M_k = sum_m sum_a pi_k(a|x) phi phi'
    played = policy(state)
    if isinstance(played, LinearPolicy):
        rows, chances = rows_at(played.features, states), played.probabilities(states)
        flat, weight = rows.reshape(-1, dimension), chances.reshape(-1, 1)
        target = rows[np.arange(len(actions)), actions].T @ totals
    else:  # the same sums, state by state and pair by pair
        table, flat = played.probabilities, state.features.reshape(-1, dimension)
        visits = np.bincount(states, minlength=len(table))
        weight = (visits[:, None] * table).reshape(-1, 1)
        pairs = states.astype(np.int64) * table.shape[1] + actions
        target = flat.T @ np.bincount(pairs, weights=totals, minlength=table.size)
    gram = flat.T @ (flat * weight)
    # w_k = M_k^-1 sum_m phi(x, a) R, or 0
    least = state.least_eigenvalue = float(np.linalg.eigvalsh(gram)[0])
    if least >= parts.threshold and least > 1e-12 * np.trace(gram):
        state.weights += np.linalg.solve(gram, target)
    else:
        state.skipped += 1
    state.epoch += 1
    return state, _info(state)


def _info(state: State) -> Info:
    """Epochs with w_k = 0 so far, and the least eigenvalue of the last whole epoch's M_k."""
    return {"skipped": float(state.skipped), "least_eigenvalue": state.least_eigenvalue}


def guarantee(config: Config) -> str | None:
    """Theorem 7 if N, B, eta and the threshold are as proved, and t_mix and sigma no estimates."""
    scales = (config.length_scale, config.batch_scale, config.step_scale, config.threshold_scale)
    if scales == (1.0,) * 4 and not config.estimated:
        return "[LIN, Theorem 7]: expected regret of order (1 / sigma) sqrt(t_mix^3 T)"
    return None


LEARNER = Learner(
    name="mdp-exp2",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "unichain", "linear-bias"}),
    reference="[LIN, Algorithm 3]",
)
