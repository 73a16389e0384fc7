"""Every registered executor keeps the contract."""

from __future__ import annotations

import pytest

from dpaudit.errors import InvalidInput
from dpaudit.executors import EXECUTORS, Executor, InProcess, LocalProcesses
from dpaudit.testing import check_executor

SETTINGS: dict[str, dict[str, object]] = {"local": {"workers": 2}}
ELSEWHERE = {"ray", "slurm"}  # test files of their own


@pytest.mark.parametrize("name", sorted(set(EXECUTORS) - ELSEWHERE))
def test_contract(name: str) -> None:
    check_executor(EXECUTORS[name](**SETTINGS.get(name, {})))


def test_contract_with_one_worker() -> None:
    check_executor(LocalProcesses(workers=1))


class Twice(Executor):
    def play(self, player, tiles, notify):
        yield from InProcess().play(player, [*tiles, *tiles], notify)


class Swallowing(Executor):
    def play(self, player, tiles, notify):
        try:
            yield from InProcess().play(player, tiles, notify)
        except ArithmeticError:
            return


@pytest.mark.parametrize("broken", [Twice(), Swallowing()])
def test_broken_executors_are_found(broken: Executor) -> None:
    with pytest.raises(AssertionError, match="breaks the contract"):
        check_executor(broken)


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"workers": 1, "timeout": 0}, {"workers": 1, "attempts": 0}]
)
def test_bad_settings_are_refused(settings) -> None:
    with pytest.raises(InvalidInput, match=list(settings)[-1]):
        LocalProcesses(**settings)
