"""What the scores of an audit say, next to what the accountants promise. Nothing here needs torch.

An assessment reads a *configuration* (see `dpaudit.audits.description`) and scores, so that it can
be made of a running audit, of a finished one, or of one that was stored last year.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import ProvenCurve, estimate, estimate_all, proven_curve
from dpaudit.lower_bounds.gaussian_fit import chance_of_looking_closer
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.scores import Scores
from dpaudit.tradeoff import gaussian_mu
from dpaudit.upper_bounds import all_upper_bounds, upper_bound

Verdict = Literal["violation", "tight", "few-runs", "gap", "no-promise"]

LEADING = "gaussian-dp"
"""The lower bound that the verdict speaks of: the paper's, with a threshold chosen on a pilot."""

TIGHT = 0.85
"""The share of the upper bound from which an audit counts as tight."""

NOT_RULED_OUT = 0.05
"""A tight audit that looks worse than this share of its kind is taken for one with a gap."""

AS_GOOD_AS_IT_GETS = 0.9
"""The share of what perfect scores would prove from which only more runs could prove more."""


@final
@dataclass(frozen=True, kw_only=True)
class Promise:
    """What an accountant may know of the training: read from a configuration.

    Arguments:
        noise_multiplier: sigma.
        steps: How many steps the canary may take part in: the insertions, or every step where
            Poisson sampling decides.
        sampling_rate: The Poisson rate, `None` without sampling.
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float | None

    @classmethod
    def of(cls, configuration: Mapping[str, Any], horizon: int) -> Promise:
        """The promise about a training of this configuration that stops at ``horizon``.

        With fixed batches the canary is in the insertion steps and in no other, and everybody
        knows in which; so only these are composed. Poisson sampling might take it at any step.
        """
        mechanism = configuration["mechanism"]
        rate = mechanism["sampling_rate"]
        insertion = Insertion(**configuration["insertion"])
        return cls(
            noise_multiplier=mechanism["noise_multiplier"],
            steps=insertion.count(horizon) if rate is None else horizon,
            sampling_rate=rate,
        )

    def upper_bounds(self, delta: float, *, every: bool) -> Bounds:
        """Every accountant's bound, or only the sharpest."""
        if every:
            return all_upper_bounds(**dataclasses.asdict(self), delta=delta)
        return Bounds(bounds=(upper_bound(**dataclasses.asdict(self), delta=delta),))

    def claim(self) -> Claim | None:
        """The promise as a curve to test; `None` where nothing is promised."""
        if self.noise_multiplier == 0:
            return None
        return Claim.from_dpsgd(**dataclasses.asdict(self))


@final
@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Lower and upper bounds of one horizon, side by side.

    Arguments:
        horizon: The number of steps after which the scores were taken.
        threat_model: What the adversary saw.
        scores: The scores.
        lower: What they prove, by several methods, each at its own confidence.
        upper: What the accountants promise.
        test: Whether the promise is kept, tested on the whole curve; `None` where there is none.
        attainable: What perfect scores, this many, would have been expected to prove; `None` where
            there is no finite promise to compare with.
    """

    horizon: int
    threat_model: ThreatModel
    scores: Scores
    lower: Bounds
    upper: Bounds
    test: ClaimTest | None
    attainable: float | None

    @property
    def leading(self) -> Bound:
        """The lower bound that the verdict speaks of; at delta 0, where it has none, the next."""
        named = (bound for bound in self.lower if bound.method == LEADING)
        return next(named, self.lower.bounds[0])

    @property
    def least_upper(self) -> Bound:
        """The sharpest upper bound: all of them hold, so the smallest does."""
        return min(self.upper, key=lambda bound: bound.epsilon)

    @property
    def proven(self) -> ProvenCurve:
        """The error rates that the scores prove, at every threshold at once."""
        return proven_curve(self.scores, confidence=self.leading.confidence or 0.95)

    @property
    def verdict(self) -> Verdict:
        """What it comes to, in a word.

        The test of the claim alone decides about a violation: of several bounds at 95 % one may
        well be wrong.
        """
        if self.test is None or self.attainable is None:
            return "no-promise"
        if self.test.verdict == "violation":
            return "violation"
        if self.leading.epsilon >= TIGHT * self.least_upper.epsilon:
            return "tight"
        reached = self.leading.epsilon >= AS_GOOD_AS_IT_GETS * self.attainable
        return "few-runs" if reached or self.may_be_tight else "gap"

    @property
    def may_be_tight(self) -> bool:
        """Whether scores that leak all that is promised would look like these once in twenty.

        Only for the verdict's word, "gap" or "few-runs": it takes scores to be normal, as bounds
        need not.
        """
        upper = self.least_upper
        promised = gaussian_mu(upper.epsilon, upper.delta)
        worlds = self.scores.inserted_scores, self.scores.other_scores
        try:
            return chance_of_looking_closer(*worlds, promised) >= NOT_RULED_OUT
        except InvalidScores:  # infinite, or all alike: nothing speaks for it
            return False

    def to_dict(self) -> dict[str, Any]:
        """The assessment as plain data, without the scores."""
        return {
            "steps": self.horizon,
            "lower": [bound.to_dict() for bound in self.lower],
            "upper": [bound.to_dict() for bound in self.upper],
            "unavailable": [
                missing.to_dict() for missing in (*self.lower.unavailable, *self.upper.unavailable)
            ],
            "verdict": self.verdict,
            "claim": None if self.test is None else self.test.to_dict(),
        }


def assess(
    configuration: Mapping[str, Any],
    scores: Scores,
    *,
    horizon: int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    every_accountant: bool = True,
) -> Assessment:
    """Bounds from below and from above, for the scores of one horizon.

    Arguments:
        configuration: As in `dpaudit.audits.description.describe`.
        scores: The scores taken after ``horizon`` steps.
        horizon: That number of steps.
        delta: Of all bounds.
        confidence: Of each lower bound, and of the test.
        seed: Draws the pilots.
        every_accountant: All upper bounds, which takes about a second, or only the sharpest.
    """
    promise = Promise.of(configuration, horizon)
    upper = promise.upper_bounds(delta, every=every_accountant)
    claim = promise.claim()
    test, attainable = None, None
    if claim is not None and delta > 0:
        test = test_claim(scores, claim, confidence=confidence, seed=seed)
        least = min(bound.epsilon for bound in upper)
        attainable = expected_bound(
            gaussian_mu(least, delta), scores=len(scores), delta=delta, confidence=confidence
        ).epsilon
    return Assessment(
        horizon=horizon,
        threat_model=ThreatModel(configuration["adversary"]["threat_model"]),
        scores=scores,
        lower=lower_bounds(scores, delta=delta, confidence=confidence, seed=seed),
        upper=upper,
        test=test,
        attainable=attainable,
    )


def lower_methods(*, clustered: bool) -> tuple[str, ...]:
    """The methods that an audit is read by."""
    for_any = ("gaussian-dp", "clopper-pearson", "gaussian-fit")
    return (*for_any, "one-run", "one-run-fdp") if clustered else for_any


def lower_bounds(scores: Scores, *, delta: float, confidence: float, seed: int) -> Bounds:
    """The lower bounds of an audit: the paper's, two without assumptions, one for few runs.

    Where runs have several canaries, the bounds for one run stand beside them.
    """
    methods = lower_methods(clustered=scores.clustered)
    found = estimate_all(scores, methods=methods, delta=delta, confidence=confidence, seed=seed)
    everywhere = estimate(
        scores,
        method="clopper-pearson",
        threshold="simultaneous",
        delta=delta,
        confidence=confidence,
        seed=seed,
    )
    places = [bound.method for bound in found]
    second = places.index("clopper-pearson") + 1 if "clopper-pearson" in places else 0
    bounds = (*found.bounds[:second], everywhere, *found.bounds[second:])
    return replace(found, bounds=bounds)
