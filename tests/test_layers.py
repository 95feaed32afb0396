"""Data flows one way: a module imports only from above, heavy packages only in their places."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "tightrope"
ORDER = [
    {"errors", "types", "__init__"},
    {"model"},
    {"kernels", "io"},
    {"estimation"},
    {"planning"},
    {"theory"},
    {"problems"},
    {"learners"},
    {"metrics"},
    {"simulation"},
    {"experiment", "experiments"},
    {"results"},
    {"slopes", "growth"},
    {"plots", "pictures", "engines"},
    {"launch"},
    {"adapter", "answers", "cli", "__main__"},
]
RANK = {name: i for i, names in enumerate(ORDER) for name in names}
# packages that may be imported by these modules only
PLACES = {
    "matplotlib": {"plots", "pictures"},
    "numba": {"kernels"},
    "gymnasium": {"adapter", "io"},
    "highspy": {"planning"},
    "loky": {"engines"},
    "rich": {"launch"},
    "typer": {"cli"},
}
FILES = sorted(SRC.rglob("*.py"))


def area(path):
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(path):
    """Modules that a file imports outside functions and TYPE_CHECKING blocks."""
    todo = list(ast.parse(path.read_text()).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo.extend(node.orelse)
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            todo.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_upwards(path):
    here = area(path)
    assert here in RANK, f"{here} has no place in the layers"
    for module in imports(path):
        top, *rest = module.split(".")
        if top == "tightrope" and rest and rest[0] in RANK and rest[0] != here:
            assert RANK[rest[0]] <= RANK[here], f"{path} imports {module}"
        if top in PLACES:
            assert here in PLACES[top], f"{path} imports {module}"


def test_importing_the_package_is_light():
    """`import tightrope` brings in neither NumPy nor numba."""
    import subprocess
    import sys

    code = (
        "import sys, tightrope; print([m for m in ('numpy', 'numba', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
