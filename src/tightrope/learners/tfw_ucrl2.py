"""TFW-UCRL2: vectorial feedback on one stream, Frank-Wolfe with a gradient threshold (baseline).

Reference: Cheung 2019, Regret minimization for reinforcement learning with vectorial feedback and
complex objectives, NeurIPS, Algorithm 1 (Toc-UCRL2) with the Frank-Wolfe oracle.

The stream's mean feedback w = (reward, costs) is to maximise a concave objective, here

    g(w) = (1/K) (coefficient * w_0 - 1/2 ||max(w - target, 0)||^2),   K = 1 + m,

with target = (1, capacities per step). An epoch plays the optimistic policy for the scalar reward
grad g(w) . v(s, a); it ends when the pair to be played next has been visited in it as often as in
all epochs before, or when the gradient's changes since its start add up to more than the threshold.

What is said below of "the program" is the published program of [CON]'s authors. Cheung's paper was
not at hand: what is said of it is not checked against its text.

Deviations:
1. The threshold is tested at the ends of stretches that are too short to pass it within, and step
   by step near it: the same epochs.
2. Extended value iteration runs on the half-lazy chain, so that periodic models converge.
3. `radius` = 'program' is the radius that the program was run with, not Cheung's; 'cheung' is its
   other one, after Cheung. The program's pairs without a visit have the uniform law in place of an
   estimate, and at t = 1 a radius below 1; here every law and feedback in [0, 1] is allowed them.
4. Cheung takes any concave g with a gradient; here g is the one above, the program's. The reward's
   target 1 is never exceeded by a mean of rewards in [0, 1].
5. The program shows the learner the conditional means of the feedback: `feedback='mean'`.
6. No theorem is claimed, for no configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.ucrl import count_transitions, interval_value_iteration
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.model.policy import DeterministicPolicy
from tightrope.types import Average, FloatArray, IntArray, ProblemSpec, as_number

RADII = ("cheung", "program")
LONGEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Config:
    """The objective, the radii and the planner.

    Attributes
    ----------
    delta : float in (0, 1)
    radius : 'cheung' or 'program'
        ``sqrt(2 x log / N) + 3 log / N`` with log = log(12 K S A t^2 / delta) for feedback and
        log(12 K S^2 A t^2 / delta) for transitions, or
        ``max(sqrt(x log(t+1) / N), log(t+1) / N)``; intervals are clipped to [0, 1].
    radius_scale : float >= 0
        Multiplies the radii.
    coefficient : float >= 0
        Weight of the reward against the squared violations.
    threshold : float > 0 or None
        Of the gradient's changes; None is 1/sqrt(K).
    tolerance : float > 0
        Of extended value iteration, at most; it also falls as 1e-3 / t.
    max_iterations : int
    """

    delta: float = 0.1
    radius: str = "cheung"
    radius_scale: float = 1.0
    coefficient: float = 1e-4
    threshold: float | None = None
    tolerance: float = 1e-7
    max_iterations: int = 20_000

    def __post_init__(self) -> None:
        check_settings(
            "tfw-ucrl2",
            self,
            positive=("threshold", "tolerance"),
            not_negative=("radius_scale", "coefficient"),
            counts=("max_iterations",),
        )
        if not 0.0 < as_number(self.delta, "delta") < 1.0:
            raise ConfigError(f"delta must be in (0, 1), got {self.delta}")
        if self.radius not in RADII:
            raise ConfigError(f"radius must be one of {RADII}, got {self.radius!r}")


def theory(spec: ProblemSpec, steps: int, delta: float) -> Config:
    """The radii after Cheung (deviation 3). The reward's coefficient only chooses g."""
    return Config(delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """A stream with feedback in [0, 1]."""
    if not isinstance(spec.criterion, Average):
        raise ConfigError(f"tfw-ucrl2 needs criterion Average(), got {spec.criterion}")
    if (spec.signs < 0).any():
        raise ConfigError(
            "tfw-ucrl2 offers no '>=' costs; put 1 - c with capacity 1 - x in place of the floor x "
            "on c"
        )
    ranges = np.vstack([spec.reward_range, spec.cost_ranges])
    if ranges.min() < 0 or ranges.max() > 1:
        raise ConfigError(
            f"tfw-ucrl2 needs rewards and costs in [0, 1], got [{ranges.min():.6g}, "
            f"{ranges.max():.6g}]"
        )


@dataclass(kw_only=True, eq=False)
class State:
    """Counts, the running mean, and the epoch under way."""

    spec: ProblemSpec
    config: Config
    time: int  #: of the next step, from 1
    epoch: int
    visits: FloatArray  #: (S, A)
    moves: FloatArray  #: (S, A, S)
    sums: FloatArray  #: (K, S, A) of the feedback
    mean: FloatArray  #: (K,) running mean of the feedback
    gradient: FloatArray  #: (K,) at the epoch's start
    changed: float  #: sum of the gradient's changes in this epoch
    room: FloatArray  #: (S, A) visits left before a count has doubled
    values: FloatArray  #: (S,)
    actions: IntArray  #: (S,)
    iterations: int
    converged: bool


def init(spec: ProblemSpec, config: Config) -> State:
    """No data."""
    check(spec, config)
    K, pairs = 1 + spec.num_costs, (spec.num_states, spec.num_actions)
    state = State(
        spec=spec,
        config=config,
        time=1,
        epoch=0,
        visits=np.zeros(pairs),
        moves=np.zeros((*pairs, spec.num_states)),
        sums=np.zeros((K, *pairs)),
        mean=np.zeros(K),
        gradient=np.zeros(K),
        changed=0.0,
        room=np.ones(pairs),
        values=np.zeros(spec.num_states),
        actions=np.zeros(spec.num_states, dtype=np.int32),
        iterations=0,
        converged=True,
    )
    _start_epoch(state)
    return state


def policy(state: State) -> DeterministicPolicy:
    """The optimistic policy of the epoch."""
    return DeterministicPolicy(state.actions.copy())


def horizon(state: State) -> Stop:
    """Until the next pair has no visits left, or the gradient could pass the threshold.

    Feedback in [0, 1] moves the mean by at most 1/t a step, the gradient by sqrt(m)/(K t): n steps
    add at most ``n d + n^2 slope / 2`` to its changes, d being the present one.
    """
    K, t = state.mean.size, state.time
    left = _threshold(state) - state.changed
    present = float(np.linalg.norm(_gradient(state) - state.gradient))
    slope = math.sqrt(K) / (K * t)
    steps = (math.sqrt(present**2 + 2 * slope * max(left, 0.0)) - present) / slope
    return Stop("visits-left", int(min(max(1.0, steps), LONGEST)), counts=state.room)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Add what was seen; start an epoch at the next pair's doubling or at the threshold."""
    e, spec = experience, state.spec
    feedback = np.column_stack([e.rewards, e.costs])
    n = len(feedback)
    # running means and gradients at every step of the stretch
    steps = state.time - 1 + np.arange(1, n + 1)[:, None]
    means = (state.mean * (state.time - 1) + np.cumsum(feedback, axis=0)) / steps
    moved = gradients(means, state.config, spec) - state.gradient
    state.changed += float(np.linalg.norm(moved, axis=1).sum())
    state.mean = means[-1].copy()
    state.time += n
    ignored = np.zeros_like(state.visits)
    seen = np.zeros_like(state.visits)
    count_transitions(e.states, e.actions, e.rewards, seen, state.moves, ignored)
    for i in range(feedback.shape[1]):
        np.add.at(state.sums[i], (e.states[:-1], e.actions), feedback[:, i])
    state.visits += seen
    state.room -= seen
    last = int(e.states[-1])
    if state.room[last, state.actions[last]] <= 0 or state.changed > _threshold(state):
        _start_epoch(state)
    return state, {
        "epochs": float(state.epoch),
        "iterations": float(state.iterations),
        "converged": float(state.converged),
        "gradient": state.gradient,
    }


def gradients(means: FloatArray, config: Config, spec: ProblemSpec) -> FloatArray:
    """grad g at the rows of `means` (n, K)."""
    K = means.shape[-1]
    target = np.concatenate([[1.0], spec.capacities])
    out = -np.maximum(means - target, 0.0)
    out[..., 0] += config.coefficient
    return out / K


def _gradient(state: State) -> FloatArray:
    return gradients(state.mean[None], state.config, state.spec)[0]


def _threshold(state: State) -> float:
    given = state.config.threshold
    return 1.0 / math.sqrt(state.mean.size) if given is None else given


def _start_epoch(state: State) -> None:
    """Gradient, radii, extended value iteration."""
    spec, config, t = state.spec, state.config, state.time
    state.epoch += 1
    state.gradient, state.changed = _gradient(state), 0.0
    state.room = np.maximum(1.0, state.visits)
    number = np.maximum(1.0, state.visits)
    seen = state.visits > 0
    v_hat, p_hat = state.sums / number, state.moves / number[:, :, None]
    sizes = state.mean.size * spec.num_states * spec.num_actions
    if config.radius == "program":
        logs = (math.log(t + 1),) * 2
    else:
        logs = (
            math.log(12 * sizes * t * t / config.delta),
            math.log(12 * sizes * spec.num_states * t * t / config.delta),
        )
    v_radius = np.where(seen, _radius(config, v_hat, number, logs[0]), 1.0)
    p_radius = np.where(seen[:, :, None], _radius(config, p_hat, number[:, :, None], logs[1]), 1.0)
    # the best feedback for the gradient, entry by entry, within [0, 1]
    weights = state.gradient[:, None, None]
    best = np.clip(v_hat + np.sign(weights) * v_radius, 0.0, 1.0)
    actions, values, _low, _high, iterations = interval_value_iteration(
        p_hat, p_radius, (weights * best).sum(axis=0), np.array(spec.available), state.values,
        min(1e-3 / t, config.tolerance), config.max_iterations,
    )  # fmt: skip
    state.actions[:] = actions
    state.values, state.iterations = values, int(iterations)
    state.converged = bool(iterations < config.max_iterations)


def _radius(config: Config, x: FloatArray, number: FloatArray, log: float) -> FloatArray:
    if config.radius == "program":
        radius = np.maximum(np.sqrt(x * log / number), log / number)
    else:
        radius = np.sqrt(2 * x * log / number) + 3 * log / number
    return np.minimum(1.0, config.radius_scale * radius)


def guarantee(config: Config) -> None:
    """None is claimed, for no configuration."""


LEARNER = Learner(
    name="tfw-ucrl2",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "constraints", "weakly-communicating"}),
    reference="Cheung 2019, Regret minimization for RL with vectorial feedback, Algorithm 1",
)
