"""UCRL2: optimism over a confidence set of models, planned by extended value iteration.

Reference: Jaksch, Ortner and Auer (2010), Near-optimal regret bounds for reinforcement learning,
JMLR 11, Figure 1.

Deviations:
1. An epoch ends with the visit that doubles a count, not when the stream next arrives there.
2. Rewards in [low, high] of the problem's spec are mapped to [0, 1] and back (recorded there).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.estimation.radii import jaksch_reward, jaksch_transition
from tightrope.kernels.ucrl import count_transitions, extended_value_iteration
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.model.policy import DeterministicPolicy
from tightrope.types import Average, FloatArray, IntArray, ProblemSpec

LONGEST = 2**62  #: the run ends an epoch that no count ends


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings; a scale of 1 is as proved.

    Attributes
    ----------
    delta : float
    reward_radius_scale, transition_radius_scale : float
        Multiply the radii.
    max_iterations : int
        Of extended value iteration, an epoch; Info says ``converged = 0`` where they ran out.
    """

    delta: float = 0.05
    reward_radius_scale: float = 1.0
    transition_radius_scale: float = 1.0
    max_iterations: int = 1_000_000


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """Theorem 2: radii of Eqs. (3) and (4), nothing else is tuned."""
    return Config(delta=delta)


def check(spec: ProblemSpec, config: Config) -> None:
    """Average criterion, no costs, a range of rewards."""
    check_stream(spec, "ucrl2")
    if not 0.0 < config.delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {config.delta}")
    check_settings(
        "ucrl2",
        config,
        not_negative=("reward_radius_scale", "transition_radius_scale"),
        counts=("max_iterations",),
    )


def check_stream(spec: ProblemSpec, name: str, *, points: bool = False) -> None:
    """Raise ConfigError unless the problem is an unconstrained single stream.

    `points`: whether the learner takes continuous states.
    """
    if not isinstance(spec.criterion, Average):
        raise ConfigError(f"{name} needs criterion Average(), got {spec.criterion}")
    if not (spec.num_states or points):
        raise ConfigError(
            f"{name} needs finitely many states, the problem's are continuous; olsvi-fh and "
            "mdp-exp2 take those"
        )
    if spec.num_costs:
        raise ConfigError(f"{name} has no constraints, the problem has m = {spec.num_costs}")
    if not np.isfinite(spec.reward_range).all():
        raise ConfigError(f"{name} needs finite rewards, got range {spec.reward_range}")


@dataclass(kw_only=True, eq=False)
class State:
    """visits, reward_sums (S, A); moves (S, A, S); plan of the current epoch."""

    spec: ProblemSpec
    config: Config
    time: int
    epoch: int
    visits: FloatArray
    moves: FloatArray
    reward_sums: FloatArray
    values: FloatArray
    actions: IntArray
    gain_bounds: FloatArray
    iterations: int
    unfinished: int

    def unmet(self) -> list[str]:
        """Why no theorem covers the run."""
        if not self.unfinished:
            return []
        return [
            f"extended value iteration ran out of iterations in {self.unfinished} of {self.epoch} "
            "epochs"
        ]


def no_counts(spec: ProblemSpec) -> dict[str, Any]:
    """The fields of a state that has seen nothing: counts, sums and the plan's values, all zero."""
    pairs = (spec.num_states, spec.num_actions)
    return {
        "visits": np.zeros(pairs),
        "moves": np.zeros((*pairs, spec.num_states)),
        "reward_sums": np.zeros(pairs),
        "values": np.zeros(spec.num_states),
        "actions": np.zeros(spec.num_states, dtype=np.int32),
    }


def count(state: Any, experience: Experience) -> None:
    """Add what was seen to the state's counts and sums."""
    count_transitions(
        experience.states,
        experience.actions,
        experience.rewards,
        state.visits,
        state.moves,
        state.reward_sums,
    )


def init(spec: ProblemSpec, config: Config) -> State:
    """No data; the first plan believes in the best of everything."""
    state = State(
        spec=spec,
        config=config,
        time=1,
        epoch=1,
        **no_counts(spec),
        gain_bounds=np.zeros(2),
        iterations=0,
        unfinished=0,
    )
    _plan(state)
    return state


def policy(state: State) -> DeterministicPolicy:
    """The optimistic policy of the epoch."""
    return DeterministicPolicy(state.actions.copy())


def horizon(state: State) -> Stop:
    """Until a pair has been visited in the epoch as often as in all epochs before."""
    return Stop("visit-doubling", LONGEST, counts=state.visits)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Figure 1: steps 1 to 5 at the start of an epoch."""
    # 1-2. time and counts
    state.time += len(experience.actions)
    state.epoch += 1
    count(state, experience)
    # 3-5. plausible models and the optimistic policy
    converged = _plan(state)
    return state, {
        "gain_lower": float(state.gain_bounds[0]),
        "gain_upper": float(state.gain_bounds[1]),
        "iterations": float(state.iterations),
        "converged": float(converged),
    }


def _plan(state: State) -> bool:
    """Extended value iteration to 1/sqrt(t) over Eqs. (3) and (4); whether it got there."""
    spec, config = state.spec, state.config
    low, high = spec.reward_range
    width = (high - low) or 1.0
    sizes: dict[str, Any] = {
        "states": spec.num_states,
        "actions": spec.num_actions,
        "time": state.time,
        "delta": config.delta,
    }
    number = np.maximum(1.0, state.visits)
    mean = (state.reward_sums / number - low) / width * (state.visits > 0)
    optimistic = mean + config.reward_radius_scale * jaksch_reward(state.visits, **sizes)
    tolerance = 1.0 / np.sqrt(state.time)
    actions, values, lower, upper, iterations = extended_value_iteration(
        state.moves / number[:, :, None],
        optimistic,
        config.transition_radius_scale * jaksch_transition(state.visits, **sizes),
        spec.available,
        state.values,
        tolerance,
        config.max_iterations,
    )
    state.actions[:] = actions
    state.values = values
    state.gain_bounds = low + width * np.array([lower, upper])
    state.iterations = int(iterations)
    converged = bool(upper - lower < tolerance)
    state.unfinished += not converged
    return converged


def guarantee(config: Config) -> str | None:
    """Theorem 2 if the radii are as proved; a run whose iterations ran out loses it."""
    if config.reward_radius_scale == 1.0 and config.transition_radius_scale == 1.0:
        return "Jaksch, Ortner, Auer 2010, Theorem 2: regret 34 D S sqrt(A T ln(T/delta))"
    return None


LEARNER = Learner(
    name="ucrl2",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "weakly-communicating", "finite-diameter"}),
    reference="Jaksch, Ortner, Auer 2010, Figure 1",
)
