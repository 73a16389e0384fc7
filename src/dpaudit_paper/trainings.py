"""Trainings of the paper's networks with canaries, and the bounds from their scores.

Figures that need the same trainings use the same name, so that they are played once.

The paper trains 5,000 models with one canary each. One training with thousands of canaries, each
with its own dimension and coin, gives as many scores. P1 shows that both agree.

=================== ============================================================================
column              bound
=================== ============================================================================
``accountant``      from above: composition of the insertions
``paper_rule``      gaussian-dp at the best threshold of the scores it is read from (the paper's)
``gaussian_dp``     gaussian-dp with the threshold chosen on a pilot: a valid choice; the trade-off
                    curve is still assumed to be Gaussian. The line that figures draw
``clopper_pearson`` at all thresholds at once, nothing assumed about the curve
``gaussian_fit``    from means and variance: needs few runs, assumes normal scores
``one_run_fdp``     for many canaries in one training, which need not be independent
``mu``              by moments: no bound, no threshold
=================== ============================================================================
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from dpaudit import _validate
from dpaudit.adversaries import FlippedLabel, OneRunBlackBox, RandomDimension
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import estimate
from dpaudit.mechanisms import (
    DPSGD,
    FixedBatches,
    FixedInitialisation,
    FreshInitialisation,
    Insertion,
)
from dpaudit.presets import INSERTIONS, alexnet_features_of, preset
from dpaudit.scores import Scores, Store
from dpaudit.threat_models import Adversary
from dpaudit_paper.table import Row, Table, Value

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult
    from dpaudit.engine import Speed
    from dpaudit.engine.speed import Precision
    from dpaudit_paper.base import Setting

Weights = Literal["default", "xavier", "kaiming"]

DELTA = 1e-5

NAMES = {
    "random-dimension": "A_GC-R",
    "simulated-dimension": "A_GC-S",
    "random-direction": "A_CotS",
    "flipped-label": "A_L",
}
"""The paper's names of its adversaries."""

TITLES = {"convnet": "ConvNet", "resnet18": "ResNet18"}

SHARES = (0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The horizons of a curve over training, as shares of all steps."""

_ON_GPU: dict[str, Precision] = {"convnet": "tf32", "resnet18": "bfloat16"}
"""Precisions on a GPU of the networks that take minutes; of ResNet18 the one that takes half of the
time. All others use float32."""

_SECONDS = {
    "resnet18": (2e-2, 5.5e-3),
    "convnet": (6e-3, 1.1e-5),
    "alexnet-head": (1e-3, 1e-6),
    "housing": (5e-3, 1e-5),
}
"""Seconds of a step on an H200, and of a run in it: the longest trainings are begun first."""

_TOGETHER_AT_MOST = 1000
"""Runs of a tile if there are thousands of steps: a command that is stopped loses few minutes."""

_ON_CPU = frozenset({"housing"})
"""Networks that two CPU cores train about as fast as a GPU, by a fused step in C++: F1c takes 61 s
in full on two cores and 54 to 80 s on an H200, which is then free for other networks."""


@final
@dataclass(frozen=True, kw_only=True)
class Trainings:
    """The trainings behind one curve.

    Arguments:
        preset: Model, data and hyperparameters.
        adversary: The adversary.
        runs: Number of trainings.
        canaries: Canaries per training.
        period: Insertion period k.
        clip_norm: Clipping norm C.
        seed: Random seed.
        insertions: Number of insertions; T is this times the period.
        weights: Initialisation of the weights.
        known_start: Whether all runs start at one known model; otherwise each draws its own.
        examples: Number of training images, 0 for all; only for `alexnet-head`, whose
            features take long to make.
        shares: The horizons, as shares of all steps.

    Example:
        >>> from dpaudit.adversaries import RandomDimension
        >>> Trainings(preset="convnet", adversary=RandomDimension(), runs=1, period=5).steps
        1250
    """

    preset: str
    adversary: Adversary
    runs: int
    canaries: int = 1
    period: int = 1
    clip_norm: float = 1.0
    seed: int = 0
    insertions: int = INSERTIONS
    weights: Weights = "default"
    known_start: bool = True
    examples: int = 0
    shares: tuple[float, ...] = SHARES

    def __post_init__(self) -> None:
        _validate.one_of("weights", self.weights, ("default", "xavier", "kaiming"))
        _validate.integer("insertions", self.insertions, at_least=1)

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return self.insertions * self.period

    @property
    def horizons(self) -> tuple[int, ...]:
        """The numbers of steps at which the curve has a point."""
        counts = (max(1, round(share * self.insertions)) for share in self.shares)
        return tuple(sorted({count * self.period for count in counts}))

    @property
    def protocol(self) -> str:
        """The protocol in words."""
        if self.canaries == 1:
            return f"{self.runs:,} trainings, one canary each"
        if self.runs == 1:
            return f"one training, {self.canaries:,} canaries"
        return f"{self.runs:,} trainings, {self.canaries:,} canaries each"

    @property
    def seconds(self) -> float:
        """The approximate duration on an H200."""
        step, run = _SECONDS[self.preset]
        return self.steps * (step + self.runs * run)

    def name_at(self, precision: str) -> str:
        """The name of the audit in the store; equal names mean equal audits."""
        start = "" if self.known_start else " fresh"
        start += f" of {self.examples}" if self.examples else ""
        return (
            f"{self.preset} {self.adversary!r} k={self.period} C={self.clip_norm:g} "
            f"T={self.steps} {self.weights}{start} seed={self.seed} "
            f"{self.runs}x{self.canaries} {precision}"
        )

    def name_in(self, setting: Setting) -> str:
        """The name of the audit in the store of a setting."""
        return self.name_at(speed_for(self.preset, setting).precision)

    def mechanism(self, data_dir: str | None) -> DPSGD:
        """The mechanism; the data are read once for all trainings."""
        base = _base(self.preset, data_dir, self.examples)
        build = base.build_model
        if self.weights != "default":
            from dpaudit.models import drawn_by

            build = functools.partial(drawn_by, self.weights, base.build_model)
        initialisation = FixedInitialisation(seed=self.seed)
        return dataclasses.replace(
            base,
            build_model=build,
            batches=FixedBatches(batch_size=preset(self.preset).batch_size, seed=self.seed),
            steps=self.steps,
            clip_norm=self.clip_norm,
            initialisation=initialisation if self.known_start else FreshInitialisation(),
        )

    def play(self, setting: Setting) -> AuditResult:
        """Play the trainings, or read them from the store."""
        name = self.name_in(setting)
        result = self._stored(name, setting) or self._played(name, setting)
        setting.ledger.add(name, result)
        return result

    def _stored(self, name: str, setting: Setting) -> AuditResult | None:
        """The finished audit of this name; nothing is crafted again to read it."""
        from dpaudit.audits.result import read_result

        if setting.store is None or not setting.store.is_file():
            return None
        with Store.open(setting.store) as store:
            for record in store.named(name):
                if record.finished is not None:
                    return read_result(record, resumed=self.runs)
        return None

    def _played(self, name: str, setting: Setting) -> AuditResult:
        from dpaudit.audits import audit

        speed = speed_for(self.preset, setting)
        if self.runs > _TOGETHER_AT_MOST and self.steps > 1000 and setting.on_gpu:
            speed = dataclasses.replace(speed, tile_size=_TOGETHER_AT_MOST)
        if setting.progress is not None:
            setting.progress.notice(
                f"{self.preset} by {self.adversary.name}, k = {self.period}, {self.steps:,} steps, "
                f"seed {self.seed}: {self.protocol}"
            )
        return audit(
            self.mechanism(setting.data_dir),
            self.adversary,
            runs=self.runs,
            canaries=self.canaries,
            insertion=Insertion(period=self.period),
            seed=self.seed,
            horizons=self.horizons,
            confirm=False,
            name=name,
            store=setting.store,
            speed=speed,
            progress=setting.progress,
            executor=setting.executor,
            anyway=True,
        )


def speed_for(preset_name: str, setting: Setting) -> Speed:
    """Speed settings: on a GPU the CIFAR networks compute in lower precision.

    The device ``auto`` is the CPU for networks that its fused step trains about as fast.
    """
    from dpaudit.engine import Speed
    from dpaudit.engine.fused import can_build

    choosing = setting.device == "auto" and setting.executor is None
    if choosing and preset_name in _ON_CPU and can_build():
        return Speed(device="cpu", precision="float32")
    precision = _ON_GPU.get(preset_name, "float32") if setting.on_gpu else "float32"
    return Speed(device=setting.device, precision=precision)


@functools.cache
def _base(preset_name: str, data_dir: str | None, examples: int) -> DPSGD:
    """The mechanism of the preset; cached, because reading the data takes long."""
    chosen = preset(preset_name)
    if examples:
        chosen = dataclasses.replace(
            chosen, read=functools.partial(alexnet_features_of, examples=examples)
        )
    return chosen.training(data_dir=data_dir)


def seeds(setting: Setting) -> range:
    """The seeds of the whole audit: five as in the paper, two in the quick version."""
    return range(setting.seed, setting.seed + setting.choose(quick=2, full=5))


def housing(adversary: Adversary, setting: Setting, seed: int) -> Trainings:
    """The audit with one seed: 5,000 trainings, or 1,000 in the quick version."""
    return Trainings(
        preset="housing",
        adversary=adversary,
        runs=setting.choose(quick=1000, full=5000),
        seed=seed,
    )


_CANARIES = {"convnet": 20_000, "resnet18": 100_000}

_QUICK_STEPS = 100
"""Steps of a quick ConvNet training; 250 k in full."""

A_L, A_L_TOGETHER = "A_L", "A_L, many canaries"

_ALONE = {("convnet", 1, c): 5000 for c in (1.0, 2.0, 4.0)}

_ALONE |= {("convnet", k, 1.0): 5000 for k in (5, 25)}

_ALONE |= {("resnet18", 1, c): 500 for c in (1.0, 2.0, 4.0)}
"""Trainings for A_L with one image each, by model, period and clipping norm; of ResNet18 as many as
take minutes, and none where so few could prove nothing."""

_QUICK_TOGETHER = {("convnet", 1): 4}

_TOGETHER = {("convnet", 1): 16, ("resnet18", 1): 8}
"""Trainings for A_L with many images each, at k = 1 only: they prove little there already."""

_IMAGES = 64
"""Mislabelled images in one training: half of them join a batch of 128."""


def insertions(setting: Setting, period: int) -> int:
    """The number of insertions: 250, or fewer in a quick training."""
    return setting.choose(quick=max(4, _QUICK_STEPS // period), full=INSERTIONS)


def one_training(
    setting: Setting,
    model: str,
    *,
    adversary: Adversary | None = None,
    period: int = 1,
    clip_norm: float = 1.0,
) -> Trainings:
    """One training with many canaries, by A_GC-R by default."""
    return Trainings(
        preset=model,
        adversary=RandomDimension() if adversary is None else adversary,
        runs=1,
        canaries=_CANARIES[model],
        period=period,
        clip_norm=clip_norm,
        seed=setting.seed,
        insertions=insertions(setting, period),
    )


def flipped_labels(
    setting: Setting, model: str, *, period: int = 1, clip_norm: float = 1.0
) -> Iterator[tuple[str, Trainings]]:
    """A_L by the protocols that take minutes, each with the name of its line.

    One mislabelled image in each of many trainings, as in the paper; and 64 in each of a few
    trainings, scored by the decrease of their loss, because images start at different losses.
    The second is much faster but proves much less.
    """
    alone = Trainings(
        preset=model,
        adversary=FlippedLabel(),
        runs=setting.choose(quick=0, full=_ALONE.get((model, period, clip_norm), 0)),
        period=period,
        clip_norm=clip_norm,
        seed=setting.seed,
        insertions=insertions(setting, period),
    )
    together = dataclasses.replace(
        alone,
        adversary=OneRunBlackBox(),
        runs=setting.choose(quick=_QUICK_TOGETHER, full=_TOGETHER).get((model, period), 0),
        canaries=_IMAGES,
    )
    for name, trainings in ((A_L, alone), (A_L_TOGETHER, together)):
        if trainings.runs:
            yield name, trainings


def readings(scores: Scores, *, delta: float = DELTA, seed: int = 0) -> dict[str, Value]:
    """The lower bounds of the table above from one set of scores; `None` for a missing value.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 500), random.normal(0, 1, 500))
        >>> list(readings(scores))[:4]
        ['paper_rule', 'gaussian_dp', 'clopper_pearson', 'gaussian_fit']
    """
    asked = {
        "paper_rule": ("gaussian-dp", "best"),
        "gaussian_dp": ("gaussian-dp", "pilot"),
        "clopper_pearson": ("clopper-pearson", "simultaneous"),
        "gaussian_fit": ("gaussian-fit", "pilot"),
        "one_run_fdp": ("one-run-fdp", "pilot"),
    }
    bounds: dict[str, Value] = {}
    for column, (method, threshold) in asked.items():
        if method == "one-run-fdp" and not scores.clustered:
            bounds[column] = None
            continue
        try:
            bound = estimate(scores, delta=delta, method=method, threshold=threshold, seed=seed)
            bounds[column] = bound.epsilon
        except DpauditError:
            bounds[column] = None  # too few scores for this method
    return {**bounds, "mu": mu_by_moments(scores)}


def mu_by_moments(scores: Scores) -> float | None:
    """The difference of the means over the pooled deviation, or `None`."""
    inserted, others = scores.inserted_scores, scores.other_scores
    if min(len(inserted), len(others)) < 2:
        return None
    pooled = (
        inserted.var(ddof=1) * (len(inserted) - 1) + others.var(ddof=1) * (len(others) - 1)
    ) / (len(scores) - 2)
    if not pooled > 0 or not math.isfinite(pooled):
        return None
    return float((inserted.mean() - others.mean()) / math.sqrt(pooled))


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a figure and the trainings behind it.

    Arguments:
        trainings: The trainings of the line.
        series: The name of the line.
        panel: The panel it is drawn in.
        gpu: Whether the line is left out without a GPU, because it would take hours.
    """

    trainings: Trainings
    series: str
    panel: str = ""
    gpu: bool = False

    def can(self, setting: Setting) -> bool:
        """Whether the line can be made on this machine."""
        return setting.on_gpu or not self.gpu


def curves(setting: Setting, lines: Iterable[Line]) -> Table:
    """One row per line and horizon: the trainings and the bounds from their scores.

    Lines that need a missing GPU are left out and noted.
    """
    rows: list[Row] = []
    for line in lines:
        if line.can(setting):
            rows += _curve_rows(line, setting)
        else:
            where = f", {line.panel}" if line.panel else ""
            setting.ledger.leave_out(f"{line.series}{where}: {line.trainings.protocol}")
    return Table.of(rows)


def _curve_rows(line: Line, setting: Setting) -> list[Row]:
    trainings = line.trainings
    result = trainings.play(setting)
    data = result.configuration["mechanism"]["data"]
    return [
        {
            "panel": line.panel,
            "series": line.series,
            "model": trainings.preset,
            "adversary": NAMES.get(trainings.adversary.name, trainings.adversary.name),
            "protocol": trainings.protocol,
            "period": trainings.period,
            "clip_norm": trainings.clip_norm,
            "weights": trainings.weights,
            "known_start": trainings.known_start,
            "seed": trainings.seed,
            "runs": trainings.runs,
            "canaries": trainings.canaries,
            "examples": data["examples"],
            "steps": assessment.horizon,
            "accountant": assessment.least_upper.epsilon,
            **readings(assessment.scores, seed=trainings.seed),
        }
        for assessment in result.horizons
    ]


def final_rows(table: Table) -> Table:
    """The last row of every curve."""
    last: dict[tuple[Value, ...], tuple[Value, ...]] = {}
    at = {name: table.columns.index(name) for name in table.columns}
    for row in table.rows:
        key = tuple(row[at[name]] for name in ("panel", "series", "model", "seed", "protocol"))
        if key not in last or _steps(row[at["steps"]]) > _steps(last[key][at["steps"]]):
            last[key] = row
    return Table(columns=table.columns, rows=tuple(last.values()))


def _steps(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else -1.0
