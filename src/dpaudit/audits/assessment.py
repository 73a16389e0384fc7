"""What the scores of an audit show, beside what is claimed. Nothing here needs torch.

An assessment reads a `Description` and scores, so that it can be made of a running audit, of a
finished one, or of one that was stored last year.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, final

from dpaudit.audits.description import Description
from dpaudit.audits.tensors import failures_of, scores_of
from dpaudit.audits.watching import Watcher
from dpaudit.claims import Claim, ClaimTest, TensorTest, Verdict, judge, unconfirmed
from dpaudit.claims.power import Power
from dpaudit.curves import gaussian_mu
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import ProvenCurve, estimate, estimate_all, proven_curve
from dpaudit.lower_bounds.diagnostics import with_failures
from dpaudit.lower_bounds.gaussian_fit import chance_of_looking_closer
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.privacy import Bound, Bounds, ThreatModel
from dpaudit.report.words import power_dict
from dpaudit.scores import Failure, Scores
from dpaudit.upper_bounds import all_upper_bounds, upper_bound

AuditVerdict = Verdict | Literal["no-claim", "unfinished"]
"""The verdicts of every audit.

- ``violation``: the claim is refuted at the stated confidence.
- ``consistent``: the claim is not refuted, although the audit had the power to refute a wrong one.
- ``inconclusive``: the claim is not refuted, and a wrong one might not have been either.
- ``no-claim``: nothing finite is claimed.
- ``unfinished``: runs are missing.
"""

Tightness = Literal["tight", "more-runs", "gap"]
"""How close the lower bound comes to the upper bound.

- ``tight``: at least 85 % of it.
- ``more-runs``: these scores cannot show more; more runs might.
- ``gap``: this adversary shows less than the upper bound allows.
"""

COORDINATES = (ThreatModel.STANDARD, ThreatModel.HIDDEN_STATE)
"""Threat models whose scores are coordinates of private gradients, or of sums of them."""

LEADING = ("anytime-gaussian-dp", "gaussian-dp")
"""The lower bound that the verdict sentence names: the first of these that is there."""

TIGHT = 0.85
"""An audit whose lower bound reaches this share of the upper bound is called tight."""

NOT_RULED_OUT = 0.05
"""An audit that looks less tight than this share of tight audits is said to have a gap."""

AS_GOOD_AS_IT_GETS = 0.9
"""From this share of what perfect scores would show, only more runs can show more."""


@final
@dataclass(frozen=True, kw_only=True)
class Assessment:
    """Lower and upper bounds of one horizon, side by side.

    Arguments:
        horizon: Number of steps after which the scores were taken; 0 if the training decides.
        threat_model: What the adversary saw; `None` if only the user knows.
        scores: The scores of the runs that succeeded.
        lower: Lower bounds by several methods, each at its own confidence.
        least_upper: The smallest upper bound: all of them hold, so the smallest does.
        upper_bounds: All upper bounds, or a function that computes them when they are first used,
            because some accountants take seconds.
        test: The test of the claim; `None` if nothing is claimed.
        attainable: The bound to expect if the canary leaks all that is claimed; `None` if nothing
            finite is claimed.
        doubts: Reasons, as sentences, why the verdict cannot be ``consistent``.
        covers: The part of the model that the canaries test, in words; empty if it is not known.
        failed: Number of failed runs, which lower bounds count as lowest scores.
    """

    horizon: int
    threat_model: ThreatModel | None
    scores: Scores
    lower: Bounds
    least_upper: Bound
    upper_bounds: Bounds | Callable[[], Bounds]
    test: ClaimTest | None
    attainable: float | None
    doubts: tuple[str, ...] = ()
    covers: str = ""
    failed: int = 0

    @property
    def leading(self) -> Bound:
        """The lower bound that the verdict sentence names; at delta 0 the next one available."""
        named = [bound for name in LEADING for bound in self.lower if bound.method == name]
        return named[0] if named else self.lower.bounds[0]

    @cached_property
    def upper(self) -> Bounds:
        """The accountants' upper bounds, or the claimed one."""
        found = self.upper_bounds
        return found if isinstance(found, Bounds) else found()

    @property
    def power(self) -> Power | None:
        """What the test could have detected; `None` if nothing is claimed."""
        return None if self.test is None else self.test.power

    @property
    def tensors(self) -> Mapping[str, TensorTest]:
        """The test of each canary by its name, if the canaries have names."""
        tests = {} if self.test is None else self.test.tensors
        return {name: test for name, test in tests.items() if name}

    @property
    def proven(self) -> ProvenCurve:
        """The error rates that the scores prove, at all thresholds at once."""
        return proven_curve(self.scores, confidence=self.leading.confidence or 0.95)

    @property
    def verdict(self) -> AuditVerdict:
        """The verdict in one word: that of `dpaudit.claims.judge`, if something is claimed.

        Only the test of the claim decides about a violation: of several bounds at 95 %, one may
        well be wrong.
        """
        return "no-claim" if self.test is None else self.test.verdict

    @property
    def tightness(self) -> Tightness | None:
        """How close the lower bound comes to the upper bound; `None` after a violation."""
        if self.test is None or self.attainable is None or self.test.verdict == "violation":
            return None
        if self.leading.epsilon >= TIGHT * self.least_upper.epsilon:
            return "tight"
        reached = self.leading.epsilon >= AS_GOOD_AS_IT_GETS * self.attainable
        return "more-runs" if reached or self.may_be_tight else "gap"

    @property
    def may_be_tight(self) -> bool:
        """Whether 5 % or more of the audits that leak all that is claimed would look like this.

        Only decides between ``gap`` and ``more-runs``; it takes scores to be normal, which bounds
        need not.
        """
        upper = self.least_upper
        claimed = gaussian_mu(upper.epsilon, upper.delta)
        groups = self.scores.inserted_scores, self.scores.other_scores
        try:
            return chance_of_looking_closer(*groups, claimed) >= NOT_RULED_OUT
        except InvalidScores:  # infinite or equal scores
            return False

    def to_dict(self) -> dict[str, Any]:
        """The assessment as plain data, without the scores."""
        missing = (*self.lower.unavailable, *self.upper.unavailable)
        return {
            "steps": self.horizon or None,
            "lower": [bound.to_dict() for bound in self.lower],
            "upper": [bound.to_dict() for bound in self.upper],
            "unavailable": [one.to_dict() for one in missing],
            "verdict": self.verdict,
            "tightness": self.tightness,
            "power": None if self.power is None else power_dict(self.power),
            "claim": None if self.test is None else self.test.to_dict(),
            "tensors": {
                name: {"verdict": test.verdict, "p_value": test.p_value, "e_value": test.e_value}
                for name, test in self.tensors.items()
            },
            "doubts": list(self.doubts),
            "covers": self.covers or None,
        }


def assess(
    description: Description,
    scores: Scores,
    *,
    horizon: int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    failures: Sequence[Failure] = (),
    threat_model: ThreatModel | None = None,
    every_accountant: bool = True,
    doubts: tuple[str, ...] = (),
    covers: str = "",
) -> Assessment:
    """Lower and upper bounds for the scores of one horizon.

    Arguments:
        description: The audit.
        scores: The scores taken after ``horizon`` steps.
        horizon: That number of steps; 0 if the training decides.
        delta: Delta at which all bounds are computed.
        confidence: Confidence of each lower bound. The test of a user's claim keeps the
            confidence that was chosen before its outcome was known.
        failures: The runs that failed.
        threat_model: What the adversary sees, if the description does not say.
        every_accountant: Whether `Assessment.upper` has all upper bounds, which takes seconds
            when it is first used, or only the smallest.
        doubts: Reasons, as sentences, why the verdict cannot be ``consistent``.
        covers: The part of the model that the canaries test, in words.
    """
    claim, training = description.claim(horizon), description.training
    level = confidence if training is None else training.confidence
    bounds_of = partial(_upper_bounds, description, claim, horizon, delta)
    sampled = training is None and description.noisy_steps(horizon)["sampling_rate"] is not None
    # Without sampling the closed form is exact, so that no other accountant's bound is smaller.
    known = bounds_of(every=sampled and every_accountant)
    least = min(known, key=lambda bound: bound.epsilon)
    test: ClaimTest | None = None
    given: dict[str, Any] = {
        "policy": unconfirmed(1 - level),
        "seed": description.seed,
        "private_gradients": training is None or threat_model in COORDINATES,
        "only_noise": description.only_noise_varies,
        "detect": description.mechanism.detect,
        "least_power": description.mechanism.power,
        "doubts": doubts,
    }
    if description.anytime and claim is not None:
        watcher = watched(description, claim, level, scores, failures)
        lower = watcher.bounds(delta, confidence=confidence)
        test = judge(watcher.test, claim, **given)
    else:
        # A failure is an output too: bounds and tests count it as a lowest score.
        counted = with_failures(scores, failures)
        lower = lower_bounds(counted, delta=delta, confidence=confidence, seed=description.seed)
        if claim is not None and (training is not None or delta > 0):
            evidence = _by_tensor(description, scores, failures) if description.names else counted
            test = judge(evidence, claim, **given)
    attainable = None
    if test is not None and delta > 0 and 0 < least.epsilon < float("inf"):
        mu, size = gaussian_mu(least.epsilon, delta), len(scores)
        attainable = expected_bound(mu, scores=size, delta=delta, confidence=confidence).epsilon
    return Assessment(
        horizon=horizon,
        threat_model=description.threat_model or threat_model,
        scores=scores,
        lower=lower,
        least_upper=least,
        upper_bounds=partial(bounds_of, every=True) if every_accountant and not sampled else known,
        test=test,
        attainable=attainable,
        doubts=doubts,
        covers=covers,
        failed=len(failures),
    )


def _upper_bounds(
    description: Description, claim: Claim | None, horizon: int, delta: float, *, every: bool
) -> Bounds:
    """The accountants' bounds on a mechanism; of a user's training only the claim is known."""
    if description.training is None:
        steps = description.noisy_steps(horizon)
        if every:
            found = all_upper_bounds(**steps, delta=delta)
        else:
            found = Bounds(bounds=(upper_bound(**steps, delta=delta),))
        hidden = description.hidden_upper(horizon, delta=delta)
        return found if hidden is None else replace(found, bounds=(*found.bounds, hidden))
    claimed = Bound(
        epsilon=float("inf") if claim is None else claim.epsilon(delta),
        delta=delta,
        side="upper",
        method="claimed",
        assumptions=() if claim is None else claim.assumptions,
    )
    return Bounds(bounds=(claimed,))


def _by_tensor(
    description: Description, scores: Scores, failures: Sequence[Failure]
) -> dict[str, Scores]:
    """The scores of each canary by its name, with its failed runs as lowest scores."""
    return {
        name: with_failures(
            scores_of(scores, place), failures_of(failures, place, seed=description.seed)
        )
        for place, name in enumerate(description.names)
    }


def watched(
    description: Description,
    claim: Claim,
    confidence: float,
    scores: Scores,
    failures: Sequence[Failure],
) -> Watcher:
    """The anytime-valid test of an audit, after these runs."""
    watcher = Watcher(
        claim,
        confidence=confidence,
        canaries=description.canaries,
        seed=description.seed,
        names=description.names,
        together=not claim.mechanism,
    )
    watcher.see_all(scores, failures)
    return watcher


def lower_methods(*, clustered: bool) -> tuple[str, ...]:
    """The methods by which an audit is read."""
    for_any = ("gaussian-dp", "clopper-pearson", "gaussian-fit")
    return (*for_any, "one-run", "one-run-fdp") if clustered else for_any


def lower_bounds(scores: Scores, *, delta: float, confidence: float, seed: int) -> Bounds:
    """The lower bounds of an audit; with several canaries per run, those for one run as well."""
    methods = lower_methods(clustered=scores.clustered)
    asked: dict[str, Any] = {"delta": delta, "confidence": confidence, "seed": seed}
    found = estimate_all(scores, methods=methods, **asked)
    everywhere = estimate(scores, method="clopper-pearson", threshold="simultaneous", **asked)
    names = [bound.method for bound in found]
    second = names.index("clopper-pearson") + 1 if "clopper-pearson" in names else 0
    return replace(found, bounds=(*found.bounds[:second], everywhere, *found.bounds[second:]))
