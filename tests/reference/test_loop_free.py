"""The unrolled Mars rover has the rover's optimum, and full-information learners run on it."""

import numpy as np
import pytest

from tightrope.model.layered import fold_policy
from tightrope.model.policy import StochasticPolicy
from tightrope.planning import evaluate
from tightrope.planning.layered import plan_layered
from tightrope.problems import mars_rover
from tightrope.problems.loop_free import mars_rover_loop_free
from tightrope.simulation.runner import run


def test_unrolled_mars_rover():
    problem = mars_rover_loop_free()
    assert np.bincount(problem.loop_free.layers).tolist() == [1, *[64] * 29, 1]
    plan = plan_layered(problem.loop_free)
    assert plan.value == pytest.approx(1.53628844, abs=1e-8)
    assert plan.upper_bound == pytest.approx(1.53628844, abs=1e-8)
    assert plan.multipliers[0] == pytest.approx(0.19298178, abs=1e-7)
    assert plan.constraints[0] == pytest.approx(0.0, abs=1e-9)
    back = evaluate(mars_rover(), fold_policy(problem.loop_free, StochasticPolicy(plan.policy)))
    assert back.value == pytest.approx(1.53628844, abs=1e-8)
    assert back.costs[0] == pytest.approx(0.3, abs=1e-9)


def test_pdgd_ops_plays_the_unrolled_rover():
    result = run("mars-rover-loop-free", "pdgd-ops", episodes=3, seed=0)
    assert (result.diagnostics["residual"] <= 1e-5).all()
    assert result.columns["regret"][-1] > 0
