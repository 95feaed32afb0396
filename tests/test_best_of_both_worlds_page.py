"""What docs/best-of-both-worlds.md shows runs, and prints what the page says of it."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "docs" / "best-of-both-worlds.md").read_text()


def test_the_snippets_run_one_after_the_other(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(compile(block, "best-of-both-worlds.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "True [1.]"  # the same optimum either way
    assert "[BOBW, Theorems 5-7]" in lines
    assert "None" in lines
    assert "solved True" in lines
    assert lines[-1] == "True"
    rows = {row["quantity"]: row for row in names["run"].bounds}
    assert rows["rho"]["measured"] > 0.0
