"""The two kinds of training that can be audited, behind one interface: `Game`.

`MechanismGame` plays thousands of DP-SGD trainings together in dpaudit's own engine, `FunctionGame`
calls a function of the user's once for each run. Nothing else asks which of the two is audited.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.audits.identity import (
    AS_RETURNED,
    DescribedAdversary,
    DescribedTraining,
    Description,
    Sample,
    describe,
)
from dpaudit.claims import Claim
from dpaudit.errors import DpauditError, InvalidInput, TrainingFailed
from dpaudit.executors import (
    Capacity,
    Executor,
    InProcess,
    Lost,
    Notify,
    check_pickles,
    refuse_in_worker,
)
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.presets import preset
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.threat_models import Adversary
from dpaudit.trainings.importing import Named, loaded
from dpaudit.trainings.player import CHECK, DESCRIBE, PROBE, TrainingPlayer, executor_of
from dpaudit.trainings.probe import DeadCanary, Liveness
from dpaudit.trainings.run import failed_run, inserted_in

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Prepared

Results = Generator[tuple[int, ScoreBlock | Failure]]
"""Numbers of tiles with their results."""


class Game(ABC):
    """A training that can be played many times, with and without canaries.

    See also: `game_of`, which makes one of what a user gives.
    """

    description: Description
    """What decides the scores."""

    device: str
    """Device used, in words."""

    software: tuple[str, ...] = ()
    """Modules whose versions are recorded, besides dpaudit and numpy."""

    left_open: tuple[str, ...] = ()
    """Settings of speed that the user left open: a resumed audit keeps what was chosen."""

    needs_claim = False
    """Whether the user has to say what is claimed."""

    unit = "record"
    """What the canary is: a record, or a user or client with several."""

    facts: Mapping[str, Any] = {}
    """What the first trainings showed: ``adversary``, ``doubts`` and ``covers``."""

    def resume(self, description: Description, facts: Mapping[str, Any]) -> None:
        """Continue a stored audit, with the choices and the facts of its beginning."""
        self.description = description
        self.facts = {key: facts[key] for key in ("adversary", "doubts", "covers") if key in facts}

    def check(self, claim: Claim, notify: Notify) -> tuple[str, ...]:
        """Rules of private training that are broken, as sentences, before any statistics."""
        return ()

    def close(self) -> None:  # noqa: B027 - most games start none
        """End the processes that were started to look at the training."""

    @abstractmethod
    def executor(self, tiles: int) -> Executor:
        """The executor for a number of tiles, where the user gives none."""

    @abstractmethod
    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        """Play these tiles of a sample; yield each with its result as soon as it is finished.

        A tile is a pure function of the description, the sample and its number.
        """


def game_of(training: Any, adversary: Any = None, **options: Any) -> Game:
    """The game of a `DPSGD`, of the name of a preset, or of a training function.

    Arguments:
        training: A `DPSGD`, a preset's name, a function, or ``module:function`` or
            ``FILE.py:function``.
        adversary: The adversary, or its name; a name with a colon is imported.
        options: Arguments of `MechanismGame` or of `FunctionGame`; `None` means the default. One
            that the other kind of training has is refused.
    """
    if isinstance(training, str) and ":" in training:
        training = Named("training", training)
    if isinstance(adversary, str) and ":" in adversary:
        adversary = Named("adversary", adversary)
    own = not isinstance(training, DPSGD | str)
    kind: Callable[..., Game] = FunctionGame if own else MechanismGame
    given = {name: value for name, value in options.items() if value is not None}
    other = {"insertion", "horizons", "canaries", "speed", "data_dir"}
    if not own:
        other = {"canary", "initial", "workers", "timeout", "isolated", "neighbours"}
    elif "neighbours" in given:
        from dpaudit.audits.neighbours import neighbours_game

        kind, other = neighbours_game, {*other, "canary"}
    for name in sorted(other & given.keys()):
        what = "a training function" if own else "a DPSGD or a preset"
        raise InvalidInput(f"{name} cannot be given for {what}, got {given[name]!r}; leave it out")
    return kind(training, adversary, **given)


@final
class MechanismGame(Game):
    """A DP-SGD training that dpaudit runs itself. Everything is checked before training.

    Arguments:
        mechanism: The training, or the name of a preset.
        adversary: The adversary or its name; by default that of the preset.
        runs: Number of trainings.
        canaries: Canaries per run.
        insertion: The steps at which canaries are inserted; every step by default.
        seed: Random seed.
        horizons: Further numbers of steps to assess.
        until_violation: Whether the scores are tested as they come.
        speed: Device, precision and other settings that do not affect privacy.
        capacity: What the machines of an executor can play; by default this machine plays.
    """

    software = ("torch",)

    def __init__(
        self,
        mechanism: DPSGD | str,
        adversary: Adversary | str | None = None,
        *,
        runs: int = 5000,
        canaries: int = 1,
        insertion: Insertion | None = None,
        seed: int = 0,
        horizons: Sequence[int] = (),
        until_violation: bool = False,
        speed: Speed | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        from dpaudit.engine import Speed
        from dpaudit.engine.compiling import warm_up
        from dpaudit.engine.speed import automatic_device
        from dpaudit.games import Game as Trainings
        from dpaudit.games import prepare
        from dpaudit.games.budget import device_of

        insertion = Insertion() if insertion is None else insertion
        adversary = loaded(adversary)
        if isinstance(adversary, type):
            adversary = adversary()
        if isinstance(mechanism, str):
            chosen = preset(mechanism)
            adversary = chosen.adversary if adversary is None else adversary
            _validate.integer("seed", seed)
            mechanism = chosen.training(seed=seed, period=insertion.period)
        if adversary is None:
            adversary = "simulated-dimension"
        if isinstance(adversary, str):
            from dpaudit.adversaries import adversary as adversary_named

            adversary = adversary_named(adversary)
        if not isinstance(adversary, Adversary):
            raise InvalidInput(
                "adversary must be an Adversary such as SimulatedDimension(), or its name, got "
                f"{adversary!r}"
            )
        canaries = _validate.integer("canaries", canaries, at_least=1)
        runs = _validate.runs(runs, canaries=canaries)
        mechanism.check_insertion(insertion)
        asked = Speed() if speed is None else speed
        device = device_of(asked, capacity)  # raises if the device is missing
        if capacity is None and asked.compile is not False:
            warm_up(device, mechanism.data)
        with automatic_device(device):
            mechanism = audited_mechanism(adversary, mechanism)
            crafted = adversary.craft(mechanism, insertion, canaries=canaries, seed=seed)
        game = Trainings(
            mechanism=mechanism,
            adversary=adversary,
            canaries=crafted,
            insertion=insertion,
            runs=runs,
            seed=seed,
            horizons=(*horizons, mechanism.steps) if horizons else (),
            coin="half" if canaries == 1 and not until_violation else "fair",
        )
        self.prepared: Prepared = prepare(game, asked, capacity)
        self.description = describe(self.prepared, until_violation=until_violation)
        self.device = device_name(self.prepared.speed, capacity)
        self.left_open = tuple(
            name
            for name, is_open in (
                ("tile_size", asked.tile_size is None),
                ("compile", asked.compile == "auto"),
            )
            if is_open
        )
        self.facts = {"adversary": adversary.name}

    def resume(self, description: Description, facts: Mapping[str, Any]) -> None:
        super().resume(description, facts or self.facts)
        speed = description.speed
        settled = dataclasses.replace(
            self.prepared.speed, tile_size=speed.tile_size, compile=speed.compile
        )
        self.prepared = dataclasses.replace(self.prepared, speed=settled)

    def executor(self, tiles: int) -> Executor:
        from dpaudit.games import executor_for

        return executor_for(self.prepared, range(self.prepared.tiles - tiles))

    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        from dpaudit.games import play

        game = dataclasses.replace(self.prepared.game, runs=sample.runs, seed=sample.seed)
        prepared = dataclasses.replace(self.prepared, game=game)
        done = set(sample.tiles) - set(tiles)
        yield from play(prepared, done=done, notify=notify, executor=executor)


@final
class FunctionGame(Game):
    """A training function of the user's: one run is one call, and one tile.

    Arguments:
        train: The training function.
        adversary: How returned values are scored.
        canary: Passed to the training; by default what is called ``canary`` beside the function.
        initial: The parameters at the start of training, if they are the same in all runs.
        runs: Number of trainings.
        seed: Random seed.
        until_violation: Whether the scores are tested as they come.
        workers: Number of processes that train at the same time.
        timeout: Seconds after which a training is stopped and counts as failed.
        isolated: Whether a single worker has a process of its own, too.
        capacity: What an executor can play; by default processes of this machine play.
    """

    needs_claim = True

    def __init__(
        self,
        train: Any,
        adversary: Any = None,
        *,
        canary: Any = None,
        initial: Any = None,
        runs: int = 200,
        seed: int = 0,
        until_violation: bool = False,
        workers: int = 1,
        timeout: float | None = None,
        isolated: bool = False,
        capacity: Capacity | None = None,
    ) -> None:
        refuse_in_worker()
        workers = _validate.integer("workers", workers, at_least=1)
        self.device = platform.machine()
        self._player = TrainingPlayer(
            train=train,
            canary=canary,
            adversary=adversary,
            initial=initial,
            seed=_validate.integer("seed", seed),
        )
        if workers > 1 or isolated or capacity is not None:
            check_pickles(self._player)
        self._executor = executor_of(workers, timeout=timeout, isolated=isolated).__enter__()
        # Before the first run, the training is read where it is imported; an object, and a training
        # whose jobs may wait in a queue, are in this process.
        elsewhere = isinstance(train, Named) and capacity is None
        self._reader: Executor = self._executor if elsewhere else InProcess()
        try:
            facts = self._ask(self._player, DESCRIBE, lambda text: None)
            self._code, self._crafted, self.unit = facts.code, facts.crafted, facts.unit
            runs = _validate.runs(runs, canaries=facts.canaries)
        except BaseException:
            self.close()
            raise
        self.description = Description(
            mechanism=DescribedTraining(
                name=facts.name,
                source=facts.code.value,
                files=facts.code.modules,
                canary=facts.code.parts["canary"],
                initial=None if initial is None else facts.code.parts["initial"],
                tensors=facts.names,
            ),
            adversary=DescribedAdversary(name=facts.adversary or AS_RETURNED),
            runs=runs,
            canaries=facts.canaries,
            coin="half" if facts.canaries == 1 else "fair",
            seed=seed,
            until_violation=bool(until_violation),
        )

    def close(self) -> None:
        self._executor.__exit__(None, None, None)

    def _ask(self, player: TrainingPlayer, tile: int, notify: Notify) -> Any:
        """The result of a tile that comes before the runs."""
        ((_, result),) = self._reader.play(player, [tile], notify)
        if isinstance(result, Lost):
            raise TrainingFailed(f"the training could not be read: {result.reason}")
        return result

    def check(self, claim: Claim, notify: Notify) -> tuple[str, ...]:
        """`dpaudit check`, for crafted canaries and a claim of noise in every step."""
        claimed = claim.to_dict().get("settings") or {}
        noise, steps = claimed.get("noise_multiplier"), claimed.get("steps")
        if noise is None or claimed.get("sampling_rate") is not None or not self._crafted:
            return ()
        check = functools.partial(broken_rules, noise_multiplier=noise, steps=steps)
        player = dataclasses.replace(self._player, check=check)
        broken: tuple[str, ...] = self._ask(player, CHECK, notify)
        return broken

    def executor(self, tiles: int) -> Executor:
        return self._executor

    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        """Check the training on the first runs, unless that is done, then play the others.

        Every process that plays runs digests the code itself, and refuses to play other code.
        """
        player = dataclasses.replace(self._player, seed=sample.seed, code=self._code)
        played: dict[int, ScoreBlock | Failure] = {}

        def lost(run: int, result: Lost) -> Failure:
            reason = f"ProcessEnded: {result.reason} ({result.attempts} attempts)"
            return failed_run(run, sample.seed, self.description.canaries, reason)

        if "adversary" not in self.facts:
            first = dataclasses.replace(player, runs=tuple(tiles))
            ((_, shown),) = executor.play(first, [PROBE], notify)
            if isinstance(shown, Lost):
                found = Liveness(results={tiles[0]: lost(tiles[0], shown)})
            else:
                found = Liveness.from_dict(shown)
            if found.problem:
                raise DeadCanary(found.problem)
            if found.kind is not None:
                self.facts = {
                    "adversary": found.kind,
                    "doubts": list(found.doubts),
                    "covers": found.covers,
                }
            played = found.results
        if self.facts.get("adversary", "own") != "own":
            player = dataclasses.replace(player, adversary=self.facts["adversary"])
        yield from played.items()
        rest = [run for run in tiles if run not in played]
        for run, result in executor.play(player, rest, notify):
            yield run, lost(run, result) if isinstance(result, Lost) else result
        self._code.require_unedited()


def broken_rules(
    train: Any, canary: Any, notify: Notify, *, noise_multiplier: float, steps: int | None
) -> tuple[str, ...]:
    """The rules of private training that ``dpaudit check`` finds broken, as sentences."""
    from dpaudit.checks import check_training

    try:
        result = check_training(train, canary, noise_multiplier=noise_multiplier, steps=steps)
    except DpauditError as error:
        notify(f"dpaudit check could not run: {str(error).splitlines()[0]}")
        return ()
    return tuple(
        f"dpaudit check finds the rule {finding.rule.name!r} broken: {finding.explanation}"
        for finding in result.broken
    )


def check_tile(description: Description, phase: int, tile: int, result: Any) -> None:
    """Raise `InvalidInput` unless this may be a tile of an audit: its runs, coins and canaries.

    Arguments:
        description: The audit.
        phase: The phase of the tile.
        tile: Its number.
        result: Its scores, or its failure.
    """
    sample, canaries = description.sample(phase), description.canaries
    runs = sample.runs_of(tile) if tile >= 0 else range(0)
    wrong = ""
    if not runs:
        wrong = "there is no such tile"
    elif isinstance(result, Failure):
        coins = coins_of(description, sample, [result.run])
        wrong = "" if list(runs) == [result.run] else f"it has run {result.run}"
        if not wrong and (result.canaries, result.inserted) != (canaries, int(coins.sum())):
            wrong = "its coins are not those of the audit"
    elif isinstance(result, ScoreBlock):
        shape = len(description.horizons or (0,)), len(runs), canaries
        expected = {
            "horizon": np.broadcast_to(
                np.array(description.horizons or (0,)).reshape(-1, 1, 1), shape
            ),
            "run": np.broadcast_to(np.array(runs, dtype=int).reshape(1, -1, 1), shape),
            "canary": np.broadcast_to(np.arange(canaries), shape),
            "inserted": np.broadcast_to(coins_of(description, sample, runs), shape),
        }
        for name, column in expected.items():
            if not np.array_equal(getattr(result, name), column.ravel()):
                wrong = wrong or f"its column {name} is not that of the audit"
    else:
        wrong = f"it holds a {type(result).__name__}"
    if wrong:
        raise InvalidInput(
            f"tile {tile} must be one of the {len(sample.tiles):,} tiles of this audit, got "
            f"something else: {wrong}; do not change the results of jobs"
        )


def coins_of(description: Description, sample: Sample, runs: Sequence[int]) -> Any:
    """Which canaries are inserted in these runs."""
    if description.training is not None:
        each = (inserted_in(r, canaries=description.canaries, seed=sample.seed) for r in runs)
        return np.array(list(each)).reshape(len(runs), description.canaries)
    from dpaudit.games.coins import insertion_coins

    coins = insertion_coins(
        seed=sample.seed, runs=sample.runs, canaries=description.canaries, coin=description.coin
    )
    return coins.numpy()[list(runs)]


def device_name(speed: Speed, capacity: Capacity | None = None) -> str:
    """``cpu``, or the name of the GPU; of other machines only their kind of device is known."""
    import torch

    if capacity is not None and capacity.device is not None:
        return f"{speed.device} of a cluster"
    device = speed.torch_device()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
