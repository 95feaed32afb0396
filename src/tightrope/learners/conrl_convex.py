"""ConRL for a concave objective under convex constraints.

Reference: [CON] Brantley et al. 2020, Section 4: Algorithm 1 with ConvexConPlanner, Eq. (15).

Every episode: solve ``max f(rho . r)`` over occupancy measures of the estimated transitions and
over rewards within the bonus of their estimates, subject to ``g(rho . c) <= 0`` for some costs
within the bonus of theirs; play one component of the mixture that this gives.

Deviations:
1. As in `conrl`: self-loops of unvisited pairs; least violation if the optimistic program is
   infeasible.
2. `within` keeps the values that f and g see in [0, H], where the true ones are: recorded, off in
   `theory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.estimation.counts import Counts, empty_counts, means
from tightrope.learners import conrl
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.policy import Policy
from tightrope.planning import functions
from tightrope.planning.convex import make_master
from tightrope.planning.convex_columns import Reach, first_columns, solve
from tightrope.types import FloatArray, IntArray, ProblemSpec, as_number


@dataclass(frozen=True, kw_only=True)
class Config(conrl.Config):
    """Constants of ConRL's bonus (see `learners.conrl`), f and g.

    Attributes
    ----------
    objective : 'linear', 'log' or 'package.module:function'
        f of the expected reward; see `planning.functions` and `planning.convex`.
    constraint : 'capacities', 'norm' or 'package.module:function'
        g of the expected costs (m,).
    within : bool
        Keep the values that f and g see in [0, H].
    tolerance : float > 0
        Relative gap of the planner.
    """

    objective: str = "linear"
    constraint: str = "capacities"
    within: bool = False
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage_clip:
            raise ConfigError("conrl-convex has no stage_clip: the box of Eq. (15) is symmetric")
        if not 0 < as_number(self.tolerance, "tolerance") < np.inf:
            raise ConfigError(f"tolerance must be a number > 0, got {self.tolerance}")


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """The constants of Theorem 4.1: those of Theorem 3.4."""
    return Config(delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """What ConRL asks, and an f and a g that exist."""
    conrl.check_problem(spec, "conrl-convex")
    functions.objective(config.objective)
    functions.constraint(config.constraint, spec.capacities)


@dataclass(kw_only=True, eq=False)
class State:
    """What is carried from episode to episode."""

    spec: ProblemSpec
    config: Config
    episode: int  #: the episode that the present plan is for, from 1
    counts: Counts
    actions: IntArray  #: (K, H, S) int32, the mixture that is played
    weights: FloatArray  #: (K,)
    value: float  #: f at the optimistic optimum
    gap: float
    prices: FloatArray  #: (1 + m,)
    infeasible_plans: int
    dynamic_programs: int


def init(spec: ProblemSpec, config: Config) -> State:
    """No data, and the plan for the first episode."""
    check(spec, config)
    state = State(
        spec=spec,
        config=config,
        episode=1,
        counts=empty_counts(spec),
        actions=np.zeros((0, spec.horizon, spec.num_states), dtype=np.int32),
        weights=np.zeros(0),
        value=0.0,
        gap=0.0,
        prices=np.zeros(1 + spec.num_costs),
        infeasible_plans=0,
        dynamic_programs=0,
    )
    _plan(state)
    return state


def policy(state: State) -> Policy:
    """The mixture that the last plan found."""
    return conrl.mixed(state.actions.copy(), state.weights.copy())


def horizon(state: State) -> Stop:
    """Replan after every episode."""
    return conrl.ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Count, add the box, plan."""
    conrl.count(state, experience)
    _plan(state)
    return state, {
        "optimistic_value": state.value,
        "planning_gap": state.gap,
        "infeasible_plans": state.infeasible_plans,
        "dynamic_programs": state.dynamic_programs,
        "multiplier": -state.prices[1:],
    }


def _plan(state: State) -> None:
    """ConvexConPlanner, Eq. (15), from the columns of the episode before."""
    spec, config = state.spec, state.config
    tables = conrl.optimistic_model(spec, config, state.counts, state.episode)
    r_hat, c_hat = means(state.counts)
    radius = tables.rewards[0] - r_hat  # the bonus
    channels = np.concatenate([r_hat[None], c_hat])[:, None]
    reach = Reach(tables, spec.horizon, channels, np.broadcast_to(radius, channels.shape))
    actions = first_columns(reach, state.actions)
    low, high = reach.ends(actions)
    master = make_master(
        ["reward", *spec.cost_names], spec.signs, spec.capacities,
        (low.min(axis=0), high.max(axis=0)), functions.objective(config.objective),
        functions.constraint(config.constraint, spec.capacities),
        (0.0, float(spec.horizon)) if config.within else None,
    )  # fmt: skip
    found = solve(reach, master, actions, tolerance=config.tolerance)
    state.actions, state.weights = found.actions, found.weights
    state.dynamic_programs += found.programs
    state.gap = conrl.relative_gap(found.lower, found.upper)
    if found.status is Status.INFEASIBLE:
        state.infeasible_plans += 1
    else:
        state.value, state.prices = found.lower, found.prices


def guarantee(config: Config) -> str | None:
    """Theorem 4.1, with the constants of `theory`, for the named f and g, which are Lipschitz.

    Nothing is known of imported functions: they may have any constant, or none.
    """
    named = config.objective in functions.OBJECTIVES and config.constraint in functions.CONSTRAINTS
    return "[CON, Theorem 4.1]" if conrl.guarantee(config) and named else None


LEARNER = Learner(
    name="conrl-convex",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints"}),
    reference="Brantley et al. 2020, Constrained episodic reinforcement learning, Section 4",
)
