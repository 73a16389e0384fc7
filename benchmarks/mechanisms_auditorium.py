"""What the testers of DP-Auditorium refute on the mechanisms of `mechanism_cases`.

    python benchmarks/mechanisms_auditorium.py [--samples 2000000] [--only NAME ...]

Needs ``python/dp_auditorium`` of google/differential-privacy (0.0.1, with TensorFlow 2.15) on the
path; dpaudit is not imported. A tester says whether (epsilon, 0) is refuted with 90 % confidence.
The largest refuted epsilon is searched by bisection, which gives the tool an advantage: every
epsilon is tested as if it were the only one, and of both orders of the inputs the better one
counts. Half of the samples train the network of a tester, the other half test it. Networks, epochs
and learning rates are the defaults; batches have 1,000 samples instead of 100. The MMD tester,
which loops over samples in Python, is left out.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from dp_auditorium.configs import privacy_property as properties
from dp_auditorium.configs import property_tester_config as configs
from dp_auditorium.testers import histogram_tester, hockey_stick_tester, renyi_tester
from mechanism_cases import CASES

FAILURE, BINS, ALPHA, PRECISION = 0.1, 100, 1.5, 0.02
STORED = Path(__file__).with_suffix(".json")

Test = Callable[[float, np.ndarray, np.ndarray], bool]


def training(bound: float | None = None) -> configs.TrainingConfig:
    made = hockey_stick_tester.make_default_hs_training_config()
    made.batch_size, made.model_output_coordinate_bound = 1000, bound
    return made


def hockey_stick(epsilon: float, first: np.ndarray, second: np.ndarray) -> bool:
    """A classifier whose accuracy bounds the hockey-stick divergence."""
    config = configs.HockeyStickPropertyTesterConfig(
        training_config=training(),
        approximate_dp=properties.ApproximateDp(epsilon=epsilon, delta=0.0),
        evaluation_batch_size=100_000,
    )
    model = hockey_stick_tester.make_default_hs_base_model()
    tester = hockey_stick_tester.HockeyStickPropertyTester(config, model)
    return bool(tester.reject_property(tester.estimate_lower_bound(first, second, FAILURE)))


def histogram(epsilon: float, first: np.ndarray, second: np.ndarray) -> bool:
    """Probabilities of the bins of a histogram; of a single output only."""
    low, high = np.quantile(first, [0.001, 0.999])
    config = configs.HistogramPropertyTesterConfig(
        test_discrete_mechanism=False,
        histogram_size=BINS,
        min_value=float(low),
        max_value=float(high),
        approximate_dp=properties.ApproximateDp(epsilon=epsilon, delta=0.0),
    )
    tester = histogram_tester.HistogramTester(config)
    bound = tester.estimate_lower_bound(first[:, 0], second[:, 0], FAILURE)
    return bool(tester.reject_property(bound))


def renyi(first: np.ndarray, second: np.ndarray) -> float:
    """The largest epsilon that a bound on the Renyi divergence refutes: it is the same for all."""
    config = configs.RenyiPropertyTesterConfig(
        alpha=ALPHA,
        training_config=training(1.0),
        privacy_property=properties.PrivacyProperty(pure_dp=properties.PureDp(epsilon=1.0)),
    )
    model = renyi_tester.make_default_renyi_base_model()
    tester = renyi_tester.RenyiPropertyTester(config, model)
    bound = max(0.0, float(tester.estimate_lower_bound(first, second, FAILURE)))
    # Its threshold for pure DP is min(epsilon, 2 alpha epsilon**2).
    return max(bound, math.sqrt(bound / (2 * ALPHA)))


def largest(test: Test, first: np.ndarray, second: np.ndarray) -> float:
    """The largest epsilon that a test refutes, to a relative precision.

    Epsilon is doubled until it is not refuted, and then bisected.
    """
    low, high = 0.0, 0.02
    while high < 20 and test(high, first, second):
        low, high = high, 2 * high
    while low and high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if test(middle, first, second) else (low, middle)
    return low


def refuted(name: str, samples: int) -> dict[str, float]:
    """What each tester refutes, in the better order of the inputs."""
    case, random = CASES[name], np.random.default_rng(1)
    tf.keras.utils.set_random_seed(0)
    first, second = (case.run(own, samples, random).astype(np.float32) for own in case.inputs)
    orders = ((first, second), (second, first))
    shown = {"hockey-stick": max(largest(hockey_stick, *order) for order in orders)}
    if first.shape[1] == 1:
        shown["histogram"] = max(largest(histogram, *order) for order in orders)
    shown["Renyi"] = max(renyi(*order) for order in orders)
    return {tester: round(value, 4) for tester, value in shown.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"rows": []}
    rows = {row["mechanism"]: row for row in stored["rows"]}
    for name in options.only:
        rows[name] = {"mechanism": name, "refuted": refuted(name, options.samples)}
        print(rows[name], flush=True)
        stored = {
            "samples": options.samples,
            "confidence": 1 - FAILURE,
            "rows": [rows[name] for name in CASES if name in rows],
        }
        STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
