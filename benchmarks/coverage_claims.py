"""How often the test of a claim raises a false alarm, and how often it sees a real violation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.claims import Claim, test_claim
from dpaudit.curves import gaussian_epsilon, gaussian_mu
from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mathematics"))
from families import Gaussian, RandomisedResponse, draw_sampled_steps

SIZES = (50, 500, 2500)
POWER_SIZES = (50, 100, 200, 500, 1000, 2000, 5000, 20_000)
NOISE = (0.9, 0.8, 0.7)
DELTA = 1e-5
SINGLE_BOUNDS = ("gaussian-dp", "clopper-pearson")
SAMPLED = {"noise_multiplier": 1.0, "steps": 20, "sampling_rate": 0.1}

Draw = Callable[[NDArray[np.bool_], np.random.Generator], NDArray[np.float64]]


def _draw_sampled(coins: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.float64]:
    return draw_sampled_steps(coins, random, **SAMPLED)  # type: ignore[arg-type]


# Each mechanism meets its claim exactly: nothing to spare, so alarms are as frequent as they get.
BOUNDARY: tuple[tuple[str, Callable[[], Claim], Draw], ...] = (
    *((f"{mu:g}-GDP", lambda mu=mu: Claim.from_mu(mu), Gaussian(mu).draw) for mu in (1, 2, 3.95)),
    *(
        (
            f"({epsilon:g}, {delta:g})-DP",
            lambda epsilon=epsilon, delta=delta: Claim.from_points([(epsilon, delta)]),
            RandomisedResponse(epsilon, delta).draw,
        )
        for epsilon, delta in ((1.0, 0.0), (1.0, 0.01), (4.0, 1e-5))
    ),
    (
        "DP-SGD, noise 1, 20 steps, sampling rate 0.1",
        lambda: Claim.from_dpsgd(**SAMPLED),  # type: ignore[arg-type]
        _draw_sampled,
    ),
)

MU_OF_EPSILON_8 = gaussian_mu(8.0, DELTA)
POWER_CLAIMS: tuple[tuple[str, float, Callable[[], Claim]], ...] = (
    ("1-GDP", 1.0, lambda: Claim.from_mu(1.0)),
    (
        f"{MU_OF_EPSILON_8:.3f}-GDP (epsilon 8)",
        MU_OF_EPSILON_8,
        lambda: Claim.from_mu(MU_OF_EPSILON_8),
    ),
    ("(8, 1e-5)-DP, the point alone", MU_OF_EPSILON_8, lambda: Claim.from_points([(8.0, DELTA)])),
    ("2-GDP", 2.0, lambda: Claim.from_mu(2.0)),
    ("3.95-GDP", 3.95, lambda: Claim.from_mu(3.95)),
)


@final
@dataclass(frozen=True)
class ClaimRow:
    """Alarms of one test in one cell."""

    claim: str
    noise: float  # what the noise is, as a share of what the claim says; 1 meets it exactly
    each: int
    test: str
    audits: int
    alarms: int


@final
@dataclass(frozen=True)
class BoundaryTask:
    """False alarms of one claim at one size."""

    which: int
    each: int
    audits: int

    def run(self) -> list[ClaimRow]:
        name, make, draw = BOUNDARY[self.which]
        claim, alarms = make(), 0
        coins = np.repeat([True, False], self.each)
        for audit in range(self.audits):
            random = np.random.default_rng([3, self.which, self.each, audit])
            scores = Scores(score=draw(coins, random), inserted=coins)
            alarms += test_claim(scores, claim, seed=audit).p_value <= 0.05
        return [ClaimRow(name, 1.0, self.each, "test_claim", self.audits, alarms)]


@final
@dataclass(frozen=True)
class PowerTask:
    """Alarms where the noise is too small, of the test and of single bounds on epsilon."""

    which: int
    noise: float
    each: int
    audits: int

    def run(self) -> list[ClaimRow]:
        name, mu, make = POWER_CLAIMS[self.which]
        claim, claimed = make(), gaussian_epsilon(DELTA, mu)
        family = Gaussian(mu / self.noise)
        # A single bound knows nothing of the curve: it would say the same of the point alone.
        singles = () if claim.mu is None else SINGLE_BOUNDS
        alarms = dict.fromkeys(("test_claim", *singles), 0)
        for audit in range(self.audits):
            random = np.random.default_rng(
                [4, self.which, round(100 * self.noise), self.each, audit]
            )
            scores = Scores.from_samples(*family.audit(self.each, random))
            alarms["test_claim"] += test_claim(scores, claim, seed=audit).p_value <= 0.05
            for method in singles:
                bound = estimate(scores, delta=DELTA, method=method, seed=audit)
                alarms[method] += bound.epsilon > claimed
        return [
            ClaimRow(name, self.noise, self.each, test, self.audits, count)
            for test, count in alarms.items()
        ]


def claim_tasks(audits: int, power_audits: int) -> list[BoundaryTask | PowerTask]:
    """All work on claims, the longest first."""
    power = [
        PowerTask(which, noise, each, power_audits)
        for each in sorted(POWER_SIZES, reverse=True)
        for which in range(len(POWER_CLAIMS))
        for noise in NOISE
    ]
    boundary = [
        # A curve of many points is slow to test, by some 60 ms an audit.
        BoundaryTask(which, each, audits // 4 if name.startswith("DP-SGD") else audits)
        for which, (name, _, _) in enumerate(BOUNDARY)
        for each in SIZES
    ]
    return [*power, *boundary]
