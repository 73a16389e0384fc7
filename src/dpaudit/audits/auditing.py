"""`audit`: one call from a training that is described to dpaudit to its bounds."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from dpaudit import _validate
from dpaudit.audits.playing import Tiles
from dpaudit.audits.progress import Progress
from dpaudit.audits.recording import begin
from dpaudit.audits.result import AuditResult
from dpaudit.audits.session import Notices, StorePath, finished, open_store, versions
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity, Executor
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.scores import Store
from dpaudit.threat_models import Adversary, audited_mechanism

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Game


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
    executor: Executor | None = None,
    reuse: bool = False,
) -> AuditResult:
    r"""Train many models with and without canaries, and compute bounds from the scores.

    A single canary is in exactly half of the runs. With several canaries, a fair coin decides for
    each in every run, which is what the bounds for one run need.

    See also: `dpaudit.plan` predicts the result without training; `dpaudit.estimate` reads scores
    from elsewhere; `dpaudit.audit_training` audits a training of your own.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithms 1 and 4.

    Arguments:
        mechanism: The training.
        adversary: Crafts the canaries and scores the trained models.
        runs: Number of trainings. It must be an even number if there is a single canary.
        canaries: Canaries per run.
        insertion: The steps at which canaries are inserted; every step by default.
        delta: Delta at which all bounds are computed.
        confidence: Confidence of each lower bound and of the test of the claim.
        seed: Random seed.
        horizons: Further numbers of steps to assess; each is the audit of a training that stops
            there.
        name: The name of the audit in the store.
        store: A file, or an open `dpaudit.Store`, in which results are kept. The same call resumes
            an interrupted audit. Without a store nothing is kept.
        speed: Device, precision and other settings that do not affect privacy.
        progress: Progress callback; by default a bar in notebooks, and none elsewhere.
        executor: Schedules the tiles; by default as many processes as ``speed`` has workers.
        reuse: Read a finished audit of the same name and settings, in place of playing it again.

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
    with Notices(progress) as notices, ExitStack() as stack:
        notices.progress.stage("crafting")
        capacity = None if executor is None else executor.capacity()
        game, asked = make_game(
            mechanism,
            adversary,
            runs=runs,
            canaries=canaries,
            insertion=Insertion() if insertion is None else insertion,
            seed=seed,
            horizons=horizons,
            speed=speed,
            capacity=capacity,
        )
        from dpaudit.audits._describing import describe_game, device_name
        from dpaudit.games import executor_for, play, prepare

        ready = prepare(game, asked, capacity)
        device = device_name(ready.speed, capacity)
        left_open = {"tile_size": asked.tile_size is None, "compile": asked.compile == "auto"}
        record, description = begin(
            stack.enter_context(open_store(store)),  # not before everything is checked
            name,
            describe_game(ready),
            versions(device, "torch"),
            open_choices=[choice for choice, is_open in left_open.items() if is_open],
            reuse=reuse,
        )
        settled = description.speed
        ready = ready.at(replace(ready.speed, tile_size=settled.tile_size, compile=settled.compile))
        tiles = Tiles(record, description, progress=notices.progress, delta=delta, runs=game.runs)
        notices.progress.stage("compiling and training" if ready.speed.compile else "training")
        tiles.begin()
        done = record.finished_tiles()
        chosen = executor_for(ready, done) if executor is None else executor
        chosen.label = record.id
        notices.progress.watch(chosen.status)
        _import_meanwhile("scipy.stats")  # bounds need it
        tiles.keep(play(ready, done=done, notify=notices.notify, executor=chosen))
        notices.progress.stage("bounds")
        return finished(
            record,
            delta=delta,
            confidence=confidence,
            began=began,
            device=device,
            resumed=tiles.resumed,
            notices=notices.seen,
        )


def _import_meanwhile(module: str) -> None:
    """Import a module in a thread. Training happens outside of Python's global lock."""
    threading.Thread(target=importlib.import_module, args=(module,), daemon=True).start()


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
    capacity: Capacity | None = None,
) -> tuple[Game, Speed]:
    """The game, with everything checked that can be checked before crafting and training."""
    from dpaudit.engine import Speed
    from dpaudit.engine.speed import automatic_device
    from dpaudit.games import Game
    from dpaudit.games.budget import device_of

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
    device = device_of(speed, capacity)  # raises if the device is missing
    if horizons:
        horizons = (*horizons, mechanism.steps)
    mechanism = audited_mechanism(adversary, mechanism)
    with automatic_device(device):
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
