"""LagrConPlanner: its twin, its bounds, its convergence."""

import numpy as np
import pytest
from tests.random_models import random_episodic

import tightrope as tr
from tightrope.errors import ConfigError, PlanError, Status
from tightrope.kernels import episodic as fast
from tightrope.kernels.reference import episodic as plain
from tightrope.model.policy import check_policy
from tightrope.planning.episodic import signed_tables


@pytest.mark.parametrize("seed", range(10))
def test_twins(seed):
    model = random_episodic(seed)
    tables, limits = signed_tables(model)
    H, m = model.horizon, model.num_costs
    out = []
    for kernels in (fast, plain):
        duals = np.full(m, 0.1)
        actions = np.empty((6, H, model.num_states), dtype=np.int32)
        values, trail = np.empty((6, 1 + m)), np.empty((6, m))
        upper = kernels.lagrangian_iterations(
            *tables, H, limits, 0.05, duals, actions, values, trail
        )
        out.append((upper, values, trail))
    for left, right in zip(*out):
        assert left == pytest.approx(right, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_bounds_hold_and_the_excess_vanishes(m):
    model = tr.problems.random_cmdp(15, 3, horizon=8, num_costs=m, seed=m)
    exact = tr.plan(model).value
    excesses = []
    for iterations in (20, 200, 2000):
        found = tr.planning.lagrangian(model, iterations=iterations)
        check_policy(found.policy, model.available, model.horizon)
        assert found.upper_bound >= exact - 1e-9
        assert found.statistics["suboptimality"] == pytest.approx(exact - found.value)
        excesses.append(found.statistics["largest_excess"])
    assert excesses[0] > excesses[1] > excesses[2]
    # the multipliers stay bounded, so the average excess is O(1 / (step N))
    assert excesses[2] < 0.1


def test_without_constraints_one_iteration_is_optimal():
    model = tr.problems.random_cmdp(15, 3, horizon=8, num_costs=0, seed=1)
    found = tr.planning.lagrangian(model, iterations=1)
    assert found.value == pytest.approx(tr.plan(model).value)
    assert found.status.value == "solved"


def test_bad_input():
    with pytest.raises(ConfigError, match="iterations must be a whole number >= 1"):
        tr.planning.lagrangian(tr.problems.mars_rover(), iterations=0)


def test_capacity_that_no_policy_keeps():
    """The answer says what is the least, and so does the error of a run."""
    model = tr.problems.mars_rover(capacity=0.0)
    solution = tr.planning.lagrangian(model, iterations=5)
    assert solution.status is Status.INFEASIBLE
    assert solution.least_violation.costs[0] == pytest.approx(4.0058e-6, abs=1e-10)
    for learner in ("conrl", "conrl-lagrangian", "rcpo"):
        with pytest.raises(PlanError, match=r"least violation has cost 4\.00575e-06 .* over"):
            tr.run(model, learner, episodes=2)
