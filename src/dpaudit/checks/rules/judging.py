"""Helpers that rules about contributions share."""

from __future__ import annotations

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements, Response


def excess(measured: Measurements, seen: Response) -> float:
    """By how much a response exceeds what is allowed, all errors granted."""
    allowed = (measured.unit.size + measured.unit.error) * (1 + measured.slack)
    return seen.size - seen.error - allowed


def in_units(measured: Measurements, seen: Response) -> float:
    """A response as a multiple of C."""
    return seen.size / measured.unit.size


def why_not(measured: Measurements) -> str:
    """The reason why contributions cannot be judged, or nothing."""
    if not measured.unit.known:
        return f"Nothing to compare with: {measured.unit.why_not}."
    if measured.subject.clipping_is_skipped():
        return (
            "The training inserts canary.clipped_sum(inserted), which is clipped already; to put "
            "its clipping to the test, insert canary.rows(inserted) as per-example gradients."
        )
    return ""


def hidden_by(found: dict[str, Finding], *rules: Rule) -> str:
    """The reason to look no further while a more basic rule is broken."""
    for rule in rules:
        if found[rule.name].verdict == "broken":
            return f"Put '{rule.name}' right first: it hides this one."
    return ""
