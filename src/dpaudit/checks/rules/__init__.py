"""The rules of private training, one file each, in the order in which they are checked.

To add a rule, write a file with ``CHECK = Check(rule=..., run=...)`` and add one line to `CHECKS`.
Another package adds one with an entry point in the group ``dpaudit.checks``.
"""

from __future__ import annotations

from dpaudit._registry import Registry
from dpaudit.checks.rules.base import Check

_HERE = "dpaudit.checks.rules"

CHECKS: Registry[Check] = Registry(
    "rule",
    "dpaudit.checks",
    {
        "canary-effect": f"{_HERE}.canary_effect:CHECK",
        "repeatable": f"{_HERE}.repeatable:CHECK",
        "bounded": f"{_HERE}.bounded:CHECK",
        "whole-gradient": f"{_HERE}.whole_gradient:CHECK",
        "small-entries": f"{_HERE}.small_entries:CHECK",
        "huge": f"{_HERE}.huge:CHECK",
        "not-finite": f"{_HERE}.not_finite:CHECK",
        "zero-gradient": f"{_HERE}.zero_gradient:CHECK",
        "total-change": f"{_HERE}.total_change:CHECK",
        "noise-presence": f"{_HERE}.noise_presence:CHECK",
        "noise-between-parameters": f"{_HERE}.noise_between_parameters:CHECK",
        "noise-between-runs": f"{_HERE}.noise_between_runs:CHECK",
        "noise-size": f"{_HERE}.noise_size:CHECK",
        "noise-shape": f"{_HERE}.noise_shape:CHECK",
        "noise-against-data": f"{_HERE}.noise_against_data:CHECK",
        "empty-batch": f"{_HERE}.empty_batch:CHECK",
        "coverage": f"{_HERE}.coverage:CHECK",
        "noise-between-steps": f"{_HERE}.noise_between_steps:CHECK",
        "accumulation": f"{_HERE}.accumulation:CHECK",
        "fixed-weights": f"{_HERE}.fixed_weights:CHECK",
        "noise-at-steps": f"{_HERE}.noise_at_steps:CHECK",
        "effect-against-noise": f"{_HERE}.effect_against_noise:CHECK",
    },
)

__all__ = ["CHECKS", "Check"]
