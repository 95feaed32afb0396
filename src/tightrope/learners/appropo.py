"""ApproPO: feasibility by a game between an RL oracle and online gradient descent (baseline).

Reference: Miryoosefi, Brantley, Daume III, Dudik, Schapire 2019, Reinforcement learning with convex
constraints, Algorithms 2 and 3.

The target set of measurements z = (reward, costs) is C = {reward >= floor, 0 <= cost <= capacity};
it is lifted to the cone K over C x {kappa}. Each round, the RL oracle improves a policy for the
scalar reward -lambda @ z, its measurement is estimated from the round's trajectories, and

    lambda <- projection of lambda + eta_t (z_hat, kappa) onto (polar of K) within the unit ball.

What the algorithm returns is the uniform mixture over rounds; during training the current policy is
played, so the mixture's value is the mean of the exact values of all episodes so far.

Deviations:
1. The oracle is the tabular actor-critic of `learners.rcpo`, kept from round to round (the paper
   warm-starts in the same way), and lambda moves after every round, as with a best-response oracle.
2. No cache of policies. The published program asks only for a positive response, lambda @ z <= 0:
   it first looks for one among earlier policies, at no cost in trajectories, and moves lambda only
   when it has one. Rounds that play nothing cannot be measured exactly by what is played.
3. Feasibility only: a reward floor is one more constraint. Floors ('>=' costs) are not offered.
4. `privileged_costs` (preset `privileged-costs`) is no learner's setting: a round is measured by
   the exact reward and costs of its policies in the true model, as in the program of [CON]'s
   authors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError
from tightrope.learners import rcpo
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.policy import StochasticPolicy
from tightrope.types import FloatArray, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """The target and the step sizes.

    Attributes
    ----------
    reward_floor : float
        Least reward of an episode.
    kappa : float > 0
        Lift of the target to a cone.
    step : float > 0
        Of online gradient descent, divided by sqrt(round).
    momentum : float in [0, 1)
    round_episodes : int >= 1
        Trajectories of a round.
    privileged_costs : bool
        Be given the policies' exact reward and costs, which no learner can know.
    actor_step, critic_step, entropy
        Of the oracle.
    """

    reward_floor: float = 0.0
    kappa: float = 20.0
    step: float = 1.0
    momentum: float = 0.0
    round_episodes: int = 20
    privileged_costs: bool = False
    actor_step: float = 1e-3
    critic_step: float = 1e-3
    entropy: float = 1e-3

    def __post_init__(self) -> None:
        rcpo.check_actor_critic(self)
        if not (self.kappa > 0 and self.step > 0 and 0 <= self.momentum < 1):
            raise ConfigError("need kappa > 0, step > 0 and 0 <= momentum < 1")
        if self.round_episodes < 1:
            raise ConfigError(f"round_episodes must be >= 1, got {self.round_episodes}")


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """Theorem 3.1's step is of order 1/sqrt(t); no reward floor unless one is given."""
    return Config()


def check(spec: ProblemSpec, config: Config) -> None:
    """Episodic, and costs bounded from above only."""
    if config.reward_floor > spec.horizon * spec.reward_range[1]:
        raise ConfigError(
            f"reward_floor {config.reward_floor:.6g} cannot be reached: an episode pays at most "
            f"{spec.horizon * spec.reward_range[1]:.6g}"
        )
    if (spec.signs < 0).any():
        raise ConfigError("appropo offers no '>=' costs; negate the cost and its capacity")


@dataclass(kw_only=True, eq=False)
class State:
    """Oracle, weights, and the round under way."""

    spec: ProblemSpec
    config: Config
    tables: rcpo.ActorCritic
    weights: FloatArray  #: (1 + m + 1,) lambda of (reward, costs, kappa)
    velocity: FloatArray
    round: int
    seen: int  #: trajectories of this round
    measured: FloatArray  #: (1 + m,) their sum of measurements


def init(spec: ProblemSpec, config: Config) -> State:
    """lambda_1: straight away from more reward."""
    check(spec, config)
    weights = np.zeros(spec.num_costs + 2)
    weights[0] = -1.0
    return State(
        spec=spec,
        config=config,
        tables=rcpo.new_actor_critic(spec),
        weights=project_polar(weights, spec.capacities, config.reward_floor, config.kappa),
        velocity=np.zeros(weights.size),
        round=1,
        seen=0,
        measured=np.zeros(1 + spec.num_costs),
    )


def policy(state: State) -> StochasticPolicy:
    """The oracle's present policy."""
    return rcpo.actor(state.tables, state.spec)


def horizon(state: State) -> Stop:
    """The oracle learns from every trajectory."""
    return rcpo.ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Algorithm 2: the oracle's step, and at a round's end the step of the weights."""
    e, spec, config = experience, state.spec, state.config
    # best response: maximise -lambda @ z
    rcpo.train(state.tables, spec, config, e, -state.weights[0], state.weights[1:-1])  # type: ignore[arg-type]
    state.measured += rcpo.measured(e, config.privileged_costs).sum(axis=0)
    state.seen += len(e.actions)
    if state.seen >= config.round_episodes:
        # loss of the lambda player: -lambda @ (z_hat, kappa)
        z_hat = np.append(state.measured / state.seen, config.kappa)
        state.velocity = config.momentum * state.velocity + z_hat
        moved = state.weights + config.step / np.sqrt(state.round) * state.velocity
        state.weights = project_polar(moved, spec.capacities, config.reward_floor, config.kappa)
        state.round += 1
        state.seen = 0
        state.measured = np.zeros(1 + spec.num_costs)
    return state, {
        "round": float(state.round),
        "reward_weight": -float(state.weights[0]),
        "cost_weight": state.weights[1:-1].copy(),
    }


def project_polar(x: FloatArray, capacities: FloatArray, floor: float, kappa: float) -> FloatArray:
    """x - (its projection onto the cone over C x {kappa}), then into the unit ball.

    The cone's points are ``a (y, u, kappa)`` with a >= 0, y >= floor, 0 <= u <= capacity; the
    distance is convex in a, so its slope is bisected.

    >>> project_polar(np.array([-1.0, 0.0, 0.0]), np.array([0.3]), 1.4, 20.0).round(6)
    array([-1.,  0.,  0.])
    """

    def point(a: float) -> FloatArray:
        return np.concatenate(
            [[max(x[0], a * floor)], np.clip(x[1:-1], 0.0, a * capacities), [a * kappa]]
        )

    def slope(a: float) -> float:
        off = x - point(a)
        reward = off[0] * floor if x[0] < a * floor else 0.0
        costs = (off[1:-1] * capacities)[x[1:-1] > a * capacities].sum()
        return -float(reward + costs + off[-1] * kappa)

    low, high = 0.0, 1.0
    while slope(high) < 0:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    polar = x - point(0.0 if slope(0.0) >= 0 else high)
    size = float(np.linalg.norm(polar))
    return polar / max(1.0, size)


def guarantee(config: Config) -> str | None:
    """None: Theorem 3.1 needs an oracle of known accuracy."""
    return None


LEARNER = Learner(
    name="appropo",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints"}),
    reference="Miryoosefi et al. 2019, Reinforcement learning with convex constraints, Algorithm 2",
)
