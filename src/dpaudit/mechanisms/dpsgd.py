r"""The description of a DP-SGD training. Nothing is trained or accounted for here.

.. math::
    \theta_{t+1} = \theta_t - \frac{\eta}{B}\Big(\sum_{x \in B_t}
        \mathrm{clip}(\nabla \ell(\theta_t; x), C) + Z_t\Big),
    \qquad Z_t \sim \mathcal N(0, \sigma^2 C^2 I)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, cast, final

from dpaudit import _validate
from dpaudit.data import Examples
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.augmentation import Augmentation
from dpaudit.mechanisms.batches import BatchPlan
from dpaudit.mechanisms.clipping import Clipping, FlatClipping
from dpaudit.mechanisms.correlation import CorrelatedNoise
from dpaudit.mechanisms.optimizers import (
    SGD,
    ConstantRate,
    LearningRateSchedule,
    Optimizer,
    WeightAveraging,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.smoothness import Smoothness

Phase = Literal["first", "last"]
PHASES: tuple[Phase, ...] = ("first", "last")
"""The step of a period at which the canary is inserted; the paper uses the last."""

# Every step needs memory; the longest real trainings are a hundred times shorter.
MOST_STEPS = 10**8


@final
@dataclass(frozen=True, kw_only=True)
class FixedInitialisation:
    """One public starting point for all runs: the model built under ``seed``."""

    seed: int = 0

    def __post_init__(self) -> None:
        _validate.seed(self.seed)


@final
@dataclass(frozen=True, kw_only=True)
class FreshInitialisation:
    """A new random starting point in every run, unknown to the adversary."""


Initialisation = FixedInitialisation | FreshInitialisation


@final
@dataclass(frozen=True, kw_only=True)
class Insertion:
    """The steps at which canaries are inserted: ``offset``, ``offset + period``, …

    Example:
        >>> [step for step in range(10) if Insertion(period=4, offset=1).at(step)]
        [1, 5, 9]
        >>> Insertion(period=4, offset=1).count(10)
        3
    """

    period: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        _validate.integer("period", self.period, at_least=1)
        _validate.integer("offset", self.offset)
        if self.offset >= self.period:
            raise InvalidInput(
                f"offset must be below the period ({self.period}), got {self.offset}"
            )

    @classmethod
    def in_phase(cls, phase: Phase, *, period: int) -> Insertion:
        """One insertion at the first or at the last step of each period.

        Example:
            >>> Insertion.in_phase("last", period=5)
            Insertion(period=5, offset=4)
        """
        _validate.one_of("phase", phase, PHASES)
        return cls(period=period, offset=0 if phase == "first" else period - 1)

    @property
    def phase(self) -> Phase | None:
        """``"first"`` or ``"last"``; `None` for a step in the middle of a period."""
        if self.offset == 0:
            return "first"
        return "last" if self.offset == self.period - 1 else None

    def at(self, step: int) -> bool:
        """Whether canaries are inserted at ``step`` (counted from 0)."""
        return step % self.period == self.offset

    def count(self, steps: int) -> int:
        """Number of insertion steps among the first ``steps``."""
        return max(0, (steps - self.offset + self.period - 1) // self.period)


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD:
    r"""DP-SGD on a model and a data set.

    Arguments:
        build_model: A function without arguments that builds the `torch.nn.Module`. dpaudit seeds
            torch's global generator before calling it, so weights should be drawn from there. With
            a public start a module is accepted, too: every run starts from a copy of it.
        loss: ``loss(outputs, targets)`` returns one loss *per example*, shape (batch,).
        data: The training examples; a pair of features and targets is converted by `Examples.of`.
        batches: The examples of each step.
        steps: Number of steps :math:`T`.
        learning_rate: Learning rate :math:`\eta`.
        clip_norm: Clip norm :math:`C`, the largest norm of one example's contribution.
        noise_multiplier: Noise multiplier :math:`\sigma`; the noise of the sum has standard
            deviation :math:`\sigma C`. 0 is allowed and means no privacy.
        initialisation: A public starting point, or a new one in every run.
        name: A short name for tables and the store.
        weight_decay: Decoupled weight decay :math:`\lambda`: every step multiplies the parameters
            by :math:`1 - \eta\lambda`, outside the clipping.
        optimizer: How the noisy gradient changes the parameters; plain SGD by default.
        schedule: A factor of the learning rate for each step; constant by default.
        averaging: The average of iterates that is released as the final model; none by default.
        clipping: How per-example gradients are clipped; flat clipping by default.
        augmentation: Several views of each example, averaged before clipping; none by default.
        correlation: Noise correlated over the steps (matrix factorisation, DP-FTRL); independent
            noise by default.
        smoothness: Why the update of the genuine examples is Lipschitz, if it is; upper bounds for
            the hidden state need it.
    """

    build_model: Callable[[], torch.nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    data: Examples
    batches: BatchPlan
    steps: int
    learning_rate: float
    clip_norm: float
    noise_multiplier: float
    initialisation: Initialisation = field(default_factory=FixedInitialisation)
    name: str = "custom"
    weight_decay: float = 0.0
    optimizer: Optimizer = field(default_factory=SGD)
    schedule: LearningRateSchedule = field(default_factory=ConstantRate)
    averaging: WeightAveraging | None = None
    clipping: Clipping = field(default_factory=FlatClipping)
    augmentation: Augmentation | None = None
    correlation: CorrelatedNoise | None = None
    smoothness: Smoothness | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "build_model", _builder(self.build_model, self.initialisation))
        object.__setattr__(self, "data", Examples.of(self.data))
        for name, (kind, expected) in _KINDS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, kind):
                raise InvalidInput(f"{name} must be {expected}, got {value!r}")
        _validate.integer(
            "steps", self.steps, at_least=1, at_most=MOST_STEPS, remedy="train for fewer steps"
        )
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("clip_norm", self.clip_norm)
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.non_negative("weight_decay", self.weight_decay)
        self.batches.check(len(self.data))
        if self.correlation is not None and self.sampling_rate is not None:
            raise InvalidInput(
                f"correlation needs batches without sampling, got {self.batches!r}: the steps "
                "share noise, so sampling does not amplify the privacy of each step separately; "
                "use FullBatch or FixedBatches, or audit a training with the cyclic Poisson "
                "sampling of jax-privacy by dpaudit.integrations.jax_privacy"
            )

    def check_insertion(self, insertion: Insertion) -> None:
        """Raise `InvalidInput` unless canaries are inserted at least once."""
        if insertion.period > self.steps or insertion.count(self.steps) == 0:
            raise InvalidInput(
                f"period must be at most the number of steps ({self.steps}), "
                f"got {insertion.period}; insert more often or train longer"
            )

    def rate(self, step: int) -> float:
        """The learning rate of ``step`` (0, 1, …)."""
        return self.learning_rate * self.schedule.factor(step, self.steps)

    def further_settings(self) -> dict[str, object]:
        """The settings beyond the basic ones that differ from their defaults, by name.

        They are found from the fields, so that a new field is never left out of a description.
        """
        further = {}
        for setting in fields(self):
            factory = setting.default_factory
            default = setting.default if factory is MISSING else factory()
            if default is MISSING or setting.name in _DESCRIBED_APART:
                continue
            if getattr(self, setting.name) != default:
                further[setting.name] = getattr(self, setting.name)
        return further

    @property
    def is_plain(self) -> bool:
        """Whether each step is that of plain DP-SGD, with or without weight decay."""
        return self.further_settings().keys() <= {"weight_decay"}

    @property
    def sampling_rate(self) -> float | None:
        """The Poisson rate that the accountant may use, if any."""
        return self.batches.sampling_rate


_DESCRIBED_APART = ("initialisation", "name", "smoothness")
"""Settings with a default that descriptions of a training have a place of their own for."""

_OPTIONAL = ("averaging", "augmentation", "correlation")
"""Settings that are `None` if the training has no such thing."""

_KINDS: dict[str, tuple[Any, str]] = {
    "batches": (
        BatchPlan,
        "FixedBatches(batch_size=...) or another plan of dpaudit.mechanisms",
    ),
    "initialisation": (Initialisation, "FixedInitialisation() or FreshInitialisation()"),
    "optimizer": (Optimizer, "SGD(), Adam() or another Optimizer of dpaudit.mechanisms"),
    "schedule": (LearningRateSchedule, "ConstantRate() or another LearningRateSchedule"),
    "averaging": (WeightAveraging, "None, ExponentialAverage() or another WeightAveraging"),
    "clipping": (Clipping, "FlatClipping() or another Clipping of dpaudit.mechanisms"),
    "augmentation": (Augmentation, "None, FlipAndShift() or another Augmentation"),
    "correlation": (CorrelatedNoise, "None or CorrelatedNoise.square_root(bands=...)"),
}
"""The types of settings that are easily mistaken for others, and what to give."""


def _builder(
    build_model: Callable[[], torch.nn.Module], initialisation: Initialisation
) -> Callable[[], torch.nn.Module]:
    """The function that builds the model; a module is copied for every use."""
    if not callable(build_model):
        raise InvalidInput(
            "build_model must be a function without arguments that builds the torch.nn.Module, got "
            f"{build_model!r}; use build_model=lambda: ..."
        )
    if isinstance(build_model, type) or not hasattr(build_model, "named_parameters"):
        return build_model
    if isinstance(initialisation, FreshInitialisation):
        raise InvalidInput(
            "build_model must be a function that draws new weights for FreshInitialisation, got a "
            f"module {type(build_model).__name__}, whose weights are fixed; use "
            "FixedInitialisation, or a function that builds the model"
        )
    return cast("Callable[[], torch.nn.Module]", functools.partial(copy.deepcopy, build_model))
