"""The order of the packages, and what may be imported at start-up."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpaudit

SOURCE = Path(dpaudit.__file__).parents[1]
HEAVY = {"torch", "matplotlib", "pandas", "jax", "opacus", "ray", "dp_accounting", "sklearn"}

ORDER = (
    ("errors", "_version"),
    ("_validate",),
    (
        "_arrays",
        "_cores",
        "_registry",
        "_roots",
        "_inputs",
        "_outputs",
        "_loading",
        "_torch",
        "_numbers",
    ),
    ("privacy",),
    ("curves",),
    ("data",),
    ("models", "mechanisms"),
    ("presets",),
    ("scores",),
    ("upper_bounds",),
    ("lower_bounds",),
    ("comparisons",),
    ("claims",),
    ("threat_models",),
    ("engine",),
    ("adversaries",),
    ("executors",),
    ("games",),
    ("trainings",),
    ("checks",),
    ("pipelines",),
    ("audits",),
    ("report",),
    ("integrations",),
    ("live",),
    ("receipts",),
    ("configuration",),
    ("testing",),
    ("cli",),
    ("__main__", "pytest_plugin"),
)
"""Each package imports only from packages of earlier rows, and from itself."""

PRESENTED = ("audits/result.py", "report")
"""The exception: `AuditResult` has methods that write and draw it, which import when called."""

NAMED = re.compile(r"dpaudit(_paper)?(\.\w+)+:\w+")
"""A plug-in as a registry names it."""

LEVEL = {name: level for level, row in enumerate(ORDER) for name in row}


def imports_of(path: Path, *, typing: bool = False) -> Iterator[tuple[str, ...]]:
    """The parts of every module that a file imports, also those for typing only if asked for.

    Imports inside functions count, and so do strings such as ``"dpaudit.data.text:read"``, by which
    a registry imports later.
    """
    tree = ast.parse(path.read_text(encoding="utf8"))
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "dpaudit":
            yield from (("dpaudit", alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports must be absolute"
            yield tuple(node.module.split("."))
        elif isinstance(node, ast.Constant) and NAMED.fullmatch(str(node.value)):
            yield tuple(str(node.value).partition(":")[0].split("."))


def package_of(path: Path) -> str:
    first = path.relative_to(SOURCE / "dpaudit").parts[0]
    return first.removesuffix(".py")


def files(package: str) -> list[Path]:
    found = sorted((SOURCE / package).rglob("*.py"))
    assert found, f"{package} is empty"
    return found


def test_every_package_has_a_place_in_the_order():
    packages = {package_of(path) for path in files("dpaudit")} - {"__init__"}
    assert packages == set(LEVEL)


def test_packages_import_only_from_earlier_ones():
    """Imports in functions or for typing may save start-up time, but never hide a cycle."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports dpaudit.{parts[1]}"
        for path in files("dpaudit")
        if path.name != "__init__.py" or path.parent.name != "dpaudit"
        for parts in imports_of(path, typing=True)
        if parts[0] == "dpaudit" and len(parts) > 1 and parts[1] != package_of(path)
        if LEVEL.get(parts[1], -1) >= LEVEL[package_of(path)]
        if (path.relative_to(SOURCE / "dpaudit").as_posix(), parts[1]) != PRESENTED
    ]
    assert wrong == []


def test_the_core_never_imports_the_paper():
    wrong = [
        str(path)
        for path in files("dpaudit")
        if any(parts[0] == "dpaudit_paper" for parts in imports_of(path))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["lower_bounds", "upper_bounds", "claims", "scores", "report"])
def test_statistics_and_reports_never_import_training(package):
    for path in files(f"dpaudit/{package}"):
        roots = {parts[0] for parts in imports_of(path)}
        assert not roots & {"torch", "jax", "opacus", "ray", "pandas"}, path


def test_accountants_do_not_decide_lower_bounds():
    """Only the bound for DP-SGD with known rate and steps is a bound on an accountant's noise."""
    for path in files("dpaudit/lower_bounds"):
        if path.name != "dpsgd.py":
            assert ("dpaudit", "upper_bounds") not in {parts[:2] for parts in imports_of(path)}, (
                path
            )


def test_the_report_computes_nothing():
    statistics = {"lower_bounds", "upper_bounds", "claims", "scores"}
    for path in files("dpaudit/report"):
        used = {parts[1] for parts in imports_of(path) if parts[0] == "dpaudit" and len(parts) > 1}
        assert not used & statistics, path


def modules_loaded_by(*arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dpaudit", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines()}


def test_the_help_of_no_command_needs_scipy_or_anything_heavy():
    code = """
import sys
from dpaudit.cli import COMMANDS
for name in COMMANDS:
    COMMANDS[name]
print(*{module.partition(".")[0] for module in sys.modules})
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & {*HEAVY, "scipy"}


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
    assert not loaded & HEAVY
