"""The table of what learning costs."""

import csv

import numpy as np

from tightrope import growth
from tightrope.experiment import Arm, Experiment
from tightrope.growth import growth_text
from tightrope.launch import launch


def experiment(problem, learners, horizons):
    arms = [
        Arm(problem=problem, learner=name, episodes=steps, horizon=steps < max(horizons))
        for name in learners
        for steps in horizons
    ]
    return Experiment(name="small", arms=tuple(arms), seeds=2, delta=0.05)


def test_growth_of_streams(tmp_path):
    what = experiment("riverswim", ["uniform", "psrl"], [4000, 1000])
    summary = launch(what, tmp_path / "out", workers=1, quiet=True)
    rows = summary["growth"]
    assert [(row["learner"], row["steps"]) for row in rows] == [
        ("uniform", 1000), ("uniform", 4000), ("psrl", 1000), ("psrl", 4000),
    ]  # fmt: skip
    uniform, psrl = rows[1], rows[3]
    assert abs(uniform["slope_along_run"] - 1.0) < 0.02
    assert psrl["state_bytes"] > 6 * 2 * 6 * 8  # the counts of all transitions, among others
    assert psrl["state_bytes_slope"] < 0.05
    assert "seconds_slope" not in rows[0]
    with (tmp_path / "out/growth.csv").open() as file:
        saved = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["regret"]) for row in saved], [r["regret"] for r in rows])
    assert str(tmp_path / "out/figures/growth.png") in summary["figures"]
    text = growth_text(rows)
    assert text.count("psrl") == 1
    assert " 4000 " in text
    assert "+-" not in text  # two seeds have no interval
    assert saved[0]["regret_half_width"] == "nan"
    runs = [
        {
            "regret": float(seed),
            "slope_along_run": 1.0,
            "seconds": 1,
            "updates": 1,
            "state_bytes": 8,
        }
        for seed in range(3)
    ]
    half = growth._row(1000, runs)["regret_half_width"]
    np.testing.assert_allclose(half, 4.302653 / np.sqrt(3), rtol=1e-6)


def test_no_growth_table_for_episodes(tmp_path):
    what = experiment("box", ["uniform"], [3])
    assert launch(what, tmp_path / "out", workers=1, quiet=True)["growth"] == []
    assert not (tmp_path / "out/growth.csv").exists()
