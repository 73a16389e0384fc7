"""What decides the scores of an audit, as typed data: what the store keeps and compares.

What is asked of the scores is no part of it: the claim, delta, confidence and the power that the
verdict requires (`Question`). The same scores can be asked any question.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, final

import msgspec
import numpy as np

from dpaudit import _validate
from dpaudit.claims import Claim
from dpaudit.claims.power import SAME_BATCHES, SAME_IN_ALL_RUNS
from dpaudit.errors import InvalidInput, StoreError
from dpaudit.mechanisms.correlation import CorrelatedNoise
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.privacy import DETECT, LEAST_POWER, Bound, ThreatModel
from dpaudit.scores import AuditRecord
from dpaudit.upper_bounds import HiddenState, upper_bound

if TYPE_CHECKING:
    from dpaudit.games import Prepared
    from dpaudit.threat_models import Adversary, Canaries

VERSION = 4
"""Version of the stored form."""

Plain = Mapping[str, Any]
"""Plain values by name, of an object whose class dpaudit does not know."""

CONFIRMING = 2
"""Fresh runs that confirm a suspicion, as a multiple of the runs asked for."""

LIVE_CANARIES = "live canaries"
"""Name of the adversary of an audit inside the one training that is shipped."""

AS_RETURNED = "as returned"
"""Name of the adversary until the first training shows what it returns."""


@final
class DescribedMechanism(
    msgspec.Struct, frozen=True, kw_only=True, tag="mechanism", tag_field="kind"
):
    """A DP-SGD training that dpaudit runs itself; the fields of `dpaudit.DPSGD`."""

    name: str
    model: Plain = msgspec.field(default_factory=dict)
    loss: str = ""
    data: Plain = msgspec.field(default_factory=dict)
    batches: Plain = msgspec.field(default_factory=dict)
    sampling_rate: float | None = None
    steps: int
    learning_rate: float
    clip_norm: float
    noise_multiplier: float
    initialisation: Plain = msgspec.field(default_factory=dict)
    further: Plain = msgspec.field(default_factory=dict)  # optimizer and clipping, unless plain SGD


@final
class DescribedTraining(
    msgspec.Struct, frozen=True, kw_only=True, tag="training", tag_field="kind"
):
    """A training function of the user.

    Arguments:
        name: Module and name of the function.
        source: Digest of the user's code and of the values that it holds; see
            `dpaudit.trainings.identity`.
        files: Names of the user's modules.
        canary: Digest of the canary.
        initial: Digest of the known start of training, if it was given.
        tensors: Names of the canaries, if they are tested one by one.
    """

    name: str
    source: str
    files: tuple[str, ...] = ()
    canary: str = ""
    initial: str | None = None
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
        until_violation: Whether the scores were tested as they came, to stop at a violation.
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
    until_violation: bool = False
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
    def live(self) -> bool:
        """Whether one training was audited while it ran; see `dpaudit.live_audit`.

        Its scores are ranks: what is stored are numbers of errors, and no score.
        """
        return self.adversary.name == LIVE_CANARIES

    @property
    def condition(self) -> str:
        """What a power assumes; empty if scores are known to differ by noise and canary only.

        dpaudit's own trainings have the same batches in every run; the starting point, the
        augmentation and the steps in which a sampled canary takes part may be drawn afresh.
        """
        mechanism = self.mechanism
        if self.live:
            return ""
        if isinstance(mechanism, DescribedTraining):
            if self.runs == 1:
                return "the canaries of the run differ by noise only"
            return SAME_IN_ALL_RUNS if mechanism.initial is None else SAME_BATCHES
        started = mechanism.initialisation.get("class") == "FixedInitialisation"
        sampled = mechanism.sampling_rate is not None
        fixed = started and not sampled and "augmentation" not in mechanism.further
        return "" if fixed else SAME_IN_ALL_RUNS

    @property
    def title(self) -> str:
        """The training and the adversary in a few words."""
        return self.title_by(self.adversary.name)

    def title_by(self, adversary: str) -> str:
        """The same with the adversary that scored the trainings, which the first one may show."""
        if self.live:
            return self.mechanism.name
        link = "by" if self.training is None else "scored by"
        return f"{self.mechanism.name} {'scored' if adversary == AS_RETURNED else link} {adversary}"

    @property
    def threat_model(self) -> ThreatModel | None:
        """What the adversary sees; `None` if only the user knows."""
        name = self.adversary.threat_model
        return None if name is None else ThreatModel(name)

    def sample(self, phase: int) -> Sample:
        """The runs of a phase: those asked for, or the fresh ones that confirm a suspicion.

        Seeds depend on the number of runs, so that the same audit with more runs is a new sample:
        looking again until something is found would invalidate the test.
        """
        runs = self.runs if phase == 0 else CONFIRMING * self.runs
        seed = sample_seed(seed=self.seed, runs=self.runs, phase=phase)
        return Sample(phase=phase, runs=runs, seed=seed, tile_size=self.speed.tile_size)

    def runs_in(self, record: AuditRecord) -> int:
        """Number of runs that the store has of this audit."""
        sample = self.sample(0)
        return sum(len(sample.runs_of(tile)) for tile in record.finished_tiles())

    def claim(self, steps: int) -> Claim | None:
        """What the settings claim of a training that stops after ``steps``; `None` if nothing.

        With fixed batches the canary is in the insertion steps and in no other, and these are
        known, so only they are composed. Poisson sampling may take the canary at any step. Where
        the final model alone is released and its updates are known to be Lipschitz, that is used.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, DescribedTraining):
            return None
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
        # The bound for the final model alone is Gaussian: its mu is the same at every delta.
        hidden = self.hidden_upper(steps, delta=0.5)
        if hidden is not None and hidden.mu is not None:
            words = f"final model of DP-SGD with noise multiplier {mechanism.noise_multiplier:g}"
            return replace(Claim.from_mu(hidden.mu), description=f"{words}, {steps:,} steps")
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
        lipschitz = mechanism.further.get("step_lipschitz")
        if lipschitz is None:
            return None
        hidden = HiddenState(
            insertion_steps=tuple(self._used(steps)),
            step_lipschitz=lipschitz["constant"],
            assumption=lipschitz["assumption"],
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
        return {"version": VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, plain: Plain) -> Description:
        """Read what `to_dict` wrote. Numbers are normalised: ``1`` and ``1.0`` are the same."""
        if plain.get("version") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        try:
            return msgspec.convert(plain, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, record: AuditRecord) -> Description:
        """The description of a stored audit; `StoreError` if dpaudit cannot read it."""
        if not isinstance(record, AuditRecord):
            raise InvalidInput(
                "record must be an audit in a store, such as Store.open(path).audits()[-1], got "
                f"{_validate.shown(record)}"
            )
        try:
            return cls.from_dict(record.configuration)
        except (ValueError, AttributeError) as error:
            raise StoreError(
                f"audit {record.label} in {record.store.path} cannot be read: {error}; was it "
                "stored by another program or another version of dpaudit?"
            ) from None


def sample_seed(*, seed: int, runs: int, phase: int = 0) -> int:
    """The seed of the runs of a phase, from the seed and the number of runs that were asked for."""
    return int(np.random.SeedSequence([seed, runs, phase]).generate_state(1, np.uint64)[0])


@final
@dataclass(frozen=True, kw_only=True)
class Sample:
    """The runs of one phase of an audit, cut into tiles."""

    phase: int
    runs: int
    seed: int
    tile_size: int

    @property
    def tiles(self) -> range:
        """The numbers of the tiles."""
        return range(-(-self.runs // self.tile_size))

    def runs_of(self, tile: int) -> range:
        """The numbers of the runs in a tile; empty for a number that the phase does not have."""
        first = tile * self.tile_size
        return range(first, max(first, min(first + self.tile_size, self.runs)))


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of the scores of an audit.

    Arguments:
        claim: The claim to test; by default what the settings of a mechanism claim.
        delta: Delta at which all bounds are computed.
        confidence: Confidence of each lower bound.
        detect: Noise of this fraction of the claimed noise must be detectable for ``consistent``.
        power: Probability with which such noise must be detected.
        confirm: Whether a suspicion is confirmed by fresh runs before it is a violation.
    """

    claim: Claim | None = None
    delta: float = 1e-5
    confidence: float = 0.95
    detect: float = DETECT
    power: float = LEAST_POWER
    confirm: bool = True

    def __post_init__(self) -> None:
        _validate.delta(self.delta)
        _validate.confidence(self.confidence)
        _validate.between("detect", self.detect, 0, 1)
        _validate.between("power", self.power, 0, 1, closed_low=True)

    def to_dict(self) -> dict[str, Any]:
        """The question as plain data."""
        return {**vars(self), "claim": None if self.claim is None else self.claim.to_dict()}

    @classmethod
    def from_dict(cls, plain: Plain) -> Question:
        """Read what `to_dict` wrote."""
        claim = plain.get("claim")
        return cls(**{**plain, "claim": None if claim is None else Claim.from_dict(claim)})


def claim_to_test(claim: Claim | None, claimed_epsilon: float | None, delta: float) -> Claim | None:
    """The claim to test: the one given, or the one for an epsilon at delta."""
    _validate.delta(delta)
    if claim is not None and claimed_epsilon is not None:
        raise InvalidInput(
            "give claim or claimed_epsilon, not both; "
            f"got {_validate.shown(claim)} and {_validate.shown(claimed_epsilon)}"
        )
    if claim is not None and not isinstance(claim, Claim):
        raise InvalidInput(
            "claim must be a Claim such as Claim.from_dpsgd(...), "
            f"got {_validate.shown(claim)}; for an "
            "epsilon use claimed_epsilon"
        )
    return claim if claimed_epsilon is None else Claim.from_epsilon(claimed_epsilon, delta)


def _correlation(mechanism: DescribedMechanism) -> CorrelatedNoise | None:
    """The correlation of a described mechanism's noise, if there is any."""
    stored = mechanism.further.get("correlation")
    if stored is None:
        return None
    return CorrelatedNoise(coefficients=ast.literal_eval(stored["coefficients"]))


_LOSS_EXAMPLES = 32


def describe(prepared: Prepared, *, until_violation: bool = False) -> Description:
    """The description of a game of dpaudit's own that is ready to play. Needs torch."""
    game, speed, mechanism = prepared.game, prepared.speed, prepared.game.mechanism
    data, smoothness = mechanism.data, mechanism.smoothness
    further = {
        name: _parts(value) if dataclasses.is_dataclass(value) else value
        for name, value in mechanism.further_settings().items()
    }
    if smoothness is not None:
        # Where the settings do not meet the assumption, there is no such bound.
        with contextlib.suppress(InvalidInput):
            constant = smoothness.step_lipschitz(mechanism)
            further["step_lipschitz"] = {
                "constant": constant,
                "assumption": smoothness.assumption,
            }
    return Description(
        mechanism=DescribedMechanism(
            name=mechanism.name,
            model=_model(mechanism),
            loss=_function(mechanism.loss),
            data={"name": data.name, "examples": len(data), "fingerprint": data.fingerprint},
            batches=_parts(mechanism.batches),
            sampling_rate=mechanism.sampling_rate,
            steps=mechanism.steps,
            learning_rate=float(mechanism.learning_rate),
            clip_norm=float(mechanism.clip_norm),
            noise_multiplier=float(mechanism.noise_multiplier),
            initialisation=_parts(mechanism.initialisation),
            further=further,
        ),
        adversary=_adversary(game.adversary, game.canaries),
        insertion=game.insertion,
        runs=game.runs,
        canaries=game.canaries.count,
        coin=game.coin,
        seed=game.seed,
        until_violation=until_violation,
        horizons=game.horizons,
        speed=DescribedSpeed(
            precision=speed.precision,
            tile_size=prepared.tile_size,
            compile=speed.compiled,
            convolutions=speed.convolutions,
        ),
    )


def _model(mechanism: DPSGD) -> dict[str, Any]:
    """A model: its class, its layers, its start, and the value of the loss at the start.

    A loss is known only by its name. Its value at the start, rounded beyond what devices disagree
    on, changes when the function is rewritten under the same name.
    """
    import torch

    from dpaudit.engine.starting_points import as_tensor, known_model, trainable

    model = known_model(mechanism)
    start = hashlib.blake2b(digest_size=8)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        start.update(f"{name}{tuple(value.shape)}{value.dtype}{value.requires_grad}".encode())
        start.update(value.detach().cpu().contiguous().numpy().tobytes())
    features = as_tensor(mechanism.data.features[:_LOSS_EXAMPLES])
    if features.is_floating_point():
        features = features.to(trainable(model)[0].dtype)
    with torch.no_grad():
        targets = as_tensor(mechanism.data.targets[:_LOSS_EXAMPLES])
        losses = mechanism.loss(model(features), targets)
    return {
        "class": type(model).__qualname__,
        "parameters": sum(parameter.numel() for parameter in trainable(model)),
        "layers": hashlib.blake2b(str(model).encode(), digest_size=8).hexdigest(),
        "start": start.hexdigest(),
        "loss_at_start": float(f"{float(losses.double().mean()):.4g}"),
    }


def _adversary(adversary: Adversary, canaries: Canaries) -> DescribedAdversary:
    crafted = hashlib.blake2b(digest_size=8)
    for name, value in sorted(vars(canaries).items()):
        crafted.update(name.encode())
        if hasattr(value, "detach"):
            crafted.update(value.detach().cpu().contiguous().numpy().tobytes())
        else:
            crafted.update(repr(value).encode())
    return DescribedAdversary(
        name=adversary.name,
        threat_model=adversary.threat_model.value,
        settings=_parts(adversary),
        crafted=crafted.hexdigest(),
    )


def _parts(owner: object) -> dict[str, Any]:
    """An object as its class and its fields; a field that is not plain is written as text."""
    if dataclasses.is_dataclass(owner):
        names = [attribute.name for attribute in dataclasses.fields(owner) if attribute.init]
    else:
        names = [name for name in vars(owner) if not name.startswith("_")]
    values = {name: getattr(owner, name) for name in names}
    plain = (bool, int, float, str, type(None))
    texts = {name: v if isinstance(v, plain) else repr(v) for name, v in values.items()}
    return {"class": type(owner).__qualname__, **texts}


def _function(function: object) -> str:
    """A function, a `functools.partial` of one, or a callable object, by name."""
    inner = getattr(function, "func", None)
    if inner is not None:
        given = getattr(function, "args", ()), getattr(function, "keywords", {})
        return f"{_function(inner)}{given}"
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)
