"""Scores of an audit: the table that training hands to statistics, its files and its store."""

from dpaudit.scores.files import read_scores, write_scores
from dpaudit.scores.record import AuditRecord
from dpaudit.scores.store import Store
from dpaudit.scores.table import ScoreBlock, Scores

__all__ = ["AuditRecord", "ScoreBlock", "Scores", "Store", "read_scores", "write_scores"]
