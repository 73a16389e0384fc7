"""The examples run as they stand."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_my_adversary(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "my_adversary.py"), run_name="__main__")
    assert "claimed   epsilon <=" in capsys.readouterr().out


def test_ten_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "ten_lines.py"))["main"](runs=200)
    assert "shown     epsilon >=" in capsys.readouterr().out
    assert (tmp_path / "audit.png").exists()
