"""The built-in experiments of [LIN]: every arm can start, and short runs say what they should."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.experiment import make_experiment, model_of
from tightrope.simulation import runner


@pytest.mark.parametrize("name", ["wei-average-reward", "appendix-e"])
@pytest.mark.parametrize("quick", [True, False])
def test_every_arm_fits_its_problem(name, quick):
    """Presets, constants and horizons pass every check."""
    for arm in make_experiment(name, quick=quick).arms:
        if arm.learner == "fopo":
            pytest.importorskip("clarabel")
        runner.start(
            model_of(arm.problem), arm.learner, episodes=arm.episodes, delta=0.05, **arm.changes
        )


def test_better_than_uniform():
    gain = tr.plan(tr.problems.linear_mdp().model).value
    np.testing.assert_allclose(gain, 0.8274331891, atol=1e-9)
    worst = tr.run("linear-mdp", "uniform", steps=20_000).columns["regret"][-1]
    for learner in ("mdp-exp2", "npg", "politex", "olsvi-fh", "ucrl2", "psrl"):
        result = tr.run("linear-mdp", learner, steps=20_000, seed=2)
        assert result.columns["regret"][-1] < 0.5 * worst, learner
    assert abs(tr.run("linear-mdp", "oracle", steps=20_000).columns["regret"][-1]) < 0.05 * worst


def test_a_bare_name_takes_the_arms_of_the_experiment():
    """mdp-exp2 is another preset on RiverSwim, FOPO another method on `ergodic`."""
    arms = make_experiment("wei-average-reward", learners=["mdp-exp2", "fopo"]).arms
    names = {(arm.problem, arm.learner) for arm in arms}
    assert names == {
        ("riverswim", "mdp-exp2@riverswim"),
        ("linear-mdp", "mdp-exp2"),
        ("ergodic", "mdp-exp2"),
        ("riverswim", "fopo"),
        ("linear-mdp", "fopo"),
        ("ergodic", "fopo@local"),
    }
    assert len(arms) == 18  # at three horizons
    arms = make_experiment("wei-average-reward", learners=["mdp-exp2@theory"]).arms
    assert {arm.learner for arm in arms} == {"mdp-exp2@theory"}
    arms = make_experiment("appendix-e", learners=["npg"]).arms
    assert len(arms) == 12  # four step sizes at three horizons
    assert all(arm.changes for arm in arms)
