"""The state of a figure on this machine: done, ready, or what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dpaudit.errors import DataError
from dpaudit_paper.base import Figure, Need
from dpaudit_paper.making import left_out, scale_done
from dpaudit_paper.setting import SCALES, Scale


@final
@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The data and hardware of this machine.

    Arguments:
        out: The output folder.
        missing: Requirements that are missing.
    """

    out: Path
    missing: frozenset[Need]

    @classmethod
    def look(cls, *, out: Path, data_dir: str | None, device: str) -> Surroundings:
        """Check the folders and the device; reads no data, imports torch."""
        missing = set()
        if not _has_gpu(device):
            missing.add(Need.GPU)
        if not _has_cifar10(data_dir):
            missing.add(Need.CIFAR10)
        if not _has_weights(data_dir):
            missing.add(Need.WEIGHTS)
        return cls(out=out, missing=frozenset(missing))

    def missing_for(self, figure: Figure, scale: Scale) -> tuple[Need, ...]:
        """The requirements of the figure that are missing."""
        return tuple(need for need in Need if need in figure.needs_at(scale) & self.missing)

    def state(self, figure: Figure, scale: Scale) -> str:
        """The state in a few words."""
        done = scale_done(figure, self.out)
        if done is not None and (done == "full" or scale == "quick"):
            part = ", in part" if left_out(figure, self.out) else ""
            return f"done here{part} ({done})"
        missing = self.missing_for(figure, scale)
        if missing:
            return "needs " + ", ".join(need.value for need in missing)
        return "ready"

    def describe(self, figure: Figure) -> dict[str, Any]:
        """One entry of the list as plain data."""
        return {
            "id": figure.id,
            "title": figure.title,
            "label": figure.label,
            "needs": {
                scale: [need.value for need in Need if need in figure.needs_at(scale)]
                for scale in SCALES
            },
            "state": {scale: self.state(figure, scale) for scale in SCALES},
            "seconds": {
                scale: {"cpu": figure.cost(scale).cpu, "gpu": figure.cost(scale).gpu}
                for scale in SCALES
            },
        }


def _has_gpu(device: str) -> bool:
    if device == "cpu":
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def _has_cifar10(data_dir: str | None) -> bool:
    from dpaudit.data.cifar10 import _find_batches

    try:
        _find_batches(data_dir, True)
    except DataError:
        return False
    return True


def _has_weights(data_dir: str | None) -> bool:
    from dpaudit.presets import find_alexnet

    try:
        find_alexnet(data_dir)
    except DataError:
        return False
    return True
