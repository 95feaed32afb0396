"""Figure 1 of [CON]: every arm can start, and the comparison says what is there."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tightrope.experiment import make_experiment, model_of
from tightrope.experiments import brantley_figure_1 as figure
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
    for learner, preset in (("conrl-lagrangian", "paper-experiments"), ("appropo", "tuned")):
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
    assert "| conrl-vi | 100 | 1.171 ± 0.149 | 1.059 ± 0.144 | 82 | 1.455 ± 0.707" in text
    assert "| appropo | 100 | 1.483 ± 0.025 | 1.466 ± 0.027 | 143 | 1.005 ± 0.707" in text
    assert "| appropo@tuned | not by 100 |" in text
