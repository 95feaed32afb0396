"""NPG: natural policy gradient of a softmax policy, its direction fitted by stochastic gradients.

Reference: [LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020), Appendix E; the estimator is that of
Agarwal, Kakade, Lee and Mahajan (2021), On the theory of policy gradient methods. It stands beside
MDP-EXP2, from which only the estimate of the direction differs.

Deviations:
1. Advantages come from the trajectories of MDP-EXP2 (N steps every 2N steps of one stream); Agarwal
   et al. draw discounted roll-outs from a simulator that can be reset.
2. ``fit="least-squares"`` solves (24) over the sample instead of one pass of SGD.
3. N times the mean reward of the epoch is subtracted, which does not change the minimiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.linear import averaged_sgd
from tightrope.learners.mdp_exp2 import softmax, trajectories
from tightrope.learners.olsvi_fh import check_unit_rewards
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.learners.ucrl2 import check_stream
from tightrope.model.features import declared, features_of
from tightrope.model.policy import StochasticPolicy
from tightrope.types import FloatArray, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings; None is the formula of `constants`.

    Attributes
    ----------
    steps : int
        T, for which the constants are set.
    mixing_time : float or None
        None takes what the problem declares; needed only where a formula is used. "estimate", or
        None where nothing is declared: `tr.run` estimates it.
    length : int or None
        N, steps of a trajectory.
    batch : int or None
        B, steps of an iteration; B / 2N trajectories.
    step_size : float or None
        eta, of the policy.
    sgd_step : float or None
        Of the fit; times the largest squared gradient it must stay below 1.
    sgd_radius : float or None
        Bound of ``|w|``.
    fit : 'sgd' or 'least-squares'
        One pass of averaged SGD as Agarwal et al., or the exact minimiser over the same sample.
    estimated : tuple of str
        Which constants are estimates.
    """

    steps: int
    mixing_time: float | Literal["estimate"] | None = None
    length: int | None = None
    batch: int | None = None
    step_size: float | None = None
    sgd_step: float | None = None
    sgd_radius: float | None = None
    fit: Literal["sgd", "least-squares"] = "sgd"
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The numbers that are used."""

    length: int
    batch: int
    step_size: float
    sgd_step: float
    sgd_radius: float


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """The formulas of `constants`."""
    return Config(steps=steps)


def constants(spec: ProblemSpec, config: Config, dimension: int) -> Constants:
    """[LIN, Appendix E]: O(1/eps^2) iterations of O(1/eps^2) trajectories, N = 8 t_mix log T.

    Constants that the text does not give are 1, so no guarantee is claimed; radius and step by
    Lemma 6 (``|q| <= 6 t_mix``) and Agarwal et al. (step 1 / (4 G^2) with G^2 <= 8).
    """
    given = (config.length, config.batch, config.step_size, config.sgd_radius)
    time = 1.0
    if any(value is None for value in given):
        time = declared(spec, "mixing_time", config.mixing_time, "npg")
    length, radius = config.length, config.sgd_radius
    if length is None:
        length = max(1, math.ceil(8.0 * time * math.log(config.steps)))
    if radius is None:
        radius = 6.0 * time * math.sqrt(dimension)
    count = max(1, math.isqrt(config.steps // (2 * length)))
    step = math.sqrt(2.0 * math.log(max(2, spec.num_actions)) / count) / radius
    return Constants(
        length=length,
        batch=2 * length * count if config.batch is None else config.batch,
        step_size=step if config.step_size is None else config.step_size,
        sgd_step=1.0 / 32.0 if config.sgd_step is None else config.sgd_step,
        sgd_radius=radius,
    )


def check(spec: ProblemSpec, config: Config) -> None:
    """Rewards in [-1, 1], at least one whole iteration."""
    check_stream(spec, "npg")
    check_unit_rewards(spec, "npg")
    check_settings(
        "npg",
        config,
        positive=("step_size", "sgd_step", "sgd_radius"),
        counts=("steps", "length", "batch"),
    )
    if config.fit not in ("sgd", "least-squares"):
        raise ConfigError(f"fit must be 'sgd' or 'least-squares', got {config.fit!r}")
    parts = constants(spec, config, features_of(spec).shape[2])
    if parts.batch < 2 * parts.length:
        raise ConfigError(f"npg needs batch >= 2 length >= 2, got {parts.batch} and {parts.length}")
    if parts.batch > config.steps:
        raise ConfigError(
            f"steps = {config.steps} is less than one iteration of {parts.batch} steps; "
            "run longer or lower batch"
        )


@dataclass(kw_only=True, eq=False)
class State:
    """theta (d,) of the softmax policy."""

    spec: ProblemSpec
    config: Config
    iteration: int
    features: FloatArray
    theta: FloatArray


def init(spec: ProblemSpec, config: Config) -> State:
    """theta = 0: the uniform policy."""
    features = features_of(spec)
    return State(
        spec=spec,
        config=config,
        iteration=1,
        features=features,
        theta=np.zeros(features.shape[2]),
    )


def policy(state: State) -> StochasticPolicy:
    """pi(a|x) proportional to exp(phi(x, a)'theta)."""
    return StochasticPolicy(softmax(state.features @ state.theta, state.spec.available))


def _constants(state: State) -> Constants:
    return constants(state.spec, state.config, state.features.shape[2])


def horizon(state: State) -> Stop:
    """One iteration of B steps."""
    return Stop("steps", _constants(state).batch)


def log_gradients(features: FloatArray, table: FloatArray) -> FloatArray:
    """Gradient of log pi(a|x) of a softmax policy: phi(x, a) minus its mean over pi, (S, A, d)."""
    return features - np.einsum("sa,sai->si", table, features)[:, None, :]


def natural_direction(
    gradients: FloatArray, advantages: FloatArray, weights: FloatArray
) -> FloatArray:
    """F^+ g of [LIN, Lemma 21], the least-squares fit of the advantages by the gradients.

    gradients (n, d) of log pi, advantages (n,), weights (n,): of a sample, or all pairs and their
    frequencies, which gives the exact natural gradient.
    """
    fisher = gradients.T @ (gradients * weights[:, None])
    target = gradients.T @ (weights * advantages)
    return np.asarray(np.linalg.pinv(fisher, rcond=1e-12, hermitian=True) @ target)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Fit the direction, by one pass of averaged SGD as proved, then move theta along it."""
    config = _constants(state)
    if len(experience.actions) < config.batch:  # T cut the iteration short
        return state, {}
    states, actions, totals = trajectories(experience, config.length)
    gradients = log_gradients(state.features, policy(state).probabilities)[states, actions]
    baseline = config.length * float(experience.rewards.mean())
    if state.config.fit == "sgd":
        direction = averaged_sgd(gradients, totals - baseline, config.sgd_step, config.sgd_radius)
    else:
        direction = natural_direction(gradients, totals - baseline, np.ones(len(totals)))
    state.theta += config.step_size * direction
    state.iteration += 1
    return state, {"direction_norm": float(np.linalg.norm(direction))}


def guarantee(config: Config) -> str | None:
    """None: [LIN, Appendix E] argues a rate of T^(3/4) and fixes no constants."""
    return None


LEARNER = Learner(
    name="npg",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "unichain"}),
    reference="[LIN, Appendix E]; Agarwal et al. 2021",
)
