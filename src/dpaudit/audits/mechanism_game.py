"""The game of a DP-SGD training that dpaudit runs itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.audits.game import Game, Results
from dpaudit.audits.identity import Description, Sample, describe
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity, Executor, Notify
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.presets import preset
from dpaudit.threat_models import Adversary
from dpaudit.trainings.importing import loaded

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Prepared


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
                f"{_validate.shown(adversary)}"
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

        return executor_for(self.prepared, tiles)

    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        from dpaudit.games import play

        game = dataclasses.replace(self.prepared.game, runs=sample.runs, seed=sample.seed)
        prepared = dataclasses.replace(self.prepared, game=game)
        done = set(sample.tiles) - set(tiles)
        yield from play(prepared, done=done, notify=notify, executor=executor)


def device_name(speed: Speed, capacity: Capacity | None = None) -> str:
    """``cpu``, or the name of the GPU; of other machines only their kind of device is known."""
    import torch

    if capacity is not None and capacity.device is not None:
        return f"{speed.device} of a cluster"
    device = speed.torch_device()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
