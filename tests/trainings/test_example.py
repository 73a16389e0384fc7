"""The example of ten lines runs as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "your_training.py"


def test_the_example_finds_its_bug(capsys):
    runpy.run_path(str(EXAMPLE))["main"](runs=200)
    printed = capsys.readouterr().out
    assert printed.startswith("VIOLATION ")
