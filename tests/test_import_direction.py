"""Statistics know nothing of training, and what starts fast stays fast."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpaudit

PACKAGE = Path(dpaudit.__file__).parent
HEAVY = {"torch", "matplotlib", "pandas", "jax", "opacus"}


def imported_modules(path: Path) -> set[str]:
    """Every module that a file imports, also inside functions, except for type checking."""
    tree = ast.parse(path.read_text(encoding="utf8"))
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files_of(room: str) -> list[Path]:
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files, f"{room} is empty"
    return files


@pytest.mark.parametrize("room", ["lower_bounds", "upper_bounds", "scores", "landscapes", "claims"])
def test_statistics_never_import_training(room):
    for path in files_of(room):
        roots = {name.split(".")[0] for name in imported_modules(path)}
        assert not roots & HEAVY, path


@pytest.mark.parametrize(
    ("room", "other"),
    [
        ("lower_bounds", "dpaudit.upper_bounds"),
        ("upper_bounds", "dpaudit.lower_bounds"),
        ("lower_bounds", "dpaudit.games"),
        ("scores", "dpaudit.lower_bounds"),
        ("scores", "dpaudit.games"),
        ("mechanisms", "dpaudit.upper_bounds"),
        ("mechanisms", "dpaudit.games"),
    ],
)
def test_rooms_keep_to_their_side(room, other):
    for path in files_of(room):
        offenders = {name for name in imported_modules(path) if name.startswith(other)}
        assert not offenders, path


def modules_loaded_by(*arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dpaudit", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines()}


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", "--noise-multiplier", "4", "--steps", "250", "--delta", "1e-5"),
        ("estimate", "--true-positives", "9", "--false-negatives", "1", "--false-positives", "2",
         "--true-negatives", "8", "--delta", "1e-5"),
        ("--help",),
    ],
)  # fmt: skip
def test_commands_of_statistics_load_nothing_heavy(arguments):
    loaded = modules_loaded_by(*arguments)
    assert "numpy" in loaded
    assert not loaded & (HEAVY | {"dp_accounting", "sklearn"})
