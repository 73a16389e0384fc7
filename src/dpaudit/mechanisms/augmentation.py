"""Several views of each example, whose gradients are averaged before clipping."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpaudit import _validate

if TYPE_CHECKING:
    import torch


class Augmentation(ABC):
    """Augmentation multiplicity: the gradient of an example is the mean over several views of it.

    The mean is taken before clipping, so one example still contributes at most C and accountants
    do not change. The views are random but public: they are the same in all runs.

    Paper: De et al., *Unlocking high-accuracy differentially private image classification through
    scale* (arXiv 2204.13650), section 3.2.
    """

    views: int
    """Number of views of each example."""

    draws: int
    """Number of random numbers for each view."""

    @abstractmethod
    def apply(self, features: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """The views, shape (examples, views, …), by uniforms of shape (examples, views, draws)."""


@final
@dataclass(frozen=True, kw_only=True)
class FlipAndShift(Augmentation):
    """Images that are flipped with probability one half and shifted by up to ``padding`` pixels.

    Arguments:
        views: Number of views of each image.
        padding: Largest shift in each direction; the border is filled by reflection.
    """

    views: int = 16
    padding: int = 4

    draws = 3

    def __post_init__(self) -> None:
        _validate.integer("views", self.views, at_least=1)
        _validate.integer("padding", self.padding)

    def apply(self, features: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        import torch

        examples, _, height, width = features.shape
        padded = torch.nn.functional.pad(features, (self.padding,) * 4, mode="reflect")
        shifts = (uniforms[..., :2] * (2 * self.padding + 1)).long()  # (examples, views, 2)
        rows = shifts[..., 0, None] + torch.arange(height, device=features.device)
        columns = shifts[..., 1, None] + torch.arange(width, device=features.device)
        columns = torch.where(uniforms[..., 2:] < 0.5, columns.flip(2), columns)
        example = torch.arange(examples, device=features.device)[:, None, None, None]
        return padded[example, :, rows[..., None], columns[:, :, None]].movedim(4, 2)
