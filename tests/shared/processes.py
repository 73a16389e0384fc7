"""The processes whose landscapes tests compute."""

from __future__ import annotations

from typing import Any

from dpaudit_paper.landscapes import Landscape, LandscapeProcess, Threshold


def landscape_process(
    landscape: Landscape | None = None,
    *,
    sigma: float = 1.0,
    batch: int = 4,
    steps: int = 25,
    **options: Any,
) -> LandscapeProcess:
    """A process of the paper's landscape adversary, by default with its threshold."""
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        landscape=landscape or Threshold(),
        **options,
    )
