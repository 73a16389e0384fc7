"""Check a training, or check one private step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._registry import Registry
from dpaudit.checks import contribution, noise
from dpaudit.checks import steps as several_steps
from dpaudit.checks.findings import CheckResult, Finding, Rule, not_tested
from dpaudit.checks.measure import FALSE_ALARM, Measurements
from dpaudit.checks.subject import (
    StepSubject,
    Subject,
    TrainingSubject,
    tensors_of_sizes,
    usual_steps,
)
from dpaudit.errors import InvalidInput

RULES: tuple[Rule, ...] = (*contribution.RULES, *noise.RULES, *several_steps.RULES)
"""The rules of dpaudit, in the order in which they are checked."""

MORE_RULES: Registry[Rule] = Registry("rule", "dpaudit.checks", {})
"""Rules of other packages, which are checked after those of dpaudit."""

RUNS = 16
"""Default number of seeds over which noise is measured."""


class Canary(Protocol):
    """What the checks read from an audit's canary; also ``records`` and ``unit`` if it has them."""

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""

    @property
    def clip_norm(self) -> float:
        """The claimed clip norm C."""


def check_training(
    train: Callable[..., Any],
    canary: Canary,
    *,
    noise_multiplier: float,
    steps: int | None = None,
    insertions: int | None = None,
    runs: int = RUNS,
    seed: int = 1000,
    finite_gradients: bool = False,
    fixed_batch_size: bool = False,
    public_transform: bool = False,
) -> CheckResult:
    r"""Check a user's own training against the rules of private training, before any statistics.

    Crafted gradients of many shapes are inserted under one seed, and their effects are compared
    with each other and with the noise from seed to seed. A contribution of norm :math:`C` moves the
    output by :math:`s C` for some unknown :math:`s` (learning rate over batch size), and noise has
    standard deviation :math:`s \sigma C \sqrt T`: their ratio does not depend on :math:`s`.

    See also: `dpaudit.checks.check_step`, the same rules for one private step, where they are
    sharpest; `dpaudit.audit`, which takes the same ``train``.

    Paper: none; each rule is a bug that was found in practice. Rules about noise have chi-square or
    normal limits that a correct training exceeds with probability 1e-6 at most, each.

    Arguments:
        train: ``train(canary, inserted, seed)`` returns the final parameters, flat or as several
            arrays in order, or all iterates, one per row. It must add ``canary.rows(inserted)`` to
            the per-example gradients of every step *before clipping*, draw all its randomness from
            ``seed``, and use plain SGD, with or without momentum. If it also takes ``steps``, rules
            about one step are checked after one step, and rules about several after a few and after
            the number of steps that is really used. Global random generators are seeded for every
            call and restored after it.
        canary: The canary of an audit of the same training, such as a `GradientCanary`. It is not
            inserted; only its number of parameters, its clip norm C, and its records (those of a
            user enter together) are read.
        noise_multiplier: The claimed sigma.
        steps: Number of steps of ``train``. If it takes ``steps``, the default is the default of
            that argument; else it is the number of times that ``train`` reads the canary, if that
            is the same under two seeds. The rules are sharpest if ``train`` takes ``steps``.
        insertions: Number of steps in which the canary takes part; all of them by default.
        runs: Number of seeds over which noise is measured, at least 8.
        seed: The first seed.
        finite_gradients: The caller knows that no gradient is ever infinite or NaN; the rule about
            such gradients is left out.
        fixed_batch_size: The caller knows that the batch size is fixed and public, as where
            neighbouring data sets *replace* a record; the rule about it is left out.
        public_transform: The parameters are a public function of the noisy gradients that hides
            single coordinates, such as top-k; rules that need to see through it are left out.

    Example:
        >>> def train(canary, inserted, seed, steps=1):
        ...     random = np.random.default_rng(seed)
        ...     theta = np.zeros(canary.parameters)
        ...     for _ in range(steps):
        ...         rows = canary.rows(inserted)
        ...         clipped = rows * np.minimum(1, 1 / np.linalg.norm(rows, axis=1))[:, None]
        ...         noise = random.normal(0, 0.8, theta.shape)  # the claim says 1.1
        ...         theta -= 0.1 * (np.nan_to_num(clipped, posinf=0, neginf=0).sum(axis=0) + noise)
        ...     return theta
        >>> from dpaudit.trainings import GradientCanary
        >>> canary = GradientCanary.draw(500, clip_norm=1.0)
        >>> result = check_training(train, canary, noise_multiplier=1.1)
        >>> [finding.rule.name for finding in result.broken]
        ['noise size']
        >>> result["noise size"].explanation
        'Noise is 0.7... times as large as the claim says.'
    """
    for name in ("parameters", "clip_norm"):
        if not hasattr(canary, name):
            raise InvalidInput(
                f"canary must have {name}, as a GradientCanary has, got {type(canary).__name__}"
            )
    if not callable(train):
        raise InvalidInput(
            f"train must be a function train(canary, inserted, seed), got {_validate.shown(train)}"
        )
    subject = TrainingSubject(
        train=train,
        parameters=_validate.integer("canary.parameters", canary.parameters, at_least=1),
        clip_norm=_validate.positive("canary.clip_norm", canary.clip_norm),
        noise_multiplier=_sigma(noise_multiplier),
        records=getattr(canary, "records", 1),
        declared=_declared(
            finite_gradients=finite_gradients,
            fixed_batch_size=fixed_batch_size,
            public_transform=public_transform,
        ),
    )
    seed, note = _validate.integer("seed", seed), ""
    if steps is None:
        steps = usual_steps(train)
    if steps is None:
        steps, note = _counted_steps(subject, seed)
    subject.steps = _validate.integer("steps", steps, at_least=1)
    subject.insertions = _validate.integer(
        "insertions", steps if insertions is None else insertions, at_least=1
    )
    if subject.insertions > subject.steps:
        raise InvalidInput(f"insertions must be at most steps ({steps}), got {insertions}")
    axes = np.atleast_1d(getattr(canary, "dimensions", canary.parameters // 2))
    note = f"{_unit_note(subject.records, getattr(canary, 'unit', 'record'))} {note}".strip()
    return _checked(subject, runs, seed, int(axes[0]), note=note)


def check_step(
    private_step: Callable[..., Any],
    *,
    clip_norm: float,
    noise_multiplier: float,
    parameters: int = 1000,
    batch_size: int = 16,
    runs: int = RUNS,
    seed: int = 1000,
    finite_gradients: bool = False,
    fixed_batch_size: bool = False,
    public_transform: bool = False,
    tensors: Mapping[str, int] | None = None,
    weights: ArrayLike | None = None,
    divisor: float | None = None,
    records: int = 1,
    unit: str = "record",
    rounds: int | None = None,
) -> CheckResult:
    r"""Check one private step: per-example gradients in, private gradient out.

    See also: `check_training`; `dpaudit.integrations.opacus.OpacusStep`, which makes such a step of
    an Opacus optimizer.

    Arguments:
        private_step: ``private_step(gradients, seed)`` clips the rows of ``gradients``, an array of
            shape (batch, parameters), adds noise, and returns ``parameters`` numbers. It may return
            a sum or a mean, with any sign and learning rate.
        clip_norm: The claimed clip norm C.
        noise_multiplier: The claimed sigma.
        parameters: Length of the gradients. Some faults need many: entries that half precision
            loses are clipped wrongly only if there are more than :math:`(C/0.00016)^2`.
        batch_size: Number of rows of a batch, including the crafted gradient.
        runs: Number of seeds over which noise is measured, at least 8.
        seed: The first seed.
        finite_gradients: As in `check_training`.
        fixed_batch_size: As in `check_training`.
        public_transform: As in `check_training`.
        tensors: Names and sizes of the parameter tensors, in order, for the report.
        weights: The weights of the rows, such as the numbers of examples of the clients. The step
            is then called as ``private_step(gradients, seed, weights)``, and the crafted row has
            the largest of these weights.
        divisor: What the step divides the weighted sum by, if it must be a mean: weights with
            another sum are refused before the step is called.
        records: How many rows belong to one unit of privacy, such as the records of a user. A
            crafted gradient enters in as many equal rows, which together may contribute C.
        unit: What the unit is called: ``"record"``, ``"user"`` or ``"client"``.
        rounds: For a step that keeps a state from round to round, such as an adaptive clip norm:
            the number of rounds. The step is then called as ``private_step(batches, seed)`` with an
            array of shape (rounds, batch, parameters), for one round or several, starts from its
            initial state, and returns the output of each round. Rules about several steps are
            checked, too.

    Example:
        >>> def private_step(gradients, seed):
        ...     gradients = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
        ...     largest = np.abs(gradients).max(axis=1, keepdims=True) + 1e-300
        ...     norms = np.linalg.norm(gradients / largest, axis=1, keepdims=True) * largest
        ...     clipped = gradients * np.minimum(1, 2.0 / np.maximum(norms, 1e-300))
        ...     noise = np.random.default_rng(seed).normal(0, 1.1 * 2.0, gradients.shape[1])
        ...     return (clipped.sum(axis=0) + noise) / 16
        >>> check_step(private_step, clip_norm=2.0, noise_multiplier=1.1).passed
        True
    """
    if not callable(private_step):
        raise InvalidInput(
            "private_step must be a function private_step(gradients, seed), "
            f"got {_validate.shown(private_step)}"
        )
    records = _validate.integer("records", records, at_least=1)
    rounds = 0 if rounds is None else _validate.integer("rounds", rounds, at_least=2)
    batch_size = _validate.integer("batch_size", batch_size, at_least=1)
    given = None if weights is None else _weights(weights, batch_size)
    if divisor is not None:
        _check_divisor(divisor, np.ones(batch_size) if given is None else given)
    subject = StepSubject(
        private_step=private_step,
        batch_size=batch_size,
        parameters=_validate.integer("parameters", parameters, at_least=1),
        clip_norm=_validate.positive("clip_norm", clip_norm),
        noise_multiplier=_sigma(noise_multiplier),
        records=records,
        tensors=tensors_of_sizes(tensors or {}),
        weights=given,
        rounds=rounds,
        steps=max(1, rounds),
        insertions=max(1, rounds),
        declared=_declared(
            finite_gradients=finite_gradients,
            fixed_batch_size=fixed_batch_size,
            public_transform=public_transform,
        ),
    )
    return _checked(subject, runs, seed, subject.parameters // 2, note=_unit_note(records, unit))


def _unit_note(records: int, unit: str) -> str:
    return "" if unit == "record" else f"The unit is a {unit} with {records} records in a batch."


def _counted_steps(subject: TrainingSubject, seed: int) -> tuple[int, str]:
    """The number of steps of a training without the argument ``steps``, and how it was found.

    A training reads the canary once in every step. If it read it more than once, several steps that
    are checked as one would have too large an effect for their noise, so that a correct training
    would be reported.
    """
    reads = set()
    for further in range(4):
        subject.output(np.zeros(subject.parameters), seed + further, 1)
        reads.add(subject.reads[1])
    if len(reads) > 1:
        raise InvalidInput(
            "steps is needed: train has no argument 'steps', and it read the canary "
            f"{min(reads)} times under one seed and {max(reads)} times under another, so that its "
            "steps cannot be counted; pass their number (--steps), or let train take one more "
            "argument, steps=, which allows more rules to be checked"
        )
    subject.reads.clear()
    steps = max(1, *reads)
    times = "once" if steps == 1 else f"{steps} times"
    return steps, (
        f"{steps} {'step is' if steps == 1 else 'steps are'} assumed: train reads the canary "
        f"{times}. If it makes another number of steps, pass it (steps=, --steps)."
    )


def _checked(subject: Subject, runs: int, seed: int, axis: int, *, note: str = "") -> CheckResult:
    runs = _validate.integer("runs", runs, at_least=8, remedy="noise is measured over the runs")
    measured = Measurements(subject, runs=runs, seed=_validate.integer("seed", seed), axis=axis)
    if not np.all(np.isfinite(measured.quiet)):
        raise InvalidInput(
            f"{subject.noun} returned parameters that are not finite without any canary "
            f"(seed={measured.seeds[0]}); repair that first"
        )
    findings: dict[str, Finding] = {}
    own_step = several_steps.OWN_STEP
    for rule in (*RULES, *MORE_RULES.values()):
        if measured.remembers and rule is not own_step:
            reason = f"Repair '{own_step.name}' first: it hides this rule."
            finding: Finding | None = rule.finding(not_tested(reason))
        else:
            finding = rule.check(measured, findings)
        if finding is not None:
            findings[rule.name] = finding
    return CheckResult(
        findings=tuple(findings.values()),
        calls=subject.calls,
        false_alarm=FALSE_ALARM,
        note=note,
    )


def _weights(given: ArrayLike, rows: int) -> Array:
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape != (rows,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise InvalidInput(
            f"weights must be {rows} positive numbers, one for each row (batch_size), got "
            f"{given!r:.80}"
        )
    return weights


def _check_divisor(divisor: float, weights: Array) -> None:
    total = float(weights.sum())
    if not np.isclose(_validate.positive("divisor", divisor), total, rtol=1e-6):
        raise InvalidInput(
            f"divisor must be the sum of the weights, {total:g}, got {divisor!r}: the step would "
            f"be no mean, and its noise would be that of other weights; divide by {total:g}, or "
            f"give weights that sum to {divisor!r}"
        )


def _declared(**declarations: bool) -> frozenset[str]:
    return frozenset(name for name, declared in declarations.items() if declared)


def _sigma(noise_multiplier: object) -> float:
    return _validate.positive(
        "noise_multiplier", noise_multiplier, remedy="training without noise is not private"
    )
