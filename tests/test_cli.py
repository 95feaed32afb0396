"""The command line as a user meets it: answers, exit codes, one-line errors, resuming."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from loky.process_executor import TerminatedWorkerError

import tightrope as tr
from tightrope.cli import main
from tightrope.errors import ConfigError
from tightrope.experiment import Arm, Experiment
from tightrope.kernels import jit
from tightrope.learners.presets import PRESETS
from tightrope.problems.registry import PROBLEMS


@pytest.fixture
def call(capsys, monkeypatch):
    """Run the command line in this process; returns (exit code, stdout, stderr)."""

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["tightrope", *map(str, argv)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code, out, err

    return run


@pytest.fixture
def no_figures(monkeypatch):
    """Runs are a second shorter each."""
    monkeypatch.setattr("tightrope.plots.draw_figures", lambda folder: [])


SMALL = ("--episodes", 12, "--seeds", 2, "--quiet")


def test_plan_json(call):
    code, out, _ = call("plan", "mars-rover", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["status"] == "solved"
    assert answer["value"] == pytest.approx(1.53628844, abs=1e-7)
    assert answer["multipliers"] == {"cost": pytest.approx(0.192982, abs=1e-5)}
    assert answer["costs"] == {"cost": pytest.approx(0.3, abs=1e-9)}
    assert answer["capacities"] == {"cost": 0.3}
    assert answer["gap"] <= 1e-8
    keys = {"lower_bound", "upper_bound", "seconds", "solver", "model_hash"}
    assert keys <= set(answer)


@pytest.mark.parametrize(("capacity", "value"), [(0.2, 1.51699026), (0.1, 1.49741215)])
def test_plan_with_another_capacity(call, capacity, value):
    code, out, _ = call("plan", "mars-rover", "--capacity", f"cost={capacity}", "--json")
    assert code == 0
    assert json.loads(out)["value"] == pytest.approx(value, abs=1e-7)


def test_plan_frontier(call):
    code, out, _ = call("plan", "mars-rover", "--frontier", "cost", "--json")
    curve = json.loads(out)["frontier"]
    assert code == 0
    assert curve["error"] <= 1e-7
    assert curve["least_capacity"] == pytest.approx(4.0058e-6, abs=1e-10)
    assert np.interp(0.2, curve["capacities"], curve["values"]) == pytest.approx(
        1.51699026, abs=2e-7
    )
    code, out, _ = call("plan", "mars-rover", "--frontier", "cost")
    assert code == 0
    assert "yes" in out
    assert "breakpoints" in out
    code, _, err = call("plan", "mars-rover", "--frontier", "coast")
    assert code == 2
    assert "did you mean 'cost'" in err


@pytest.mark.parametrize("problem", ["riverswim", "access-control", "service-queue"])
def test_plan_average(call, problem):
    code, out, _ = call("plan", problem, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["status"] == "solved"
    assert answer["gap"] <= 1e-9


def test_plan_says_when_a_policy_must_switch(call, tmp_path):
    """Stay for 1 at cost 1, or leave for ever: half the capacity needs a draw, or one switch."""
    model = tr.FiniteMDP(
        transitions=[[[1, 0], [0, 1]], [[0, 1], [0, 1]]],
        axes="sas",
        rewards=[[1.0, 0.0], [0.0, 0.0]],
        costs={"use": [[1.0, 0.0], [0.0, 0.0]]},
        capacities={"use": 0.5},
        initial=[1.0, 0.0],
        criterion="average",
    )
    tr.save(model, tmp_path / "two.json")
    code, out, _ = call("plan", tmp_path / "two.json", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["value"] == pytest.approx(0.5, abs=1e-8)
    assert "switches once" in answer["must_switch"]
    _, out, _ = call("plan", tmp_path / "two.json")
    assert "note: no single stationary policy found earns this" in out
    _, out, _ = call("plan", tmp_path / "two.json", "--capacity", "use=1", "--json")
    assert "must_switch" not in json.loads(out)


def test_plan_infeasible(call):
    code, out, _ = call("plan", "box", "--capacity", "cost=0.01", "--json")
    answer = json.loads(out)
    assert code == 1
    assert answer["status"] == "infeasible"
    assert answer["value"] is None
    least = answer["least_violation"]
    assert least["costs"]["cost"] == pytest.approx(0.03325520, abs=1e-8)
    assert least["shortfall"] == pytest.approx(0.02325520, abs=1e-8)
    code, out, _ = call("plan", "box", "--capacity", "cost=0.01")
    assert code == 1
    assert "least violation" in out


def test_plan_of_a_file_and_its_policy(call, tmp_path):
    tr.save(tr.problems.box(), tmp_path / "box.npz")
    code, out, _ = call("plan", tmp_path / "box.npz", "--out", tmp_path / "policy.npz", "--json")
    assert code == 0
    assert json.loads(out)["value"] == pytest.approx(1.74967662, abs=1e-7)
    policy = tr.load_policy(tmp_path / "policy.npz")
    assert tr.evaluate(tr.problems.box(), policy).value == pytest.approx(1.74967662, abs=1e-7)


def test_plan_shows_the_policy(call, tmp_path):
    table, figure = tmp_path / "policy.csv", tmp_path / "policy.png"
    code, out, _ = call("plan", "mars-rover", "--policy", "--table", table, "--figure", figure)
    assert code == 0
    assert re.search(r"^0,3 +5 +0.0831434  down \(0.9468\), right \(0.0532\)$", out, re.MULTILINE)
    assert figure.read_bytes().startswith(b"\x89PNG")
    rows = pd.read_csv(table)
    sums = rows.groupby(["stage", "state"])["probability"].sum()
    assert np.allclose(sums, 1.0)
    assert rows["visits"].sum() == pytest.approx(30)
    code, out, _ = call("plan", "media-buffer", "--policy", "--stage", 0, "--json")
    assert json.loads(out)["policy"] == [
        {
            "stage": 0, "state": 0, "state_name": "0", "action": 1, "action_name": "fast",
            "probability": 1.0, "visits": 1.0, "weight": 1.0,
        }
    ]  # fmt: skip


def test_plan_says_the_least_capacity(call):
    code, out, _ = call("plan", "mars-rover", "--json")
    assert code == 0
    assert json.loads(out)["least_capacities"]["cost"] == pytest.approx(4.0058e-6, abs=1e-10)
    code, out, _ = call("plan", "service-queue")
    assert code == 0
    assert re.search(r"^throughput +0.25 >= +0.25 .* yes$", out, re.MULTILINE)


def test_plan_of_an_infeasible_model_shows_the_policy_of_least_violation(call, tmp_path):
    file = tmp_path / "policy.npz"
    code, out, err = call("plan", "box", "--capacity", "cost=0.01", "--policy", "--out", file)
    assert code == 1
    assert "note: no policy keeps the capacities" in err
    assert "state" in out
    found = tr.evaluate(tr.problems.box(), tr.load_policy(file))
    assert found.costs[0] == pytest.approx(0.03325520, abs=1e-8)


def test_plan_answers_for_every_problem_that_is_listed(call):
    for name in PROBLEMS:
        code, out, err = call("plan", name, "--json")
        if name == "continuous-linear-mdp":
            assert code == 2
            assert "optimal gain is between 0.5295120728 and" in err
            continue
        assert code == 0, (name, err)
        answer = json.loads(out)
        assert answer["gap"] <= 1e-8
        if name == "mars-rover-loop-free":
            assert answer["value"] == pytest.approx(1.53628844, abs=1e-7)
            assert "averages in hindsight over 200 episodes" in err


MISTAKES = [
    (("plan", "mars-rover", "--policy", "--stage", "30"), "stage must be a step of an episode"),
    (("plan", "mars-rover", "--stage", "3"), "--stage goes with --policy"),
    (("plan", "mars-rover", "--exact"), "--exact goes with --frontier"),
    (("plan", "mars-rover", "--figure", "a.xyz"), "Format 'xyz' is not supported"),
    (("plan", "mars-rovr"), "did you mean 'mars-rover'"),
    (("plan", "nowhere.npz"), "nowhere.npz"),
    (("plan", "mars-rover", "--capacity", "costs=1"), "no cost of this model: cost"),
    (("plan", "mars-rover", "--capacity", "csot=1"), "did you mean 'cost'"),
    (("plan", "mars-rover", "--capacity", "cost"), "NAME=NUMBER"),
    (("plan", "mars-rover", "--solver", "lpp"), "did you mean 'lp'"),
    (("plan", "mars-rover", "--criterion", "average"), "(--capacity cost=X)"),
    (("plan", "mars-rover", "--solver", "cplex"), "cplex"),
    (("plan", "mars-rover", "--bogus"), "--bogus"),
    (("run", "mars-rover", "--learners", "conrol"), "did you mean 'conrl'"),
    (("run", "mars-rover", "--learners", "conrl@tunde"), "did you mean 'tuned'"),
    (("run", "mars-rover", "--episodes", "0"), "episodes must be >= 1"),
    (("run", "mars-rover", "--seeds", "0"), "seeds >= 1"),
    (("run", "mars-rover", "--jobs", "0"), "jobs must be >= 1"),
    (("run", "mars-rover", "--learners", "conrl,conrl"), "distinct"),
    (("run", "mars-rover", "--learners", "conrl,conrl@tuned", "--episodes", "5"), "distinct"),
    (("run", "mars"), "did you mean"),
    (("list", "planners"), "problems, learners or experiments"),
    (("list", "problem"), "did you mean 'problems'"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[" ".join(a) for a, _ in MISTAKES])
def test_mistakes_end_with_one_line_and_code_2(call, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*argv)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert err.startswith("tightrope: ")


def test_mistakes_leave_no_folder_behind(call, tmp_path):
    code, _, _ = call("run", "mars-rover", "--learners", "conrol", "--out", tmp_path / "r")
    assert code == 2
    assert not (tmp_path / "r").exists()


def test_list(call):
    code, out, _ = call("list", "--json")
    names = {kind: {x["name"] for x in entries} for kind, entries in json.loads(out).items()}
    assert code == 0
    assert {"mars-rover", "box", "random-cmdp"} <= names["problems"]
    assert {"conrl", "oracle", "uniform"} <= names["learners"]
    assert "mars-rover" in names["experiments"]
    assert "conrl" in call("list", "learners")[1]


def test_version(call):
    assert call("--version")[:2] == (0, f"tightrope {tr.__version__}\n")


def test_floors_and_episodes_of_one_step(call, tmp_path):
    """A floor's cost is its capacity minus the violation; one step is still an episode."""
    model = tr.FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[1.0, 0.2]], costs={"care": [[0.0, 1.0]]},
        capacities={"care": 0.3}, senses=[">="], criterion=tr.Episodic(1),
    )  # fmt: skip
    tr.save(model, tmp_path / "floor.json")
    args = ("run", tmp_path / "floor.json", "--episodes", 20, "--seeds", 1, "--jobs", 1, "--quiet")
    code, out, _ = call(*args, "--learners", "uniform", "--out", tmp_path / "r", "--json")
    assert code == 0
    (arm,) = json.loads(out)["arms"]
    assert arm["costs"]["care"] == pytest.approx(0.5)
    assert arm["unit"] == "episodes"
    assert not (tmp_path / "r" / "growth.csv").exists()
    # the same runs under the learner's other name
    again = ("--learners", "uniform@tuned", "--out", tmp_path / "r", "--resume")
    assert call(*args, *again)[0] == 0
    for content, words in (("[]", "does not say which run"), ("{", "cannot be read")):
        next((tmp_path / "r" / "parts").glob("*0.json")).write_text(content)
        code, _, err = call(*args, *again)
        assert code == 2
        assert words in err


def test_run_writes_the_folder_of_the_contract(call, tmp_path):
    folder = tmp_path / "r"
    code, out, _ = call(
        "run", "mars-rover", "--learners", "conrl,conrl@theory,oracle", *SMALL, "--jobs", 1,
        "--seed", 5, "--out", folder, "--json",
    )  # fmt: skip
    assert code == 0
    summary = json.loads(out)
    assert summary["runs"] == 6
    table = tr.load_results(folder).to_pandas()
    assert list(table.columns) == [
        "problem", "learner", "preset", "guarantee", "seed", "episode", "steps", "reward",
        "cost_0", "regret", "violation_0", "violation_plus_0", "sampled_reward", "sampled_cost_0",
    ]  # fmt: skip
    assert len(table) == 6 * 12
    assert set(table["learner"]) == {"conrl", "oracle"}
    assert set(table["seed"]) == {5, 6}
    assert table["episode"].min() == 1
    assert (table["steps"] == 30 * table["episode"]).all()
    theory = table[table["preset"] == "theory"]
    assert set(theory["guarantee"]) == {"[CON, Theorem 3.4]"}
    optimum = tr.plan(tr.problems.mars_rover()).value
    for _, rows in table.groupby(["learner", "preset", "seed"]):
        assert rows["regret"].to_numpy() == pytest.approx((optimum - rows["reward"]).cumsum())
        excess = rows["cost_0"] - 0.3
        assert rows["violation_0"].to_numpy() == pytest.approx(excess.cumsum())
        assert rows["violation_plus_0"].to_numpy() == pytest.approx(excess.clip(lower=0).cumsum())
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["missing"] == []
    assert meta["versions"]["tightrope"] == tr.__version__
    assert len(meta["arms"]) == 3
    assert meta["arms"][0]["optimum"]["model_hash"] == tr.problems.mars_rover().content_hash
    assert pq.read_table(folder / "timings.parquet").num_rows == 6
    assert (folder / "figures" / "mars-rover.png").stat().st_size > 10_000
    assert (folder / "figures" / "mars-rover.pdf").exists()
    assert (folder / "experiment.toml").exists()


def test_workers_seeds_and_hash_order_do_not_change_a_byte(tmp_path):
    """One worker or two, PYTHONHASHSEED 0 or 1: the same curves and the same diagnostics."""
    command = [
        sys.executable, "-m", "tightrope", "run", "mars-rover", "--learners", "conrl,uniform",
        "--episodes", "20", "--seeds", "2", "--quiet",
    ]  # fmt: skip
    for name, jobs, order in (("a", "1", "0"), ("b", "2", "1")):
        environment = {**os.environ, "PYTHONHASHSEED": order}
        arguments = [*command, "--jobs", jobs, "--out", str(tmp_path / name)]
        subprocess.run(arguments, check=True, env=environment, capture_output=True)
    for file in ("curves.parquet", "info.parquet", "experiment.toml"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_resume_keeps_what_is_finished_and_runs_the_rest(call, tmp_path):
    folder = tmp_path / "r"
    argv = (
        "run",
        "mars-rover",
        "--learners",
        "conrl,uniform",
        *SMALL,
        "--jobs",
        1,
        "--out",
        folder,
    )
    assert call(*argv)[0] == 0
    whole = (folder / "curves.parquet").read_bytes()
    code, _, err = call(*argv)
    assert code == 2
    assert "already holds results" in err
    assert "--resume" in err
    parts = sorted((folder / "parts").iterdir())
    for path in parts[:3]:
        path.unlink()
    (folder / "curves.parquet").unlink()
    kept = [path for path in parts[3:] if path.suffix == ".json"]
    before = {path: path.stat().st_mtime_ns for path in kept}
    assert call(*argv, "--resume")[0] == 0
    assert (folder / "curves.parquet").read_bytes() == whole
    # a run whose three files were all there was not touched
    untouched = [p for p in kept if p.stat().st_mtime_ns == before[p]]
    assert len(untouched) == 3


def test_resume_extends_to_more_seeds(call, tmp_path, no_figures):
    folder = tmp_path / "r"
    base = ("run", "mars-rover", "--learners", "uniform", "--episodes", 5, "--quiet", "--jobs", 1)
    assert call(*base, "--seeds", 1, "--out", folder)[0] == 0
    assert call(*base, "--seeds", 3, "--out", folder, "--resume")[0] == 0
    assert set(tr.load_results(folder)["seed"].to_pylist()) == {0, 1, 2}


def _small_file(path, reward):
    path.parent.mkdir()
    tr.save(
        tr.FiniteMDP(
            transitions=np.ones((1, 2, 1)), axes="sas", rewards=[[0.0, reward]], initial=[1.0],
            criterion="episodic", horizon=2,
        ),
        path,
    )  # fmt: skip
    return path


def test_resume_refuses_another_model_or_setting(call, tmp_path, monkeypatch, no_figures):
    """A file of the same name, or another constant of the preset: named, and nothing is lost."""
    folder = tmp_path / "r"
    a, b = (_small_file(tmp_path / x / "m.json", r) for x, r in (("a", 0.5), ("b", 0.75)))
    rest = ("--learners", "conrl", "--episodes", 3, "--quiet", "--jobs", 1, "--out", folder)
    assert call("run", a, *rest, "--seeds", 1)[0] == 0
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = call("run", b, *rest, "--seeds", 3, "--resume")
    assert code == 2
    assert f"model is '{tr.load(a).content_hash}' there, '{tr.load(b).content_hash}' here" in err
    with monkeypatch.context() as patch:
        patch.setitem(PRESETS["conrl"], "tuned", {**PRESETS["conrl"]["tuned"], "bonus_scale": 0.5})
        code, _, err = call("run", a, *rest, "--seeds", 3, "--resume")
        assert code == 2
        assert "config bonus_scale is 3e-06 there, 0.5 here" in err
    with monkeypatch.context() as patch:
        patch.setattr("tightrope.simulation.runner.__version__", "9")
        code, _, err = call("run", a, *rest, "--seeds", 3, "--resume")
        assert code == 2
        assert "version is" in err
    assert kept == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert call("run", a, *rest, "--seeds", 2, "--resume")[0] == 0


def test_resume_leaves_no_finished_run_out(call, tmp_path, no_figures):
    folder = tmp_path / "r"
    base = ("run", _small_file(tmp_path / "a" / "m.json", 0.5), "--episodes", 3, "--quiet")
    base += ("--jobs", 1, "--out", folder)
    assert call(*base, "--learners", "oracle", "--seeds", 2)[0] == 0
    for rest in (("uniform", "--seeds", 2), ("oracle", "--seeds", 1)):
        code, _, err = call(*base, "--resume", "--learners", *rest)
        assert code == 2
        assert "finished runs that this command leaves out" in err
    assert call(*base, "--learners", "uniform,oracle", "--seeds", 2, "--resume")[0] == 0
    assert set(tr.load_results(folder)["learner"].to_pylist()) == {"oracle", "uniform"}


def test_arms_have_names_of_their_own():
    """Two files of one name would share their results."""
    arms = [Arm(problem=f"{x}/m.json", learner="oracle", episodes=2) for x in "ab"]
    with pytest.raises(ConfigError, match="names of their own"):
        Experiment(name="x", arms=tuple(arms))


def test_another_experiment_in_the_folder(call, tmp_path, no_figures):
    folder = tmp_path / "r"
    base = ("run", "mars-rover", "--learners", "uniform", *SMALL, "--jobs", 1, "--out", folder)
    assert call(*base)[0] == 0
    code, _, err = call("run", "box", "--learners", "uniform", *SMALL, "--out", folder, "--resume")
    assert code == 2
    assert "already holds another experiment" in err
    code, _, err = call(
        "run", "mars-rover", "--learners", "uniform", "--episodes", 13, "--out", folder, "--resume"
    )
    assert code == 2
    assert "12 episodes, not 13" in err


def test_a_folder_of_other_things_is_refused(call, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    code, _, err = call("run", "mars-rover", *SMALL, "--out", tmp_path)
    assert code == 2
    assert "not empty" in err
    (tmp_path / "file").write_text("")
    code, _, err = call("run", "mars-rover", *SMALL, "--out", tmp_path / "file")
    assert code == 2
    assert "is a file" in err


def test_full_disk_loses_no_finished_run(call, tmp_path, monkeypatch):
    """The third part cannot be written: two are kept, and the message says so."""
    folder = tmp_path / "r"
    written = Path.write_bytes

    def full(self, data):
        if "seed2" in self.name:
            raise OSError(28, "No space left on device")
        return written(self, data)

    argv = ("run", "mars-rover", "--learners", "uniform", "--episodes", 5, "--seeds", 4, "--quiet")
    monkeypatch.setattr(Path, "write_bytes", full)
    code, _, err = call(*argv, "--jobs", 1, "--out", folder)
    assert code == 2
    assert "No space left on device" in err
    assert "kept" in err
    assert len(list((folder / "parts").glob("*.json"))) == 2
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["--out", "--table"])
def test_plan_on_a_full_disk(call, option):
    code, _, err = call("plan", "media-buffer", option, "/dev/full")
    assert code == 2
    assert "No space left on device" in err
    assert "Traceback" not in err
    code, _, err = call("plan", "media-buffer", option, Path(__file__) / "x.npz")
    assert code == 2
    assert "Not a directory" in err


def test_debug_shows_the_traceback_and_keeps_the_code(call):
    code, _, err = call("--debug", "plan", "mars-rovr")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("tightrope: unknown")
    assert "Traceback" not in call("plan", "mars-rovr")[2]


def test_a_run_needs_no_checkpoint_and_a_failed_figure_loses_nothing(call, tmp_path, monkeypatch):
    """Neither checkpoints nor progress nor figures can be written: notes, and every run is kept."""
    written = Path.write_bytes

    def full(self, *args, **kwargs):
        if self.name.endswith((".state.npz.tmp", ".progress")):
            written(self, b"half")
            raise OSError(28, "No space left on device")
        return written(self, *args, **kwargs)

    def no_figure(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    for name in ("CHECKPOINT_SECONDS", "PROGRESS_SECONDS"):
        monkeypatch.setattr(f"tightrope.engines.{name}", -1.0)
    monkeypatch.setattr("tightrope.plots.draw_figures", no_figure)
    argv = ("run", "mars-rover", "--learners", "uniform", "--episodes", 5, "--seeds", 2, "--quiet")
    code, _, err = call(*argv, "--jobs", 1, "--out", tmp_path / "r")
    assert code == 2
    lines = err.splitlines()
    assert [line.startswith("tightrope: note: no checkpoint of") for line in lines] == [1, 1, 0]
    assert "all runs are kept" in lines[-1]
    names = {path.suffix for path in (tmp_path / "r" / "parts").iterdir()}
    assert names == {".json", ".parquet"}
    assert tr.load_results(tmp_path / "r").num_rows == 10


def test_a_killed_worker(call, tmp_path, monkeypatch):
    class Pool:
        def __init__(self, *args, **kwargs): ...

        def submit(self, *args):
            future = Future()
            future.set_exception(TerminatedWorkerError("SIGKILL(-9)"))
            return future

        def shutdown(self, **kwargs): ...

    monkeypatch.setattr("loky.ProcessPoolExecutor", Pool)
    argv = ("run", "mars-rover", "--learners", "uniform", *SMALL, "--jobs", 2)
    code, _, err = call(*argv, "--out", tmp_path / "r")
    assert code == 2
    assert "a worker process was killed" in err
    assert "--resume" in err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupt_keeps_finished_runs_and_says_how_to_go_on(tmp_path, jobs):
    """Ctrl-C in the middle: exit code 130, one message, and --resume gives the same bytes."""
    command = [
        sys.executable, "-m", "tightrope", "run", "mars-rover", "--learners", "uniform,conrl",
        "--episodes", "400", "--seeds", "6", "--quiet", "--jobs", jobs,
    ]  # fmt: skip
    folder = tmp_path / "r"
    process = subprocess.Popen(
        [*command, "--out", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as on a terminal
    )
    deadline = time.time() + 120
    while len(list((folder / "parts").glob("*.json"))) < 2 and time.time() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    lines = [line for line in err.splitlines() if line.startswith("tightrope: interrupted")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    assert "--resume" in lines[0]
    finished = len(list((folder / "parts").glob("*.json")))
    assert 2 <= finished < 12
    resumed = [*command, "--out", str(folder), "--resume"]
    subprocess.run(resumed, check=True, capture_output=True)
    table = pq.read_table(folder / "curves.parquet")
    assert table.num_rows == 12 * 400
    # the last seed was run after the interruption: the same as a run of its own
    alone = tr.run("mars-rover", "conrl", episodes=400, seed=5).columns["regret"]
    rows = table.to_pandas().query("seed == 5 and learner == 'conrl'")["regret"].to_numpy()
    assert rows.tobytes() == np.asarray(alone).tobytes()


def test_compilation_is_announced_when_there_is_some(call, capsys, tmp_path, monkeypatch):
    """Once, before the first kernel that no cache holds; not for one that is loaded."""
    monkeypatch.setattr(jit, "WATCHERS", [])
    assert "compiling" not in call("plan", "mars-rovr")[2]
    (announce,) = jit.WATCHERS
    script = tmp_path / "kernels.py"
    script.write_text(
        "from tightrope.kernels.jit import kernel\n"
        "@kernel\ndef f(x): return x + 1\n@kernel\ndef g(x): return x + 2\n"
    )
    for turn in range(2):
        jit.WATCHERS[:] = [announce]
        names = runpy.run_path(str(script))
        assert (names["f"](1), names["g"](1)) == (2, 3)
        assert capsys.readouterr().err.count("compiling kernels") == (turn == 0)
        assert len(jit.WATCHERS) == turn


def test_unwritable_cache_is_no_obstacle(tmp_path):
    """numba's cache cannot be written anywhere: kernels compile in memory."""
    code = (
        "import tightrope.kernels.jit as j\n"
        "from numba.core.caching import FunctionCache\n"
        "def fail(self, *a): raise OSError(28, 'No space left on device')\n"
        "FunctionCache.save_overload = fail\n"
        "@j.kernel\n"
        "def f(x): return x + 1\n"
        "print(f(1), f(2.0))\n"
    )
    script = tmp_path / "s.py"
    script.write_text(code)
    out = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["2", "3.0"]
