"""ConRL with hard budgets over K episodes, which may be stayed out of.

Reference: [CON] Brantley et al. 2020, Section 5: Algorithm 1 with KnapsackConPlanner, Eq. (13).

ConRL plans with ``(1 - epsilon) B_i / K`` an episode, and stops for ever, by its null action, when
the budgets say so. The problem needs a null action (`problems.with_null_action`): it gives the null
episode, is known exactly, and is never estimated nor given a bonus.

Deviations:
1. As in `conrl`: self-loops of unvisited pairs, least violation of an infeasible optimistic model.
2. `stop` = 'on-violation' is the paper's rule: null for ever once a budget is exceeded. Ours never
   exceed one, on any sample path: 'before-violation' stays out of an episode when what was used
   plus H times the largest cost of a step could exceed a budget; 'before-violation-step' plays the
   steps that surely fit and takes the null action from then on (it must exist in every state).
3. Any epsilon in [0, 1) is allowed; below its theory value, or with another stopping rule than the
   paper's, no theorem is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError
from tightrope.estimation.counts import Counts, add_episodes
from tightrope.learners import conrl
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.policy import DeterministicPolicy, Policy
from tightrope.types import FloatArray, IntArray, ProblemSpec, as_number, as_whole

STOPS = ("on-violation", "before-violation", "before-violation-step")
RUNNING, VIOLATED, MIGHT_VIOLATE = 0, 1, 2
FOR_EVER = Stop("episodes", 1024)
BUDGET_EPS = 1e-12  # of a budget: sums of costs are rounded


@dataclass(frozen=True, kw_only=True)
class Config(conrl.Config):
    """Constants of ConRL's bonus (see `learners.conrl`), the budgets and when to stop.

    Attributes
    ----------
    budgets : tuple of m numbers, or one number where m = 1
        What all `episodes` together may consume.
    episodes : int
        K.
    epsilon : float in [0, 1)
        The plan keeps (1 - epsilon) of the budgets.
    stop : 'on-violation', 'before-violation' or 'before-violation-step'
    null_action, out_state : int
        Where the null action and its absorbing state are; -1 is the last.
    sizes : (S, A, H, m), or () if unknown
        Of the problem that `theory` was asked for: the `guarantee` is checked against them.
    """

    budgets: tuple[float, ...] = ()
    episodes: int = 1
    epsilon: float = 0.0
    stop: str = "on-violation"
    null_action: int = -1
    out_state: int = -1
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        budgets = [as_number(x, "each of budgets") for x in np.atleast_1d(self.budgets)]
        object.__setattr__(self, "budgets", tuple(budgets))
        object.__setattr__(self, "sizes", tuple(self.sizes))  # JSON brings lists
        for name, least in (("episodes", 1), ("null_action", -1), ("out_state", -1)):
            object.__setattr__(self, name, as_whole(getattr(self, name), name, least))
        object.__setattr__(self, "epsilon", as_number(self.epsilon, "epsilon"))
        if self.stop not in STOPS:
            raise ConfigError(f"stop must be one of {STOPS}, got {self.stop!r}")
        if self.stage_clip:
            raise ConfigError("conrl-knapsack has no stage_clip")


def aggregate_regret(spec: ProblemSpec, episodes: int, delta: float, c: float = 1.0) -> float:
    """AggReg(delta): K times the bound of Theorem 3.4 at k = K [CON, Section 5].

    `c` is the absolute constant that the paper leaves open.
    """
    return c * _aggregate_regret(_sizes(spec), episodes, delta)


def _sizes(spec: ProblemSpec) -> tuple[int, ...]:
    return spec.num_states, spec.num_actions, spec.horizon, spec.num_costs


def _aggregate_regret(sizes: tuple[int, ...], k: int, delta: float) -> float:
    S, A, H, m = sizes
    log = math.log(S * A * H * (m + 1) * k / delta)
    first = S * math.sqrt(A * H**3) * math.sqrt(math.log(k) * log) / math.sqrt(k)
    return k * (first + S**1.5 * A * H**2 * math.sqrt(math.log(2) + log) / k)


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """Theorem 5.1: epsilon = AggReg(delta) / min_i B_i, with B_i = K times the capacity.

    Where that is 1 or more, the theorem says nothing, and `check` refuses it with the numbers.
    """
    budgets = tuple(float(x) for x in episodes * spec.capacities)
    smallest = min(budgets, default=0.0)
    wanted = aggregate_regret(spec, episodes, delta)
    return Config(
        delta=delta, budgets=budgets, episodes=episodes,
        epsilon=wanted / smallest if smallest > 0 else math.inf, sizes=_sizes(spec),
    )  # fmt: skip


def check(spec: ProblemSpec, config: Config) -> None:
    """What ConRL asks, budgets, an epsilon in [0, 1), and a null action."""
    conrl.check_problem(spec, "conrl-knapsack")
    if spec.num_costs == 0:
        raise ConfigError("conrl-knapsack keeps budgets of costs, and the problem has no cost")
    if len(config.budgets) != spec.num_costs:
        raise ConfigError(f"got {len(config.budgets)} budgets, expected m = {spec.num_costs}")
    if (spec.signs < 0).any():
        raise ConfigError("budgets bound costs from above: this problem has a '>=' cost")
    for name, budget in zip(spec.cost_names, config.budgets):
        if not (math.isfinite(budget) and budget >= 0):
            raise ConfigError(
                f"budget of '{name}' is {budget}: the least achievable consumption is 0"
            )
    if not 0.0 <= config.epsilon < 1.0:
        need = aggregate_regret(spec, config.episodes, config.delta)
        raise ConfigError(
            f"epsilon must be in [0, 1), got {config.epsilon:.6g}; Theorem 5.1 asks AggReg/min B = "
            f"{need:.6g}/{min(config.budgets):.6g}: it needs budgets above {need:.6g}. "
            "Give epsilon (preset 'tuned')"
        )
    if config.sizes not in ((), _sizes(spec)):
        raise ConfigError(
            f"sizes are {config.sizes}, expected those of the problem: {_sizes(spec)}"
        )
    for name, size in (("null_action", spec.num_actions), ("out_state", spec.num_states)):
        if getattr(config, name) >= size:
            raise ConfigError(f"{name} must be below {size}, got {getattr(config, name)}")
    starts = np.flatnonzero(spec.initial > 0)
    needed = np.arange(spec.num_states) if config.stop == STOPS[2] else starts
    missing = needed[~spec.available[needed, config.null_action]]
    if missing.size:
        raise ConfigError(
            f"the null action {config.null_action % spec.num_actions} is not available in state "
            f"{missing[0]}; make the problem with problems.with_null_action"
            + ("(model, anywhere=True)" if config.stop == STOPS[2] else "(model)")
        )


@dataclass(kw_only=True, eq=False)
class State:
    """What is carried from episode to episode."""

    spec: ProblemSpec
    config: Config
    counts: Counts
    pool: IntArray  #: (P, H, S) int32, the first `basic` rows are the mixture that is planned
    weights: FloatArray  #: (basic,)
    multipliers: FloatArray  #: (m,)
    used: FloatArray  #: (m,) consumption so far
    safe_steps: int  #: steps of the next episode that are played
    episode: int = 1  #: the episode that the present plan is for, from 1
    basic: int = 0
    value: float = 0.0
    gap: float = 0.0
    replans: int = 0
    infeasible_plans: int = 0
    dynamic_programs: int = 0
    earned: float = 0.0  #: sampled reward so far
    stop_reason: int = RUNNING  #: 0 running, 1 a budget was exceeded, 2 one could be
    stopped_at: int = 0  #: first episode stayed out of; 0 while running


def init(spec: ProblemSpec, config: Config) -> State:
    """No data; the null action is known to lead out."""
    check(spec, config)
    state = State(
        spec=spec,
        config=config,
        used=np.zeros(spec.num_costs),
        safe_steps=spec.horizon,
        **conrl.empty_plan(spec),
    )
    null, out = config.null_action % spec.num_actions, config.out_state % spec.num_states
    rows = np.flatnonzero(spec.available[:, null]) * spec.num_actions + null
    state.counts.successors[state.counts.start[rows]] = out
    _decide(state)
    _plan(state)
    return state


def policy(state: State) -> Policy:
    """The planned mixture as far as it is safe, the null action from then on."""
    spec, null = state.spec, state.config.null_action % state.spec.num_actions
    if state.stop_reason:
        actions = np.argmax(spec.available, axis=1).astype(np.int32)
        actions[spec.available[:, null]] = null
        return DeterministicPolicy(actions)
    planned = state.pool[: state.basic].copy()
    planned[:, state.safe_steps :] = null  # all steps are safe except under the step-level rule
    return conrl.mixed(planned, state.weights.copy())


def horizon(state: State) -> Stop:
    """Replan after every episode, until there is nothing left to decide."""
    return FOR_EVER if state.stop_reason else conrl.ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Add up what was consumed, decide whether to go on, and plan."""
    e, spec = experience, state.spec
    largest = spec.cost_ranges[:, 1]
    nothing = e.actions == state.config.null_action % spec.num_actions
    paid = np.concatenate([e.rewards[..., None], e.costs], axis=2)[nothing]
    if paid.any():
        names = ("reward", *spec.cost_names)
        i = int(np.abs(paid).max(axis=0).argmax())
        raise ConfigError(
            f"the null action must give reward 0 and consume nothing, but its {names[i]} was "
            f"{paid[:, i][np.abs(paid[:, i]).argmax()]:.6g}"
        )
    if (e.costs > largest + conrl.RANGE_EPS).any():
        i = int(np.argmax((e.costs > largest + conrl.RANGE_EPS).any(axis=(0, 1))))
        raise ConfigError(
            f"cost '{spec.cost_names[i]}' of {e.costs[:, :, i].max():.6g} exceeds the declared "
            f"range, at most {largest[i]:.6g}: budgets cannot be kept surely"
        )
    state.used = state.used + e.costs.sum(axis=(0, 1))
    state.earned += float(e.rewards.sum())
    state.episode += len(e.actions)
    if not state.stop_reason:
        add_episodes(state.counts, e.states, e.actions, e.rewards, e.costs)
        _decide(state)
        _plan(state)
    return state, {
        "stop_reason": state.stop_reason,
        "stopped_at": state.stopped_at,
        "earned": state.earned,
        "budget_left": np.array(state.config.budgets) - state.used,
        "infeasible_plans": state.infeasible_plans,
        "optimistic_value": state.value,
        "multiplier": state.multipliers,
    }


def _decide(state: State) -> None:
    """The stopping rule."""
    spec, config = state.spec, state.config
    budgets = np.array(config.budgets)
    left = budgets - state.used
    slack = BUDGET_EPS * np.maximum(1.0, budgets)
    largest = np.maximum(spec.cost_ranges[:, 1], 0.0)
    reason = RUNNING
    if config.stop == "on-violation":
        reason = VIOLATED if (left < -slack).any() else RUNNING
    else:
        fits = np.full(spec.num_costs, float(spec.horizon))
        some = largest > 0
        fits[some] = np.floor((left[some] + slack[some]) / largest[some])
        state.safe_steps = int(np.clip(fits.min(), 0, spec.horizon))
        least = 1 if config.stop == "before-violation-step" else spec.horizon
        reason = MIGHT_VIOLATE if state.safe_steps < least else RUNNING
    if reason and not state.stop_reason:
        state.stop_reason, state.stopped_at = reason, state.episode


def _plan(state: State) -> None:
    """KnapsackConPlanner, Eq. (13)."""
    if state.stop_reason:
        return
    spec, config = state.spec, state.config
    tables = conrl.optimistic_model(spec, config, state.counts, state.episode)
    # the null episode is known: no reward, no cost, no bonus
    null, out = config.null_action % spec.num_actions, config.out_state % spec.num_states
    for table in (tables.rewards, *tables.costs):
        table[:, :, null] = 0.0
        table[:, out] = 0.0
    limits = (1.0 - config.epsilon) * np.array(config.budgets) / config.episodes
    conrl.solve(state, tables, limits)


def guarantee(config: Config) -> str | None:
    """Theorem 5.1 if AggReg(delta) / min_i B_i <= epsilon < 1, with the paper's stopping rule."""
    if not conrl.guarantee(config) or not config.sizes or config.stop != "on-violation":
        return None
    wanted = _aggregate_regret(config.sizes, config.episodes, config.delta)
    enough = wanted <= config.epsilon * min(config.budgets, default=0.0) * (1 + 1e-12)
    return "[CON, Theorem 5.1]" if enough and config.epsilon < 1 else None


LEARNER = Learner(
    name="conrl-knapsack",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints", "null-action"}),
    reference="Brantley et al. 2020, Constrained episodic reinforcement learning, Section 5",
)
