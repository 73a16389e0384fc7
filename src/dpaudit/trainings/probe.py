"""Is the canary alive? One pair of trainings with the same seed, with and without the canary.

An audit of a training that ignores the canary, or returns a model that was never trained, would
find nothing wrong. Such a training is refused, with the reason, before it costs more runs. A check
that could not be made is a doubt: the verdict is then never ``consistent``.

A canary along one axis cannot see that every tensor, or every coordinate, is clipped on its own,
and a canary of one norm does not show how other norms are clipped. Before a longer audit with such
canaries, five more trainings with the same seed compare longer gradients over all parameters with a
short one, which clipping may shorten, but never makes longer.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._validate import said
from dpaudit.errors import InvalidInput, UnscorableReturn
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.canary import CraftedCanary, DirectionCanary, GradientCanary
from dpaudit.trainings.run import Beginnings, Job, collecting, collecting_beginnings
from dpaudit.trainings.scoring import (
    Kind,
    coverage_of,
    flat_parameters,
    parameters_of,
)
from dpaudit.trainings.shell import CommandTraining

MOST_PAIRS = 5
"""Pairs without any effect of the canary before the training is refused.

Under Poisson sampling a canary may stay out of a whole training by chance.
"""

SAME_FOR_ALL_SEEDS = (
    "The training returned exactly the same parameters for different seeds: it adds no noise, or "
    "it does not draw its noise from the seed that it is given."
)

OTHER_STARTS = (
    "Your runs start at different weights, which hide the canary: build the model under the same "
    "seed in every run (the noise needs another one), and pass initial= that model."
)

OTHER_BATCHES = (
    "Your runs train on different batches, which hide the canary: draw batches, augmentation and "
    "dropout under the same seed in every run (the noise needs another one)."
)

NOT_CHECKED = (
    "Whether the canary has an effect could not be checked, because the training failed when it "
    "was repeated with the same seed: {error}."
)

SEEDS_NOT_CHECKED = (
    "Whether another seed gives another result could not be checked, because the training failed: "
    "{error}."
)

_ENOUGH_NUMBERS = 8
"""Fewer equal numbers may be a coincidence of rounding."""

_WORTH_ANOTHER = 8
"""With several canaries the check of seeds takes one more training; not in shorter audits."""

_WORTH_SPREADING = 100
"""A gradient over all parameters takes five more trainings; not in shorter audits."""

_ELSEWHERE = 1e-3
"""Below this share of the largest movement, the canary's own coordinate did not move."""


@final
@dataclass(frozen=True, kw_only=True)
class Liveness:
    """What the first trainings showed.

    Arguments:
        kind: The adversary that scores this training; `None` if all trainings failed.
        results: The runs of the audit that were played on the way, after their numbers.
        problem: Why the training cannot be audited; empty if it can.
        doubts: Reasons, as sentences, why the verdict cannot be ``consistent``.
        covers: What the canaries test, in words; empty if that is not known.
        advice: What would make the audit stronger, as a sentence; empty if nothing was seen.
        alike: Whether runs are known to start at the same weights and with the same batch.
    """

    kind: Kind | None = None
    results: Sequence[tuple[int, ScoreBlock | Failure]] = ()
    problem: str = ""
    doubts: Sequence[str] = ()
    covers: str = ""
    advice: str = ""
    alike: bool = False


def check_function(train: object, canary: object) -> None:
    """Refuse a function that cannot be called, or that ignores its arguments, before training."""
    if not callable(train):
        raise InvalidInput(
            f"train must be a function of (canary, inserted, seed), got {_validate.shown(train)}"
        )
    name = getattr(train, "__qualname__", type(train).__name__)
    try:
        inspect.signature(train).bind(None, True, 0)
    except TypeError as error:
        raise InvalidInput(
            f"train is called as train(canary, inserted, seed), but {name} cannot be: {error}"
        ) from None
    except ValueError:
        return  # a builtin that hides its signature
    if isinstance(train, CommandTraining):
        return
    unread = _unread_parameters(train)
    for position, (argument, consequence) in enumerate(_CONSEQUENCES, start=1):
        if position in unread:
            raise InvalidInput(
                f"train must use its argument {argument!r}, but {name} never reads it: "
                f"{consequence}"
            )
    if canary is None and 0 not in unread:
        raise InvalidInput(
            f"canary must be given, because {name} reads its argument 'canary', got None; give "
            "canary=..., or define 'canary' in the module of the function"
        )


_CONSEQUENCES = (
    (
        "inserted",
        "the runs with and without the canary would be the same; add the canary only if "
        "'inserted' is true",
    ),
    (
        "seed",
        "the runs may share their noise; seed your generators with it, or write `_ = seed` if "
        "their seeds are already fresh in every run",
    ),
)


def _unread_parameters(train: Any) -> set[int]:
    """Positions, among (canary, inserted, seed), of parameters that the code never reads.

    Empty, except for the canary, if the code cannot be inspected: then nothing is refused.
    """
    unknown = {0}
    if isinstance(train, functools.partial):
        return unknown if train.args else _unread_parameters(train.func)
    bound = not inspect.isfunction(train)
    function = getattr(train, "__func__", None) or (type(train).__call__ if bound else train)
    if not inspect.isfunction(function) or inspect.unwrap(function) is not function:
        return unknown
    code = function.__code__
    names = code.co_varnames[int(bound) : code.co_argcount][:3]
    read: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "MAKE_CELL")):
            read |= set(step.argval if isinstance(step.argval, tuple) else (step.argval,))
    if len(names) < 3:  # the rest arrives in *args
        return unknown
    return {position for position, name in enumerate(names) if name not in read}


def probe(job: Job, runs: Sequence[int]) -> Liveness:
    """Train the first runs of an audit, each of them again with the coins reversed.

    It ends with the first pair that differs: the canary has an effect.
    """
    results: dict[int, ScoreBlock | Failure] = {}
    silent, failed, error, kind = 0, 0, "", None
    alive, problem, doubts, further = False, "", list[str](), ""
    with collecting() as uncovered, collecting_beginnings() as beginnings:
        for run in runs:
            coins = job.coins(run)
            try:
                first = _Training.of(job, run, coins)
            except UnscorableReturn:
                raise
            except (Exception, SystemExit) as raised:
                results[run] = job.failure(run, raised)
                failed += 1
            else:
                kind, job = first.kind, job.pinned(first.kind)
                results[run] = job.block(run, first.scores)
                try:
                    twin = _Training.of(job, run, ~coins)
                except (Exception, SystemExit) as raised:
                    failed, error = failed + 1, said(raised)
                else:
                    alive = not first.same_as(twin)
                    if alive:
                        break
                    silent += 1
            if MOST_PAIRS in (silent, failed):
                break
        if alive:
            problem = _misplaced(job, coins, first, twin)
            if not problem:
                seeds = _seed_doubt(job, run, runs, first, twin, results)
                doubts.append(seeds)
                if seeds == SAME_FOR_ALL_SEEDS and not _rises(coins, first, twin):
                    problem = f"{SAME_FOR_ALL_SEEDS} The canary does not raise the score either."
            if not problem and kind == "parameters":
                spread = spread_contribution(job, run) if len(runs) >= _WORTH_SPREADING else None
                doubts.append(spread_doubt(spread))
                further = spread_coverage(job.scorer.canary, spread)
        else:
            if silent == MOST_PAIRS or (silent > 0 and not failed):
                problem = _silent(silent)
            doubts.append(NOT_CHECKED.format(error=error) if error else "")
    return Liveness(
        kind=kind,
        results=list(results.items()),
        problem=problem,
        doubts=[*uncovered, *(doubt for doubt in doubts if doubt)],
        covers="" if kind is None else coverage_of(job.scorer.canary) + further,
        advice=_advice(beginnings) if kind == "parameters" else "",
        alike=_alike(beginnings),
    )


def _advice(beginnings: Beginnings) -> str:
    """What runs have not in common, although they should."""
    if beginnings.differ(beginnings.starts):
        return OTHER_STARTS
    return OTHER_BATCHES if beginnings.differ(beginnings.batches) else ""


def _alike(beginnings: Beginnings) -> bool:
    """Whether all was reported of a run, of its twin and of another one, and is the same."""
    starts, batches = beginnings.starts, beginnings.batches
    known = min(len(starts), len(batches)) > 2 and all(map(len, batches))
    return known and not beginnings.differ(starts) and not beginnings.differ(batches)


@final
@dataclass(frozen=True, kw_only=True)
class _Training:
    """One training of the probe: the parameters that it returned, if any, and its scores."""

    kind: Kind
    parameters: Array | None
    scores: Array

    @classmethod
    def of(cls, job: Job, run: int, coins: NDArray[np.bool_]) -> _Training:
        returned = job.returned(run, coins)
        kind, scores = job.scorer.score(returned)
        # A copy, because trainings may return one model that each of them changes. Without
        # parameters, only the scores can be compared.
        return cls(kind=kind, parameters=parameters_of(returned), scores=scores)

    def same_as(self, other: _Training) -> bool:
        if not np.array_equal(self.scores, other.scores):
            return False
        if self.parameters is None or other.parameters is None:
            return True
        return np.array_equal(self.parameters, other.parameters)


def _seed_doubt(
    job: Job,
    run: int,
    runs: Sequence[int],
    first: _Training,
    twin: _Training,
    results: dict[int, ScoreBlock | Failure],
) -> str:
    """Whether another seed gives exactly the same parameters, with the same canaries inserted.

    A single canary is in one run of every pair, so that the other run of the pair has the coins of
    the twin. Single numbers are not compared: a rounded score repeats by chance. Empty if it does
    not, or if the audit is too short to find out.
    """
    if first.parameters is None or len(first.parameters) < _ENOUGH_NUMBERS:
        return ""
    single = job.scorer.canaries == 1
    if not single and len(runs) < _WORTH_ANOTHER:
        return ""
    following = run ^ 1 if single else run + 1
    if following not in runs or following in results:
        return ""
    coins = job.coins(following) if single else job.coins(run)
    try:
        other = _Training.of(job, following, coins)
    except (Exception, SystemExit) as error:
        # It is played again as a run of the audit, which records the failure.
        return SEEDS_NOT_CHECKED.format(error=said(error))
    if single:
        results[following] = job.block(following, other.scores)
    return SAME_FOR_ALL_SEEDS if other.same_as(twin if single else first) else ""


def _rises(coins: NDArray[np.bool_], first: _Training, twin: _Training) -> bool:
    """Whether the canaries raise their scores."""
    return bool(np.median(np.where(coins, 1.0, -1.0) * (first.scores - twin.scores)) > 0)


def _silent(pairs: int) -> str:
    times = "with the same seed" if pairs == 1 else f"in {pairs} pairs with the same seed"
    return (
        f"the training returned exactly the same with and without the canary, {times}: it ignores "
        "the canary, inserts it nowhere, freezes the parameter of the canary, or returns a model "
        "that was not trained"
    )


def _misplaced(job: Job, coins: NDArray[np.bool_], first: _Training, twin: _Training) -> str:
    """Why the effect of the canary is not where the score looks; empty if it is."""
    canary = job.scorer.canary
    if first.kind != "parameters" or not isinstance(canary, CraftedCanary):
        return ""
    if first.parameters is None or twin.parameters is None:
        return ""
    moved = first.parameters - twin.parameters
    along = np.where(coins, 1.0, -1.0) * canary.score(moved)
    largest, size = float(np.abs(moved).max()), float(np.linalg.norm(moved))
    if not np.isfinite(largest) or largest == 0:
        return ""
    own, whole = "direction", size
    if isinstance(canary, GradientCanary):
        own, whole = f"parameter {int(canary.dimensions[0])}", largest
    if np.abs(along).max() < _ELSEWHERE * whole:
        return (
            f"the canary moved parameter {int(np.abs(moved).argmax())} most, and its own {own} "
            "hardly at all: the parameters are returned in another order than the canary was made "
            "for, or that parameter is not trained"
        )
    if np.median(along) < 0 and np.abs(along).max() > 0.5 * largest:
        return (
            "the canary moves the parameters in the wrong direction: a score is higher with the "
            "canary if training subtracts the canary's gradient; check its sign, and whether "
            "something mixes the examples before clipping, such as batch statistics"
        )
    return ""


# Gradients of several norms, over all parameters.

_SHORT = 0.25  # norms, in units of the clip norm
_LONG = (2.0, 4.0, 100.0)
_ALLOWED = 1.3  # other examples react to a canary, so that effects are not quite in proportion
_PARALLEL = 0.5  # cosine: a smaller one says that more than the canary changed
_MOST_NUMBERS = 1 << 24


def spread_contribution(job: Job, run: int) -> float | None:
    """The largest possible contribution of a longer gradient over all parameters, in units of C.

    The one that is farthest from what is allowed, of several norms; negative if the gradient has
    the opposite effect. It is computed from how far the parameters move, compared with a short
    gradient that contributes no more than its own norm, so that the learning rate does not matter.
    `None` if the training does not show it: it scores predictions, takes only canaries along axes,
    or left the canary out.
    """
    canary = job.scorer.canary
    if not isinstance(canary, GradientCanary):
        return None
    if not 1 < canary.parameters <= _MOST_NUMBERS // canary.count:
        return None
    rows = canary.unit_rows(np.ones(canary.count, dtype=bool))
    along = np.random.default_rng(17).standard_normal(canary.parameters)
    along /= np.linalg.norm(along)
    rows[0] = along
    coins = np.arange(canary.count) == 0
    try:
        without, short, *long = (
            _parameters(job, run, coins & inserted, _in_directions(canary, rows, norm))
            for inserted, norm in (
                (False, _SHORT),
                (True, _SHORT),
                *((True, length) for length in _LONG),
            )
        )
    except (Exception, SystemExit):
        return None  # the training reads something that only canaries along axes have
    step = short - without
    effect = float(step @ along)
    if not np.isfinite(long).all() or abs(effect) <= _PARALLEL * float(np.linalg.norm(step)):
        return None
    if not effect:
        return None
    contributions = [_SHORT * float((moved - without) @ along) / effect for moved in long]
    return max(contributions, key=_excess)


def _excess(contribution: float) -> float:
    """How far a contribution is outside what clipping to C gives: from 0 to C."""
    return max(contribution - 1, -contribution)


def _in_directions(canary: GradientCanary, rows: Array, norm: float) -> DirectionCanary:
    """Canaries in other directions, with this norm in units of the clip norm."""
    return DirectionCanary(
        directions=rows,
        clip_norm=canary.clip_norm,
        norm=norm * canary.clip_norm,
        names=canary.names,
    )


def _parameters(job: Job, run: int, coins: NDArray[np.bool_], canary: DirectionCanary) -> Array:
    other = replace(job, scorer=replace(job.scorer, canary=canary))
    flat = flat_parameters(other.returned(run, coins))
    if flat.shape != (canary.parameters,):
        raise InvalidInput(f"parameters have shape {flat.shape}")
    return flat


def spread_doubt(contribution: float | None) -> str:
    """Why the verdict cannot be ``consistent``; empty if nothing is wrong."""
    if contribution is None or _excess(contribution) <= _ALLOWED - 1:
        return ""
    how = (
        "each tensor or coordinate seems to be clipped on its own, or gradients of some norms are "
        "clipped to more than C"
        if contribution > 0
        else "it changes more than its own clipped contribution, as if steps were skipped"
    )
    return (
        f"A longer gradient spread over all parameters contributes {contribution:.2g} C: {how}, "
        "which the canaries cannot show. Audit with dpaudit.trainings.DirectionCanary.draw, or "
        "run dpaudit check."
    )


def spread_coverage(canary: object, contribution: float | None) -> str:
    """What was seen of gradients over several tensors, to follow what the canaries test."""
    if not isinstance(canary, GradientCanary):
        return ""
    if contribution is None:
        return (
            "; whether each tensor or coordinate is clipped on its own was not tested "
            "(dpaudit.trainings.DirectionCanary.draw does)"
        )
    return f"; one gradient over all parameters contributed at most {contribution:.2g} C"
