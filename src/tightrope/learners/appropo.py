"""ApproPO: feasibility by a game between an RL oracle and online gradient descent (baseline).

Reference: Miryoosefi, Brantley, Daume III, Dudik, Schapire 2019, Reinforcement learning with convex
constraints, Algorithm 2 with a positive-response oracle. The paper itself was not at hand: what is
said of it here is from [CON], its authors' two programs and derivations; its numbers are not given.

The target set of measurements z = (reward, costs) is C = {reward >= floor, 0 <= cost <= capacity};
it is lifted to the cone K over C x {kappa}. Lambda lives in the polar cone of K within the unit
ball. Round t:

1. oracle: improve a policy for the scalar reward -lambda @ z until its response is positive;
2. estimate: z_hat of the policy that this ends with; positive means lambda @ (z_hat, kappa) <= 0;
3. lambda <- projection of lambda + eta_t (z_hat, kappa).

What the algorithm returns is the uniform mixture of the responses; its measured reward and costs
are the Info's `mixture_reward` and `mixture_cost`. What is *played*, and what a run evaluates
exactly, are the policies on the way there as well, which are many more.

Deviations:
1. The oracle is the tabular actor-critic of `learners.rcpo`, kept from round to round: it trains on
   `round_episodes` trajectories, is measured, and trains on where the response is not positive. It
   is no best response, and its accuracy is not known.
2. After `patience` such rounds at one lambda the last response is taken although it is not
   positive. (A proved oracle would then have shown that the target cannot be met.)
3. No cache of earlier policies, which the published programs search first for a positive response,
   at no cost in trajectories: rounds that play nothing cannot be measured by what is played.
4. Costs are kept within [0, capacity], reward above a floor: no other convex sets, no '>=' costs.
5. `privileged_costs` is no learner's setting: the finished policy is measured by its exact reward
   and costs in the true model, as in the program of [CON]'s authors. It is played in the first
   trajectory of the next round, so that no trajectory is spent on estimating.
6. Against that program (preset `paper-experiments`): its start, the projection of small random
   numbers and kappa, is (-1, 0, floor / kappa) at length 1 up to what is random, and just that
   here. It normalises the oracle's weights in place, which also moves the iterate of the descent,
   and keeps references to one network in its cache, so that all its cached policies are the last
   one; here the weights are normalised in a copy. Its network, one for all states, is a table here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightrope.errors import ConfigError
from tightrope.learners import rcpo
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.model.policy import StochasticPolicy
from tightrope.types import FloatArray, ProblemSpec, as_number

ACCURACY = 1.0  # of theory's kappa: distances to C are at most 1 + this times those to the cone


@dataclass(frozen=True, kw_only=True)
class Config:
    """The target, the descent and the oracle.

    Attributes
    ----------
    reward_floor : float
        Least reward of an episode: the problem's, so by default there is none above 0.
    kappa : float > 0
        Lift of the target to a cone.
    step : float > 0
        Of online gradient descent.
    decay : bool
        Divide the step by sqrt(t) in the t-th descent; else it stays.
    momentum : float in [0, 1)
        velocity <- momentum * velocity + (1 - momentum) * step.
    normalise : bool
        Give the oracle weights of length 1.
    round_episodes : int >= 1
        Trajectories that the oracle trains on before it is measured.
    estimate_episodes : int >= 1
        Trajectories of the finished policy that measure it; they train nothing.
    patience : int >= 1
        Rounds at one lambda, at most.
    privileged_costs : bool
        Be given the policies' exact reward and costs, which no learner can know.
    actor_step, critic_step, entropy
        Of the oracle.
    """

    reward_floor: float = 0.0
    kappa: float = 20.0
    step: float = 1.0
    decay: bool = True
    momentum: float = 0.0
    normalise: bool = False
    round_episodes: int = 20
    estimate_episodes: int = 10
    patience: int = 10
    privileged_costs: bool = False
    actor_step: float = 1e-3
    critic_step: float = 1e-3
    entropy: float = 1e-3

    def __post_init__(self) -> None:
        check_settings(
            "appropo",
            self,
            positive=("kappa", "step", "actor_step", "critic_step"),
            not_negative=("momentum", "entropy"),
            counts=("round_episodes", "estimate_episodes", "patience"),
        )
        if self.momentum >= 1:
            raise ConfigError(f"appropo needs momentum < 1, got {self.momentum}")
        if not math.isfinite(as_number(self.reward_floor, "reward_floor")):
            raise ConfigError(f"reward_floor must be a finite number, got {self.reward_floor}")


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """Step and lift by their derivations; the floor is 0, so give the problem's.

    Online gradient descent over T rounds, in a set of radius 1 and with losses of length at most
    B, has regret at most B sqrt(T) from the constant step 1 / (B sqrt(T)); B bounds ||(z, kappa)||.
    With kappa = max over C of ||x|| / sqrt(2 a) the distance to C is at most 1 + a times that to
    the cone (a = 1 here). The paper's own step adds the estimate's error to B: not checked.
    T is that of the default rounds, of 20 + 10 trajectories each, were no round repeated: for other
    sizes give the step.
    """
    config = Config()
    low, high = (spec.horizon * abs(x) for x in spec.reward_range)
    reward = max(low, high)
    costs = spec.horizon * np.abs(spec.cost_ranges).max(axis=1, initial=0.0)
    corner = np.append(np.minimum(spec.capacities, costs), reward)
    kappa = float(np.linalg.norm(corner)) / math.sqrt(2 * ACCURACY) or config.kappa
    largest = float(np.linalg.norm([reward, *costs, kappa]))
    rounds = max(1, episodes // (config.round_episodes + config.estimate_episodes))
    return Config(kappa=kappa, step=1.0 / (largest * math.sqrt(rounds)), decay=False)


def check(spec: ProblemSpec, config: Config) -> None:
    """Episodic, and costs bounded from above only."""
    if config.reward_floor > spec.horizon * spec.reward_range[1]:
        raise ConfigError(
            f"reward_floor {config.reward_floor:.6g} cannot be reached: an episode pays at most "
            f"{spec.horizon * spec.reward_range[1]:.6g}"
        )
    if (spec.signs < 0).any():
        raise ConfigError(
            "appropo offers no '>=' costs; put 1 - c with capacity H - x in place of the floor x "
            "on c (H: steps of an episode)"
        )
    if (spec.capacities < 0).any() or not np.isfinite(spec.capacities).all():
        raise ConfigError(f"appropo needs finite capacities >= 0, got {spec.capacities.tolist()}")


@dataclass(kw_only=True, eq=False)
class State:
    """Oracle, weights, and the round under way."""

    spec: ProblemSpec
    config: Config
    tables: rcpo.ActorCritic
    weights: FloatArray  #: (1 + m + 1,) lambda of (reward, costs, kappa)
    velocity: FloatArray
    responses: int  #: taken so far, each with its step of lambda
    attempts: int  #: rounds at this lambda that gave no positive response
    trained: int  #: trajectories of this round that the oracle has trained on
    estimated: int  #: trajectories of the finished policy
    measured: FloatArray  #: (1 + m,) their sum of measurements
    mixture: FloatArray  #: (1 + m,) sum of the responses' measurements


def init(spec: ProblemSpec, config: Config) -> State:
    """lambda_1 asks for the floor: (-1, 0, .., floor / kappa), at length 1."""
    check(spec, config)
    weights = np.zeros(spec.num_costs + 2)
    weights[0], weights[-1] = -1.0, config.reward_floor / config.kappa
    return State(
        spec=spec,
        config=config,
        tables=rcpo.new_actor_critic(spec),
        weights=project_polar(weights, spec.capacities, config.reward_floor, config.kappa),
        velocity=np.zeros(weights.size),
        responses=0,
        attempts=0,
        trained=0,
        estimated=0,
        measured=np.zeros(1 + spec.num_costs),
        mixture=np.zeros(1 + spec.num_costs),
    )


def policy(state: State) -> StochasticPolicy:
    """The oracle's present policy."""
    return rcpo.actor(state.tables, state.spec)


def horizon(state: State) -> Stop:
    """One trajectory, also of an estimate: what is reported then depends on no other cuts."""
    return rcpo.ONE_EPISODE


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """A trajectory trains the oracle, or measures the policy that it has finished."""
    e, config = experience, state.config
    seen = rcpo.measured(e, config.privileged_costs)
    for i in range(len(e.actions)):
        if state.trained >= config.round_episodes:
            # 2. Est of the finished policy
            state.measured = state.measured + seen[i]
            state.estimated += 1
            if config.privileged_costs or state.estimated >= config.estimate_episodes:
                _respond(state)
            if not config.privileged_costs:
                continue  # else the measured trajectory is the first of the next round
        # 1. the oracle maximises -lambda @ z
        _train(state, e, i)
    taken = state.mixture / state.responses if state.responses else np.full(seen.shape[1], np.nan)
    return state, {
        "round": float(state.responses + 1),
        "attempts": float(state.attempts),
        "reward_weight": 0.0 - float(state.weights[0]),
        "cost_weight": state.weights[1:-1].copy(),
        "mixture_reward": float(taken[0]),
        "mixture_cost": taken[1:],
    }


def _train(state: State, e: Experience, i: int) -> None:
    """One step of the oracle on trajectory i."""
    weights = state.weights[:-1]
    size = float(np.linalg.norm(weights)) if state.config.normalise else 1.0
    weights = weights / (size or 1.0)
    rcpo.train_one(state.tables, state.spec, state.config, e, i, -weights[0], weights[1:])  # type: ignore[arg-type]
    state.trained += 1


def _respond(state: State) -> None:
    """The test of a positive response, and lambda's step if it is one or patience is at its end."""
    config = state.config
    z_hat = state.measured / state.estimated
    lifted = np.append(z_hat, config.kappa)
    state.attempts += 1
    if float(state.weights @ lifted) <= 0.0 or state.attempts >= config.patience:
        # 3. the loss of the lambda player is -lambda @ (z_hat, kappa)
        state.mixture = state.mixture + z_hat
        state.responses += 1
        state.attempts = 0
        eta = config.step / math.sqrt(state.responses if config.decay else 1.0)
        state.velocity = config.momentum * state.velocity + (1.0 - config.momentum) * eta * lifted
        state.weights = project_polar(
            state.weights + state.velocity, state.spec.capacities, config.reward_floor, config.kappa
        )
    state.trained = state.estimated = 0
    state.measured = np.zeros(z_hat.size)


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
    """None: the paper's theorem needs an oracle of known accuracy."""
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
    reference="Miryoosefi et al. 2019, Reinforcement learning with convex constraints",
)
