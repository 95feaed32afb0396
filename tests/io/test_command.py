"""`tightrope convert`, and `plan` on files that do not say everything."""

import json
import subprocess
import sys

import pytest
from tests.io.test_tables import COMMON

import tightrope as tr
from tightrope.cli import main


def call(*argv, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tightrope", *map(str, argv)])
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    return exit_.value.code, out, err


@pytest.fixture
def command(capsys, monkeypatch):
    return lambda *argv: call(*argv, capsys=capsys, monkeypatch=monkeypatch)


def test_convert(command, tmp_path):
    table = tmp_path / "model.csv"
    table.write_text(COMMON)
    code, out, _ = command("convert", table, tmp_path / "model.json", "--criterion", "average")
    assert code == 0
    assert out.startswith(f"{tmp_path / 'model.json'}: FiniteMDP(S=2, A=2, m=0, Average()")
    again = tr.load(tmp_path / "model.json")
    assert again.content_hash == tr.load(table, criterion="average").content_hash
    code, _, _ = command("convert", "mars-rover", tmp_path / "rover.npz", "--capacity", "cost=0.2")
    assert code == 0
    assert tr.load(tmp_path / "rover.npz").capacities.tolist() == [0.2]


def test_what_is_lost_is_refused_by_name(command, tmp_path):
    code, _, err = command("convert", "mars-rover", tmp_path / "rover.mdp")
    assert code == 2
    assert "cannot hold the criterion Episodic(horizon=30); costs (cost)" in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("default")
def test_what_must_be_told_again_is_named(command, tmp_path):
    code, _, err = command("convert", "media-buffer", tmp_path / "model.tra")
    assert code == 0
    assert "note:" in err
    assert "does not hold the criterion Episodic(horizon=10); capacities" in err


def test_plan_asks_for_what_a_file_does_not_say(command, tmp_path):
    table = tmp_path / "model.csv"
    table.write_text(COMMON)
    code, _, err = command("plan", table)
    assert code == 2
    assert "does not say the criterion" in err
    table.write_text(
        "state,action,next_state,probability,reward,cost:fuel\n0,0,0,1,1,1\n0,1,0,1,0,0\n"
    )
    code, out, _ = command(
        "plan", table, "--criterion", "episodic", "--horizon", 4, "--capacity", "fuel=3", "--json"
    )
    assert code == 0
    answer = json.loads(out)
    assert answer["value"] == pytest.approx(3.0)
    assert answer["multipliers"]["fuel"] == pytest.approx(1.0)
    code, out, _ = command(
        "plan", table, "--criterion", "episodic", "--horizon", 4, "--capacity", "fuel>=3", "--json"
    )
    assert json.loads(out)["value"] == pytest.approx(4.0)
    code, out, _ = command("plan", "media-buffer", "--horizon", 5, "--json")
    assert code == 0
    assert json.loads(out)["value"] < 5.0


def test_environments_of_gymnasium_by_name(command, tmp_path):
    lake = "gymnasium:FrozenLake-v1"
    said = ("--criterion", "discounted", "--discount", 0.99)
    code, out, _ = command("plan", lake, *said, "--json")
    assert code == 0
    assert json.loads(out)["value"] == pytest.approx(0.5420259320, abs=1e-8)
    code, _, _ = command("convert", lake, tmp_path / "lake.json", *said)
    assert code == 0
    code, out, _ = command("plan", tmp_path / "lake.json", "--json")
    assert json.loads(out)["value"] == pytest.approx(0.5420259320, abs=1e-8)
    code, _, err = command("plan", lake)
    assert code == 2
    assert "an environment does not say the criterion: --criterion average" in err
    code, _, err = command("plan", "gymnasium:FrozenLak-v1", *said)
    assert code == 2
    assert "Gymnasium cannot make 'FrozenLak-v1'" in err


def test_importing_tightrope_after_gymnasium_registers_the_problems():
    code = (
        "import gymnasium, tightrope; env = gymnasium.make('tightrope/MarsRover-v0');"
        "print(env.unwrapped.model.capacities[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.3"
