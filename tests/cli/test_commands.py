"""Commands of other packages are found by their entry points."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from helpers import dpaudit

from dpaudit.cli import COMMANDS

Run = Callable[..., tuple[int, str, str]]


def test_another_packages_command_is_listed_and_runs(tmp_path: Path) -> None:
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = partial(dpaudit, env={**os.environ, "PYTHONPATH": path})
    (tmp_path / "greetings.py").write_text(
        'def greet(name: str) -> None:\n    """Print a greeting.\n\n    More."""\n'
        '    print("Hello", name)\n'
    )
    info = tmp_path / "greetings-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[dpaudit.commands]\ngreet = greetings:greet\nbroken = no_such_module:run\n"
        "account = greetings:greet\n"
    )
    listed = run("--help")
    assert listed.returncode == 0
    assert re.search(r"greet\s+Print a greeting\.", listed.stdout)
    assert "broken" in listed.stdout
    assert "no_such_module" in listed.stdout
    assert run("greet", "Ada").stdout == "Hello Ada\n"
    # A shipped command cannot be replaced, and a broken one is one line.
    assert "--noise-multiplier" in run("account", "--help").stdout
    failed = run("broken")
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "no_such_module" in failed.stderr


def test_every_shipped_command_has_a_function() -> None:
    for name in COMMANDS:
        assert callable(COMMANDS[name]), name


def test_flags_have_no_type_and_other_options_have_a_default(run: Run) -> None:
    _, text, _ = run("check", "--help")
    assert "bool" not in text
    assert "[default: (16)]" in text
