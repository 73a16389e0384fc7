"""Compiled code of the cache is loaded only if it is this user's alone, and as it was compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpaudit.engine import fused

COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf compiled > "$2"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fused._cache_folder.cache_clear()
    yield tmp_path / "cache"
    fused._cache_folder.cache_clear()


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(b"comp"),
        lambda file: file.write_bytes(b"replaced"),
        lambda file: file.chmod(0o770),
        lambda file: file.chmod(0o702),
        lambda file: file.with_suffix(".sha256").chmod(0o660),
        lambda file: file.with_suffix(".sha256").unlink(),
        link,
    ],
)
def test_a_file_that_is_not_as_it_was_compiled_is_compiled_again(
    cache: Path, change: Callable[[Path], object]
) -> None:
    file = fused.build.__wrapped__((3, 2))
    assert file.is_relative_to(cache)
    assert fused._is_whole(file)
    change(file)
    assert not fused._is_whole(file)
    assert fused.build.__wrapped__((3, 2)) == file
    assert fused._is_whole(file)
    assert file.read_bytes() == b"compiled"


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_in_which_others_may_write_is_not_used(cache: Path, mode: int) -> None:
    (cache / "dpaudit").mkdir(parents=True)
    (cache / "dpaudit").chmod(mode)
    assert not fused._cache_folder().is_relative_to(cache)


def test_a_link_is_no_folder_of_the_cache(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (cache / "dpaudit").symlink_to(tmp_path / "elsewhere")
    assert not fused._cache_folder().is_relative_to(tmp_path)
