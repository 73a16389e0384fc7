"""The verdict on a claim."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["violation", "consistent", "inconclusive"]
"""``violation``: the claim is refuted at the confidence asked for. ``consistent``: it is not,
although this many scores could have refuted it. ``inconclusive``: even perfect separation of this
many scores would not have refuted it."""
