"""OLSVI.FH: optimistic least-squares value iteration over an artificial finite horizon.

Reference: [LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020), Learning infinite-horizon
average-reward MDPs with linear function approximation, Algorithm 2.

Deviations:
1. H is the minimum of the two terms; the paper prints the maximum, with which its Theorem 5 does
   not follow. ``horizon_form="printed"`` is the paper's.
2. The sums over all past steps are kept as ``sum phi r`` and ``sum phi 1{x' = y}``, which gives the
   same numbers at a cost that does not grow. With continuous states the past is kept and V applied
   to it, in blocks.
3. Among actions within 1e-9 of the best the first is played.
4. ``lazy=True`` plans again only when det(Lambda) has doubled; no theorem covers it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.linear import add_to_statistics, invert, least_squares_value_iteration
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.learners.ucrl2 import check_stream
from tightrope.model.features import FeatureMap, declared, dimension_of, feature_map_of, rows_at
from tightrope.model.linear import LinearPolicy, widths
from tightrope.model.policy import DeterministicPolicy
from tightrope.types import FloatArray, IntArray, ProblemSpec

BLOCK = 8192  #: past states of one matrix product


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings; a scale of 1 is as proved.

    Attributes
    ----------
    steps : int
        T, for which the constants are set.
    delta : float
    span : float or None
        sp(v*); None takes what the problem declares.
    bonus_scale, horizon_scale : float
        Multiply beta and H.
    horizon_form : 'min' or 'printed'
    lazy : bool
    """

    steps: int
    delta: float = 0.05
    span: float | None = None
    bonus_scale: float = 1.0
    horizon_scale: float = 1.0
    horizon_form: Literal["min", "printed"] = "min"
    lazy: bool = False


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """[LIN, Theorem 5]: H and beta of Algorithm 2."""
    return Config(steps=steps, delta=delta)


def episode_length(spec: ProblemSpec, config: Config, dimension: int) -> int:
    """H of Algorithm 2, rounded up."""
    return max(1, math.ceil(unrounded_length(spec, config, dimension)))


def unrounded_length(spec: ProblemSpec, config: Config, dimension: int) -> float:
    """H of Algorithm 2: of sqrt(sp) T^(1/4) / d^(3/4) and (sp T / d^2)^(1/3)."""
    span, steps = declared(spec, "span", config.span, "olsvi-fh"), config.steps
    terms = (
        math.sqrt(span) * steps**0.25 / dimension**0.75,
        (span * steps / dimension**2) ** (1.0 / 3.0),
    )
    choose = min if config.horizon_form == "min" else max
    return config.horizon_scale * choose(terms)


def bonus_factor(config: Config, dimension: int, length: int) -> float:
    """beta = 40 d H sqrt(log(T / delta)) of Algorithm 2."""
    root = math.sqrt(math.log(config.steps / config.delta))
    return config.bonus_scale * 40.0 * dimension * length * root


def check(spec: ProblemSpec, config: Config) -> None:
    """Rewards in [-1, 1], a known span, at least one whole episode."""
    check_stream(spec, "olsvi-fh", points=True)
    check_unit_rewards(spec, "olsvi-fh")
    if config.horizon_form not in ("min", "printed"):
        raise ConfigError(f"horizon_form must be 'min' or 'printed', got {config.horizon_form!r}")
    check_settings(
        "olsvi-fh",
        config,
        positive=("horizon_scale",),
        not_negative=("bonus_scale",),
        counts=("steps",),
    )
    if not 0.0 < config.delta < 1.0:
        raise ConfigError(f"olsvi-fh needs delta in (0, 1), got {config.delta}")
    length = episode_length(spec, config, dimension_of(feature_map_of(spec)))
    if length > config.steps:
        raise ConfigError(
            f"steps = {config.steps} is less than one episode of H = {length} steps; "
            "run longer or lower horizon_scale"
        )


def check_unit_rewards(spec: ProblemSpec, name: str) -> None:
    """Raise ConfigError unless rewards are in [-1, 1], as [LIN] assumes."""
    low, high = spec.reward_range
    if low < -1.0 or high > 1.0:
        raise ConfigError(
            f"{name} needs rewards in [-1, 1], the problem pays [{low:g}, {high:g}]; divide them "
            f"by {max(-low, high):g} (gain and span scale along)"
        )


@dataclass(kw_only=True, eq=False)
class State:
    """Lambda (d, d), its sums (d,) and (d, S), and the plan (H, S) of the episode.

    With continuous states the plan is weights (H, d), and past_rows (n, d), past_states (n,) hold
    phi(x, a) and the next state of every step; `features` (S, A, d) is then empty.
    """

    spec: ProblemSpec
    config: Config
    episode: int
    length: int
    beta: float
    features: FloatArray
    gram: FloatArray
    reward_sum: FloatArray
    successor_sum: FloatArray
    planned_gram: FloatArray
    plans: int
    actions: IntArray
    values: FloatArray
    weights: FloatArray
    past_rows: FloatArray
    past_states: FloatArray

    def unmet(self) -> list[str]:
        """Why no theorem covers the run: with sp >= 1 a bound where H < 1 is more than T."""
        span = declared(self.spec, "span", self.config.span, "olsvi-fh")
        length = unrounded_length(self.spec, self.config, len(self.gram))
        if span >= 1.0 or length >= 1.0 or guarantee(self.config) is None:
            return []
        return [f"sp = {span:.3g} makes H = {length:.3g}, which was rounded up to 1"]


def init(spec: ProblemSpec, config: Config) -> State:
    """Lambda = I and no data."""
    features = feature_map_of(spec)
    dimension = dimension_of(features)
    length = episode_length(spec, config, dimension)
    state = State(
        spec=spec,
        config=config,
        episode=1,
        length=length,
        beta=bonus_factor(config, dimension, length),
        features=np.zeros((0, 0, 0)) if isinstance(features, FeatureMap) else features,
        gram=np.eye(dimension),
        reward_sum=np.zeros(dimension),
        successor_sum=np.zeros((dimension, spec.num_states)),
        planned_gram=np.eye(dimension),
        plans=0,
        actions=np.zeros((length, spec.num_states), dtype=np.int32),
        values=np.zeros((length, spec.num_states)),
        weights=np.zeros((length, dimension)),
        past_rows=np.zeros((0, dimension)),
        past_states=np.zeros(0),
    )
    _plan(state)
    return state


def policy(state: State) -> DeterministicPolicy | LinearPolicy:
    """Greedy for Q_h at step h of the episode."""
    features = state.spec.features
    if isinstance(features, FeatureMap):
        inverse = invert(state.planned_gram)
        return LinearPolicy(
            features, state.weights.copy(), inverse, state.beta, float(state.length)
        )
    return DeterministicPolicy(state.actions.copy())


def horizon(state: State) -> Stop:
    """One artificial episode."""
    return Stop("steps", state.length)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Algorithm 2: Lambda and the sums (last line of the loop), then the next episode's plan."""
    if isinstance(state.spec.features, FeatureMap):
        _remember(state, experience)
    else:
        add_to_statistics(
            state.features,
            experience.states,
            experience.actions,
            experience.rewards,
            state.gram,
            state.reward_sum,
            state.successor_sum,
        )
    state.episode += 1
    if not state.config.lazy or _doubled(state.planned_gram, state.gram):
        _plan(state)
    return state, {"plans": float(state.plans)}


def _doubled(before: FloatArray, after: FloatArray) -> bool:
    """Whether the determinant has at least doubled."""
    growth = np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1]
    return bool(growth >= math.log(2.0) - 1e-12)


def _plan(state: State) -> None:
    """Backward from h = H: ``w_h = Lambda^-1 sum phi (r + V_{h+1}(x'))``, bonus, clip at H."""
    if isinstance(state.spec.features, FeatureMap):
        _plan_points(state, state.spec.features)
    else:
        state.actions, state.values, state.weights = least_squares_value_iteration(
            state.features,
            state.gram,
            state.reward_sum,
            state.successor_sum,
            state.beta,
            state.spec.available,
            float(state.length),
            state.length,
        )
    state.plans += 1
    state.planned_gram = state.gram.copy()


def _remember(state: State, experience: Experience) -> None:
    """Keep phi(x, a) and x' of every step, and their sums."""
    number = len(experience.actions)
    rows = rows_at(state.spec.features, experience.states[:-1])
    rows = rows[np.arange(number), experience.actions]
    state.gram += rows.T @ rows
    state.reward_sum += rows.T @ experience.rewards
    state.past_rows = np.concatenate([state.past_rows, rows])
    state.past_states = np.concatenate([state.past_states, experience.states[1:]])


def _plan_points(state: State, features: FeatureMap) -> None:
    """The same recursion over all past next states, in blocks."""
    inverse = invert(state.gram)
    blocks = [slice(i, i + BLOCK) for i in range(0, len(state.past_states), BLOCK)]
    after = [features(state.past_states[block]) for block in blocks]
    bonus = [state.beta * widths(rows, inverse) for rows in after]
    target = state.reward_sum
    for h in range(state.length - 1, -1, -1):
        state.weights[h] = inverse @ target
        target = state.reward_sum.copy()
        for block, rows, extra in zip(blocks, after, bonus):
            q = np.minimum(rows @ state.weights[h] + extra, state.length)
            target += state.past_rows[block].T @ q.max(axis=1)


def guarantee(config: Config) -> str | None:
    """Theorem 5 if H and beta are as proved."""
    proved = config.bonus_scale == 1.0 and config.horizon_scale == 1.0
    if proved and config.horizon_form == "min" and not config.lazy:
        return "[LIN, Theorem 5]: regret of order sqrt(sp) (d T)^(3/4) + (sp d T)^(2/3)"
    return None


LEARNER = Learner(
    name="olsvi-fh",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "weakly-communicating", "linear-model"}),
    reference="[LIN, Algorithm 2]",
)
