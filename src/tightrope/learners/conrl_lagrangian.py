"""ConRL with the Lagrangian planner: multipliers by projected steps instead of a linear program.

Reference: [CON] Brantley et al. 2020, Algorithm 1 with LagrConPlanner (Algorithm 2), the form of
their experiments. Every episode the planner makes N best responses in the optimistic model, to
multipliers that follow the excess over the capacities.

Deviations:
1. As in `conrl`: self-loops of unvisited pairs, and floors.
2. The multipliers are >= 0 here and the capacity is subtracted once an episode, not at every step:
   the same best responses.
3. `carry` and `play` make the authors' own program, which differs from their Algorithm 2 (preset
   `paper-experiments`): multipliers go on from the episode before, and what is played is the best
   response to the mean of the N updated multipliers, not the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError
from tightrope.estimation.counts import Counts, empty_counts
from tightrope.kernels import episodic
from tightrope.learners import conrl
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.mdp import FiniteMDP, Tables
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, StochasticPolicy
from tightrope.planning import column_generation
from tightrope.planning.a2c import a2c_response
from tightrope.planning.lagrangian_planner import LagrangianPlan, iterate
from tightrope.types import FloatArray, IntArray, ProblemSpec, as_number, as_whole

PLAYS = ("mixture", "mean-multiplier")
PLANNERS = ("value-iteration", "a2c")


@dataclass(frozen=True, kw_only=True)
class Config(conrl.Config):
    """Constants of ConRL's bonus (see `learners.conrl`) and of Algorithm 2.

    Attributes
    ----------
    iterations : int >= 1
        N of Algorithm 2.
    step : float > 0
        The multipliers' step, in units of value per squared cost.
    carry : bool
        Start from the multipliers of the episode before (Algorithm 2: from 0).
    play : 'mixture' or 'mean-multiplier'
        The uniform mixture of the N responses, or one response to the mean multipliers.
    planner : 'value-iteration' or 'a2c'
        How best responses are found; A2C (Algorithm 3) needs the extra `deep`.
    fictitious_episodes : int >= 1
        That A2C is trained on, for each response.
    seed : int
        Of A2C; a run sets it.
    compare_every : int >= 0
        Episodes between exact plans of the same model, for the Info's `suboptimality`; 0: never.
    """

    iterations: int = 400
    step: float = 0.05
    carry: bool = False
    play: str = "mixture"
    planner: str = "value-iteration"
    fictitious_episodes: int = 80
    seed: int = 0
    compare_every: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"iterations": 1, "fictitious_episodes": 1, "compare_every": 0, "seed": 0}
        for name, bound in least.items():
            object.__setattr__(self, name, as_whole(getattr(self, name), name, bound))
        if not 0 < as_number(self.step, "step") < np.inf:
            raise ConfigError(f"step must be a finite number > 0, got {self.step}")
        if self.play not in PLAYS:
            raise ConfigError(f"play must be one of {PLAYS}, got {self.play!r}")
        if self.planner not in PLANNERS:
            raise ConfigError(f"planner must be one of {PLANNERS}, got {self.planner!r}")
        if self.planner == "a2c" and self.play != "mixture":
            raise ConfigError("the planner 'a2c' plays the mixture")


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """Eq. (9) unscaled; N and the step have no theorem, they are the planner's measured ones."""
    return Config(delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """What ConRL asks."""
    conrl.check_problem(spec, "conrl-lagrangian")


@dataclass(kw_only=True, eq=False)
class State:
    """What is carried from episode to episode."""

    spec: ProblemSpec
    config: Config
    episode: int  #: the episode that the present plan is for, from 1
    counts: Counts
    actions: IntArray  #: (K, H, S) what is played: K = iterations, or 1; none with A2C
    chances: FloatArray  #: (K, S, A) what is played with A2C
    multipliers: FloatArray  #: (m,) after the last iteration
    mean_multipliers: FloatArray  #: (m,)
    value: float  #: what the plan earns in the optimistic model
    excess: float  #: its largest excess over a capacity there
    upper: float  #: the least dual bound
    suboptimality: float  #: exact optimum minus value, at the last comparison


def init(spec: ProblemSpec, config: Config) -> State:
    """No data, and the plan for the first episode."""
    check(spec, config)
    state = State(
        spec=spec,
        config=config,
        episode=1,
        counts=empty_counts(spec),
        actions=np.zeros((0, spec.horizon, spec.num_states), dtype=np.int32),
        chances=np.zeros((0, spec.num_states, spec.num_actions)),
        multipliers=np.zeros(spec.num_costs),
        mean_multipliers=np.zeros(spec.num_costs),
        value=0.0,
        excess=0.0,
        upper=0.0,
        suboptimality=float("nan"),
    )
    _plan(state)
    return state


def policy(state: State) -> Policy:
    """The uniform mixture, or the one response."""
    parts: tuple[DeterministicPolicy | StochasticPolicy, ...]
    parts = tuple(DeterministicPolicy(table) for table in state.actions.copy())
    if state.config.planner == "a2c":
        parts = tuple(StochasticPolicy(table) for table in state.chances.copy())
    if len(parts) == 1:
        return parts[0]
    return MixturePolicy(parts, np.full(len(parts), 1.0 / len(parts)))


def horizon(state: State) -> Stop:
    """Replan after every episode."""
    return conrl.ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Count, add the bonus, plan."""
    conrl.count(state, experience)
    _plan(state)
    return state, {
        "optimistic_value": state.value,
        "optimistic_excess": state.excess,
        "dual_gap": state.upper - state.value,
        "suboptimality": state.suboptimality,
        "multiplier": state.mean_multipliers,
    }


def _plan(state: State) -> None:
    """LagrConPlanner, Algorithm 2."""
    spec, config = state.spec, state.config
    tables = conrl.optimistic_model(spec, config, state.counts, state.episode)
    limits = spec.capacities * spec.signs
    # 1. lambda <- 0, or where the episode before left it
    start = state.multipliers if config.carry else np.zeros(spec.num_costs)
    # 2-5. best responses and projected steps
    if config.planner == "a2c":
        found = _iterate_a2c(state, tables, start)
    else:
        found = iterate(
            tables, spec.horizon, limits, iterations=config.iterations, step=config.step,
            multipliers=start,
        )  # fmt: skip
    state.multipliers = found.trail[-1].copy()
    state.mean_multipliers = found.trail.mean(axis=0)
    state.upper = found.upper
    # 6. the mixture, or the authors' one response
    if config.play == "mixture":
        state.actions, values = found.actions, found.values.mean(axis=0)
    else:
        state.actions = np.empty((1, spec.horizon, spec.num_states), dtype=np.int32)
        episodic.best_response(*tables, spec.horizon, 1.0, state.mean_multipliers, state.actions[0])
        values = episodic.evaluate_actions(*tables, spec.horizon, state.actions)[0]
    state.value = float(values[0])
    state.excess = float((values[1:] - limits).max(initial=0.0))
    if config.compare_every and (state.episode - 1) % config.compare_every == 0:
        size = column_generation.pool_size(spec.num_costs)
        pool = np.empty((size, spec.horizon, spec.num_states), dtype=np.int32)
        exact = column_generation.solve(tables, spec.horizon, limits, pool)
        feasible = exact.status is not column_generation.Status.INFEASIBLE
        state.suboptimality = exact.lower - state.value if feasible else float("nan")


def _iterate_a2c(state: State, tables: Tables, multipliers: FloatArray) -> LagrangianPlan:
    """Algorithm 2 with Algorithm 3 as its planner; A2C's responses prove no dual bound."""
    spec, config = state.spec, state.config
    limits = spec.capacities * spec.signs
    pairs = spec.num_states * spec.num_actions
    rows = np.concatenate([[0], np.cumsum(tables.stop - tables.start)])
    entries = np.concatenate([np.arange(a, b) for a, b in zip(tables.start, tables.stop)])
    sparse = (tables.data[entries], tables.indices[entries], rows)
    transitions = sp.csr_array(sparse, shape=(pairs, spec.num_states))
    responses, values, trail = [], [], []
    for n in range(config.iterations):
        penalised = tables.rewards - np.tensordot(multipliers, tables.costs, axes=1)
        model = FiniteMDP(
            transitions=transitions, rewards=penalised[0] if len(penalised) == 1 else penalised,
            initial=spec.initial, criterion=spec.criterion, available=spec.available,
        )  # fmt: skip
        seed = (config.seed + state.episode * config.iterations + n) % 2**31
        chances = a2c_response(model, episodes=config.fictitious_episodes, seed=seed)
        rho = episodic.occupancy(
            tables.start, tables.stop, tables.indices, tables.data, tables.available,
            tables.initial, spec.horizon, chances[None],
        )  # fmt: skip
        found = [(rho * tables.rewards).sum(), *((rho * c).sum() for c in tables.costs)]
        multipliers = np.maximum(0.0, multipliers + config.step * (np.array(found[1:]) - limits))
        responses.append(chances)
        values.append(found)
        trail.append(multipliers)
    state.chances = np.array(responses)
    return LagrangianPlan(state.actions, np.array(values), np.array(trail), np.inf)


def guarantee(config: Config) -> str | None:
    """None: the paper omits the analysis of Algorithm 2."""
    return None


LEARNER = Learner(
    name="conrl-lagrangian",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints"}),
    reference="Brantley et al. 2020, Constrained episodic reinforcement learning, Algorithms 1-2",
)
