r"""How the gradient of an example is clipped, so that its contribution has at most norm C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from dpaudit import _validate


class Clipping(ABC):
    """A factor for each per-example gradient such that its norm is at most C."""

    @abstractmethod
    def factor(self, norms: Any, clip_norm: Any) -> Any:
        """The factors of gradients with ``norms``, as tensors or arrays."""


@final
@dataclass(frozen=True, kw_only=True)
class FlatClipping(Clipping):
    r"""The usual clipping, :math:`\min(1, C / \|g\|)`.

    Paper: Abadi et al. (CCS 2016), Algorithm 1.
    """

    def factor(self, norms: Any, clip_norm: Any) -> Any:
        # C / 0 is infinite and the minimum 1: a zero gradient is not changed.
        return (clip_norm / norms).clip(max=1.0)


@final
@dataclass(frozen=True, kw_only=True)
class NormalisedGradients(Clipping):
    r"""Every gradient gets the norm C: :math:`C / \|g\|`.

    Paper: Das et al. (arXiv 2106.07094); AUTO-V in Bu et al. (NeurIPS 2023).
    """

    def factor(self, norms: Any, clip_norm: Any) -> Any:
        return clip_norm / norms.clip(min=1e-12)


@final
@dataclass(frozen=True, kw_only=True)
class AutomaticClipping(Clipping):
    r"""AUTO-S: :math:`C / (\|g\| + \gamma)`, which keeps the order of the norms.

    Paper: Bu, Wang, Zha, Karypis, *Automatic clipping* (NeurIPS 2023), equation 4.

    Arguments:
        stability: :math:`\gamma`, above 0.
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        _validate.positive("stability", self.stability)

    def factor(self, norms: Any, clip_norm: Any) -> Any:
        return clip_norm / (norms + self.stability)
