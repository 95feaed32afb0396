"""ConRL: optimism for constrained episodic reinforcement learning, with the exact planner.

Reference: [CON] Brantley et al. 2020, Algorithm 1 with BasicConPlanner, Eqs. (4)-(9) and (14).

Every episode: add the bonus of Eq. (9) to the estimated rewards, take it from the estimated costs,
solve the constrained program of Eq. (14) exactly in the estimated model (a mixture of at most m + 1
deterministic policies), play one component, and update the estimates with all H transitions.

Deviations:
1. An unvisited pair has a self-loop in the estimated model (Eq. (4) gives it a row of zeros, in
   which Eq. (14) is infeasible).
2. If the optimistic model is infeasible, the policy of least violation is played and counted in
   `infeasible_plans` (the paper assumes that the confidence sets hold).
3. Constraints may be floors (``>=``): the bonus is then added to the cost. Theorem 3.4 holds as it
   stands: a floor x on the cost c is the capacity H - x on 1 - c.
The proof of Theorem 3.4 uses optimistic values of at most H, which nothing enforces; the switch
`stage_clip` bounds them without losing optimism or linearity and is off in `theory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.estimation.counts import Counts, add_episodes, empty_counts
from tightrope.estimation.radii import conrl_bonus
from tightrope.kernels.counts import optimistic_tables
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.mdp import Tables
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy
from tightrope.planning import column_generation
from tightrope.types import Episodic, FloatArray, IntArray, ProblemSpec, as_number

RANGE_EPS = 1e-9
ONE_EPISODE = Stop("episodes", 1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Constants of ConRL; the defaults are those of Theorem 3.4.

    Attributes
    ----------
    delta : float in (0, 1)
        Failure probability of the bonus.
    bonus : 'eq9' or 'flat'
        Eq. (9), or ``1 / sqrt(N)``.
    bonus_scale : float >= 0
        Multiplies the bonus; 1 as proved.
    unvisited_bonus : float or None
        Bonus of pairs never visited, not multiplied by `bonus_scale`; None takes the formula.
    stage_clip : bool
        Bound the optimistic reward of step h (from 1), and the cost of a floor, by H - h + 1 from
        above, and the cost of a capacity by -(H - h) from below.
    """

    delta: float = 0.1
    bonus: str = "eq9"
    bonus_scale: float = 1.0
    unvisited_bonus: float | None = None
    stage_clip: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_number(self.delta, "delta"))
        if not 0.0 < self.delta < 1.0:
            raise ConfigError(f"delta must be in (0, 1), got {self.delta}")
        if self.bonus not in ("eq9", "flat"):
            raise ConfigError(f"bonus must be 'eq9' or 'flat', got {self.bonus!r}")
        for name in ("bonus_scale", "unvisited_bonus"):
            value = getattr(self, name)
            if value is None and name == "unvisited_bonus":
                continue
            number = as_number(value, name)
            if not 0.0 <= number < math.inf:
                raise ConfigError(f"{name} must be a finite number >= 0, got {value!r}")
            object.__setattr__(self, name, number)  # no array that could be written into


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """The constants of Theorem 3.4: Eq. (9) unscaled, on unvisited pairs too."""
    return Config(delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """ConfigError unless the problem is episodic, the same at every step, and within [0, 1]."""
    check_problem(spec, "conrl")


def check_problem(spec: ProblemSpec, name: str) -> None:
    """What every ConRL learner asks of a problem."""
    if not isinstance(spec.criterion, Episodic):
        raise ConfigError(f"{name} needs an episodic problem, got {spec.criterion}")
    if spec.staged:
        raise ConfigError(
            f"{name} estimates one table for all steps, but this model's tables differ by step; "
            "put the step into the state"
        )
    ranges = [("rewards", *spec.reward_range)]
    ranges += [
        (f"costs '{name}'", low, high)
        for name, (low, high) in zip(spec.cost_names, spec.cost_ranges)
    ]
    for label, low, high in ranges:
        if low < -RANGE_EPS or high > 1.0 + RANGE_EPS:
            raise ConfigError(
                f"{name} needs {label} in [0, 1], got [{low:.6g}, {high:.6g}]; rescale the model "
                "(and its capacities) first"
            )


@dataclass(kw_only=True, eq=False)
class State:
    """What ConRL carries from episode to episode; `pool` holds the policies of the last plan."""

    spec: ProblemSpec
    config: Config
    counts: Counts
    pool: IntArray  #: (P, H, S) int32, the first `basic` rows are the mixture that is played
    weights: FloatArray  #: (basic,)
    multipliers: FloatArray  #: (m,)
    episode: int = 1  #: the episode that the present plan is for, from 1
    basic: int = 0
    value: float = 0.0  #: optimum of the optimistic model
    gap: float = 0.0
    replans: int = 0
    infeasible_plans: int = 0
    dynamic_programs: int = 0


def init(spec: ProblemSpec, config: Config) -> State:
    """Step 1 of Algorithm 1: no data, and the plan for the first episode."""
    check(spec, config)
    state = State(spec=spec, config=config, **empty_plan(spec))
    _plan(state)
    return state


def empty_plan(spec: ProblemSpec) -> dict[str, Any]:
    """The fields of a state that plans by `solve`, before it has."""
    size = column_generation.pool_size(spec.num_costs)
    return {
        "counts": empty_counts(spec),
        "pool": np.zeros((size, spec.horizon, spec.num_states), dtype=np.int32),
        "weights": np.zeros(0),
        "multipliers": np.zeros(spec.num_costs),
    }


def policy(state: State) -> Policy:
    """The mixture that the last plan found."""
    return mixed(state.pool[: state.basic].copy(), state.weights.copy())


def mixed(actions: IntArray, weights: FloatArray) -> Policy:
    """The policies (K, H, S) as one."""
    parts = tuple(DeterministicPolicy(table) for table in actions)
    return parts[0] if len(parts) == 1 else MixturePolicy(parts, weights)


def horizon(state: State) -> Stop:
    """Replan after every episode."""
    return ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Steps 2-6 of Algorithm 1: count, add the bonus, plan."""
    count(state, experience)
    _plan(state)
    info: Info = {
        "replans": state.replans,
        "infeasible_plans": state.infeasible_plans,
        "dynamic_programs": state.dynamic_programs,
        "optimistic_value": state.value,
        "planning_gap": state.gap,
        "multiplier": state.multipliers,
    }
    return state, info


def count(state: Any, experience: Experience) -> None:
    """Step 2: add the episodes to a state's `counts`, and move its `episode` on."""
    e = experience
    add_episodes(state.counts, e.states, e.actions, e.rewards, e.costs)
    state.episode += len(e.actions)


def optimistic_model(spec: ProblemSpec, config: Config, counts: Counts, episode: int) -> Tables:
    """The bonus-enhanced model of an episode [CON, Eq. (9)], its costs signed: less is better."""
    unit = float(config.bonus_scale)  # bonus of a pair visited once
    if config.bonus == "eq9":
        size = {"num_states": spec.num_states, "num_actions": spec.num_actions}
        size |= {"horizon": spec.horizon, "num_costs": spec.num_costs}
        unit *= float(conrl_bonus(1, episode, delta=config.delta, **size))
    unvisited = unit if config.unvisited_bonus is None else config.unvisited_bonus
    rewards, costs = np.empty(counts.reward_sums.shape), np.empty(counts.cost_sums.shape)
    optimistic_tables(
        counts.visits, counts.reward_sums, counts.cost_sums, spec.signs, unit, unvisited, rewards,
        costs,
    )  # fmt: skip
    rewards, costs = rewards[None], costs[:, None]
    if config.stage_clip:
        left: FloatArray = np.arange(spec.horizon, 0, -1.0)[:, None, None]  # H - h + 1
        rewards = np.minimum(rewards, left)
        # what a capacity's cost can be later is at most H - h, what a floor's (signed) can be is 0
        costs = np.maximum(costs, (spec.signs[:, None, None, None] > 0) - left)
    return Tables(
        counts.start, counts.stop, counts.successors, counts.p_hat, rewards, costs,
        np.array(spec.available), np.array(spec.initial),
    )  # fmt: skip


def _plan(state: State) -> None:
    """BasicConPlanner, Eq. (14), from the columns and the multipliers of the episode before."""
    spec = state.spec
    tables = optimistic_model(spec, state.config, state.counts, state.episode)
    solve(state, tables, spec.capacities * spec.signs)


def solve(state: Any, tables: Tables, limits: FloatArray) -> None:
    """Plan from what the state planned last: the mixture, its multipliers, value and gap."""
    found = column_generation.solve(
        tables, state.spec.horizon, limits, state.pool, warm=state.basic,
        multipliers=state.multipliers,
    )  # fmt: skip
    state.pool[: found.slots.size] = state.pool[found.slots]
    state.basic, state.weights = found.slots.size, found.weights
    state.replans += 1
    state.dynamic_programs += found.programs
    state.gap = relative_gap(found.lower, found.upper)
    if found.status is Status.INFEASIBLE:
        state.infeasible_plans += 1
        state.value = float(found.weights @ found.values[:, 0])
    else:
        state.multipliers, state.value = found.multipliers, found.lower


def relative_gap(lower: float, upper: float) -> float:
    """What `Solution.gap` is, of a plan that earns `lower`."""
    return max(0.0, upper - lower) / max(1.0, abs(lower))


def guarantee(config: Config) -> str | None:
    """Theorem 3.4 holds for the constants of `theory` (also with the stage clip)."""
    proved = config.bonus == "eq9" and config.bonus_scale == 1.0 and config.unvisited_bonus is None
    return "[CON, Theorem 3.4]" if proved else None


LEARNER = Learner(
    name="conrl",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints"}),
    reference="Brantley et al. 2020, Constrained episodic reinforcement learning, Algorithm 1",
)
