"""Contract tests for plug-ins, yours included: one function per kind of plug-in.

Each raises `AssertionError`, with the failing case, for the first rule that a plug-in breaks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpaudit.testing.accountants import check_accountant
    from dpaudit.testing.adversaries import check_adversary, easy_training
    from dpaudit.testing.executors import check_executor
    from dpaudit.testing.hidden_state import check_hidden_state_accountant
    from dpaudit.testing.integrations import check_integration
    from dpaudit.testing.layer_rules import check_layer_rule
    from dpaudit.testing.lower_bounds import check_lower_bound
    from dpaudit.testing.presets import check_preset

# name -> module. Loaded on first use: contract tests of statistics must not import torch.
_HOMES = {
    "check_accountant": "accountants",
    "check_adversary": "adversaries",
    "check_executor": "executors",
    "check_hidden_state_accountant": "hidden_state",
    "check_integration": "integrations",
    "check_layer_rule": "layer_rules",
    "check_lower_bound": "lower_bounds",
    "check_preset": "presets",
    "easy_training": "adversaries",
}

__all__ = [
    "check_accountant",
    "check_adversary",
    "check_executor",
    "check_hidden_state_accountant",
    "check_integration",
    "check_layer_rule",
    "check_lower_bound",
    "check_preset",
    "easy_training",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
