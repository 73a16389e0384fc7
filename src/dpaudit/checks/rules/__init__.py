"""The rules, one small file an idea, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Callable

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules import (
    batch_size,
    contribution,
    noise_independence,
    noise_size,
    repeatable,
    seeds,
    several_steps,
    strange_gradients,
)

Check = Callable[[Measurements, dict[str, Finding]], Finding]

CHECKS: tuple[tuple[Rule, Check], ...] = (
    (repeatable.RULE, repeatable.check),
    (contribution.BOUNDED, contribution.check_bounded),
    (contribution.WHOLE_GRADIENT, contribution.check_whole_gradient),
    (contribution.SMALL_ENTRIES, contribution.check_small_entries),
    (strange_gradients.HUGE, strange_gradients.check_huge),
    (strange_gradients.NOT_FINITE, strange_gradients.check_not_finite),
    (batch_size.RULE, batch_size.check),
    (noise_size.THERE, noise_size.check_there),
    (noise_independence.RULE, noise_independence.check),
    (seeds.RULE, seeds.check),
    (noise_size.SIZE, noise_size.check_size),
    (several_steps.INDEPENDENT, several_steps.check_independent),
    (several_steps.ACCUMULATION, several_steps.check_accumulation),
)

__all__ = ["CHECKS", "Check"]
