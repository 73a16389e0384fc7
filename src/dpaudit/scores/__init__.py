"""Scores of an audit: the table that training hands to statistics, its files and its store."""

from dpaudit.scores.files import read_scores, write_scores
from dpaudit.scores.table import ScoreBlock, Scores

__all__ = ["ScoreBlock", "Scores", "read_scores", "write_scores"]
