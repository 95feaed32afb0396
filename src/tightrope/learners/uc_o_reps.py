"""UC-O-REPS: online mirror descent with the unnormalised KL over a confidence set.

Reference: Rosenberg and Mansour 2019, Online convex optimization in adversarial Markov decision
processes; the baseline of [BOBW] Germano et al. 2023. Full information, unknown transitions.

Deviations:
1. Losses are l = G lambda - r for a fixed `penalty` lambda (none by default), mapped to [0, 1] by
   (l + 1 + |lambda|) / (1 + 2 |lambda|); the map is part of the configuration.
2. The dual multipliers with sign constraints are eliminated row by row in closed form; the
   potentials are then minimised without constraints, and the point is rolled forward so that it is
   feasible exactly.
3. Row probabilities are kept at or above 1e-30. The projection is exact up to a flow imbalance of
   `tolerance`; no theorem is claimed for more than 1e-7.
4. Option `doubling`: T unknown; after the last episode of a T it starts again with twice the T,
   keeping the counters. Labelled, and without the paper's guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightrope.estimation.visits import offsets_of, row_widths
from tightrope.kernels.layered import count_episode, lagrangian_loss, policy_of
from tightrope.kernels.reps import reps_project
from tightrope.learners.full_information import (
    check_loop_free,
    double,
    first_of,
    lost_notes,
    new_epoch,
    next_episode,
    penalty_of,
    uniform_occupancy,
    unsolved_notes,
)
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.policy import Policy, StochasticPolicy
from tightrope.types import FloatArray, IntArray, ProblemSpec

EXACT = 1e-7  # largest flow imbalance of a projection that counts as exact


@dataclass(frozen=True, kw_only=True)
class Config:
    """Constants of UC-O-REPS.

    Attributes
    ----------
    episodes : int
        T, known in advance (a first guess with `doubling`).
    delta : float
    step_scale, radius_scale : float
        Multiply eta and the radii; 1 as proved.
    penalty : (m,), a number, () or 'hindsight'
        Fixed multipliers lambda >= 0 on the constraints; a number is for each of them, () ignores
        them, 'hindsight' has the simulation fill in the optimum's (privileged, a baseline).
    tolerance : float
        Flow imbalance at which the dual iteration stops.
    doubling : bool
    """

    episodes: int
    delta: float = 0.05
    step_scale: float = 1.0
    radius_scale: float = 1.0
    penalty: tuple[float, ...] | float | str = ()
    tolerance: float = 1e-7
    doubling: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.penalty, list):  # from JSON
            object.__setattr__(self, "penalty", tuple(self.penalty))


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """eta = sqrt(ln(|X|^2 |A| / L^2) / T) and radii of [BOBW, Eq. (10)], both unscaled."""
    return Config(episodes=episodes, delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """ConfigError unless the problem is loop-free with known ranges and the constants fit."""
    check_loop_free(spec, config, "uc-o-reps")
    penalty_of(config.penalty, spec.num_costs)


@dataclass(eq=False)
class State:
    """Counters, the current confidence set and the occupancy q(x, a) p(y | x, a)."""

    spec: ProblemSpec
    config: Config
    offsets: IntArray
    episodes: int  # the T in use; grows only with doubling
    began: int  # episodes played before the present T was set
    episode: int
    epoch: int
    counts: IntArray  # (S, A) running N
    frozen: IntArray  # (S, A) N at the epoch's start
    triples: IntArray  # (S, A, W) running M
    centres: FloatArray  # (S, A, W) P_bar
    radii: FloatArray  # (S, A)
    q_hat: FloatArray  # (S, A)
    rows: FloatArray  # (S, A, W)
    potentials: FloatArray  # (S,) last dual solution, the next start
    multipliers: FloatArray  # (m,) the fixed penalty
    lost: int  # pairs whose balls of successive epochs did not meet
    unsolved: int  # projections that ended above their tolerance

    def notes(self) -> list[str]:
        """What a reader of the results must know: a lost confidence set, a failed projection."""
        return lost_notes(self.lost) + unsolved_notes(self.unsolved)


def step_size(spec: ProblemSpec, config: Config, episodes: int) -> float:
    """eta of the theorem for T = `episodes`, times `step_scale`, for losses in [0, 1]."""
    size = spec.num_states**2 * spec.num_actions / spec.horizon**2
    return config.step_scale * math.sqrt(math.log(size) / episodes)


def uniform_rows(spec: ProblemSpec) -> FloatArray:
    """(S, A, W) every next state of the next layer with the same probability."""
    assert spec.layers is not None
    widths = row_widths(spec.layers)
    inside = np.arange(int(widths.max())) < widths[:, None]
    row = inside / widths[:, None]
    return np.repeat(row[:, None], spec.num_actions, axis=1)


def init(spec: ProblemSpec, config: Config) -> State:
    check(spec, config)
    assert spec.layers is not None
    shape = (spec.num_states, spec.num_actions)
    rows = uniform_rows(spec)
    return State(
        spec=spec,
        config=config,
        offsets=offsets_of(spec.layers),
        episodes=int(config.episodes),
        began=0,
        episode=0,
        epoch=1,
        counts=np.zeros(shape, dtype=np.int64),
        frozen=np.zeros(shape, dtype=np.int64),
        triples=np.zeros(rows.shape, dtype=np.int64),
        centres=rows.copy(),
        radii=np.full(shape, 2.0),
        q_hat=uniform_occupancy(spec),
        rows=rows,
        potentials=np.zeros(shape[0]),
        multipliers=penalty_of(config.penalty, spec.num_costs),
        lost=0,
        unsolved=0,
    )


def policy(state: State) -> Policy:
    table = np.empty_like(state.q_hat)
    policy_of(state.q_hat, table)
    return StochasticPolicy(table)


def horizon(state: State) -> Stop:
    return Stop("episodes", 1)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    states, actions, rewards, constraints = first_of(experience, "uc-o-reps")
    spec, config = state.spec, state.config
    assert spec.layers is not None
    next_episode(state, "uc-o-reps")
    # counters, then the epoch, then the projection onto the new set
    if count_episode(states, actions, state.offsets, state.frozen, state.counts, state.triples):
        new_epoch(state)
    # loss in [0, 1]
    losses = np.empty_like(state.q_hat)
    lagrangian_loss(rewards, constraints, state.multipliers, losses)
    weight = float(state.multipliers.sum())
    losses = (losses + 1.0 + weight) / (1.0 + 2.0 * weight)
    # q_{t+1} = argmin over Delta(P_i) of KL(q || q_t e^{-eta l})
    new_pairs, new_rows = np.zeros_like(state.q_hat), state.rows.copy()
    _, imbalance, evaluations = reps_project(
        state.offsets,
        state.q_hat,
        state.rows,
        state.centres,
        state.radii,
        step_size(spec, config, state.episodes) * losses,
        state.potentials,
        new_pairs,
        new_rows,
        config.tolerance,
        1000,
    )
    state.unsolved += int(not imbalance <= config.tolerance)
    movement = float(np.abs(new_pairs - state.q_hat).sum())
    state.q_hat, state.rows = new_pairs, new_rows
    epoch = float(state.epoch)
    if double(state):
        state.rows = uniform_rows(spec)
        state.potentials = np.zeros_like(state.potentials)
    return state, {
        "epoch": epoch,
        "residual": float(imbalance),
        "movement": movement,
        "evaluations": float(evaluations),
        "lost": float(state.lost),
    }


def guarantee(config: Config) -> str | None:
    proved = config.step_scale == config.radius_scale == 1.0 and config.tolerance <= EXACT
    if proved and not config.doubling and config.penalty == ():
        return "Rosenberg and Mansour 2019, Theorem 4.2 (regret O(L |X| sqrt(|A| T)))"
    return None


LEARNER = Learner(
    name="uc-o-reps",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "unconstrained", "full-information", "loop-free"}),
    reference="Rosenberg and Mansour 2019; baseline of Germano et al. 2023",
)
