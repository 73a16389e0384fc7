"""Contract tests for plug-ins, yours included: one function per kind of plug-in.

Each raises `AssertionError`, with the failing case, for the first rule that a plug-in breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.testing.accountants import check_accountant
    from dpaudit.testing.adversaries import check_adversary, easy_training
    from dpaudit.testing.executors import check_executor
    from dpaudit.testing.hidden_state import check_hidden_state_accountant
    from dpaudit.testing.integrations import check_integration
    from dpaudit.testing.layer_rules import check_layer_rule
    from dpaudit.testing.lower_bounds import check_lower_bound
    from dpaudit.testing.presets import check_preset

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

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    # Contract tests of statistics must not import torch.
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "accountants": "check_accountant",
            "adversaries": "check_adversary easy_training",
            "executors": "check_executor",
            "hidden_state": "check_hidden_state_accountant",
            "integrations": "check_integration",
            "layer_rules": "check_layer_rule",
            "lower_bounds": "check_lower_bound",
            "presets": "check_preset",
        },
    )
