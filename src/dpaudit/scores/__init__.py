"""Scores of an audit: the table that training hands to statistics, its files and its store."""

from dpaudit.scores.files import read_scores, write_scores
from dpaudit.scores.store import AuditRecord, Store
from dpaudit.scores.table import Failure, ScoreBlock, Scores

__all__ = ["AuditRecord", "Failure", "ScoreBlock", "Scores", "Store", "read_scores", "write_scores"]
