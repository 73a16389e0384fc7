"""What an engine trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from dpaudit.engine.noise import Stream
from dpaudit.engine.tapping import Taps
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries

Respond = Callable[[int, Tensor], Tensor]
"""A function of the step and the current parameters: what each run's canaries add to the sum, shape
(runs, canaries, parameters)."""


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """A mechanism to train, with or without canaries, clipping and noise.

    Arguments:
        mechanism: The training.
        canaries: The canaries to insert, if any.
        insertion: The steps at which canaries are inserted.
        seed: Random seed of the noise and of Poisson participation.
        stream: The stream of the noise: that of the game, or that of adversaries' simulations.
        clipped: Whether gradients are clipped.
        noisy: Whether noise is added.
        taps: How the model is tapped, from `dpaudit.engine.mechanism_check`.
        respond: Computes the canaries of an adaptive adversary during training. It is called
            between compiled steps, before each step with an insertion.
    """

    mechanism: DPSGD
    canaries: Canaries | None = None
    insertion: Insertion = field(default_factory=Insertion)
    seed: int = 0
    stream: Stream = Stream.NOISE
    clipped: bool = True
    noisy: bool = True
    taps: Taps = field(default_factory=Taps)
    respond: Respond | None = None

    @property
    def canary_count(self) -> int:
        """Number of canaries."""
        return 0 if self.canaries is None else self.canaries.count

    @property
    def adds_noise(self) -> bool:
        """Whether noise is added and is not 0."""
        return self.noisy and self.mechanism.noise_multiplier > 0
