"""Scores of an audit: the table that training hands to statistics, its files and its store.

The names are loaded on first use, so that a bound imports neither the files nor the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.scores.files import read_scores, write_scores
    from dpaudit.scores.store import AuditRecord, Store
    from dpaudit.scores.table import Scores
    from dpaudit.scores.tiles import Failure, ScoreBlock

__all__ = ["AuditRecord", "Failure", "ScoreBlock", "Scores", "Store", "read_scores", "write_scores"]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "files": "read_scores write_scores",
            "store": "AuditRecord Store",
            "table": "Scores",
            "tiles": "Failure ScoreBlock",
        },
    )
