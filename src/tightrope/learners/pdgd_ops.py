"""PDGD-OPS: primal-dual gradient descent online policy search, best of both worlds.

Reference: [BOBW] Germano et al. 2023, Algorithm 2. The primal player is UC-O-GDPS, the dual one
projected gradient descent on [0, T^(1/4)]^m. The same learner, unchanged, serves stochastic and
adversarial rewards and constraints.

Deviations:
1. While every loss so far was 0 there is no primal step (the step size would be infinite).
2. Option `cap=False` removes the cap T^(1/4) of the multipliers, to see whether it binds.
3. Option `doubling`: T unknown; after the last episode of a T it starts again with twice the T,
   keeping the counters. Labelled, and without the paper's guarantee.
4. The projection is exact up to a certified distance, `tolerance`; Info has the certificate. No
   theorem is claimed for more than 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightrope import theory as bounds
from tightrope.errors import ConfigError
from tightrope.kernels.layered import inner_products, lagrangian_loss
from tightrope.learners import uc_o_gdps
from tightrope.learners.full_information import check_loop_free, first_of, next_episode
from tightrope.learners.protocol import Experience, Info, Learner
from tightrope.types import ProblemSpec


@dataclass(frozen=True, kw_only=True)
class Config:
    """Constants of PDGD-OPS.

    Attributes
    ----------
    episodes : int
        T, known in advance (a first guess with `doubling`).
    delta : float
    primal_scale, radius_scale : float
        Multiply C of eta_t = 1 / (l_t C sqrt(T)) and the radii; 1 as proved.
    dual_scale : float
        Multiplies 1 / K of eta = 1 / (K sqrt(T ln(T^2 / delta))); 1 as proved.
    cap : bool
        Whether the multipliers stay in [0, T^(1/4)].
    tolerance : float
        Certified distance of the projection.
    doubling : bool
    """

    episodes: int
    delta: float = 0.05
    primal_scale: float = 1.0
    dual_scale: float = 1.0
    radius_scale: float = 1.0
    cap: bool = True
    tolerance: float = 1e-5
    doubling: bool = False


def theory(spec: ProblemSpec, episodes: int, delta: float) -> Config:
    """C of `primal_constant`, K of `dual_step`, radii of [BOBW, Eq. (10)], all unscaled."""
    return Config(episodes=episodes, delta=delta)


def primal_constant(spec: ProblemSpec, config: Config) -> float:
    """`primal_scale` times C = 5 |X| |A| / L, [BOBW, Appendix C.2]."""
    setting = bounds.setting_of(spec, config.episodes, config.delta)
    return bounds.primal_constant(setting) * config.primal_scale


def dual_step(spec: ProblemSpec, config: Config, episodes: int) -> float:
    """`dual_scale` times eta = 1 / (K sqrt(T ln(T^2 / delta))), K = 100 m |X| |A|.

    [BOBW, Section 4 and Appendix C.2], for T = `episodes`.
    """
    setting = bounds.setting_of(spec, episodes, config.delta)
    return config.dual_scale * bounds.dual_step(setting)


def check(spec: ProblemSpec, config: Config) -> None:
    """ConfigError unless the problem is loop-free and constrained, with known ranges."""
    check_loop_free(spec, config, "pdgd-ops")
    if spec.num_costs < 1:
        raise ConfigError("pdgd-ops needs at least one constraint; uc-o-gdps needs none")


State = uc_o_gdps.State


def init(spec: ProblemSpec, config: Config) -> State:
    check(spec, config)
    return State(**uc_o_gdps.primal_init(spec, config), multipliers=np.zeros(spec.num_costs))


policy = uc_o_gdps.policy
horizon = uc_o_gdps.horizon


def update(state: State, experience: Experience) -> tuple[State, Info]:
    config = state.config
    states, actions, rewards, constraints = first_of(experience, "pdgd-ops")
    next_episode(state, "pdgd-ops")
    # Line 6: l_t = G_t lambda_t - r_t
    losses = np.empty_like(state.q_hat)
    largest = lagrangian_loss(rewards, constraints, state.multipliers, losses)
    # Line 9 looks at q_hat_t, so its gradient comes before q_hat moves
    gradient = np.empty_like(state.multipliers)
    inner_products(state.q_hat, constraints, gradient)
    # Lines 7-8: UC-O-GDPS.UPDATE(l_t, eta_t, trajectory)
    constant = primal_constant(state.spec, config)
    info = uc_o_gdps.primal_update(state, losses, largest, constant, states, actions)
    # Line 9: lambda_{t+1} = projection of lambda_t + eta G_t q_hat_t onto [0, T^(1/4)]^m
    eta = dual_step(state.spec, config, state.episodes)
    cap = state.episodes**0.25 if config.cap else math.inf
    info.update(multipliers=state.multipliers, dual_step=eta)  # lambda_t, which was used
    state.multipliers = np.clip(state.multipliers + eta * gradient, 0.0, cap)
    state.capped += int((state.multipliers >= cap).any())
    info["capped"] = float(state.capped)
    if uc_o_gdps.restart(state):
        state.multipliers = np.zeros_like(state.multipliers)
    return state, info


def guarantee(config: Config) -> str | None:
    proved = config.primal_scale == config.dual_scale == config.radius_scale == 1.0
    exact = config.tolerance <= uc_o_gdps.EXACT
    if proved and exact and config.cap and not config.doubling:
        return "[BOBW, Theorems 5-7]"
    return None


LEARNER = Learner(
    name="pdgd-ops",
    config=Config,
    theory=theory,
    init=init,
    policy=policy,
    horizon=horizon,
    update=update,
    guarantee=guarantee,
    check=check,
    traits=frozenset({"episodic", "constraints", "full-information", "loop-free"}),
    reference="Germano et al. 2023, Algorithm 2",
)
