"""Neighbouring data sets through the user's whole pipeline: what depends on one record?

- ``neighbours``: which record differs.
- ``coupling``, ``random_draws``: random draws that are the same for every other record.
- ``recording``, ``libraries``: what a run did, without editing it.
- ``comparing``, ``costs``: what differs, and how much epsilon it costs.
- ``checking``: `check_pipeline`.
"""

from dpaudit.pipelines.checking import check_pipeline
from dpaudit.pipelines.costs import moved_epsilon, noise_ratio_epsilon
from dpaudit.pipelines.neighbours import Neighbours, neighbours_of, with_and_without, with_zeros
from dpaudit.pipelines.recording import batch, public, release

__all__ = [
    "Neighbours",
    "batch",
    "check_pipeline",
    "moved_epsilon",
    "neighbours_of",
    "noise_ratio_epsilon",
    "public",
    "release",
    "with_and_without",
    "with_zeros",
]
