"""RCPO: reward constrained policy optimisation, an actor-critic on the penalised reward.

Reference: Tessler, Mankowitz, Mannor 2019, Reward constrained policy optimization, Algorithm 1. The
paper was not at hand: line and theorem numbers are not given, and what is said of it is not checked
against its text.

Critic, actor, and multipliers

    lambda <- Gamma[lambda + eta (C - alpha)],  r_hat(lambda, s, a) = r(s, a) - lambda c(s, a),

with C the sampled cost of the trajectory (the paper's Monte-Carlo estimate) and Gamma the
projection onto [0, lambda_max].

Deviations:
1. The paper's convergence needs three time scales of vanishing steps, the multipliers' far below
   the actor's and the actor's far below the critic's. Here all are constant, and actor and critic
   have the same step in every preset; only the multipliers' is smaller.
2. The paper's critic bootstraps the penalised reward, ``r - lambda c + gamma V(s')``; here it and
   the actor take Monte-Carlo sums of the rest of the trajectory, undiscounted, since the constraint
   is on the undiscounted cost.
3. Actor and critic are tables (softmax logits and state values) under Adam, one step a trajectory,
   instead of networks.
4. The paper has one constraint; here every constraint has its multiplier.
5. `privileged_costs` (presets `privileged-costs` and `paper-experiments`) is no learner's setting:
   the multipliers are moved by the exact cost of the policy that was played, in the true model. The
   program of [CON]'s authors takes the policy after the actor's step: one trajectory later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.actor_critic import actor_critic_step, softmax_policy
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.model.policy import StochasticPolicy
from tightrope.types import FloatArray, ProblemSpec, as_number

ONE_EPISODE = Stop("episodes", 1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Step sizes.

    Attributes
    ----------
    actor_step, critic_step : float > 0
        Of Adam.
    entropy : float >= 0
        Coefficient of the entropy bonus.
    multiplier_step : float > 0
        eta.
    multiplier_bound : float > 0
        lambda_max; infinite by default.
    privileged_costs : bool
        Be given the policy's exact costs, which no learner can know.
    """

    actor_step: float = 1e-3
    critic_step: float = 1e-3
    entropy: float = 1e-3
    multiplier_step: float = 1e-3
    multiplier_bound: float = float("inf")
    privileged_costs: bool = False

    def __post_init__(self) -> None:
        positive = ("actor_step", "critic_step", "multiplier_step")
        check_settings("rcpo", self, positive=positive, not_negative=("entropy",))
        if not as_number(self.multiplier_bound, "multiplier_bound") > 0:
            raise ConfigError(f"rcpo needs multiplier_bound > 0, got {self.multiplier_bound}")


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """The paper proves convergence for vanishing steps only: these are its experiments' sizes."""
    return Config()


def check(spec: ProblemSpec, config: Config) -> None:
    """ConfigError unless the problem is episodic."""
    spec.horizon  # noqa: B018


@dataclass(kw_only=True, eq=False)
class ActorCritic:
    """Tables of an actor-critic and Adam's moments (2, S, A + 1)."""

    logits: FloatArray  #: (S, A)
    critic: FloatArray  #: (S,)
    moments: FloatArray
    steps: int


def new_actor_critic(spec: ProblemSpec) -> ActorCritic:
    """The uniform policy, values 0."""
    shape = (spec.num_states, spec.num_actions)
    return ActorCritic(
        logits=np.zeros(shape),
        critic=np.zeros(shape[0]),
        moments=np.zeros((2, shape[0], shape[1] + 1)),
        steps=0,
    )


def train(
    tables: ActorCritic, spec: ProblemSpec, config: Config, experience: Experience,
    reward_weight: float, cost_weights: FloatArray,
) -> None:  # fmt: skip
    """One step a trajectory on ``reward_weight * r - cost_weights @ c``."""
    for i in range(len(experience.actions)):
        train_one(tables, spec, config, experience, i, reward_weight, cost_weights)


def train_one(
    tables: ActorCritic, spec: ProblemSpec, config: Config, experience: Experience, i: int,
    reward_weight: float, cost_weights: FloatArray,
) -> None:  # fmt: skip
    """The step on trajectory i."""
    e = experience
    pays = reward_weight * e.rewards[i] - e.costs[i] @ cost_weights
    tables.steps += 1
    actor_critic_step(
        e.states[i], e.actions[i], pays, np.array(spec.available), tables.steps,
        config.actor_step, config.critic_step, config.entropy, tables.logits, tables.critic,
        tables.moments,
    )  # fmt: skip


def measured(experience: Experience, privileged: bool) -> FloatArray:
    """(n, 1 + m) reward and costs of each trajectory: as sampled, or exact for its policy."""
    e = experience
    if not privileged:
        return np.column_stack([e.rewards.sum(axis=1), e.costs.sum(axis=1)])
    if e.exact is None:
        raise ConfigError("privileged_costs needs a model, whose exact costs can be given")
    return np.tile(e.exact, (len(e.actions), 1))


def actor(tables: ActorCritic, spec: ProblemSpec) -> StochasticPolicy:
    """The softmax policy."""
    out = np.empty_like(tables.logits)
    softmax_policy(tables.logits, np.array(spec.available), out)
    return StochasticPolicy(out)


@dataclass(kw_only=True, eq=False)
class State:
    """Actor, critic, multipliers."""

    spec: ProblemSpec
    config: Config
    tables: ActorCritic
    multipliers: FloatArray  #: (m,) >= 0


def init(spec: ProblemSpec, config: Config) -> State:
    """The uniform policy and multipliers 0."""
    check(spec, config)
    return State(
        spec=spec,
        config=config,
        tables=new_actor_critic(spec),
        multipliers=np.zeros(spec.num_costs),
    )


def policy(state: State) -> StochasticPolicy:
    """The actor."""
    return actor(state.tables, state.spec)


def horizon(state: State) -> Stop:
    """Learn from every trajectory."""
    return ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Critic and actor, then the multipliers' step."""
    spec, config = state.spec, state.config
    # critic and actor on the penalised reward
    train(state.tables, spec, config, experience, 1.0, spec.signs * state.multipliers)
    # multipliers, from the sampled cost
    for total in measured(experience, config.privileged_costs)[:, 1:]:
        excess = spec.signs * (total - spec.capacities)
        moved = state.multipliers + config.multiplier_step * excess
        state.multipliers = np.clip(moved, 0.0, config.multiplier_bound)
    return state, {"multiplier": state.multipliers}


def guarantee(config: Config) -> str | None:
    """None: the paper's convergence is asymptotic and needs vanishing steps."""
    return None


LEARNER = Learner(
    name="rcpo",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints"}),
    reference="Tessler, Mankowitz, Mannor 2019, Reward constrained policy optimization",
)
