"""UC-O-GDPS: projected online gradient descent on occupancies over an L1 confidence set.

Reference: [BOBW] Germano et al. 2023, Algorithms 3-4 and Theorem 3. Full information, adversarial
losses, unknown transitions; no constraints of its own.

Deviations:
1. The loss is l = G lambda - r for a fixed `penalty` lambda (none by default).
2. While every loss so far was 0 there is no step (the step size would be infinite).
3. Option `doubling`: T unknown; after the last episode of a T it starts again with twice the T,
   keeping the counters. Labelled, and without the paper's guarantee.
4. The projection is exact up to a certified distance, `tolerance`; Info has the certificate. No
   theorem is claimed for more than 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tightrope import theory as bounds
from tightrope.estimation.visits import offsets_of, row_widths
from tightrope.kernels.layered import count_episode, lagrangian_loss, policy_of
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
from tightrope.planning.confidence import Confidence, confidence_set
from tightrope.planning.projection import Projector
from tightrope.types import FloatArray, IntArray, ProblemSpec

EXACT = 1e-5  # largest distance of a projection that counts as exact


@dataclass(frozen=True, kw_only=True)
class Config:
    """Constants of UC-O-GDPS.

    Attributes
    ----------
    episodes : int
        T, known in advance (a first guess with `doubling`).
    delta : float
    primal_scale, radius_scale : float
        Multiply C of eta_t = 1 / (l_t C sqrt(T)) and the radii; 1 as proved.
    penalty : (m,), a number, () or 'hindsight'
        Fixed multipliers lambda >= 0 on the constraints; a number is for each of them, () ignores
        them, 'hindsight' has the simulation fill in the optimum's (privileged, a baseline).
    tolerance : float
        Certified distance of the projection.
    doubling : bool
    """

    episodes: int
    delta: float = 0.05
    primal_scale: float = 1.0
    radius_scale: float = 1.0
    penalty: tuple[float, ...] | float | str = ()
    tolerance: float = 1e-5
    doubling: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.penalty, list):  # from JSON
            object.__setattr__(self, "penalty", tuple(self.penalty))


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """C of `primal_constant` and the radii of [BOBW, Eq. (10)], both unscaled."""
    return Config(episodes=episodes, delta=delta)


def primal_constant(spec: ProblemSpec, config: Config) -> float:
    """`primal_scale` times C = sqrt(|X| |A| / (2 L)), which minimises Theorem 3."""
    setting = bounds.setting_of(spec, config.episodes, config.delta)
    return bounds.best_primal_constant(setting) * config.primal_scale


def check(spec: ProblemSpec, config: Config) -> None:
    """ConfigError unless the problem is loop-free with known ranges and the constants fit."""
    check_loop_free(spec, config, "uc-o-gdps")
    penalty_of(config.penalty, spec.num_costs)


@dataclass(eq=False)
class State:
    """Counters, the confidence set of the epoch, q_hat, and the warm start of the projection."""

    spec: ProblemSpec
    config: Any  # this file's Config, or that of pdgd_ops
    offsets: IntArray
    episodes: int  # the T in use; grows only with doubling
    began: int  # episodes played before the present T was set
    episode: int
    epoch: int
    counts: IntArray  # (S, A) running N
    frozen: IntArray  # (S, A) N at the epoch's start
    triples: IntArray  # (S, A, W) running M
    centres: FloatArray  # (S, A, W) P_bar of the epoch
    radii: FloatArray  # (S, A) eps of the epoch
    q_hat: FloatArray  # (S, A)
    largest_loss: float
    multipliers: FloatArray  # (m,) fixed here, the dual player's in pdgd-ops
    capped: int  # episodes with a multiplier at its cap; stays 0 here
    lost: int  # pairs whose balls of successive epochs did not meet
    unsolved: int  # projections that ended above their tolerance
    heights: FloatArray  # where the next projection starts
    fractions: FloatArray

    def notes(self) -> list[str]:
        """What a reader of the results must know: a cap that binds, a lost confidence set."""
        out = []
        if self.capped:
            out.append(
                f"a multiplier stood at its cap T^(1/4) = {self.episodes**0.25:.3g} in "
                f"{self.capped} of {self.episode} episodes"
            )
        return out + lost_notes(self.lost) + unsolved_notes(self.unsolved)


def init(spec: ProblemSpec, config: Config) -> State:
    check(spec, config)
    multipliers = penalty_of(config.penalty, spec.num_costs)
    return State(**primal_init(spec, config), multipliers=multipliers)


def primal_init(spec: ProblemSpec, config: Any) -> dict[str, Any]:
    """UC-O-GDPS.INIT, Algorithm 4, line 2: zero counters, every P allowed, q_hat uniform."""
    assert spec.layers is not None
    shape = (spec.num_states, spec.num_actions)
    full = (*shape, int(row_widths(spec.layers).max()))
    return {
        "spec": spec,
        "config": config,
        "offsets": offsets_of(spec.layers),
        "episodes": int(config.episodes),
        "began": 0,
        "episode": 0,
        "epoch": 1,
        "counts": np.zeros(shape, dtype=np.int64),
        "frozen": np.zeros(shape, dtype=np.int64),
        "triples": np.zeros(full, dtype=np.int64),
        "centres": np.zeros(full),
        "radii": np.full(shape, 2.0),
        "q_hat": uniform_occupancy(spec),
        "largest_loss": 0.0,
        "capped": 0,
        "lost": 0,
        "unsolved": 0,
        "heights": np.zeros(shape[0]),
        "fractions": np.zeros(0),
    }


def policy(state: Any) -> Policy:
    """pi(a | x) = q_hat(x, a) / q_hat(x), uniform where q_hat(x) = 0."""
    table = np.empty_like(state.q_hat)
    policy_of(state.q_hat, table)
    return StochasticPolicy(table)


def horizon(state: Any) -> Stop:
    return Stop("episodes", 1)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    states, actions, rewards, constraints = first_of(experience, "uc-o-gdps")
    next_episode(state, "uc-o-gdps")
    losses = np.empty_like(state.q_hat)
    largest = lagrangian_loss(rewards, constraints, state.multipliers, losses)
    constant = primal_constant(state.spec, state.config)
    info = primal_update(state, losses, largest, constant, states, actions)
    restart(state)
    return state, info


def restart(state: Any) -> bool:
    """With doubling, at the end of the present T, start again with twice the T."""
    projector = projector_of(state)  # of the epoch that may end here
    if not double(state):
        return False
    use_epoch(state, projector)
    state.largest_loss = 0.0
    return True


def use_epoch(state: Any, projector: Projector) -> None:
    """Give the solver the confidence set of a new epoch; its warm start is carried over."""
    projector.change(confidence_of(state))
    state.heights, state.fractions = projector.heights, projector.fractions


def primal_update(
    state: Any,
    losses: FloatArray,
    largest: float,
    constant: float,
    states: IntArray,
    actions: IntArray,
) -> Info:
    """UC-O-GDPS.UPDATE, Algorithm 3, with eta_t of Algorithm 2, line 7; `constant` is C."""
    config = state.config
    # Lines 2-3: counters
    if count_episode(states, actions, state.offsets, state.frozen, state.counts, state.triples):
        # Lines 4-7: new epoch, frozen values, new confidence set
        projector = projector_of(state)
        new_epoch(state)
        use_epoch(state, projector)
    # eta_t = 1 / (l_t C sqrt(T)), l_t the largest loss so far
    state.largest_loss = max(state.largest_loss, largest)
    bound = state.largest_loss * constant * math.sqrt(state.episodes)
    step = 1.0 / bound if bound > 0.0 else 0.0
    # Line 8: q_{t+1} = projection of q_t - eta_t l_t onto Delta(P_i)
    target = state.q_hat - step * losses
    projector = projector_of(state)
    distance = projector.project(target, config.tolerance)
    state.unsolved += int(distance > config.tolerance)
    state.heights, state.fractions = projector.heights, projector.fractions
    movement = float(np.abs(projector.occupancy - state.q_hat).sum())
    state.q_hat[:] = projector.occupancy
    return {
        "step": step,
        "epoch": float(state.epoch),
        "residual": distance,
        "movement": movement,
        "lost": float(state.lost),
    }


def confidence_of(state: Any) -> Confidence:
    """P_i of Eq. (10), from the frozen values of the epoch."""
    num_states, num_actions, width = state.centres.shape
    columns = np.append(state.offsets[1:], 0)[state.spec.layers, None] + np.arange(width)
    rows, actions, places = np.nonzero(state.centres)
    matrix = sp.csr_array(
        (
            state.centres[rows, actions, places],
            (rows * num_actions + actions, columns[rows, places]),
        ),
        shape=(num_states * num_actions, num_states),
    )
    return confidence_set(state.spec.layers, matrix, state.radii)


def projector_of(state: Any) -> Projector:
    """The solver of this state; made again, with the same memory, after a resume.

    It is kept beside the state's fields because it holds nothing that they do not determine.
    """
    if not hasattr(state, "projector"):
        fractions = state.fractions if state.fractions.size else None
        state.projector = Projector(
            confidence_of(state), heights=state.heights, fractions=fractions
        )
    return state.projector


def guarantee(config: Config) -> str | None:
    proved = config.primal_scale == config.radius_scale == 1.0 and config.tolerance <= EXACT
    if proved and not config.doubling and config.penalty == ():
        return "[BOBW, Theorem 3] (regret O(sqrt(T)), every interval)"
    return None


LEARNER = Learner(
    name="uc-o-gdps",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "unconstrained", "full-information", "loop-free"}),
    reference="Germano et al. 2023, Algorithms 3-4",
)
