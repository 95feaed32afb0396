"""Two baselines: `oracle` plays the optimal policy, `uniform` every action alike.

The oracle is the one learner that is given something of the true model: the policy of a certified
plan. Its regret is zero by construction, which tests the accounting.
Deviations: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from tightrope.errors import ConfigError
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.model.policy import Policy, uniform_policy
from tightrope.types import Episodic, ProblemSpec

BLOCK = 1024  # episodes (or steps) played between two updates that learn nothing


@dataclass(frozen=True, kw_only=True)
class OracleConfig:
    """`policy` is filled in by the simulation, from a certified plan."""

    policy: Policy | None = None


@dataclass(frozen=True, kw_only=True)
class UniformConfig:
    """Nothing to choose."""


@dataclass(kw_only=True, eq=False)
class State:
    """Nothing is learnt."""

    spec: ProblemSpec
    config: OracleConfig | UniformConfig


def check(spec: ProblemSpec, config: OracleConfig | UniformConfig) -> None:
    """Any problem will do."""


def init(spec: ProblemSpec, config: OracleConfig | UniformConfig) -> State:
    """ConfigError if the oracle was given no policy."""
    if isinstance(config, OracleConfig) and config.policy is None:
        raise ConfigError(
            "oracle needs the optimal policy: OracleConfig(policy=plan(model).policy)"
        )
    return State(spec=spec, config=config)


def policy(state: State) -> Policy:
    """The optimal policy, or the uniform one."""
    if isinstance(state.config, OracleConfig):
        assert state.config.policy is not None
        return state.config.policy
    return uniform_policy(state.spec.available)


def horizon(state: State) -> Stop:
    """Long blocks, since nothing changes."""
    return Stop("episodes" if isinstance(state.spec.criterion, Episodic) else "steps", BLOCK)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Nothing to learn."""
    return state, {}


def no_guarantee(config: OracleConfig | UniformConfig) -> None:
    """Neither has a theorem."""


ORACLE = Learner(
    name="oracle",
    config=OracleConfig,
    theory=lambda spec, episodes, delta: OracleConfig(),
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=no_guarantee,
    check=check,
    traits=frozenset({"episodic", "stream", "constraints", "privileged"}),
)
UNIFORM = Learner(
    name="uniform",
    config=UniformConfig,
    theory=lambda spec, episodes, delta: UniformConfig(),
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=no_guarantee,
    check=check,
    traits=frozenset({"episodic", "stream", "constraints"}),
)
