"""Random linear MDPs: linear indeed, and the continuous gain against independent numbers."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

from tightrope.errors import ConfigError
from tightrope.model import chain
from tightrope.planning import plan
from tightrope.problems.average import admission_control
from tightrope.problems.linear import (
    admission_control_polynomial,
    continuous_gain,
    random_continuous_mdp,
    random_linear_mdp,
)
from tightrope.simulation.runner import run


def test_finite_problem_is_linear_and_declares_what_it_knows():
    problem = random_linear_mdp(states=7, actions=3, dimension=4, seed=5)
    assert problem.linearity_error() < 1e-12
    spec = problem.spec()
    assert spec.knowledge["mixing_time"] == chain.mixing_time(problem.model) < np.inf
    np.testing.assert_allclose(spec.knowledge["sigma"], chain.sigma(problem.model, spec.features))
    assert "sigma" not in random_linear_mdp(states=30, actions=3, seed=1).knowledge
    with pytest.raises(ConfigError, match="at least d = 9 pairs"):
        random_linear_mdp(states=4, actions=2, dimension=9)


def test_the_q_functions_of_policies_are_linear():
    """[LIN, Lemma 14]: every q of every policy lies in the span of the features."""
    problem = random_linear_mdp(states=7, actions=3, dimension=4, seed=5)
    rng = np.random.default_rng(0)
    for _ in range(5):
        table = rng.dirichlet(np.ones(3), size=7)
        kernel = np.einsum("sa,say->sy", table, problem.model.dense())
        rewards = (table * problem.model.rewards).sum(axis=1)
        law = chain.gth(kernel)
        deviation = np.linalg.solve(np.eye(7) - kernel + law, rewards - law @ rewards)
        q = problem.model.rewards + problem.model.dense() @ deviation
        rows = problem.features.reshape(-1, 4)
        fitted = rows @ np.linalg.lstsq(rows, q.ravel(), rcond=None)[0]
        np.testing.assert_allclose(fitted, q.ravel(), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_continuous_gain_against_a_fine_grid(seed):
    """Cells of [0, 1] with the exact mass of each measure: an ordinary finite model."""
    problem = random_continuous_mdp(seed=seed)
    found = continuous_gain(problem)
    assert 0 <= found.upper - found.lower <= 2e-10
    assert found.quadrature_error < 1e-10
    # no grid sees below the least or above the largest bias; a crossing is the least of some
    grid = (problem.features(np.linspace(0, 1, 100_003)) @ found.weights).max(axis=1)
    assert np.ptp(grid) <= found.span + 1e-14
    assert found.span == pytest.approx(np.ptp(grid), abs=1e-4)
    cells = 4000
    edges = np.linspace(0, 1, cells + 1)
    mass = np.diff(beta.cdf(edges, problem.alphas[:, None], problem.betas[:, None]), axis=1)
    measures = problem.shares @ mass
    features = problem.features(0.5 * (edges[1:] + edges[:-1]))
    weights = np.zeros(4)
    for _ in range(500):
        fresh = problem.theta + measures @ (features @ weights).max(axis=1)
        low, high = (fresh - weights).min(), (fresh - weights).max()
        weights = fresh - fresh.min()
    assert high - low < 1e-12
    np.testing.assert_allclose(found.lower, low, atol=2e-6)


def test_continuous_bellman_equation_by_quadrature():
    """J + q = r + E v for the certified weights, integrated by QUADPACK."""
    problem = random_continuous_mdp(seed=9)
    found = continuous_gain(problem)
    knots = np.linspace(0, 1, len(problem.table))
    for i in range(4):

        def integrand(x, i=i):
            density = problem.shares[i] @ beta.pdf(x, problem.alphas, problem.betas)
            return density * (problem.features([x])[0] @ found.weights).max()

        integral = sum(
            quad(integrand, a, b, limit=200, epsabs=1e-10)[0] for a, b in itertools.pairwise(knots)
        )
        bellman = problem.theta[i] + integral - found.weights[i]
        np.testing.assert_allclose(bellman, found.lower, atol=1e-7)


def test_admission_control_with_polynomial_features():
    """Rewards fit the learners, the scale brings the gain back, and every feature learner runs."""
    problem, original = admission_control_polynomial(), admission_control()
    assert np.abs(problem.model.rewards).max() == 1.0
    gain = plan(problem.model).value * problem.reward_scale
    np.testing.assert_allclose(gain, plan(original).value, atol=1e-9)
    best, uniform = (
        run(problem, name, steps=20_000).columns["regret"][-1] for name in ("oracle", "uniform")
    )
    for learner in ("olsvi-fh", "politex", "npg"):
        result = run(problem, learner, steps=20_000)
        assert result.columns["regret"][-1] < best + 0.6 * (uniform - best), learner
