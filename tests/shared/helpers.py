"""Small functions that tests of several packages use."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy
from torch import Tensor
from torch.nn import functional

from dpaudit.checks import Finding


def dpaudit(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; the fixture ``run`` is ten times as fast."""
    command = [sys.executable, "-m", "dpaudit", *arguments]
    usual = {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, check=False, **{**usual, **settings})


_COMMANDS = """
import contextlib, io, json, os, sys
from dpaudit.cli import main

end, results = os._exit, []
for arguments in json.loads(sys.argv[1]):
    sys.argv, out, err = ["dpaudit", *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            results.append((ended.code or 0, out.getvalue(), err.getvalue()))
        os._exit = end  # which main replaces
print(json.dumps(results))
"""


def dpaudit_often(*commands: tuple[str, ...], **settings: Any) -> list[tuple[int, str, str]]:
    """Several commands in one process of their own: their exit codes, outputs and errors."""
    command = [sys.executable, "-c", _COMMANDS, json.dumps(commands)]
    usual = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(command, check=True, **{**usual, **settings})
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of a user's, which no rule of the engine knows by name."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def rule_names(findings: Iterable[Finding]) -> set[str]:
    """The rules of findings."""
    return {finding.rule.name for finding in findings}


def normal_numbers(*shape: int) -> Tensor:
    """The same standard normal numbers in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def two_classes(count: int) -> tuple[Tensor, Tensor]:
    """Records with four features and random labels, the same in each call."""
    drawn = torch.Generator().manual_seed(3)
    return torch.randn(count, 4, generator=drawn), torch.randint(2, (count,), generator=drawn)


def binomial(trials: int, rate: float) -> NDArray[np.float64]:
    """Probabilities of 0..trials successes, with no help from the code under test."""
    k = np.arange(trials + 1)
    choose = gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1)
    return np.exp(choose + xlogy(k, rate) + xlogy(trials - k, 1 - rate))


def changeable(package: str) -> list[str]:
    """The dataclasses of a package whose fields can be set after they were checked."""
    folder = importlib.import_module(package).__path__
    modules = [
        importlib.import_module(f"{package}.{each.name}") for each in pkgutil.iter_modules(folder)
    ]
    return [
        value.__qualname__
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
        if not value.__dataclass_params__.frozen  # type: ignore[attr-defined]
    ]
