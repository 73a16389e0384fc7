"""Scores that other tools wrote as JSON.

- memaudit: ``memaudit-report.json``; canaries that were inserted once, and the held-out ones.
- PrivacyGuard: the output of its ``ScoreAnalysisNode``, ``{"train_scores": [...], "test_scores":
  [...]}``.
- jax-privacy: the arguments of its ``CanaryScoreAuditor``, ``{"in_canary_scores": [...],
  "out_canary_scores": [...]}``.

All are scores of canaries of one training, and are read as such.
"""

from __future__ import annotations

import json
from typing import IO, Any

import numpy as np

from dpaudit._validate import shown
from dpaudit.errors import InvalidScores
from dpaudit.scores.table import Scores

_LARGEST = 256 * 1024 * 1024  # characters
_LISTS = (("in_canary_scores", "out_canary_scores"), ("train_scores", "test_scores"))


def read_report(stream: IO[str], name: str) -> Scores:
    """The scores of a report of memaudit, PrivacyGuard or jax-privacy.

    Example:
        >>> import io
        >>> text = '{"train_scores": [2.5, 3.0], "test_scores": [0.5]}'
        >>> read_report(io.StringIO(text), "scores.json")
        Scores(2 inserted, 1 not, 1 runs)
    """
    text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise InvalidScores(
            f"{name} has more than {_LARGEST:,} characters; write the scores as CSV"
        )
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidScores(f"{name} is not JSON: {error}") from None
    if not isinstance(report, dict):
        report = {}
    if isinstance(report.get("per_canary"), list):
        inserted, others = _of_memaudit(report["per_canary"], name)
    else:
        keys = next((pair for pair in _LISTS if all(key in report for key in pair)), None)
        if keys is None:
            raise InvalidScores(
                f"{name} must be a report of memaudit (per_canary), PrivacyGuard (train_scores, "
                "test_scores) or jax-privacy (in_canary_scores, out_canary_scores); write other "
                "scores as CSV with the columns score and inserted"
            )
        inserted, others = (_numbers(report[key], f"{key} of {name}") for key in keys)
    sides = np.repeat([True, False], [len(inserted), len(others)])
    return Scores(
        score=np.array(inserted + others),
        inserted=sides,
        run=np.zeros(len(sides), dtype=np.int64),
        canary=np.arange(len(sides)),
    )


def _of_memaudit(rows: list[Any], name: str) -> tuple[list[float], list[float]]:
    """Headline scores of canaries that the training saw once, and of those it never saw."""
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for row in rows:
        try:
            included, times = bool(row["included"]), row.get("repetitions")
            if not included or times == 1:
                sides[included].append(row["scores"]["headline_score"])
        except (KeyError, TypeError, AttributeError):
            raise InvalidScores(
                f"per_canary of {name} must have included, repetitions and scores.headline_score "
                f"in each row, got {shown(row)}"
            ) from None
    if not sides[True]:
        raise InvalidScores(
            f"{name} has no canary that was inserted once; a claim about one record needs "
            "repetitions of 1"
        )
    return _numbers(sides[True], f"members of {name}"), _numbers(
        sides[False], f"controls of {name}"
    )


def _numbers(values: Any, what: str) -> list[float]:
    """A list of numbers; a missing score would have to be guessed."""
    if not isinstance(values, list):
        raise InvalidScores(f"{what} must be a list of numbers, got {shown(values)}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidScores(f"{what} must be numbers, got {shown(value)}")
    return [float(value) for value in values]
