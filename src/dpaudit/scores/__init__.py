"""Scores of an audit: the table that training hands to statistics, its files and its store."""

from dpaudit.scores.failures import Failure
from dpaudit.scores.files import read_scores, write_scores
from dpaudit.scores.record import AuditRecord
from dpaudit.scores.store import Store
from dpaudit.scores.table import ScoreBlock, Scores

__all__ = ["AuditRecord", "Failure", "ScoreBlock", "Scores", "Store", "read_scores", "write_scores"]
