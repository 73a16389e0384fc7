"""Everything that decides an audit, as typed and versioned data: what the store keeps and compares.

For an audit that dpaudit plays, delta and confidence are not part of it: they decide what is
computed from the scores, and the same scores can be read at any. For an audit of a user's training
the claim and its test are part of it, so that no verdict is overwritten by another claim's.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar, final

from dpaudit.claims import Claim
from dpaudit.errors import StoreError
from dpaudit.mechanisms.correlation import CorrelatedNoise
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.privacy import DETECT, LEAST_POWER, Bound, ThreatModel
from dpaudit.scores import AuditRecord
from dpaudit.upper_bounds import HiddenState, upper_bound

VERSION = 2
"""Version of the stored form. Version 1 (dpaudit 0.1) is read, too."""

Plain = Mapping[str, Any]
"""Plain values by name, of an object whose class dpaudit does not know."""


AS_RETURNED = "as returned"
"""Name of the adversary until the first training shows what it returns."""


@final
@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """A model: its class, its layers, its start, and the value of the loss at the start.

    A loss is known only by its name. Its value at the start, rounded beyond what devices disagree
    on, changes when the function is rewritten under the same name.
    """

    class_name: str = field(metadata={"key": "class"})
    parameters: int
    layers: str
    start: str
    loss_at_start: float


@final
@dataclass(frozen=True, kw_only=True)
class DescribedData:
    """A data set by name, size and content."""

    name: str
    examples: int
    fingerprint: str


@final
@dataclass(frozen=True, kw_only=True)
class DescribedMechanism:
    """A DP-SGD training that dpaudit runs itself; the fields of `dpaudit.DPSGD`."""

    name: str
    model: DescribedModel | None = None
    loss: str = ""
    data: DescribedData | None = None
    batches: Plain = field(default_factory=dict)
    sampling_rate: float | None = None
    steps: int
    learning_rate: float
    clip_norm: float
    noise_multiplier: float
    initialisation: Plain = field(default_factory=dict)
    further: Plain = field(default_factory=dict)  # optimizer and clipping, unless plain SGD

    # What the verdict requires, which users choose only for trainings of their own.
    detect: ClassVar[float] = DETECT
    power: ClassVar[float] = LEAST_POWER


@final
@dataclass(frozen=True, kw_only=True)
class DescribedTraining:
    """A training function of the user, and the claim that is tested.

    Arguments:
        name: Module and name of the function.
        source: Digest of the user's code and of the values that it holds; see
            `dpaudit.trainings.identity`.
        files: Names of the user's modules.
        canary: Digest of the canary.
        initial: Digest of the known start of training, if it was given.
        claim: The claim, as `dpaudit.Claim.to_dict` writes it.
        delta: Delta of the claimed epsilon and of the lower bounds.
        confidence: Confidence of the verdict.
        until_violation: Whether the scores were tested as they came.
        detect: Noise of this fraction of the claimed noise must be detectable for ``consistent``.
        power: Probability with which such noise must be detected.
        tensors: Names of the canaries, if they are tested one by one.
    """

    name: str
    source: str
    files: tuple[str, ...] = ()
    canary: str = ""
    initial: str | None = None
    claim: Plain | None = None
    delta: float = 1e-5
    confidence: float = 0.95
    until_violation: bool = False
    detect: float = DETECT
    power: float = LEAST_POWER
    tensors: tuple[str, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class DescribedAdversary:
    """An adversary by name and settings, and the canaries that it crafted by their digest."""

    name: str
    threat_model: str | None = None
    settings: Plain = field(default_factory=dict)
    crafted: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class DescribedSpeed:
    """The part of the speed settings that may change scores by rounding."""

    precision: str = "float32"
    tile_size: int = 1
    compile: bool | Literal["fused"] = False
    convolutions: str = "auto"


@final
@dataclass(frozen=True, kw_only=True)
class Description:
    """One audit. Equal audits have equal descriptions, in any process and on any device.

    Arguments:
        mechanism: The training.
        adversary: The adversary.
        insertion: At which steps the canary is inserted; `None` if the training decides.
        runs: Number of trainings.
        canaries: Canaries per run.
        coin: ``half``: the canary is in exactly half of the runs; ``fair``: a coin per canary.
        seed: Random seed.
        horizons: Numbers of steps after which scores are taken; empty if the training decides.
        speed: Precision, tile size and compilation.
    """

    mechanism: DescribedMechanism | DescribedTraining
    adversary: DescribedAdversary
    insertion: Insertion | None = None
    runs: int
    canaries: int = 1
    coin: Literal["half", "fair"] = "half"
    seed: int = 0
    horizons: tuple[int, ...] = ()
    speed: DescribedSpeed = field(default_factory=DescribedSpeed)

    @property
    def training(self) -> DescribedTraining | None:
        """The user's training; `None` for an audit that dpaudit plays itself."""
        return self.mechanism if isinstance(self.mechanism, DescribedTraining) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the canaries, if they are tested one by one; otherwise empty."""
        return () if self.training is None else self.training.tensors

    @property
    def anytime(self) -> bool:
        """Whether the scores were tested as they came, by an anytime-valid test."""
        return self.training is not None and self.training.until_violation

    @property
    def only_noise_varies(self) -> bool:
        """Whether it is known that runs differ only by their noise and their canary.

        dpaudit's own trainings have the same batches in every run; the starting point, the
        augmentation and the steps in which a sampled canary takes part may be drawn afresh.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, DescribedTraining):
            return False
        started = mechanism.initialisation.get("class") == "FixedInitialisation"
        sampled = mechanism.sampling_rate is not None
        return started and not sampled and "augmentation" not in mechanism.further

    @property
    def title(self) -> str:
        """The training and the adversary in a few words."""
        link = "by" if self.training is None else "scored by"
        if self.adversary.name == AS_RETURNED:
            link = "scored"
        return f"{self.mechanism.name} {link} {self.adversary.name}"

    @property
    def threat_model(self) -> ThreatModel | None:
        """What the adversary sees; `None` if only the user knows."""
        name = self.adversary.threat_model
        return None if name is None else ThreatModel(name)

    def runs_of(self, tile: int) -> int:
        """Number of runs in a tile."""
        return max(0, min(self.speed.tile_size, self.runs - tile * self.speed.tile_size))

    def runs_in(self, record: AuditRecord) -> int:
        """Number of runs that the store has of this audit."""
        return sum(self.runs_of(tile) for tile in record.finished_tiles())

    def claim(self, steps: int) -> Claim | None:
        """The claim about a training that stops after ``steps``; `None` if nothing is claimed.

        With fixed batches the canary is in the insertion steps and in no other, and these are
        known, so only they are composed. Poisson sampling may take the canary at any step.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, DescribedTraining):
            return None if mechanism.claim is None else Claim.from_dict(mechanism.claim)
        if mechanism.noise_multiplier == 0:
            return None
        correlation = _correlation(mechanism)
        if correlation is not None:
            return Claim.from_matrix_factorisation(
                noise_multiplier=mechanism.noise_multiplier,
                coefficients=correlation.coefficients,
                steps=steps,
                used=self._used(steps),
            )
        return Claim.from_dpsgd(**self.noisy_steps(steps))

    def noisy_steps(self, steps: int) -> dict[str, Any]:
        """The arguments of an accountant for a training that stops after ``steps``.

        Correlated noise is described by the independent noise that gives the same privacy.
        """
        mechanism, used = self.mechanism, self._used(steps)
        if isinstance(mechanism, DescribedTraining):
            raise TypeError("the settings of a user's training are not known")
        noise, correlation = mechanism.noise_multiplier, _correlation(mechanism)
        if correlation is not None and used:
            noise = noise * math.sqrt(len(used)) / correlation.sensitivity(used, steps=steps)
        return {
            "noise_multiplier": noise,
            "steps": len(used) if mechanism.sampling_rate is None else steps,
            "sampling_rate": mechanism.sampling_rate,
        }

    def hidden_upper(self, steps: int, *, delta: float) -> Bound | None:
        """The upper bound for the final model alone, if the updates are known to be Lipschitz."""
        mechanism = self.mechanism
        released = self.threat_model in (ThreatModel.HIDDEN_STATE, ThreatModel.BLACK_BOX)
        if isinstance(mechanism, DescribedTraining) or not released:
            return None
        known = mechanism.further.get("step_lipschitz")
        if known is None:
            return None
        hidden = HiddenState(
            insertion_steps=tuple(self._used(steps)),
            step_lipschitz=known["constant"],
            assumption=known["assumption"],
        )
        return upper_bound(
            noise_multiplier=mechanism.noise_multiplier,
            steps=steps,
            delta=delta,
            hidden_state=hidden,
            accountant="hidden-state-lipschitz",
        )

    def _used(self, steps: int) -> list[int]:
        """The steps at which the canary is inserted."""
        insertion = self.insertion or Insertion()
        return [step for step in range(steps) if insertion.at(step)]

    def to_dict(self) -> dict[str, Any]:
        """The description as plain data."""
        kind = "mechanism" if self.training is None else "training"
        plain = {"version": VERSION, "kind": kind, **_plain(self)}
        if self.training is not None and not self.training.tensors:
            del plain["mechanism"]["tensors"]
        return plain

    @classmethod
    def from_dict(cls, plain: Plain) -> Description:
        """Read what `to_dict` wrote, or what dpaudit 0.1 stored.

        Numbers are normalised: ``1`` and ``1.0`` are the same setting.
        """
        version, rest = plain.get("version", 1), dict(plain)
        rest.pop("version", None)
        kind = rest.pop("kind", "mechanism")
        if version > VERSION:
            raise ValueError(f"version {version} is newer than this dpaudit; update dpaudit")
        if version == 1 and kind == "your training":
            kind = "training"
            moved = {key: rest.pop(key, None) for key in ("canary", "initial")}
            rest["mechanism"] = {**rest["mechanism"], **moved}
        part = DescribedMechanism if kind == "mechanism" else DescribedTraining
        mechanism: Any = _read(part, rest.pop("mechanism"))
        return _read(cls, rest, mechanism=mechanism)

    @classmethod
    def of(cls, record: AuditRecord) -> Description:
        """The description of a stored audit; `StoreError` if dpaudit cannot read it."""
        try:
            description = cls.from_dict(record.configuration)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"audit {record.label} in {record.database.path} cannot be read: {error}; was it "
                "stored by another program or a newer dpaudit?"
            ) from None
        training = description.training
        if training is None or training.claim is not None:
            return description
        # dpaudit 0.1 stored the claim with the result, at the end of the audit.
        kept = record.summary or {}
        if "promise" not in kept:
            raise StoreError(
                f"audit {record.label} was stored by an earlier dpaudit without its claim; repeat "
                "the command that made it, which trains again"
            )
        whole = kept.get("result", {})
        claimed = replace(
            training,
            claim=kept["promise"],
            delta=float(kept["delta"]),
            confidence=float(whole.get("confidence", 0.95)),
            until_violation=whole.get("e_value") is not None,
            power=0.0,
        )
        return replace(description, mechanism=claimed)


def _correlation(mechanism: DescribedMechanism) -> CorrelatedNoise | None:
    """The correlation of a described mechanism's noise, if there is any."""
    stored = mechanism.further.get("correlation")
    if stored is None:
        return None
    return CorrelatedNoise(coefficients=ast.literal_eval(stored["coefficients"]))


T = TypeVar("T")


def _plain(value: Any) -> Any:
    """A described object as dictionaries and lists; a field may be stored under another key."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            one.metadata.get("key", one.name): _plain(getattr(value, one.name))
            for one in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _read(kind: type[T], plain: Plain, **given: Any) -> T:
    """An object of a described class from plain data; unknown keys are ignored."""
    hints = _hints(kind)  # type: ignore[arg-type]
    values = dict(given)
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        key = one.metadata.get("key", one.name)
        if one.name not in given and key in plain:
            values[one.name] = _typed(hints[one.name], plain[key])
    return kind(**values)


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _typed(hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        return _read(typing.cast(type[Any], hint), value)
    if hint in (float, int, str, bool):
        return hint(value)
    return tuple(value) if typing.get_origin(hint) is tuple else value
