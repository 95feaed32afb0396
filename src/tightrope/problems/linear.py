"""Random linear MDPs for average-reward learners, with known optimal gain."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainc

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model import chain
from tightrope.model.features import polynomial, random_simplex
from tightrope.model.linear import (
    ContinuousLinearMDP,
    LinearMDP,
    LinearPolicy,
    interpolated_features,
    with_features,
)
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.solution import Solution
from tightrope.problems.average import admission_control
from tightrope.types import Average, FloatArray

SIGMA_POLICIES = 65_536  # deterministic policies up to which sigma is computed and declared
QUADRATURE_ERROR = 1e-12
"""Allowance for rounding in the integrals, per unit of span; scipy's betainc has about 1e-14."""


def random_linear_mdp(
    *,
    states: int = 10,
    actions: int = 4,
    dimension: int = 4,
    concentration: float = 0.3,
    seed: int = 0,
) -> LinearMDP:
    """``p = phi'mu``, ``r = phi'theta`` with simplex features and d random measures.

    Every measure has full support, so every policy is ergodic; mixing time and sigma are exact and
    declared in `knowledge` (sigma only where all deterministic policies can be tried).

    Parameters
    ----------
    concentration : float
        Of the Dirichlet features; small values put them near the corners, so that actions matter.

    Examples
    --------
    >>> problem = random_linear_mdp(seed=1)
    >>> problem.features.shape, problem.linearity_error() < 1e-12
    ((10, 4, 4), True)
    """
    if min(states, actions, dimension) < 1 or states * actions < dimension:
        raise ConfigError(
            f"expected at least d = {dimension} pairs, got {states} states x {actions} actions"
        )
    rng = np.random.default_rng(seed)
    features = random_simplex(states, actions, dimension, rng=rng, concentration=concentration)
    measures = rng.dirichlet(np.ones(states), size=dimension)
    theta = rng.permutation(np.linspace(0.0, 1.0, dimension))
    model = FiniteMDP(
        transitions=features @ measures,
        rewards=features @ theta,
        criterion=Average(),
        axes="sas",
    )
    knowledge = {"mixing_time": chain.mixing_time(model)}
    if float(actions) ** states <= SIGMA_POLICIES:
        knowledge["sigma"] = chain.sigma(model, features)
    return LinearMDP(model=model, features=features, knowledge=knowledge)


@functools.cache
def linear_mdp() -> LinearMDP:
    """The random linear MDP of the experiments: 10 states, 3 actions, d = 4, seed 3.

    Gain 0.8274331891, the uniform policy 0.5415118811; t_mix 1.908351, sigma 3.259473e-4.

    >>> round(linear_mdp().knowledge["mixing_time"], 6)
    1.908351
    """
    return random_linear_mdp(states=10, actions=3, dimension=4, seed=3)


def admission_control_polynomial(*, degree: int = 3, **parameters: Any) -> LinearMDP:
    """`admission_control` with polynomials of the queue's length as features, for each action.

    Rewards are divided by their largest size (6 by default), which `reward_scale` records. The
    model is not linear in these features, nor are its bias functions: no theorem covers a run.

    Parameters
    ----------
    degree : int
        d = 2 (degree + 1).
    parameters
        Of `admission_control`.

    Examples
    --------
    >>> problem = admission_control_polynomial()
    >>> problem.features.shape, problem.reward_scale, problem.linearity_error() > 0.4
    ((21, 2, 8), 6.0, True)
    """
    model = admission_control(**parameters)
    last = model.num_states - 1
    features = polynomial(model.num_actions, degree, low=0, high=last)
    return with_features(model, features(np.arange(last + 1)))


def random_continuous_mdp(
    *, actions: int = 3, dimension: int = 4, knots: int = 6, components: int = 5, seed: int = 0
) -> ContinuousLinearMDP:
    """States in [0, 1], features linear between random simplex knots, mixture-of-Beta measures.

    >>> problem = random_continuous_mdp(seed=2)
    >>> problem.features([0.0, 0.3]).sum(axis=2).round(12)
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    if knots < 2:
        raise ConfigError(f"knots must be at least 2, got {knots}")
    rng = np.random.default_rng(seed)
    table = random_simplex(knots, actions, dimension, rng=rng, concentration=0.3)
    return ContinuousLinearMDP(
        features=interpolated_features(table),
        table=table,
        theta=rng.permutation(np.linspace(0.0, 1.0, dimension)),
        shares=rng.dirichlet(np.ones(components), size=dimension),
        alphas=rng.integers(1, 8, components).astype(np.float64),
        betas=rng.integers(1, 8, components).astype(np.float64),
    )


# ------------------------------------------------ exact gain, continuous states


@dataclass(frozen=True, kw_only=True)
class ContinuousGain:
    """Certified optimal gain of a continuous linear MDP.

    Attributes
    ----------
    lower, upper : float
        The optimal gain lies between them, rounding in the integrals included.
    weights : (d,)
        ``max_a phi(x, a)'weights`` is the optimal bias up to a constant.
    span : float
        Of that bias, exact but for rounding.
    quadrature_error : float
        Part of ``upper - lower`` that covers the integrals.
    iterations : int
    """

    lower: float
    upper: float
    weights: FloatArray
    span: float
    quadrature_error: float
    iterations: int


def continuous_solution(problem: ContinuousLinearMDP) -> Solution:
    """The certified gain as a planner's answer; its value is the middle of the bounds.

    The policy is greedy for the certified weights.
    """
    started = time.perf_counter()
    found = continuous_gain(problem)
    return Solution(
        status=Status.SOLVED,
        solver="weight-space-value-iteration",
        value=0.5 * (found.lower + found.upper),
        policy=LinearPolicy(problem.features, found.weights[None]),  # type: ignore[arg-type]
        costs=np.zeros(0),
        capacities=np.zeros(0),
        cost_names=(),
        multipliers=np.zeros(0),
        lower_bound=found.lower,
        upper_bound=found.upper,
        seconds=time.perf_counter() - started,
        model_hash=problem.content_hash,
        statistics={
            "iterations": found.iterations,
            "quadrature_error": found.quadrature_error,
            "span": found.span,
        },
    )


def _moments(problem: ContinuousLinearMDP, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mass and first moment of each measure on each interval between edges: (d, n) and (d, n)."""
    a, b = problem.alphas[:, None], problem.betas[:, None]
    mass = np.diff(betainc(a, b, edges), axis=1)
    first = np.diff(betainc(a + 1.0, b, edges), axis=1) * a / (a + b)
    return problem.shares @ mass, problem.shares @ first


def _edges(values: FloatArray) -> FloatArray:
    """Knots and crossings of lines between values (K, A) at the knots of [0, 1].

    The largest of the lines is linear from one of these points to the next.
    """
    knots = np.linspace(0.0, 1.0, len(values))
    left, right = values[:-1], values[1:]
    points = [knots]
    for a in range(values.shape[1]):
        for b in range(a):
            before, after = left[:, a] - left[:, b], right[:, a] - right[:, b]
            cross = before * after < 0
            share = before[cross] / (before[cross] - after[cross])
            points.append(knots[:-1][cross] + share * np.diff(knots)[cross])
    return np.unique(np.concatenate(points))


def _integral_of_maximum(problem: ContinuousLinearMDP, weights: FloatArray) -> FloatArray:
    """(d,) integrals of ``max_a phi(x, a)'w`` against the measures, exact but for rounding.

    Between two knots every ``phi(x, a)'w`` is linear, so the maximum changes only where two of
    them cross, and a linear function needs mass and first moment alone.
    """
    values = problem.table @ weights  # (K, A)
    left, right = values[:-1], values[1:]
    knots, edges = np.linspace(0.0, 1.0, len(values)), _edges(values)
    middle = 0.5 * (edges[:-1] + edges[1:])
    best = (problem.features(middle) @ weights).argmax(axis=1)
    interval = np.minimum(np.searchsorted(knots, middle) - 1, len(knots) - 2)
    slope = (right[interval, best] - left[interval, best]) * (len(knots) - 1)
    offset = left[interval, best] - slope * knots[interval]
    mass, first = _moments(problem, edges)
    return mass @ offset + first @ slope


def continuous_gain(
    problem: ContinuousLinearMDP, *, tolerance: float = 1e-10, max_iterations: int = 100_000
) -> ContinuousGain:
    """Optimal gain by relative value iteration in weight space, with a certificate.

    With ``(T w)_i = theta_i + integral of max_a phi'w against mu_i`` and simplex features, the gain
    lies between the least and the largest entry of ``T w - w`` for every w.

    Raises
    ------
    ModelError
        If the bounds do not meet within `max_iterations`.

    Examples
    --------
    >>> gain = continuous_gain(random_continuous_mdp(seed=2))
    >>> 0.0 <= gain.upper - gain.lower < 1e-9
    True
    """
    weights = np.zeros(len(problem.theta))
    for iteration in range(1, max_iterations + 1):
        fresh = problem.theta + _integral_of_maximum(problem, weights)
        step = fresh - weights
        error = QUADRATURE_ERROR * max(1.0, float(np.ptp(weights)))
        if np.ptp(step) < tolerance:
            bias = (problem.features(_edges(problem.table @ weights)) @ weights).max(axis=1)
            return ContinuousGain(
                lower=float(step.min()) - error,
                upper=float(step.max()) + error,
                weights=weights - weights.mean(),
                span=float(np.ptp(bias)),
                quadrature_error=2 * error,
                iterations=iteration,
            )
        weights = fresh - fresh.min()
    raise ModelError(f"value iteration did not meet {tolerance} in {max_iterations} iterations")
