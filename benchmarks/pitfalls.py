"""The numbers of docs/choosing-a-bound.md that are not in the table of false claims.

    OMP_NUM_THREADS=1 python benchmarks/pitfalls.py

Prints one line for each measurement; seven minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.special import comb

from dpaudit import Scores, estimate
from dpaudit.lower_bounds.guesses import Guesses
from dpaudit.lower_bounds.one_run import one_run_epsilon

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import Gaussian, Laplace, ScoreFamily

AUDITS = 1000


def share(family: ScoreFamily, each: int, claimed: list[float], delta: float = 1e-5) -> str:
    rate = float(np.mean(np.array(claimed) > family.epsilon(delta) + 1e-9))
    error = (rate * (1 - rate) / len(claimed)) ** 0.5
    return f"{100 * rate:.1f} % (standard error {100 * error:.1f}), {len(claimed)} times"


def tables(family: ScoreFamily, each: int, count: int, seed: int) -> list[Scores]:
    random = np.random.default_rng([seed, each])
    return [Scores.from_samples(*family.audit(each, random)) for _ in range(count)]


def several_audits() -> None:
    """The best of ten audits, each at 95 % or at 99.5 %; gaussian-fit, whose level is exact."""
    family = Gaussian(1.0)
    every = tables(family, 100, 10 * AUDITS, 1)
    for confidence in (0.95, 0.995):
        values = [
            estimate(s, delta=1e-5, method="gaussian-fit", confidence=confidence).epsilon
            for s in every
        ]
        best = np.reshape(values, (AUDITS, 10)).max(axis=1)
        print(f"best of 10 audits at {confidence:.1%}: false {share(family, 100, list(best))}")


def several_seeds() -> None:
    """The best of twenty pilots on the same scores."""
    for family in (Gaussian(1.0), Gaussian(3.95)):
        one, best = [], []
        for scores in tables(family, 500, AUDITS, 2):
            values = [
                estimate(scores, delta=1e-5, method="gaussian-dp", seed=seed).epsilon
                for seed in range(20)
            ]
            one.append(values[0])
            best.append(max(values))
        print(f"{family.name}, one pilot seed: false {share(family, 500, one)}")
        print(f"{family.name}, best of 20 pilot seeds: false {share(family, 500, best)}")


def several_methods() -> None:
    """The best of all valid methods on the same scores."""
    contestants = (
        ("clopper-pearson", "pilot"),
        ("clopper-pearson", "simultaneous"),
        ("gaussian-dp", "pilot"),
        ("gaussian-dp", "simultaneous"),
        ("gaussian-fit", "pilot"),
    )
    family = Gaussian(1.0)
    best = [
        max(
            estimate(scores, delta=1e-5, method=method, threshold=rule).epsilon
            for method, rule in contestants
        )
        for scores in tables(family, 500, AUDITS, 3)
    ]
    print(f"best of 5 valid methods, mu = 1, 500 a side: false {share(family, 500, best)}")


def one_run_that_tells_all(canaries: int = 1001, chance: float = 0.1) -> None:
    """A mechanism that publishes every coin with probability delta: exactly (0, delta)-DP.

    The number of canaries is odd, because one-run refuses audits with exactly half inserted.
    """
    random = np.random.default_rng(4)
    claimed: dict[str, list[float]] = {"clopper-pearson": [], "gaussian-dp": [], "one-run": []}
    for audit in range(AUDITS):
        coins = random.random(canaries) < 0.5
        noise = random.standard_normal(canaries)
        score = 100.0 * coins + noise if random.random() < chance else noise
        scores = Scores(
            score=score,
            inserted=coins,
            run=np.zeros(canaries, dtype=int),
            canary=np.arange(canaries),
        )
        for method, values in claimed.items():
            values.append(estimate(scores, delta=chance, method=method, seed=audit).epsilon)
    for method, values in claimed.items():
        above = np.array(values)[np.array(values) > 0]
        mean = f", {above.mean():.2f} on average" if len(above) else ""
        rate = 100 * len(above) / AUDITS
        print(f"(0, {chance})-DP, {canaries} canaries of one run, {method}: {rate:.1f} %{mean}")


def exactly_half(canaries: int) -> None:
    """Guess every coin of scores that say nothing; coins fair, or exactly half of them 1."""
    half = canaries // 2
    right = np.arange(canaries + 1)
    claims = np.array(
        [
            one_run_epsilon(Guesses(int(v), canaries, canaries), delta=0, significance=0.05) > 0
            for v in right
        ]
    )
    fair = comb(canaries, right) / 2.0**canaries
    hits = np.arange(half + 1)  # inserted ones among the half that is guessed "inserted"
    hypergeometric = comb(half, hits) ** 2 / comb(canaries, half)
    print(
        f"{canaries} canaries, no leak, one-run at 95 %: "
        f"fair coins {100 * fair @ claims:.2f} %, "
        f"exactly half {100 * hypergeometric @ claims[2 * hits]:.2f} % false"
    )


def gaussian_rule_on_laplace() -> None:
    """What the Gaussian methods say of a mechanism that is exactly (1, 0)-DP."""
    family = Laplace(1.0)
    for method in ("gaussian-dp", "gaussian-fit", "clopper-pearson"):
        for each in (50, 2500):
            values = [
                estimate(scores, delta=1e-5, method=method).epsilon
                for scores in tables(family, each, 200, 5)
            ]
            print(
                f"Laplace, epsilon = 1, {each} a side, {method}: mean {np.mean(values):.2f}, "
                f"false {share(family, each, values)}"
            )


def main() -> None:
    several_audits()
    several_methods()
    several_seeds()
    one_run_that_tells_all()
    for canaries in (10, 20, 50, 100, 200, 500, 1000):
        exactly_half(canaries)
    gaussian_rule_on_laplace()


if __name__ == "__main__":
    main()
