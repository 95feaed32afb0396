"""The linear oracle over a confidence set against linear programs and its own transitions."""

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.planning.confidence_samples import random_instance

from tightrope.errors import ConfigError
from tightrope.planning.linear_oracle import optimistic
from tightrope.planning.projection import project
from tightrope.planning.projection_program import aggregated_program


@pytest.mark.parametrize("number", range(20))
def test_agrees_with_the_linear_program(number):
    confidence, costs = random_instance(number)
    plan = optimistic(costs, confidence)
    program = aggregated_program(confidence)
    linear = np.zeros(program.equal.shape[1])
    linear[: confidence.pairs.size] = costs.ravel()[confidence.pairs]
    lp = linprog(
        linear,
        A_eq=program.equal,
        b_eq=program.right,
        A_ub=program.less,
        b_ub=np.zeros(program.less.shape[0]),
    )
    assert plan.value == pytest.approx(lp.fun, abs=1e-8)
    exists = confidence.available
    assert np.sum(plan.q[exists] * costs[exists]) == pytest.approx(plan.value, abs=1e-12)


@pytest.mark.parametrize("number", range(6))
def test_transitions_lie_in_the_confidence_set(number):
    confidence, costs = random_instance(number)
    rows = optimistic(costs, confidence).transitions.toarray()
    exists = confidence.available.ravel()
    np.testing.assert_allclose(rows[exists].sum(axis=1), 1.0, atol=1e-12)
    moved = np.abs(rows - confidence.p_bar.toarray()).sum(axis=1)
    assert (moved[exists] <= np.minimum(confidence.radius.ravel()[exists], 2.0) + 1e-12).all()


def test_far_projection_is_the_vertex_of_the_oracle():
    confidence, costs = random_instance(9)
    far = project(-1e4 * costs, confidence, tol=1e-5)
    exists = confidence.available
    value = np.sum(far.q[exists] * costs[exists])
    assert value == pytest.approx(optimistic(costs, confidence).value, abs=1e-3)


def test_bad_costs_are_named():
    confidence, costs = random_instance(1)
    with pytest.raises(ConfigError, match="shape"):
        optimistic(costs[:, :0], confidence)
    costs[0, 0] = np.inf
    with pytest.raises(ConfigError, match="state 0, action 0"):
        optimistic(costs, confidence)
