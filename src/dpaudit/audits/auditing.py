"""One call from a described training to its bounds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dpaudit import _validate
from dpaudit.audits.progress import Progress, Silent
from dpaudit.audits.result import AuditResult
from dpaudit.audits.stored import read_result
from dpaudit.errors import DpauditError, InvalidInput, MissingExtra
from dpaudit.lower_bounds import estimate
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.scores import AuditRecord, Store
from dpaudit.threat_models import Adversary, audited_mechanism

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Game, Prepared

StorePath = str | os.PathLike[str]

SECONDS_BETWEEN_BOUNDS = 2.0


def audit(
    mechanism: DPSGD,
    adversary: Adversary,
    *,
    runs: int = 5000,
    canaries: int = 1,
    insertion: Insertion | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    horizons: Sequence[int] = (),
    name: str | None = None,
    store: Store | StorePath | None = None,
    speed: Speed | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    r"""Play the game of an audit and read the bounds from its scores.

    One canary is in exactly half of the runs. Several canaries each have a fair coin in every run,
    which is what the bounds for one run need.

    See also: `dpaudit.plan`, which predicts the outcome without training; `dpaudit.estimate`, for
    scores from elsewhere.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithms 1 and 4.

    Arguments:
        mechanism: The training.
        adversary: Who crafts the canaries and scores the trained models.
        runs: How many trainings; even, for a single canary.
        canaries: How many canaries each training has a coin for.
        insertion: At which steps they go in; every step by default.
        delta: Of the bounds.
        confidence: Of each lower bound.
        seed: Of the canaries, the coins, the noise and the pilots.
        horizons: Further numbers of steps to assess; each is the audit of a training that stops
            there.
        name: What to call the audit in the store; the same name with other settings is refused.
        store: A file, or an open `dpaudit.scores.Store`, from which the same call goes on where an
            earlier one stopped. Nothing is kept without one.
        speed: Device, precision and the like; never privacy.
        progress: Who is told how it goes on; nobody by default.

    Example:
        >>> from dpaudit.adversaries import RandomDimension
        >>> from dpaudit.testing import easy_training
        >>> training = easy_training(noise_multiplier=2.0)
        >>> result = audit(training, RandomDimension(), runs=200)
        >>> result.upper["gaussian"]
        Bound(epsilon <= 11.4800 at delta=1e-05, gaussian)
        >>> result.scores
        Scores(100 inserted, 100 not, 200 runs)
    """
    began = time.perf_counter()
    _validate.delta(delta)
    _validate.confidence(confidence)
    game, asked = make_game(
        mechanism,
        adversary,
        runs=runs,
        canaries=canaries,
        insertion=Insertion() if insertion is None else insertion,
        seed=seed,
        horizons=horizons,
        speed=speed,
    )
    from dpaudit.games import prepare

    prepared = prepare(game, asked)
    progress = Silent() if progress is None else progress
    with open_store(store) as opened, progress:
        record, resumed, device, notices = _play(
            prepared, opened, name, progress, delta, asked=asked
        )
        result = read_result(
            record,
            delta=delta,
            confidence=confidence,
            seconds=time.perf_counter() - began,
            device=device,
            resumed=resumed,
            notices=notices,
        )
        record.finish(_kept(result))
    return result


def make_game(
    mechanism: DPSGD,
    adversary: Adversary,
    *,
    runs: int,
    canaries: int,
    insertion: Insertion,
    seed: int,
    horizons: Sequence[int],
    speed: Speed | None,
) -> tuple[Game, Speed]:
    """The game, with everything checked that can be checked before crafting and training."""
    try:
        from dpaudit.engine import Speed
        from dpaudit.games import Game
    except ImportError as error:
        if getattr(error, "name", None) != "torch":
            raise
        raise MissingExtra("playing an audit", "train") from None
    if not isinstance(mechanism, DPSGD):
        raise InvalidInput(f"mechanism must be a DPSGD, got {type(mechanism).__name__}")
    if not isinstance(adversary, Adversary):
        raise InvalidInput(
            f"adversary must be an Adversary such as SimulatedDimension(), got {adversary!r}"
        )
    _validate.integer("canaries", canaries, at_least=1)
    _validate.runs(runs, canaries=canaries)
    mechanism.check_insertion(insertion)
    speed = Speed() if speed is None else speed
    speed.torch_device()  # which must be there
    if horizons:
        horizons = (*horizons, mechanism.steps)
    mechanism = audited_mechanism(adversary, mechanism)
    crafted = adversary.craft(mechanism, insertion, canaries=canaries, seed=seed)
    game = Game(
        mechanism=mechanism,
        adversary=adversary,
        canaries=crafted,
        insertion=insertion,
        runs=runs,
        seed=seed,
        horizons=tuple(horizons),
        coin="half" if canaries == 1 else "fair",
    )
    return game, speed


def _play(
    prepared: Prepared,
    store: Store,
    name: str | None,
    progress: Progress,
    delta: float,
    *,
    asked: Speed,
) -> tuple[AuditRecord, int, str, tuple[str, ...]]:
    """Play what the store does not have yet, and store each tile as soon as it is there."""
    from dpaudit.audits.description import describe, device_name, versions
    from dpaudit.audits.recording import begin
    from dpaudit.games import play

    game, settled = prepared.game, prepared.speed
    device = settled.torch_device()
    record, settled = begin(
        store, name, describe(game, settled), versions(device), asked=asked, settled=settled
    )
    prepared = prepared.at(settled)
    done = record.finished_tiles()
    resumed = sum(len(prepared.runs_of(tile)) for tile in done)
    notices: list[str] = []

    def notify(text: str) -> None:
        notices.append(text)
        progress.notice(text)

    progress.begin(runs=game.runs, done=resumed)
    bounded = time.perf_counter()
    for tile, block in play(prepared, done=done, notify=notify):
        record.add_tile(tile, block)
        progress.advance(len(prepared.runs_of(tile)))
        if progress.wants_bounds and time.perf_counter() - bounded > SECONDS_BETWEEN_BOUNDS:
            tell_bound(record, progress, delta)
            bounded = time.perf_counter()
    return record, resumed, device_name(device), tuple(notices)


def tell_bound(record: AuditRecord, progress: Progress, delta: float) -> None:
    """Tell how large the bound is so far, if there is one yet."""
    try:
        progress.bound(estimate(record.scores(), delta=delta, method="gaussian-dp").epsilon)
    except DpauditError:
        return  # too early: one world has no score yet


def open_store(store: Store | StorePath | None) -> Store | nullcontext[Store]:
    """The store as a context; one that the user opened is the user's to close."""
    if isinstance(store, Store):
        return nullcontext(store)
    return Store.open(":memory:" if store is None else store)


def _kept(result: AuditResult) -> dict[str, object]:
    """What ``dpaudit list`` shows without reading the scores."""
    return {
        "verdict": result.verdict,
        "sentence": result.sentence,
        "delta": result.final.leading.delta,
        "lower": result.final.leading.to_dict(),
        "upper": result.final.least_upper.to_dict(),
        "seconds": round(result.seconds, 3),
        "device": result.device,
    }
