"""The programs of docs/constrained-episodic.md run, and keep what they promise."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "constrained-episodic.md"


def test_every_program_runs():
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 3
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), names)  # our own text, not a user's file
    for name in ("fair", "soft", "callable_g", "plan"):
        assert names[name].status.value == "solved", name
    assert names["soft"].costs[0] <= 0.25 + 1e-7
    assert names["callable_g"].costs[0] <= 0.2 + 1e-7
    report = names["report"]
    assert report["left"]["cost"] >= 0.0
    assert names["exact"].value <= names["exact"].stationary
