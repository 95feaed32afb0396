"""The report of runs with hard budgets: benchmarks, stopping, what is left."""

import json

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.experiment import make_experiment
from tightrope.launch import launch
from tightrope.planning.knapsack import common_unit, dynamic_optimum
from tightrope.results import load_budgets, load_meta
from tightrope.simulation import budgets


@pytest.mark.parametrize(
    ("stop", "budget", "stops"),
    [
        ("on-violation", 6.0, True),
        ("before-violation", 18.0, True),
        ("before-violation-step", 6.0, False),
    ],
)
def test_report_of_a_run(stop, budget, stops):
    model = tr.problems.rover_knapsack(anywhere=stop.endswith("step"))
    run = tr.run(model, "conrl-knapsack", episodes=60, seed=2, stop=stop, budgets=(budget,))
    report, rewards = run.budgets, run.columns["reward"]
    at = report["stopped_at"]
    assert (at is not None) == stops == (report["stop_reason"] != "played to the end")
    if stops:  # learning takes more than the budget
        assert (rewards[at - 1 :] == 0).all()
        assert rewards[at - 2] > 0
    assert report["left"]["cost"] == pytest.approx(budget - run.columns["sampled_cost_0"][-1])
    assert (report["left"]["cost"] < 0) == (stop == "on-violation")
    assert report["reward"] == pytest.approx(rewards.sum())
    fair = tr.plan(model, budgets=[budget], episodes=60)
    assert report["stationary"] == pytest.approx(60 * fair.value)
    exact = dynamic_optimum(model, budgets=[budget], episodes=60, unit=1 / 15).value
    assert report["dynamic"] == pytest.approx(exact)
    assert report["reward"] < exact <= report["stationary"] + 1e-9


def test_command_writes_and_prints_the_report(tmp_path, capsys):
    experiment = make_experiment("rover-knapsack", episodes=30, seeds=2)
    summary = launch(experiment, tmp_path / "k", workers=1, quiet=True)
    reports = load_budgets(tmp_path / "k")
    assert summary["budgets"] == reports == json.loads((tmp_path / "k/budgets.json").read_text())
    assert [(r["learner"], r["seed"]) for r in reports] == [
        ("conrl-knapsack", 0), ("conrl-knapsack@before-violation", 0),
        ("conrl-knapsack", 1), ("conrl-knapsack@before-violation", 1),
    ]  # fmt: skip
    assert len(load_meta(tmp_path / "k")["arms"]) == 4  # seeds are not arms
    text = budgets.table_text(reports)
    for word in ("stationary benchmark", "dynamic optimum", "(exact)", "out from", "cost left"):
        assert word in text
    assert "a budget was exceeded in 0 of them" in text


def test_benchmarks_that_are_not_to_be_had():
    model = tr.problems.rover_knapsack()
    drawn = budgets.benchmarks(model, budgets=(3.0,), episodes=10, feedback="bernoulli")
    assert drawn["dynamic"] is None
    assert "bernoulli" in drawn["dynamic_note"]
    large = budgets.benchmarks(model, budgets=(9e3,), episodes=30_000)
    assert large["dynamic"] is None
    assert "more than 2e+10" in large["dynamic_note"]
    assert large["stationary"] == pytest.approx(30_000 * tr.plan(model).value)
    assert "unknown" in budgets.table_text(
        [{**_report(model), **large, "problem": "p", "learner": "l", "seed": 0}]
    )


def _report(model):
    return tr.run(model, "conrl-knapsack", episodes=2, seed=0).budgets


def test_null_action_that_is_none():
    with pytest.raises(ConfigError, match=r"'right' must give the null episode.*1\.81682.*adds"):
        tr.run("mars-rover", "conrl-knapsack", episodes=5)
    model = tr.problems.rover_knapsack()
    with pytest.raises(ConfigError, match=r"leads from state .* to .*, expected out_state"):
        tr.run(model, "conrl-knapsack", episodes=5, out_state=0)


@pytest.mark.parametrize(
    ("costs", "unit"), [([0.0], 1.0), ([0.5, 1.5], 0.5), ([1 / 30, 1.0], 1 / 30), ([0.4, 0.6], 0.2)]
)
def test_common_unit(costs, unit):
    assert common_unit(np.array(costs)) == pytest.approx(unit)


def test_no_common_unit():
    with pytest.raises(ConfigError, match=r"0\.7071.*give the unit"):
        common_unit(np.array([np.sqrt(0.5)]))
