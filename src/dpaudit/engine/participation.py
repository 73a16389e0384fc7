"""Participation of canaries in steps under Poisson sampling."""

from __future__ import annotations

from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.noise import Stream


def participation(key: Tensor, runs: Tensor, step: Tensor, canaries: int, rate: float) -> Tensor:
    """Whether each canary participates in ``step``, shape (runs, canaries), bool."""
    return noise.uniforms(key, Stream.PARTICIPATION, runs, step, canaries).lt(rate)
