"""Importing what a command names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpaudit.errors import InvalidInput
from dpaudit.trainings.importing import load


@pytest.mark.parametrize(
    "source",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise GeneratorExit",
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "def f(): f()\nf()",
    ],
)
def test_a_module_that_ends_its_process_is_an_error(tmp_path: Path, source: str) -> None:
    leave = os._exit
    (tmp_path / f"leaving{abs(hash(source))}.py").write_text(source)
    (file,) = tmp_path.glob("*.py")
    with pytest.raises(InvalidInput, match="TRAINING: importing"):
        load("TRAINING", f"{file}:train")
    assert os._exit is leave


def test_a_module_may_fork_while_it_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "forking.py"
    file.write_text("import os\nif not os.fork():\n    os._exit(0)\nos.wait()\ntrain = 3\n")
    assert load("TRAINING", f"{file}:train") == 3
