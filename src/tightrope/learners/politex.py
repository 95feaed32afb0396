"""POLITEX: exponential weights over the state-action bias functions of whole phases.

Reference: Abbasi-Yadkori, Bartlett, Bhatia, Lazic, Szepesvari and Weisz (2019), POLITEX: regret
bounds for policy iteration using expert prediction. ``adaptive=True`` is the step size of AAPI
(Hao, Lazic, Abbasi-Yadkori, Joulani and Szepesvari 2020).

The papers' formulas are given from memory, with constants of our own choice (see `constants`), so
nothing here is claimed as their theorem: it is a comparator.

Deviations:
1. A phase's function is estimated by average-reward LSTD with a ridge (LSPE has the same fixed
   point).
2. The step size of AAPI is ours in its constant: `step_size` / sqrt(sum of squared spans).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.linear import add_differences
from tightrope.learners.mdp_exp2 import softmax
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
    phase : int or None
        Steps of a phase.
    step_size : float or None
        eta; with `adaptive` it multiplies 1 / sqrt(sum of squared spans of the estimates).
    ridge : float
        Added to the LSTD matrix, times the number of steps of the phase.
    adaptive : bool
    estimated : tuple of str
        Which constants are estimates.
    """

    steps: int
    mixing_time: float | Literal["estimate"] | None = None
    phase: int | None = None
    step_size: float | None = None
    ridge: float = 1e-3
    adaptive: bool = False
    estimated: tuple[str, ...] = ()


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """The formulas of `constants`."""
    return Config(steps=steps)


def constants(spec: ProblemSpec, config: Config) -> tuple[int, float]:
    """T^(1/4) phases of T^(3/4) steps, eta = sqrt(8 ln A / phases) / Q_max, Q_max = 6 t_mix.

    Q_max is [LIN, Lemma 6]. The theorem's other constants are unknown: no guarantee is claimed.
    """
    phases = max(1, round(config.steps**0.25))
    step = config.step_size
    if step is None:
        bound = 6.0 * declared(spec, "mixing_time", config.mixing_time, "politex")
        step = math.sqrt(8.0 * math.log(max(2, spec.num_actions)) / phases) / bound
    return math.ceil(config.steps / phases) if config.phase is None else config.phase, step


def check(spec: ProblemSpec, config: Config) -> None:
    """Average criterion, no costs, at least one whole phase."""
    check_stream(spec, "politex")
    check_settings("politex", config, positive=("step_size", "ridge"), counts=("steps", "phase"))
    features_of(spec)
    phase, _ = constants(spec, config)
    if phase > config.steps:
        raise ConfigError(
            f"steps = {config.steps} is less than one phase of {phase} steps; "
            "run longer or lower phase"
        )


@dataclass(kw_only=True, eq=False)
class State:
    """Sum of the phases' weights (d,)."""

    spec: ProblemSpec
    config: Config
    phase: int
    squares: float
    features: FloatArray
    weights: FloatArray


def init(spec: ProblemSpec, config: Config) -> State:
    """Sum 0: the uniform policy."""
    features = features_of(spec)
    return State(
        spec=spec,
        config=config,
        phase=1,
        squares=0.0,
        features=features,
        weights=np.zeros(features.shape[2]),
    )


def policy(state: State) -> StochasticPolicy:
    """pi(a|x) proportional to exp(eta sum_j q_j(x, a))."""
    step = constants(state.spec, state.config)[1]
    if state.config.adaptive and state.squares > 0:
        step /= math.sqrt(state.squares)
    return StochasticPolicy(softmax(step * (state.features @ state.weights), state.spec.available))


def horizon(state: State) -> Stop:
    """One phase."""
    return Stop("steps", constants(state.spec, state.config)[0])


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Estimate q of the phase's policy and add it to the sum."""
    number = len(experience.actions)
    if number < constants(state.spec, state.config)[0]:  # T cut the phase short
        return state, {}
    dimension = state.features.shape[2]
    gain = float(experience.rewards.mean())
    gram = state.config.ridge * number * np.eye(dimension)
    target = np.zeros(dimension)
    add_differences(
        state.features,
        policy(state).probabilities,
        experience.states,
        experience.actions,
        experience.rewards,
        gain,
        gram,
        target,
    )
    weights = np.linalg.solve(gram, target)
    state.weights += weights
    values = (state.features @ weights)[state.spec.available]
    state.squares += float(np.ptp(values)) ** 2
    state.phase += 1
    return state, {"gain": gain, "span": float(np.ptp(values))}


def guarantee(config: Config) -> str | None:
    """None: the theorem's constants depend on the unknown error of the estimates."""
    return None


LEARNER = Learner(
    name="politex",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "unichain"}),
    reference="Abbasi-Yadkori et al. 2019; Hao et al. 2020",
)
