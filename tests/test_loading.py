"""Imports of a command run without garbage collection, which goes on afterwards."""

from __future__ import annotations

import gc
import sys

import pytest

from dpaudit._loading import uncollected


def test_garbage_is_collected_again_after_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() == frozen  # nothing was imported
        with uncollected():
            monkeypatch.setitem(sys.modules, "imported_by_this_test", sys)
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


def test_a_process_without_garbage_collection_keeps_it_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
