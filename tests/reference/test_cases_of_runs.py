"""Faults that people meet with learners, runs and workers, each with its right answer."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import tightrope as tr
from tightrope.kernels.linear import add_to_statistics
from tightrope.model.linear import widths
from tightrope.problems.registry import PROBLEMS

KINDS = {
    name: "layers"
    if ".loop_free:" in problem.home
    else "stream"
    if set(problem.learners) & {"ucrl2", "olsvi-fh@lazy", "tfw-ucrl2"}
    or name in ("service-queue", "machine-replacement")
    else "episodes"
    for name, problem in PROBLEMS.items()
}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind == "episodes"])
def test_the_optimal_policy_has_no_regret(name):
    """The benchmark and the sampler are the same model."""
    run = tr.run(name, "oracle", episodes=30, seed=1)
    assert abs(run.columns["regret"][-1]) <= 1e-8 * 30


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind != "episodes"])
def test_the_optimal_policy_has_regret_slope_zero(name):
    """Of noisy tables, and of a single stream: zero within the interval of 20 batch means."""
    if KINDS[name] == "layers":
        length, run = 200, tr.run(name, "oracle", episodes=200, seed=3)
        at = run.columns["episode"]
    else:
        length = 4_000 if name == "continuous-linear-mdp" else 40_000
        run = tr.run(name, "oracle", steps=length, seed=3)
        at = run.columns["steps"]
    rows = np.searchsorted(at, np.linspace(0, length, 21)[1:] - 1e-9)
    slopes = np.diff(run.columns["regret"][rows], prepend=0.0) / np.diff(at[rows], prepend=0)
    half = stats.t.ppf(0.9995, slopes.size - 1) * slopes.std(ddof=1) / np.sqrt(slopes.size)
    assert abs(slopes.mean()) <= half + 1e-9


def test_ridge_regression_of_one_feature_seen_three_times():
    features = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    gram, reward_sum, successors = np.eye(2), np.zeros(2), np.zeros((2, 1))
    states, actions = np.zeros(4, dtype=np.int32), np.zeros(3, dtype=np.int32)
    add_to_statistics(features, states, actions, np.full(3, 2.0), gram, reward_sum, successors)
    inverse = np.linalg.inv(gram)
    assert (inverse @ reward_sum).tolist() == [1.5, 0.0]
    assert widths(features, inverse).tolist() == [[0.5, 1.0]]


@pytest.mark.slow
def test_workers_need_no_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tightrope.experiment import make_experiment\n"
        "from tightrope.launch import launch\n"
        "what = make_experiment('mars-rover', learners=['uniform'], episodes=20, seeds=3)\n"
        "for workers in (1, 2):\n"
        "    launch(what, Path(f'runs-{workers}'), workers=workers, quiet=True)\n"
    )
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path, capture_output=True)
    one, two = ((tmp_path / f"runs-{n}" / "curves.parquet").read_bytes() for n in (1, 2))
    assert one == two
