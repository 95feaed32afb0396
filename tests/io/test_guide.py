"""The guide's programs run."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_program_of_the_guide_runs():
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 5
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), names)  # our own text, not a user's file
