"""The experiment's lines: four combinations, both conditions, several lengths, slopes saved."""

from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from tightrope import theory
from tightrope.cli import app
from tightrope.errors import ResultError
from tightrope.experiment import Arm, Experiment, make_experiment
from tightrope.launch import launch
from tightrope.problems.adversarial import feasibility_margin
from tightrope.problems.registry import make_problem
from tightrope.results import jobs_of, load_meta, load_results
from tightrope.slopes import load_slopes

KINDS = ("stochastic", "adversarial")
NEEDED = ("pdgd-ops", "pdgd-ops@no-cap", "uc-o-reps@penalty", "uc-o-gdps@best-multiplier", "oracle")


@pytest.mark.parametrize("quick", [False, True])
def test_every_combination_with_the_condition_met_and_broken(quick):
    arms = make_experiment("best-of-both-worlds", quick=quick).arms
    for family, rewards, constraints in product(("loop-free", "condition-2"), KINDS, KINDS):
        name = f"{family}-{rewards}-{constraints}"
        own = [arm for arm in arms if arm.problem == name]
        assert {arm.learner for arm in own} == set(NEEDED)
        lengths = {arm.episodes for arm in own if arm.learner == "pdgd-ops"}
        assert len(lengths) == (4 if not quick else 3) if family == "loop-free" else 1
        problem, longest = make_problem(name), max(lengths)
        setting = theory.setting_of(problem.spec(), longest, 0.05)
        rho = feasibility_margin(problem, longest, 0).value
        assert theory.condition_2(setting, rho) == (family == "condition-2" and not quick)
    examples = {arm.problem for arm in arms} & {
        f"{name}-{world}"
        for name in ("impossibility", "ten-layers")
        for world in ("relief", "trap")
    }
    assert len(examples) == 4
    assert any(arm.problem == "switching" for arm in arms)


def several_lengths(longest=40):
    arms = [
        Arm(problem="condition-2-stochastic-stochastic", learner=name, episodes=longest)
        for name in ("pdgd-ops", "oracle")
    ]
    arms.append(
        Arm(
            problem="condition-2-stochastic-stochastic",
            learner="pdgd-ops",
            episodes=20,
            horizon=True,
        )
    )
    arms.append(Arm(problem="impossibility-trap", learner="oracle", episodes=20, seeds=1))
    return Experiment(name="small", arms=tuple(arms), seeds=2)


def test_slopes_are_a_part_of_the_results(tmp_path):
    experiment, folder = several_lengths(), tmp_path / "out"
    assert len(jobs_of(experiment)) == 7
    summary = launch(experiment, folder, workers=1, quiet=True)
    table = load_results(folder).to_pandas()
    assert set(table["problem"]) == {
        "condition-2-stochastic-stochastic",
        "condition-2-stochastic-stochastic-T20",
        "impossibility-trap",
    }
    rows = load_slopes(folder)
    assert rows == summary["slopes"]
    assert [row["quantity"] for row in rows] == ["R_T", "V_T"]
    assert {row["learner"] for row in rows} == {"pdgd-ops"}
    last = table[(table["learner"] == "pdgd-ops")].groupby(["problem", "seed"]).last()
    for row, column in zip(rows, ("regret", "violation_0")):
        assert sorted(row["horizons"]) == [20, 20, 40, 40]
        np.testing.assert_allclose(sorted(row["values"]), sorted(last[column]))
        expected = theory.log_log_slope(np.array(row["horizons"]), np.array(row["values"]))
        assert (row["slope"], row["low"], row["high"]) == expected
    figures = {path.name for path in (folder / "figures").iterdir()}
    assert {"slopes.png", "condition-2-stochastic-stochastic.png"} <= figures
    assert "condition-2-stochastic-stochastic-T20.png" not in figures
    assert {arm["horizon"] for arm in load_meta(folder)["arms"]} == {True, False}
    # the same command again finds everything done, and another main length is refused
    launch(experiment, folder, workers=1, quiet=True, resume=True)
    with pytest.raises(ResultError, match="40 episodes, not 41"):
        launch(several_lengths(41), folder, workers=1, quiet=True, resume=True)


def test_one_length_makes_no_slopes(tmp_path):
    arm = Arm(problem="impossibility-trap", learner="oracle", episodes=20)
    launch(Experiment(name="one", arms=(arm,), seeds=3), tmp_path / "out", workers=1, quiet=True)
    with pytest.raises(ResultError, match="no slopes"):
        load_slopes(tmp_path / "out")


def test_asked_for_one_length_the_others_go():
    lengths = {a.episodes for a in make_experiment("best-of-both-worlds", episodes=30).arms}
    assert lengths == {30}
    arms = make_experiment("best-of-both-worlds", episodes=30).arms
    assert len({arm.label for arm in arms}) == len(arms)
    own = make_experiment("best-of-both-worlds", learners=["uniform"]).arms
    of_one = [arm.episodes for arm in own if arm.problem == "loop-free-stochastic-stochastic"]
    assert sorted(of_one) == [1_000, 4_000, 16_000, 64_000]


@pytest.mark.slow
def test_the_command_prints_the_slopes(tmp_path):
    folder = tmp_path / "out"
    words = ["run", "best-of-both-worlds", "--quick", "--learners", "uniform", "--seeds", "1"]
    answer = CliRunner().invoke(app, [*words, "--jobs", "1", "--quiet", "--out", str(folder)])
    assert answer.exit_code == 0, answer.output
    assert "slopes in T" in answer.stdout
    assert "loop-free-adversarial-adversarial  uniform          V_T" in answer.stdout
