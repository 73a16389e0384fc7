"""The numbers of docs/your-training.md about audits that stop as soon as a violation is proven.

    OMP_NUM_THREADS=1 python benchmarks/until_violation.py

Scores are normal, claims are mu-GDP, the confidence is 95 %. Ten minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpaudit import Claim, Scores, test_claim
from dpaudit.claims.anytime import AnytimeTest, Bets

Sides = tuple[NDArray[np.float64], NDArray[np.float64]]

KEPT = (0.3, 1.0, 5 / 3, 3.95)
BROKEN = ((5 / 3, 1e6), (5 / 3, 10 / 3), (5 / 3, 2.5), (5 / 3, 25 / 12), (1.0, 1.25))
"""Claimed and true mu: no noise, noise of a half, two thirds and four fifths of what is claimed."""


def audits(mu: float, pairs: int, count: int) -> Iterator[Sides]:
    """Scores with and without the canary, of ``count`` audits."""
    for number in range(count):
        random = np.random.default_rng([round(100 * mu), number])
        yield random.normal(mu, 1, pairs), random.normal(0, 1, pairs)


def stopped_at(claimed: float, mu: float, pairs: int, count: int) -> NDArray[np.float64]:
    """The pair after which each audit stopped; infinite if it did not stop."""
    claim = Claim.from_mu(claimed)
    bets, stops = Bets.against(claim), []
    for inserted, others in audits(mu, pairs, count):
        test = AnytimeTest(claim, bets=bets)
        test.add(inserted, others)
        stops.append(test.refuted_at or np.inf)
    return np.array(stops)


def rejects(claim: Claim, sides: Sides, seed: int) -> bool:
    """The test for a fixed number of runs."""
    return test_claim(Scores.from_samples(*sides), claim, seed=seed).p_value <= 0.05


def fixed_pairs(claimed: float, mu: float, *, power: float = 0.8, count: int = 400) -> int:
    """The smallest number of pairs, on a grid of 5 %, at which `test_claim` has this power."""
    claim = Claim.from_mu(claimed)
    pairs = 8.0
    while True:
        each = round(pairs)
        refuted = [rejects(claim, s, i) for i, s in enumerate(audits(mu, each, count))]
        if np.mean(refuted) >= power:
            return each
        pairs *= 1.05 if np.mean(refuted) > power / 2 else 1.2


def rejected_at_any_time(mu: float, *, pairs: int = 500, every: int = 5, count: int = 400) -> float:
    """The share of audits of a claim that is met exactly which any of many tests rejects."""
    claim = Claim.from_mu(mu)
    sizes = range(every, pairs + 1, every)
    stops = [
        any(rejects(claim, (inserted[:n], others[:n]), i) for n in sizes)
        for i, (inserted, others) in enumerate(audits(mu, pairs, count))
    ]
    return float(np.mean(stops))


def main() -> None:
    for mu in KEPT:
        share = np.isfinite(stopped_at(mu, mu, 1000, 2000)).mean()
        print(f"claim mu = {mu:.3g}, met exactly: {share:.1%} of 2,000 audits flagged", flush=True)
    for claimed, mu in BROKEN:
        runs = 2 * stopped_at(claimed, mu, 2000, 1000)
        median, most = np.quantile(runs, [0.5, 0.8], method="higher")
        fixed = 2 * fixed_pairs(claimed, mu)
        print(
            f"claim mu = {claimed:.3g}, true mu = {mu:.3g}: median {median:.0f} runs, "
            f"80 % within {most:.0f}, {fixed} in a test of fixed size",
            flush=True,
        )
    print(f"tested after every fifth of 500 pairs, mu = 1: {rejected_at_any_time(1.0):.1%}")


if __name__ == "__main__":
    main()
