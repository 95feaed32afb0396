"""FOPO: fixed-point optimisation with optimism, solved exactly by branch and bound.

Reference: [LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020), Learning infinite-horizon
average-reward MDPs with linear function approximation, Algorithm 1.

Deviations:
1. -1 <= J <= 1 is added. As printed J is unbounded before there is data; J* satisfies it, so
   optimism (Lemma 2) is kept.
2. Ties, which the paper leaves open, are broken: the least |b|_Lambda, then the least |w|.
3. ``method="local"`` (large instances) gives a feasible point and an upper bound of J; no theorem
   covers it unless the gap is 0. Nor does one where `node_limit` ended branch and bound before J
   was proved optimal: such updates have ``proved = 0`` in Info and take the guarantee from the
   run. Ties may be left open: Theorem 3 needs only J.
4. Where the program has no feasible point (beta or the span is too small) the run stops and says
   so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tightrope.errors import ConfigError, Status
from tightrope.kernels.linear import add_to_statistics
from tightrope.learners.olsvi_fh import check_unit_rewards
from tightrope.learners.protocol import Experience, Info, Learner, Stop
from tightrope.learners.settings import check_settings
from tightrope.learners.ucrl2 import LONGEST, check_stream
from tightrope.model.features import declared, features_of
from tightrope.model.policy import DeterministicPolicy
from tightrope.planning.fixed_point import FixedPoint, first_best, solve_fixed_point
from tightrope.types import FloatArray, IntArray, ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings; a scale of 1 is as proved.

    Attributes
    ----------
    steps : int
        T, for which the constants are set.
    delta : float
    span : float or None
        sp(v*); None takes what the problem declares.
    beta_scale : float
        Multiplies beta.
    method : 'exact' or 'local'
    node_limit : int
        Cone programs an update.
    """

    steps: int
    delta: float = 0.05
    span: float | None = None
    beta_scale: float = 1.0
    method: Literal["exact", "local"] = "exact"
    node_limit: int = 5000


def theory(spec: ProblemSpec, steps: int, delta: float = 0.05) -> Config:
    """[LIN, Theorem 3]: beta of Algorithm 1, span as the problem declares it."""
    return Config(steps=steps, delta=delta)


def radii(spec: ProblemSpec, config: Config, dimension: int) -> tuple[float, float]:
    """beta = 20 (2 + sp) d sqrt(log(T / delta)) and the bound (2 + sp) sqrt(d) of |w|."""
    span = declared(spec, "span", config.span, "fopo")
    beta = 20.0 * (2.0 + span) * dimension * math.sqrt(math.log(config.steps / config.delta))
    return config.beta_scale * beta, (2.0 + span) * math.sqrt(dimension)


def check(spec: ProblemSpec, config: Config) -> None:
    """Rewards in [-1, 1] and a known span."""
    check_stream(spec, "fopo")
    check_unit_rewards(spec, "fopo")
    check_settings("fopo", config, positive=("beta_scale",), counts=("steps", "node_limit"))
    radii(spec, config, features_of(spec).shape[2])
    if config.method not in ("exact", "local"):
        raise ConfigError(f"method must be 'exact' or 'local', got {config.method!r}")
    if not 0.0 < config.delta < 1.0:
        raise ConfigError(f"fopo needs delta in (0, 1), got {config.delta}")


@dataclass(kw_only=True, eq=False)
class State:
    """Lambda (d, d), sums (d,) and (d, S), and the last solution; `unproved` updates so far."""

    spec: ProblemSpec
    config: Config
    updates: int
    unproved: int
    features: FloatArray
    gram: FloatArray
    reward_sum: FloatArray
    successor_sum: FloatArray
    weights: FloatArray
    selection: IntArray

    def unmet(self) -> list[str]:
        """Why no theorem covers the run."""
        if not self.unproved:
            return []
        return [f"in {self.unproved} of {self.updates} programs J was not proved optimal"]


def init(spec: ProblemSpec, config: Config) -> State:
    """Lambda = I; the program without data has J = 1, b = 0, w = 0."""
    features = features_of(spec)
    dimension = features.shape[2]
    state = State(
        spec=spec,
        config=config,
        updates=0,
        unproved=0,
        features=features,
        gram=np.eye(dimension),
        reward_sum=np.zeros(dimension),
        successor_sum=np.zeros((dimension, spec.num_states)),
        weights=np.zeros(dimension),
        selection=np.zeros(spec.num_states, dtype=np.int32),
    )
    _solve(state)
    return state


def policy(state: State) -> DeterministicPolicy:
    """a = argmax phi(x, a)'w, the first of equals."""
    scores = np.where(state.spec.available, state.features @ state.weights, -np.inf)
    return DeterministicPolicy(first_best(scores))


def horizon(state: State) -> Stop:
    """Until det(Lambda) has doubled."""
    return Stop("determinant-doubling", LONGEST, counts=state.gram)


def update(state: State, experience: Experience) -> tuple[State, Info]:
    """Algorithm 1: Lambda_{t+1} = Lambda_t + phi phi', then the program when det has doubled."""
    add_to_statistics(
        state.features,
        experience.states,
        experience.actions,
        experience.rewards,
        state.gram,
        state.reward_sum,
        state.successor_sum,
    )
    solved = _solve(state)
    return state, {
        "gain": solved.gain,
        "upper_bound": solved.upper_bound,
        "gap": solved.gap,
        "proved": float(solved.proved),
        "nodes": float(solved.nodes),
        "slack_norm": solved.slack_norm,
        "updates": float(state.updates),
    }


def _solve(state: State) -> FixedPoint:
    """The optimisation problem of Algorithm 1, by sufficient statistics."""
    beta, radius = radii(state.spec, state.config, len(state.gram))
    solved = solve_fixed_point(
        state.features,
        state.gram,
        state.reward_sum,
        state.successor_sum.sum(axis=1),
        state.successor_sum,
        beta=beta,
        radius=radius,
        available=state.spec.available,
        method=state.config.method,
        node_limit=state.config.node_limit,
        start=state.selection,
    )
    state.updates += 1
    if solved.status is Status.INFEASIBLE:
        raise ConfigError(
            f"fopo: the program of update {state.updates} has no feasible point: beta = {beta:.6g} "
            f"or the bound {radius:.6g} of |w| is too small; raise beta_scale or span"
        )
    state.unproved += not solved.proved
    if not np.isnan(solved.gain):  # else the solver failed: keep what is played
        state.weights = solved.weights
        state.selection = solved.selection
    return solved


def guarantee(config: Config) -> str | None:
    """Theorem 3 if beta is as proved and the program is solved exactly."""
    if config.beta_scale == 1.0 and config.method == "exact":
        return "[LIN, Theorem 3]: regret of order (2 + sp) sqrt(d^3 T) log(T / delta)"
    return None


LEARNER = Learner(
    name="fopo",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"stream", "unconstrained", "weakly-communicating", "linear-model"}),
    reference="[LIN, Algorithm 1]",
)
