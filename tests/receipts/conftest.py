"""Receipts of audits of a small training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpaudit.receipts import Receipt
from dpaudit.receipts.form import text_digest
from dpaudit.scores.store import canonical_json

sys.path.insert(0, str(Path(__file__).parent))

from small_audits import noisy, play


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("receipts") / "audits.sqlite"


@pytest.fixture(scope="session")
def violated(store: Path) -> Receipt:
    """Noise of half the claimed size; confirmed by fresh runs."""
    receipt = play(store, noisy(0.5))
    assert receipt.computed.verdict == "violation"
    return receipt


@pytest.fixture(scope="session")
def kept(store: Path) -> Receipt:
    """A training that keeps its claim."""
    return play(store, noisy(1.0), seed=3)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a receipt, or plain data with a digest of its own, as a forger would."""

    def write(content: Receipt | dict[str, Any], name: str = "a.receipt.json") -> Path:
        path = tmp_path / name
        if isinstance(content, Receipt):
            return content.write(path)
        plain = {key: value for key, value in content.items() if key != "digest"}
        text = canonical_json({**plain, "digest": text_digest(plain)})
        path.write_text(f"{text}\n", encoding="utf8")
        return path

    return write
