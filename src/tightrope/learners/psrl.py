"""PSRL for one stream: sample a model from the posterior, play its optimal policy for an epoch.

Reference: Osband, Russo and Van Roy (2013), (More) efficient reinforcement learning via posterior
sampling; epochs by Ouyang, Gagrani, Nayyar and Jain (2017), Learning unknown Markov decision
processes: a Thompson sampling approach (TSDE).

Deviations:
1. A pair ends an epoch when it has been visited in it as often as in all epochs before (>= for >).
2. Rewards are unknown too: mapped to [0, 1], with a normal prior N(1, 1) and unit variance. The
   prior is not limited to models of bounded span. Both are what Ouyang et al.'s Theorem 1 assumes,
   so no theorem is claimed.
3. ``schedule="doubling"`` drops TSDE's limit on the length of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.ucrl import extended_value_iteration
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.learners.ucrl2 import LONGEST, check_stream, count, no_counts
from tightrope.model.policy import DeterministicPolicy
from tightrope.types import FloatArray, IntArray, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings.

    Attributes
    ----------
    transition_prior : float
        Dirichlet count of every successor.
    reward_scale : float
        Multiplies the standard deviation of the reward's posterior; 1 is the posterior.
    schedule : 'tsde' or 'doubling'
    tolerance : float
        Span at which value iteration on the sampled model stops; Info gives the one reached.
    seed : int
        Of the posterior draws.
    """

    transition_prior: float = 1.0
    reward_scale: float = 1.0
    schedule: Literal["tsde", "doubling"] = "tsde"
    tolerance: float = 1e-4
    max_iterations: int = 1_000_000
    seed: int = 0


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """Ouyang et al. 2017, Algorithm 1: epochs end by their two criteria."""
    return Config()


def check(spec: ProblemSpec, config: Config) -> None:
    """Average criterion, no costs, a proper prior."""
    check_stream(spec, "psrl")
    check_settings(
        "psrl",
        config,
        positive=("transition_prior", "tolerance"),
        not_negative=("reward_scale",),
        counts=("max_iterations",),
    )
    if config.schedule not in ("tsde", "doubling"):
        raise ConfigError(f"schedule must be 'tsde' or 'doubling', got {config.schedule!r}")


@dataclass(kw_only=True, eq=False)
class State:
    """visits, reward_sums (S, A); moves (S, A, S); the sampled model's plan."""

    spec: ProblemSpec
    config: Config
    epoch: int
    last_length: int
    visits: FloatArray
    moves: FloatArray
    reward_sums: FloatArray
    values: FloatArray
    actions: IntArray
    sampled_gain: float
    residual: float


def init(spec: ProblemSpec, config: Config) -> State:
    """No data: the first model comes from the prior."""
    state = State(
        spec=spec,
        config=config,
        epoch=1,
        **no_counts(spec),
        last_length=0,
        sampled_gain=0.0,
        residual=0.0,
    )
    _plan(state)
    return state


def policy(state: State) -> DeterministicPolicy:
    """The optimal policy of the sampled model."""
    return DeterministicPolicy(state.actions.copy())


def horizon(state: State) -> Stop:
    """TSDE: one step longer than the epoch before, or until a count has doubled."""
    longest = state.last_length + 1 if state.config.schedule == "tsde" else LONGEST
    return Stop("visit-doubling", longest, counts=state.visits)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Posterior, sample, plan."""
    state.epoch += 1
    state.last_length = len(experience.actions)
    count(state, experience)
    _plan(state)
    return state, {"sampled_gain": state.sampled_gain, "residual": state.residual}


def _plan(state: State) -> None:
    """Draw a model for epoch k from its own generator and solve it by value iteration."""
    spec, config = state.spec, state.config
    rng = np.random.default_rng([config.seed, state.epoch])
    transitions = _dirichlet(rng, config.transition_prior + state.moves)
    low, high = spec.reward_range
    width = (high - low) or 1.0
    # posterior of a mean with prior N(1, 1) and unit variance, in the units of [0, 1]
    total = (state.reward_sums - low * state.visits) / width
    mean = (total + 1.0) / (state.visits + 1.0)
    noise = rng.standard_normal(mean.shape) / np.sqrt(state.visits + 1.0)
    actions, values, lower, upper, _ = extended_value_iteration(
        transitions,
        mean + config.reward_scale * noise,
        np.zeros_like(mean),
        spec.available,
        state.values,
        config.tolerance,
        config.max_iterations,
    )
    state.actions[:] = actions
    state.values = values
    state.residual = width * (upper - lower)
    state.sampled_gain = low + width * 0.5 * (lower + upper)


def _dirichlet(rng: np.random.Generator, counts: FloatArray) -> FloatArray:
    """Dirichlet rows (S, A, S); where every gamma underflows a corner, the law's limit."""
    weights = rng.standard_gamma(counts)
    total = weights.sum(axis=2, keepdims=True)
    lost = np.argwhere(total[:, :, 0] == 0.0)
    if lost.size:  # only tiny counts, and then alike: any corner is as likely
        corners = rng.integers(counts.shape[2], size=len(lost))
        weights[lost[:, 0], lost[:, 1], corners] = 1.0
        total = weights.sum(axis=2, keepdims=True)
    return np.asarray(weights / total)


def guarantee(config: Config) -> str | None:
    """None: Theorem 1 of Ouyang et al. 2017 has known rewards and a prior of bounded span."""
    return None


LEARNER = Learner(
    name="psrl",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "weakly-communicating"}),
    reference="Osband, Russo, Van Roy 2013; Ouyang et al. 2017",
)
