"""Make the stored audits of `played` importable by the tests beside it, and accountants fast."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpaudit.upper_bounds import ACCOUNTANTS, accountants

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="module")
def fast_accountants() -> Iterator[None]:
    """The closed form alone: the others take a second each, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountants, "ACCOUNTANTS", {"gaussian": ACCOUNTANTS["gaussian"]})
        yield
