"""Figure 1 of [CON]: every arm can start, and the comparison says what is there."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tightrope.experiment import make_experiment, model_of
from tightrope.experiments import brantley_figure_1 as figure
from tightrope.plots import draw_figure_1
from tightrope.simulation import runner


def test_every_arm_fits_its_problem():
    experiment = make_experiment("brantley-figure-1")
    short = make_experiment("brantley-figure-1", quick=True)
    assert [arm.learner for arm in short.arms] == [arm.learner for arm in experiment.arms]
    assert {arm.problem for arm in experiment.arms} == {"mars-rover", "box", "mars-rover-stream"}
    for arm in experiment.arms:
        runner.start(
            model_of(arm.problem), arm.learner, episodes=arm.episodes, feedback=arm.feedback,
            **arm.changes,
        )  # fmt: skip


def test_learners_choose_among_the_arms():
    """Each keeps its own problems, changes and feedback; others go where they can be run."""
    every = make_experiment("brantley-figure-1").arms
    for learner in {arm.learner for arm in every}:
        chosen = make_experiment("brantley-figure-1", learners=[learner]).arms
        assert list(chosen) == [arm for arm in every if arm.learner == learner]
    other = make_experiment("brantley-figure-1", learners=["conrl@theory", "psrl"]).arms
    assert [(arm.problem, arm.learner) for arm in other] == [
        ("mars-rover", "conrl@theory"), ("box", "conrl@theory"), ("mars-rover-stream", "psrl"),
    ]  # fmt: skip


def test_program_curves():
    rows = figure.program_curves()
    assert len(rows) == 90
    assert {row["method"] for row in rows} == {"conrl-vi", "conrl-a2c", "rcpo", "appropo"}
    last = [r for r in rows if r["problem"] == "box" and r["method"] == "conrl-vi"][-1]
    assert (last["trajectories"], last["reward_mean"], last["cost_mean"]) == (1500, 1.74379, 0.0503)


def test_first_good():
    reward, cost = np.full(200, 1.5), np.full(200, 0.3)
    cost[:20] = 0.9
    cost[60] = 0.36  # breaks the first stretch, which is then 40 long
    assert figure.first_good(reward, cost, "mars-rover") == 62
    assert figure.first_good(reward, cost + 0.1, "mars-rover") is None
    assert figure.first_good(reward[:50], np.zeros(50), "mars-rover") == 1


def test_comparison_of_a_results_folder(tmp_path):
    """Means over the last ten policies, and over all of them for ApproPO."""
    rows = []
    for learner, preset in (
        ("conrl-lagrangian", "paper-experiments"),
        ("appropo", "privileged-costs"),
        ("appropo", "paper-experiments"),
    ):
        for seed in (0, 1):
            for k in range(1, 101):
                rows.append({
                    "problem": "mars-rover", "learner": learner, "preset": preset, "seed": seed,
                    "episode": k, "reward": k / 100 + seed, "cost_0": 0.25, "regret": 0.0,
                    "violation_0": 0.0, "sampled_cost_0": 0.25 * k,
                })  # fmt: skip
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(rows)), tmp_path / "curves.parquet")
    text = figure.comparison(tmp_path)
    # rewards at k = 91..100 have mean 0.955 and at k = 1..100 mean 0.505; seeds differ by 1
    ours = "| conrl-lagrangian@paper-experiments | 1.455 ± 0.707 "
    assert "| conrl-vi | 100 | 1.171 ± 0.149 | 1.059 ± 0.144 | 82 " + ours in text
    for preset in ("paper-experiments", "privileged-costs"):
        ours = f"| appropo@{preset} | 1.005 ± 0.707 "
        assert "| appropo | 100 | 1.483 ± 0.025 | 1.466 ± 0.027 | 143 " + ours in text
        assert f"| appropo@{preset} | not by 100 |" in text
    # nothing of ours stands beside these: they are shown alone
    assert text.count("| conrl-a2c |") == 14
    assert "| conrl-a2c | 400 | 1.002 | 0.989 | 88 | not run |" in text


def test_stream_beside_the_program():
    """30 times the running averages, at the program's numbers of trajectories."""
    rows = pd.concat(folder_rows("mars-rover-stream", "tfw-ucrl2", "paper-experiments", 2_970))
    gain = 2.0402 / 30
    lines = figure._stream_table(rows)
    # regret k^2/100 an arm: 29.7 a step, twice as much for the second seed
    assert lines[2].startswith("| 99 | 0.754 | 0.754 | ")
    assert float(lines[2].split("|")[4].split("±")[0]) == pytest.approx(
        30 * (gain - 1.5 * 29.7), abs=2e-3
    )
    assert lines[3] == "| optimum | 2.0402 | 0.3000 | 2.0402 | 0.3000 |"


def test_hyper_parameters_of_the_arms():
    """The published ones where an arm bears their name, and Box's own on Box."""
    changes = {
        (arm.problem, arm.learner): arm.changes for arm in make_experiment("brantley-figure-1").arms
    }
    assert changes["box", "appropo"] == {
        "reward_floor": 1.58, "step": 10.0, "round_episodes": 25,
    }  # fmt: skip
    assert changes["mars-rover", "appropo"] == {"reward_floor": 1.4}
    assert changes["box", "rcpo@paper-experiments"] == {"multiplier_step": 1e-2}
    assert changes["box", "conrl-lagrangian@paper-experiments"] == {"step": 10.0}
    # a problem's default experiment changes the same
    for learner in ("appropo", "rcpo", "conrl-lagrangian@paper-experiments"):
        (arm,) = make_experiment("box", learners=[learner]).arms
        assert arm.changes == changes["box", learner]
    (arm,) = make_experiment("box", learners=["appropo@theory"]).arms
    assert arm.changes == {"reward_floor": 1.58}


OPTIMA = {"mars-rover": (1.5, 0.3), "box": (1.7, 0.1), "mars-rover-stream": (0.068, 0.01)}


def folder_rows(problem, learner, preset, last):
    """Regret k^2/100 and violation k, the second seed with twice as much."""
    k = np.arange(1, last + 1)
    return [
        pd.DataFrame({
            "problem": problem, "learner": learner, "preset": preset, "seed": seed, "episode": k,
            "steps": k * (1 if problem.endswith("stream") else 30),
            "regret": (1 + seed) * k**2 / 100, "violation_0": (1.0 + seed) * k,
            "sampled_cost_0": 0.5 * k,
        })
        for seed in (0, 1)
    ]  # fmt: skip


def arm_of(problem, learner, preset):
    value, capacity = OPTIMA[problem]
    optimum = {"value": value, "capacities": {"cost": capacity}}
    return {"problem": problem, "learner": learner, "preset": preset, "optimum": optimum}


@pytest.mark.parametrize(
    ("problem", "learner", "reward", "cost", "factor", "at"),
    [
        # the last ten of 1..100: regret grows by (100^2 - 90^2)/100 = 19, so by 1.9 an episode
        ("mars-rover", "rcpo", 1.5 - 1.5 * 1.9, 0.3 + 1.5, 1.0, 100),
        # the mean of all: 1 an episode
        ("mars-rover", "appropo", 1.5 - 1.5 * 1.0, 0.3 + 1.5, 1.0, 100),
        ("mars-rover-stream", "tfw-ucrl2", 30 * (0.068 - 1.5), 30 * 1.51, 30.0, 100 / 30),
    ],
)
def test_curves_of_the_figure(problem, learner, reward, cost, factor, at):
    rows = pd.concat(folder_rows(problem, learner, "tuned", 100))
    curves = figure.figure_curves(rows, arm_of(problem, learner, "tuned"))
    for (points, mean, _), wanted in zip(curves, (reward, cost, 50.0)):
        assert points[-1] == pytest.approx(at)
        assert mean[-1] == pytest.approx(wanted)
    # costs differ by 1 between the seeds: deviation 1/sqrt(2), times 30 for the stream
    assert curves[1][2][-1] == pytest.approx(factor * np.sqrt(0.5))


def test_figure_is_drawn(tmp_path):
    (tmp_path / "figures").mkdir()
    arms = [("mars-rover", "rcpo"), ("box", "appropo"), ("mars-rover-stream", "tfw-ucrl2")]
    rows = pd.concat([part for arm in arms for part in folder_rows(*arm, "tuned", 60)])
    meta = {"arms": [arm_of(*arm, "tuned") for arm in arms]}
    table = pa.Table.from_pandas(rows, preserve_index=False)
    paths = draw_figure_1(tmp_path, table, meta)
    assert [path.name for path in paths] == ["figure-1.png", "figure-1.pdf"]
    assert all(path.stat().st_size > 10_000 for path in paths)


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["nowhere"]])
def test_command_without_a_results_folder(arguments, capsys):
    assert figure.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
