"""What docs/average-reward.md shows runs, and prints what the page says of it."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "average-reward.md").read_text()


def test_the_snippets_run_one_after_the_other(capsys):
    pytest.importorskip("clarabel")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(compile(block, "average-reward.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["0.428622 True", "6.310324 14.7223", "inf 3.854779"]
    assert lines[3] == "True None"  # tuned constants claim nothing
    assert lines[4].startswith("[LIN, Theorem 5]")
    assert "sigma = 0.0408144 is an estimate" in lines[5]
    assert lines[6].endswith("1.0 True")
    assert lines[7].startswith("None ['no theorem covers this run: span = 1 is less than")
    assert lines[8:11] == ["(21, 2, 8) 8 False True", "6.0 1.4789", "0.445"]
    assert lines[-1] == "0.0 True"
