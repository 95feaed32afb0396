"""What the README shows runs, and says what it prints."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tightrope.cli import main

TEXT = (Path(__file__).parents[1] / "README.md").read_text()


def test_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[0] == "5.8 [0.6] 0.0"
    assert (tmp_path / "machines.json").exists()


COMMANDS = re.findall(r"^tightrope (.*?)(?:\s+#.*)?$", TEXT, re.MULTILINE)


def test_shell(tmp_path, monkeypatch, capsys):
    """Every command shown ends with code 0; the runs are made short."""
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "run":
            words[words.index("--episodes") + 1] = "5"
            words += ["--jobs", "1", "--quiet"]
        monkeypatch.setattr(sys, "argv", ["tightrope", *words])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, (command, capsys.readouterr().err)
