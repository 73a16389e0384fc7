"""Every training of examples/bugs, audited: how many runs a proof takes, and false alarms.

    OMP_NUM_THREADS=1 python benchmarks/bugs.py               # everything: minutes on two cores
    OMP_NUM_THREADS=1 python benchmarks/bugs.py nan_survives  # these again, the rest as it was
    OMP_NUM_THREADS=1 python benchmarks/bugs.py --old         # rows of other versions, one by one
    OMP_NUM_THREADS=1 python benchmarks/bugs.py --checks      # only what dpaudit check says
    python benchmarks/bugs.py --page                          # docs/rules-of-check.md from these

Times are seconds of one core, so that they do not depend on what else the machine was doing.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, final

from dpaudit._version import __version__

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "benchmarks")]

RESULTS = ROOT / "benchmarks" / "bugs.json"
PAGE = ROOT / "docs" / "rules-of-check.md"
COMMAND = "python benchmarks/bugs.py --page"

RUNS, MOST_RUNS, SEEDS = 200, 4000, 5
WORKERS = 2
REPETITIONS, RUNS_OF_CORRECT = 20, 100
DELTA = 1e-5
CANARIES, MORE_CANARIES = 1000, 2800
GROSS = ("noise_forgotten", "clipping_forgotten", "batch_mean_clipped", "noise_scaled_for_the_mean")
NOT_IN_THE_OUTPUT = (
    "weak_random_generator",
    "epsilon_for_another_delta",
    "clip_at_the_batch_median",
    "noise_cached",
    "noise_in_half_precision",
    "noise_missing_in_the_last_step",
    "truncated_noise",
    "uniform_noise",
)
NOT_CHECKED = ("batch_statistics", "correct.opacus_poisson")
"""They insert an example, or through the optimizer; the checks insert rows of their own."""


@final
class Clock:
    """Seconds of this core since it was made."""

    def __init__(self) -> None:
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        return round(time.process_time() - self._began, 2)


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """One file of the catalogue."""

    name: str
    module: ModuleType

    @classmethod
    def named(cls, name: str) -> Training:
        return cls(name=name, module=importlib.import_module(f"bugs.{name}"))

    @property
    def takes_many(self) -> bool:
        """Whether the training has a place for many canaries, each with a coin of its own."""
        from dpaudit import GradientCanary

        source = inspect.getsource(self.module)
        single = hasattr(self.module, "score") or "bool(inserted)" in source
        return isinstance(self.module.canary, GradientCanary) and not single

    def audit(self, **options: Any) -> Any:
        """The audit that the file itself makes, with other numbers."""
        from bugs._common import adversary_of

        from dpaudit import audit

        module = self.module
        adversary = adversary_of(module.canary, getattr(module, "score", None))
        settings = {"canary": module.canary, "claim": module.claim, "adversary": adversary}
        with _quiet():
            return audit(module.train, **(settings | options))

    def many(self, count: int, seed: int) -> Any:
        """One training with ``count`` canaries."""
        from bugs._common import axis_canary

        canary = axis_canary(count, clip_norm=self.module.canary.clip_norm)
        return self.audit(canary=canary, runs=1, seed=seed)

    def check(self) -> dict[str, Any]:
        """The rules of `dpaudit check` that the training breaks."""
        from bugs._common import SIGMA, axis_canary

        from dpaudit.checks import check_training

        module, clock = self.module, Clock()
        canary = axis_canary(clip_norm=getattr(module.canary, "clip_norm", 1.0))
        with _quiet():
            result = check_training(
                self._final_parameters(), canary, noise_multiplier=getattr(module, "SIGMA", SIGMA)
            )
        return {
            "broken": [finding.rule.name for finding in result.broken],
            "warnings": [finding.rule.name for finding in result.warnings],
            "trainings": result.calls,
            "seconds": clock.seconds,
        }

    def _final_parameters(self) -> Callable[..., Any]:
        """The training with its last iterate as its result, as the checks want it."""

        usual = inspect.signature(self.module.train).parameters["steps"].default

        def train(canary: Any, inserted: Any, seed: int, steps: int = usual) -> Any:
            returned = self.module.train(canary, inserted, seed, steps)
            return returned[-1] if returned.ndim == 2 else returned

        return train


def names() -> list[str]:
    """All trainings, wrong ones first."""
    import bugs
    import bugs.correct

    wrong = [module.name for module in pkgutil.iter_modules(bugs.__path__)]
    right = [f"correct.{module.name}" for module in pkgutil.iter_modules(bugs.correct.__path__)]
    return [name for name in wrong if not name.startswith("_") and name != "correct"] + right


def measure(name: str) -> dict[str, Any]:
    """Everything that the page says about one training."""
    training = Training.named(name)
    whole, row = Clock(), {"name": name, "claimed_epsilon": training.module.claim.epsilon(DELTA)}
    row |= _checked(name)
    row |= _correct(training) if name.startswith("correct.") else _wrong(training)
    return row | {"seconds": whole.seconds, "audited_with": __version__}


def _checked(name: str) -> dict[str, Any]:
    return {} if name in NOT_CHECKED else {"check": Training.named(name).check()}


def _wrong(training: Training) -> dict[str, Any]:
    clock = Clock()
    fixed = training.audit(runs=RUNS)
    row: dict[str, Any] = {
        "fixed": {
            "runs": RUNS,
            "verdict": fixed.verdict,
            "p_value": fixed.test.p_value,
            "seconds": clock.seconds,
        }
    }
    if training.name not in NOT_IN_THE_OUTPUT:
        row["until"] = [_until(training, seed) for seed in range(1, SEEDS + 1)]
    if training.takes_many:
        clock = Clock()
        many = training.many(CANARIES, seed=1)
        row["many"] = {
            "canaries": CANARIES,
            "verdict": many.verdict,
            "p_value": many.test.p_value,
            "seconds": clock.seconds,
        }
    if training.name in GROSS:
        row["assuming_nothing"] = _one_run(training)
    return row


def _until(training: Training, seed: int) -> dict[str, Any]:
    clock = Clock()
    audit = training.audit(runs=MOST_RUNS, seed=seed, until_violation=True)
    return {"runs": audit.stopped_at, "seconds": clock.seconds}


def _one_run(training: Training) -> dict[str, Any]:
    """What one training proves if canaries may depend on each other as they like."""
    from dpaudit import estimate

    seeds = range(1, SEEDS + 1)
    scores = {seed: training.many(MORE_CANARIES, seed).scores for seed in seeds}
    bounds = [estimate(scores[seed], delta=DELTA, method="one-run", seed=seed) for seed in seeds]
    return {"canaries": MORE_CANARIES, "epsilons": [bound.epsilon for bound in bounds]}


def _correct(training: Training) -> dict[str, Any]:
    # Audits of different trainings must not share their seeds: some have the same noise.
    first = 1000 * (1 + sorted(names()).index(training.name))
    seeds = range(first, first + REPETITIONS)
    p_values = [training.audit(runs=RUNS_OF_CORRECT, seed=seed).test.p_value for seed in seeds]
    row: dict[str, Any] = {"runs": RUNS_OF_CORRECT, "p_values": p_values}
    if training.takes_many:
        row["many_p_values"] = [training.many(CANARIES, seed).test.p_value for seed in seeds]
    return row


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of Opacus' hooks in every step
        yield


def main(arguments: list[str]) -> None:
    from bugs_page import catalogue
    from generated import write_part

    stored = {row["name"]: row for row in _stored()}
    if arguments == ["--checks"]:
        for row in stored.values():
            row |= _checked(row["name"])
        _store(stored)
    elif arguments == ["--old"]:
        old = [name for name in names() if stored.get(name, {}).get("audited_with") != __version__]
        for name in old:
            _keep(stored, measure(name))
    elif arguments != ["--page"]:
        with ProcessPoolExecutor(max_workers=WORKERS) as pool:
            for done in as_completed([pool.submit(measure, name) for name in arguments or names()]):
                _keep(stored, done.result())
    write_part(PAGE, COMMAND, catalogue(_stored()))


def _keep(stored: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
    stored[row["name"]] = row
    _store(stored)
    print(f"{row['name']:<45}{row['seconds']:>8.1f} s", flush=True)


def _store(rows: dict[str, dict[str, Any]]) -> None:
    ordered = [rows[name] for name in names() if name in rows]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def _stored() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


if __name__ == "__main__":
    main(sys.argv[1:])
