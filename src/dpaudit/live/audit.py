"""`live_audit`: an audit inside the one training that is shipped."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, final

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._validate import said
from dpaudit.audits.identity import Description, Question, claim_to_test
from dpaudit.audits.result import AuditResult
from dpaudit.claims import Claim
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.live.evidence import LiveEvidence
from dpaudit.live.own_loop import OwnSums
from dpaudit.live.result import (
    PROVEN,
    Watched,
    described,
    final_model_bound,
    live_result,
    opened,
)
from dpaudit.privacy import Bound
from dpaudit.scores import Store

if TYPE_CHECKING:
    from dpaudit.live.opacus import OpacusSums
    from dpaudit.mechanisms import CorrelatedNoise

CANARIES = 2000
"""Canaries by default: at most this many, and at most a tenth of the trained parameters."""

_ENOUGH = 800
"""So many are used on up to a third of the parameters: fewer often leave a verdict open."""

OnViolation = Literal["warn", "raise"] | Callable[["LiveAudit"], None]


StorePath = str | os.PathLike[str] | Store


@final
class ViolationFound(DpauditError):
    """Raised inside the training by ``on_violation="raise"``."""


def live_audit(
    training: Any,
    *,
    canaries: int | None = None,
    claim: Claim | None = None,
    claimed_epsilon: float | None = None,
    delta: float = 1e-5,
    clip_norm: float | None = None,
    noise_multiplier: float | None = None,
    sampling_rate: float | None = None,
    correlation: CorrelatedNoise | None = None,
    score: Literal["difference", "released"] = "difference",
    confidence: float = 0.95,
    on_violation: OnViolation = "warn",
    check: bool = True,
    unit: str = "record",
    seed: int | None = None,
    name: str | None = None,
    store: StorePath | None = None,
) -> LiveAudit:
    r"""Audit a training while it runs, once, as it is shipped.

    Canaries are coordinates of the parameters, each in the length of the clip norm. A fair coin
    decides which of them belong to the training. Those take part in each step with the claimed
    sampling rate, like an example, and are added to the clipped sum before the noise; what comes
    out at their coordinates shows whether the noise is there. Starting point, batches, optimizer,
    schedules and augmentation do not matter, and the training runs unedited.

    It covers the noise and its accounting, the sizes of batches, and clipping in the first batch.
    It does not cover which examples are in a batch, or what happens outside of the private step.

    **Scores are secret.** They contain the noise of their coordinates, so that together with the
    released model they would reveal genuine gradients. They stay in memory; the result, a store
    and a report hold their order only, that is, numbers of errors. ``score="released"`` uses
    nothing but the noisy gradients, and shows less.

    See also: `dpaudit.audit`, for many trainings and the final model alone.

    Paper: Steinke, Nasr, Jagielski (NeurIPS 2023), many canaries in one training; Nasr et al.
    (USENIX Security 2023), gradient canaries; the score is the likelihood ratio of Neyman and
    Pearson.

    Arguments:
        training: The ``DPOptimizer`` of Opacus that trains; or, for a loop of your own, the
            trained tensors or their sizes, with ``clip_norm``, ``noise_multiplier`` and
            ``sampling_rate``.
        canaries: Number of canaries; by default a tenth of the parameters and at most 2,000. Models
            with fewer than 8,000 parameters have up to 800, on at most a third of them.
        claim: The claim; by default the steps that the optimizer reports to its accountant. Give it
            to find a training that reports less noise than was asked for.
        claimed_epsilon: In place of ``claim``: an epsilon at ``delta``.
        delta: Delta at which epsilon is claimed and shown.
        clip_norm: Clip norm, for a loop of your own.
        noise_multiplier: Claimed noise multiplier, for a loop of your own.
        sampling_rate: Claimed sampling rate, for a loop of your own; 1 without sampling.
        correlation: For a loop of your own with matrix factorisation, the correlation of its noise;
            with ``sampling_rate=1``.
        score: ``"difference"`` subtracts the genuine sum, as an adversary can who knows all other
            examples; ``"released"`` does not.
        confidence: Confidence of the lower bounds; the verdict does not depend on it.
        on_violation: What to do as soon as a violation is proven: ``"warn"``, ``"raise"``, or a
            function that is called with the live audit. On a GPU this may be some steps later,
            because the training does not wait for what is observed.
        check: Whether clipping is tested with long gradients beside some of the first batch, on a
            copy of the optimizer and its parameters.
        unit: What one clipped contribution belongs to: a ``record``, or a ``user`` or ``client``
            with all records. The claim is about this unit.
        seed: Seed of coordinates, coins and participation; by default drawn from the system. It is
            as secret as the scores.
        name: The name of the audit in the store.
        store: A file, or an open `dpaudit.Store`, in which the result is kept when the block ends
            (not if an exception ends it). A new file can be read by its owner only.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0)
        >>> live = live_audit(
        ...     [5000], clip_norm=1.0, noise_multiplier=1.0, sampling_rate=0.1, seed=0
        ... )
        >>> with live:
        ...     for _ in range(50):
        ...         sums = [np.zeros(5000)]  # of your clipped gradients
        ...         (sums,) = live.add(sums)
        ...         live.observe([sums + noise.normal(0.0, 1.0, 5000)])
        >>> live.result.suspected, live.result.final.horizon
        (False, 50)
    """
    _validate.one_of("score", score, ("difference", "released"))
    if not callable(on_violation):
        _validate.one_of("on_violation", on_violation, ("warn", "raise"))
    asked = claim_to_test(claim, claimed_epsilon, delta)
    if claim is not None and claim.unit != unit:
        raise InvalidInput(
            f"claim must be for the unit of this audit, a {unit}, got one for a {claim.unit}: use "
            f"claim.per({unit!r}) if that is what is claimed, or unit={claim.unit!r}"
        )
    claim = None if asked is None else asked.per(unit)
    question = Question(claim=claim, delta=delta, confidence=confidence)
    _validate.label("name", name)
    if store is not None and not isinstance(store, Store):
        opened(store).close()  # what cannot be opened is refused before the training
    own = {
        "clip_norm": clip_norm,
        "noise_multiplier": noise_multiplier,
        "sampling_rate": sampling_rate,
    }
    watched = Watched(name=name, score=score, unit=unit)
    evidence: LiveEvidence
    sums: OpacusSums | OwnSums
    if hasattr(training, "param_groups"):
        from dpaudit.live.opacus import (
            OpacusSums,
            device_of,
            require_observable,
            shared_seed,
            shares_of,
        )

        given = [
            name for name, value in {**own, "correlation": correlation}.items() if value is not None
        ]
        if given:
            raise InvalidInput(
                f"{given[0]} is read from the optimizer; give claim=Claim.from_dpsgd(...) to test "
                "other numbers than the optimizer reports"
            )
        require_observable(training)
        sizes = [parameter.numel() for parameter in training.params]
        watched.device = device_of(training)
        shares = shares_of(training)
        evidence = LiveEvidence(
            sizes,
            canaries=_number(canaries, sizes, layered=shares is not None),
            seed=shared_seed(training, seed),
            shares=shares,
        )
        sums = OpacusSums(
            training,
            evidence,
            watched,
            claimed=_claimed_step(claim),
            subtract=score == "difference",
            check=check,
        )
    else:
        missing = [name for name, value in own.items() if value is None]
        if missing:
            raise InvalidInput(
                f"a live audit of a loop of your own needs {', '.join(own)}; {missing[0]} is "
                "missing. Or pass the DPOptimizer of Opacus"
            )
        sizes = _sizes(training)
        bands = (1.0,) if correlation is None else correlation.scaled
        if correlation is not None:
            _require_every_step(correlation, sampling_rate)
            watched.claim_of = partial(
                Claim.from_matrix_factorisation,
                noise_multiplier=float(noise_multiplier or 0),
                coefficients=correlation.coefficients,
            )
        evidence = LiveEvidence(sizes, canaries=_number(canaries, sizes), seed=seed, bands=bands)
        sums = OwnSums(
            evidence,
            clip_norm=float(clip_norm or 0),
            rate=float(sampling_rate or 0),
            noise_multiplier=float(noise_multiplier or 0),
            subtract=score == "difference",
        )
    return LiveAudit(
        evidence, watched, sums, question=question, on_violation=on_violation, store=store
    )


def _require_every_step(correlation: CorrelatedNoise, sampling_rate: float | None) -> None:
    if sampling_rate != 1:
        raise InvalidInput(
            "sampling_rate must be 1 with correlation: noise that is correlated between steps is "
            f"accounted for by the steps of an example together; got {sampling_rate!r}"
        )
    if min(accumulate(correlation.coefficients)) <= 0:
        raise InvalidInput(
            "correlation must have coefficients whose first sums are all above 0, got "
            f"{correlation.coefficients!r}: in the other steps a canary would not be seen"
        )


def _claimed_step(claim: Claim | None) -> tuple[float, float] | None:
    """Noise multiplier and sampling rate, of a claim that says them."""
    settings = {} if claim is None else claim.settings
    if "noise_multiplier" not in settings or not settings.get("steps"):
        return None
    return float(settings["noise_multiplier"]), float(settings.get("sampling_rate") or 1.0)


def _number(canaries: int | None, sizes: Sequence[int], *, layered: bool = False) -> int:
    if canaries is not None:
        return canaries
    largest = max(sizes, default=0) if layered else sum(sizes)
    few = max(sum(sizes) // 10, min(_ENOUGH, sum(sizes) // 3))
    return max(2, min(CANARIES, few, largest))


def _sizes(training: Any) -> list[int]:
    """Sizes of tensors that were given as such, or by their sizes."""
    if "jax" in sys.modules and not isinstance(training, int):  # a pytree, or one array
        training = sys.modules["jax"].tree.leaves(training)
    try:
        tensors = list(training)
        return [t if isinstance(t, int) else math.prod(map(int, t.shape)) for t in tensors]
    except TypeError as error:
        raise InvalidInput(
            "training must be a DPOptimizer of Opacus, or the trained tensors or their sizes, got "
            f"{type(training).__name__}"
        ) from error


@final
class LiveAudit:
    """A running live audit; see `live_audit`, which makes one.

    Use it as a context around the training. Afterwards, `result` has the verdict.
    """

    def __init__(
        self,
        evidence: LiveEvidence,
        watched: Watched,
        sums: OpacusSums | OwnSums,
        *,
        question: Question,
        on_violation: OnViolation,
        store: StorePath | None,
    ) -> None:
        self.evidence, self._watched, self._sums = evidence, watched, sums
        self.question, self._on_violation, self._store = question, on_violation, store
        self._open = contextlib.ExitStack()
        self._began, self._running, self._reported = 0.0, False, False
        self._result: AuditResult | None = None
        sums.after_step = self._after_step

    def __enter__(self) -> Self:
        self._open.enter_context(self._sums.watching())
        self._began, self._running = time.perf_counter(), True
        self._watched.problem = "the training has not ended"
        self._watched.began = self._watched.began or datetime.now(UTC).isoformat(timespec="seconds")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running = False
        self._watched.seconds += time.perf_counter() - self._began
        self._watched.problem = None
        ended_early = error is not None and not isinstance(error, ViolationFound)
        if error is not None and ended_early:
            self._watched.problem = f"the training ended early ({said(error)})"
        self._open.__exit__(kind, error, traceback)
        try:
            self._sums.settle()
        except ViolationFound:
            if not ended_early:  # else the training's own exception is raised
                raise
        finally:
            if self._store is not None and not ended_early:
                self._keep()

    def _keep(self) -> None:
        """Store the result of a training that has ended."""
        if self.steps == 0:
            return
        try:
            self._result = live_result(
                self.evidence, self._watched, self.question, store=self._store
            )
        except Exception as problem:  # what was trained is not lost
            warnings.warn(
                f"the result of the live audit was not stored ({said(problem)}); "
                "live.result has it",
                stacklevel=3,
            )

    @property
    def description(self) -> Description:
        """What decides the scores, without anything secret."""
        return described(self.evidence, self._watched)

    @property
    def steps(self) -> int:
        """Number of steps observed so far."""
        self._sums.settle()
        return self.evidence.steps

    @property
    def e_value(self) -> float:
        """The largest e-value so far; above 2,000 a violation is proven."""
        self._sums.settle()
        return self.evidence.largest_e_value

    def when_closed(self, function: Callable[[], Any]) -> None:
        """Call a function when the block ends, before the result is read."""
        self._open.callback(function)

    @property
    def result(self) -> AuditResult:
        """The verdict, the claimed and the shown epsilon, and what was not covered."""
        steps, result = self.steps, self._result
        if self._running or result is None or result.final.horizon != steps:
            result = live_result(self.evidence, self._watched, self.question)
            self._result = None if self._running else result
        return result

    @property
    def final_model(self) -> Bound | None:
        """What the final model alone shows (hidden state); `None` unless SGD trained with Opacus.

        It uses no step of the training, only how far each canary's parameter has moved.
        """
        return final_model_bound(self.evidence, self.question)

    def add(self, sums: Sequence[Any]) -> list[Any]:
        """In a loop of your own: the clipped sums with the canaries, before the noise."""
        return self._own().add(sums)

    def observe(self, noisy: Sequence[Any]) -> None:
        """In a loop of your own: observe the noisy sums."""
        self._own().observe(noisy)

    def add_at_canaries(self, genuine: Array) -> Array:
        """What the canaries of a step add at their coordinates, whose genuine sums are given."""
        return self._own().added_to(genuine)

    def observe_at_canaries(self, noisy: Array) -> None:
        """Observe the noisy sums at the coordinates of the canaries."""
        self._own().observed(noisy)

    def _own(self) -> OwnSums:
        if not isinstance(self._sums, OwnSums):
            raise InvalidInput(
                "add and observe are for a loop of your own, inside the with block of "
                "live_audit(sizes, clip_norm=..., noise_multiplier=..., sampling_rate=...)"
            )
        return self._sums

    def _after_step(self) -> None:
        """Report a violation, once, as soon as it is proven."""
        steps, e_value = self.evidence.steps, self.evidence.largest_e_value
        if self._reported or e_value < PROVEN:
            return
        self._reported = True
        message = (
            f"after {steps:,} steps the live audit has proven that this training adds less "
            f"noise than claimed (e-value {e_value:,.0f})"
        )
        if callable(self._on_violation):
            self._on_violation(self)
        elif self._on_violation == "raise":
            raise ViolationFound(message)
        else:
            warnings.warn(message, stacklevel=2)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue after a checkpoint, as plain data.

        It is as secret as the noise itself, and as the random state in the checkpoint.
        """
        self._sums.settle()
        watched = {name: copy.copy(getattr(self._watched, name)) for name in _CONTINUED}
        return {"secret": True, **self.evidence.state_dict(), "watched": watched}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the audit of a training that continues from a checkpoint; before the block."""
        if self._running:
            raise InvalidInput(
                "load_state_dict must be called before the with block: the canaries of the block "
                "that is open are elsewhere"
            )
        self.evidence.load_state_dict(state)
        for name, value in state["watched"].items():
            setattr(self._watched, name, copy.copy(value))
        self._result = None


_CONTINUED = (
    "batch_sizes",
    "reported",
    "bypassed",
    "clipping",
    "check_failure",
    "seconds",
    "began",
)
