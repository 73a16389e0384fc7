"""dpaudit and other auditors on the same mechanisms, and sequential tests on streams of scores.

    python field/tools.py                  # everything: an hour of one core
    python field/tools.py --page           # docs/field.md from what is stored

Each tool gets the same scores of the same mechanisms, at sizes that grow, five times. It has found
a violation if it proves, at 95 % confidence, more than what the mechanism claims. A tool that
cannot be imported is named below the table, with the reason. Install what they need into a folder
on PYTHONPATH with `pip install --no-deps --target FOLDER`: privacy-estimates, statsmodels, patsy,
pandas; opake==0.16.1, opake-auditing, opake-engine, opake-accounting, opake-base, optree; etils,
attrs, google-vizier, grpcio, grpcio-tools, protobuf, googleapis-common-protos, portpicker,
sqlalchemy, greenlet, ml-collections; scikit-learn, joblib, threadpoolctl, narwhals, seaborn,
graphviz.
DP-Auditorium and dp-recorder are read from clones of google/differential-privacy and
ObliviousAI/dp-recorder in the folder FIELD_SOURCES, each named owner+repository.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit import Claim, lower_bound
from dpaudit.claims.anytime import AnytimeTest
from dpaudit.curves import gaussian_epsilon

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "tools.json"

DELTA, CONFIDENCE = 1e-5, 0.95
SIZES, REPETITIONS = (125, 500, 2000, 8000), 5  # scores a side
STREAMS = 250

Scores = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[Scores, Scores]]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Scores with and without a record, and what the mechanism claims of them."""

    title: str
    claimed_epsilon: float
    draw: Draw
    violates: bool
    gaussian: bool = False


def normal(mu: float) -> Draw:
    """Scores of a Gaussian mechanism that is mu-GDP."""
    return lambda random, size: (random.normal(mu, 1, size), random.normal(0, 1, size))


def laplace(epsilon: float) -> Draw:
    """Scores of a Laplace mechanism that is epsilon-DP."""
    return lambda random, size: (
        epsilon + random.laplace(0, 1, size),
        random.laplace(0, 1, size),
    )


def exact_count(noise: str) -> Draw:
    """Means of one and of two zeros whose noise is scaled with the exact number of records.

    This is NonDPGaussian1 and NonDPLaplace1 of DP-Auditorium: one scale is twice the other.
    """

    def draw(random: np.random.Generator, size: int) -> tuple[Scores, Scores]:
        sample = getattr(random, noise)
        return -np.abs(sample(0, 0.5, size)), -np.abs(sample(0, 1, size))

    return draw


GDP = gaussian_epsilon(DELTA, 1.0)
MECHANISMS = (
    *(
        Mechanism(
            title=f"Gaussian, {title}",
            claimed_epsilon=GDP,
            draw=normal(mu),
            violates=mu > 1,
            gaussian=True,
        )
        for title, mu in (
            ("correct", 1.0),
            ("noise 20 % too small", 1.25),
            ("half of the noise", 2.0),
            ("three times the contribution", 3.0),
        )
    ),
    Mechanism(title="Laplace, correct", claimed_epsilon=1.0, draw=laplace(1.0), violates=False),
    Mechanism(
        title="Laplace, half of the noise", claimed_epsilon=1.0, draw=laplace(2.0), violates=True
    ),
    Mechanism(
        title="Laplace mean, scaled with the exact count",
        claimed_epsilon=0.1,
        draw=exact_count("laplace"),
        violates=True,
    ),
)

Tool = Callable[[Scores, Scores, Mechanism, int], float]
"""Inserted scores, others, mechanism and seed -> epsilon shown; infinity where only a claim is
refuted, NaN where it is not."""


def of_dpaudit(method: str) -> Tool:
    def bound(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
        options: dict[str, Any] = {"delta": DELTA, "confidence": CONFIDENCE}
        return lower_bound(inserted, others, method=method, seed=seed, **options).epsilon

    return bound


def jax_privacy(name: str) -> Tool:
    def bound(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
        from jax_privacy.auditing import CanaryScoreAuditor

        method = getattr(CanaryScoreAuditor(inserted, others), name)
        return float(method(significance=1 - CONFIDENCE, delta=DELTA))

    return bound


def privacy_estimates(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
    """Its joint-beta interval; a first half of the scores chooses the threshold."""
    from privacy_estimates import AttackResults, compute_eps_lo

    half = len(inserted) // 2
    choices = np.sort(np.concatenate([inserted[:half], others[:half]]))
    youden = [np.mean(inserted[:half] >= c) - np.mean(others[:half] >= c) for c in choices]
    threshold = choices[int(np.argmax(youden))]
    hits, alarms = (
        int((inserted[half:] >= threshold).sum()),
        int((others[half:] >= threshold).sum()),
    )
    counts = AttackResults(
        TP=hits, FN=len(inserted) - half - hits, FP=alarms, TN=len(others) - half - alarms
    )
    alpha = 1 - CONFIDENCE
    return float(compute_eps_lo(counts, delta=DELTA, alpha=alpha, method="joint-beta"))


def opake(name: str) -> Tool:
    def bound(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
        from opake.auditing.one_run import one_run
        from opake.auditing.types import CanaryScores, CoinFlip

        ones, zeros = np.arange(len(inserted)), len(inserted) + np.arange(len(others))
        everyone = np.concatenate([ones, zeros])
        coins = CoinFlip(
            num_canaries=len(everyone),
            canary_indices=everyone,
            _in_mask=everyone < len(inserted),
            in_indices=ones,
            out_indices=zeros,
        )
        scores = CanaryScores(np.concatenate([inserted, others]), canary_indices=everyone)
        method = getattr(one_run(scores, coin_flip=coins), name)()
        return float(method.epsilon_at(delta=DELTA, significance=1 - CONFIDENCE))

    return bound


def dp_auditorium(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
    """Its histogram tester, which tests a claim and shows no epsilon."""
    path = _source("google+differential-privacy", "python/dp_auditorium")
    # The package imports TensorFlow for its other testers; the histogram does without.
    testers = sys.modules.setdefault("dp_auditorium.testers", ModuleType("dp_auditorium.testers"))
    testers.__path__ = [str(path / "dp_auditorium" / "testers")]
    from dp_auditorium.configs import privacy_property, property_tester_config
    from dp_auditorium.testers.histogram_tester import HistogramTester

    claim = privacy_property.ApproximateDp(epsilon=mechanism.claimed_epsilon, delta=DELTA)
    tester = HistogramTester(
        property_tester_config.HistogramPropertyTesterConfig(
            min_value=-4,
            max_value=6,
            histogram_size=20,
            test_discrete_mechanism=False,
            approximate_dp=claim,
        )
    )
    lower = tester.estimate_lower_bound(inserted, others, 1 - CONFIDENCE)
    return np.inf if tester.reject_property(lower) else np.nan


def dp_recorder(inserted: Scores, others: Scores, mechanism: Mechanism, seed: int) -> float:
    """Its audit of a mechanism's outputs, which draws them by itself."""
    _source("ObliviousAI+dp-recorder", "src")
    from dp_recorder.auditing import Auditor, audit_spec, dist_l2

    streams = {1: iter(inserted), 0: iter(others)}

    @audit_spec(
        kind="mechanism", input_arg="data", sensitivity_arg="sensitivity", metric_fn=dist_l2
    )
    def release(data: int, sensitivity: float) -> float:
        return next(streams[data], 0.0)

    with Auditor() as auditor:
        release(1, sensitivity=1.0)
        auditor.set_replay()
        release(0, sensitivity=1.0)
    streams |= {1: iter(inserted), 0: iter(others)}  # recording has taken one
    auditor.run_distributional_audit(n_samples=2 * len(inserted), alpha=1 - CONFIDENCE)
    auditor.compute_overall_pld()
    return float(auditor.get_overall_current_guarantee(DELTA))


def _source(clone: str, folder: str) -> Path:
    path = Path(os.environ.get("FIELD_SOURCES", HERE / "sources")) / clone / folder
    if not path.is_dir():
        raise ImportError(f"no clone in {path}")
    if str(path) not in sys.path:
        sys.path.append(str(path))
    return path


TOOLS: dict[str, tuple[Tool, bool]] = {
    "dpaudit clopper-pearson": (of_dpaudit("clopper-pearson"), False),
    "dpaudit gaussian-dp": (of_dpaudit("gaussian-dp"), True),
    "jax-privacy Clopper-Pearson": (jax_privacy("epsilon_clopper_pearson"), False),
    "jax-privacy Gaussian DP": (jax_privacy("epsilon_from_gdp"), True),
    "privacy-estimates joint-beta": (privacy_estimates, False),
    "opake (epsilon, delta)": (opake("eps_delta"), False),
    "opake Gaussian DP": (opake("gdp"), True),
    "DP-Auditorium histogram": (dp_auditorium, False),
    "dp-recorder": (dp_recorder, False),
}
"""Name -> tool, and whether it assumes that the mechanism is Gaussian."""


def measure(name: str, mechanism: Mechanism, seed: int) -> dict[str, Any]:
    """What a tool shows at each size, and the seconds of this core that it took."""
    tool, _ = TOOLS[name]
    row: dict[str, Any] = {"tool": name, "mechanism": mechanism.title, "seed": seed}
    for size in SIZES:
        inserted, others = mechanism.draw(np.random.default_rng([seed, size]), size)
        began = time.process_time()
        shown = tool(inserted, others, mechanism, seed)
        row[str(size)] = {
            "found": bool(shown > mechanism.claimed_epsilon),
            "shown": round(shown, 3) if np.isfinite(shown) else None,
            "seconds": round(time.process_time() - began, 3),
        }
    return row


def sequential() -> Iterator[dict[str, Any]]:
    """Pairs of scores until the claim is rejected, as in arXiv 2509.07055 and 2602.06518."""
    streams: list[tuple[str, Claim, Draw]] = [
        *(
            (
                f"NonDP{noise.title()}1, epsilon {epsilon:g}",
                Claim.from_points([(epsilon, delta)]),
                draw,
            )
            for noise, draw, delta in (
                ("gaussian", exact_count("normal"), DELTA),
                ("laplace", exact_count("laplace"), 0.0),
            )
            for epsilon in (0.01, 0.1)
        ),
        *(
            (f"1-GDP scores, claim {mu:g}-GDP", Claim.from_mu(mu), normal(1.0))
            for mu in (0.25, 0.5, 0.75, 1.0)
        ),
    ]
    for title, claim, draw in streams:
        stopped = []
        for number in range(STREAMS):
            test = AnytimeTest(claim)
            test.add(*draw(np.random.default_rng([STREAMS, number]), 3000))
            stopped.append(test.refuted_at)
        pairs = [pair for pair in stopped if pair is not None]
        yield {
            "stream": title,
            "rejected": len(pairs),
            "of": STREAMS,
            "mean_pairs": round(float(np.mean(pairs)), 1),
            "standard_error": round(float(np.std(pairs) / np.sqrt(len(pairs))), 1),
        }


def main(arguments: list[str]) -> None:
    from field.page import write

    if arguments != ["--page"]:
        rows: list[dict[str, Any]] = []
        missing: dict[str, str] = {}
        for name, (_, gaussian) in TOOLS.items():
            for mechanism in MECHANISMS:
                if gaussian and not mechanism.gaussian:
                    continue
                try:
                    rows += [measure(name, mechanism, seed) for seed in range(1, REPETITIONS + 1)]
                except ImportError as error:
                    missing[name] = str(error)
                    break
            print(name, missing.get(name, ""), flush=True)
        results = {
            "gaussian_epsilon": GDP,
            "sizes": SIZES,
            "repetitions": REPETITIONS,
            "mechanisms": {mechanism.title: mechanism.violates for mechanism in MECHANISMS},
            "tools": rows,
            "missing": missing,
            "sequential": list(sequential()),
        }
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main(sys.argv[1:])
