"""What the scores of an audit show, beside what is claimed. Nothing here needs torch.

An assessment reads a `Description`, scores and a `Question`, so that it can be made of a running
audit, of a finished one, or of one that was stored last year.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from dpaudit._numbers import percent
from dpaudit.audits.identity import Description, Question
from dpaudit.claims import (
    CONFIRMED,
    LIVE,
    STRICT,
    Claim,
    ClaimTest,
    Policy,
    TensorTest,
    Verdict,
    judge,
    unconfirmed,
)
from dpaudit.claims.anytime import anytime_bounds
from dpaudit.claims.power import Power
from dpaudit.curves import gaussian_mu
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import ProvenCurve, estimate, estimate_all, proven_curve
from dpaudit.lower_bounds.diagnostics import with_failures
from dpaudit.lower_bounds.estimating import claimed_history
from dpaudit.lower_bounds.gaussian_fit import chance_of_looking_closer
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.privacy import Bound, Bounds, ThreatModel, Unavailable
from dpaudit.scores import Failure, ScoreBlock, Scores
from dpaudit.trainings.coins import inserted_in
from dpaudit.upper_bounds import all_upper_bounds, upper_bound

if TYPE_CHECKING:
    from dpaudit.audits.watching import Watcher

AuditVerdict = Verdict | Literal["no-claim", "unfinished"]
"""The verdicts of every audit.

- ``violation``: the claim is refuted, and fresh runs confirm it.
- ``consistent``: the claim is not refuted, although the audit had the power to refute a wrong one.
- ``inconclusive``: anything else, such as a suspicion that is not confirmed.
- ``no-claim``: nothing finite is claimed.
- ``unfinished``: runs are missing.
"""

Tightness = Literal["tight", "more-runs", "gap"]
"""How close the lower bound comes to the upper bound.

- ``tight``: at least 85 % of it.
- ``more-runs``: these scores cannot show more; more runs might.
- ``gap``: this adversary shows less than the upper bound allows.
"""

LEADING = ("dpsgd", "anytime-gaussian-dp", "gaussian-dp")
"""The lower bound that the verdict sentence names: the first of these that is there."""

TIGHT = 0.85
"""An audit whose lower bound reaches this share of the upper bound is called tight."""

NOT_RULED_OUT = 0.05
"""An audit that looks less tight than this share of tight audits is said to have a gap."""

AS_GOOD_AS_IT_GETS = 0.9
"""From this share of what perfect scores would show, only more runs can show more."""

COORDINATES = (ThreatModel.STANDARD, ThreatModel.HIDDEN_STATE)
"""Threat models whose scores are coordinates of private gradients, or of sums of them."""

TOO_MANY = 0.2
"""If a larger share of the runs fails, the verdict cannot be ``consistent``."""

SUSPICIOUS = 0.01
"""Below this p-value, failing depends on the canary, and the verdict cannot be ``consistent``."""


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
        bounds = self.upper_bounds
        return bounds if isinstance(bounds, Bounds) else bounds()

    @cached_property
    def attainable(self) -> float | None:
        """The bound to expect if the canary leaks all that is claimed, if that is finite."""
        least = self.least_upper
        if self.test is None or least.delta == 0 or not 0 < least.epsilon < float("inf"):
            return None
        return expected_bound(
            gaussian_mu(least.epsilon, least.delta),
            scores=len(self.scores),
            delta=least.delta,
            confidence=self.leading.confidence or 0.95,
        ).epsilon

    @property
    def power(self) -> Power | None:
        """What the test could have detected; `None` if nothing is claimed."""
        return None if self.test is None else self.test.power

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons, as sentences, why the verdict cannot be ``consistent``."""
        return () if self.test is None else self.test.doubts

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
            "unavailable": [unavailable.to_dict() for unavailable in missing],
            "verdict": self.verdict,
            "tightness": self.tightness,
            "power": None if self.power is None else self.power.to_dict(),
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
    question: Question,
    scores: Scores,
    *,
    horizon: int,
    failures: Sequence[Failure] = (),
    fresh: tuple[Scores, Sequence[Failure]] | None = None,
    watcher: Watcher | None = None,
    policy: Policy | None = None,
    threat_model: ThreatModel | None = None,
    every_accountant: bool = True,
    doubts: tuple[str, ...] = (),
    covers: str = "",
    e_value: float | None = None,
    history: Sequence[tuple[float, float, int]] | None = None,
    alike: bool = False,
) -> Assessment:
    """Lower and upper bounds for the scores of one horizon, and the test of the claim."""
    delta, confidence = question.delta, question.confidence
    claim = question.claim or description.claim(horizon)
    threat_model = description.threat_model or threat_model
    bounds_of = partial(_upper_bounds, description, claim, horizon, delta)
    sampled = (
        description.training is None
        and description.noisy_steps(horizon)["sampling_rate"] is not None
    )
    # Without sampling the closed form is exact, so that no other accountant's bound is smaller.
    uppers = bounds_of(every=sampled and every_accountant)
    least = min(uppers, key=lambda bound: bound.epsilon)
    if watcher is None:
        # A failure is an output too: bounds and tests count it as a lowest score.
        counted = with_failures(scores, failures)
        asked: dict[str, Any] = {"delta": delta, "confidence": confidence, "seed": description.seed}
        methods: tuple[str, ...] = LIVE_METHODS
        if not description.live:
            methods = METHODS_OF_AUDITS + (METHODS_OF_ONE_RUN if scores.clustered else ())
        if history is None and claim is not None:
            history = claimed_history(claim.settings)
        if history is not None:  # the family that the claim names comes first, if it is sampled
            others = (name for name in methods if name != "clopper-pearson")
            methods = ("dpsgd", "clopper-pearson", *others)
        lower = estimate_all(counted, methods=methods, history=history, **asked)
        everywhere = estimate(counted, method="clopper-pearson", threshold="simultaneous", **asked)
        names = [bound.method for bound in lower]
        place = names.index("clopper-pearson") + 1 if "clopper-pearson" in names else 0
        both = (*lower.bounds[:place], everywhere, *lower.bounds[place:])
        lower = replace(lower, bounds=both)
    else:
        lower = anytime_bounds(watcher.test, delta=delta, confidence=confidence)
    test: ClaimTest | None = None
    if claim is not None and (delta > 0 or question.claim is not None):
        evidence = _evidence(description, 0, scores, failures) if watcher is None else watcher.test
        test = judge(
            evidence,
            claim,
            policy=policy or policy_of(description, question),
            fresh=None if fresh is None else _evidence(description, 1, *fresh),
            seed=description.seed,
            private_gradients=description.training is None or threat_model in COORDINATES,
            condition="" if alike else description.condition,
            detect=question.detect,
            least_power=question.power,
            doubts=(*doubts, *failure_doubts(scores, failures)),
            along_the_way=e_value,
        )
        if test.refuted and description.training is not None and not description.live:
            lower = _without_family(lower)
    return Assessment(
        horizon=horizon,
        threat_model=threat_model,
        scores=scores,
        lower=lower,
        least_upper=least,
        upper_bounds=partial(bounds_of, every=True) if every_accountant and not sampled else uppers,
        test=test,
        covers=covers,
        failed=len(failures),
    )


def _without_family(lower: Bounds) -> Bounds:
    """The bounds that hold for any batches: those of a user's training may be what is wrong.

    A canary in one batch of every shuffled epoch shows more than Poisson samples with little noise.
    """
    others = tuple(bound for bound in lower if bound.method != "dpsgd")
    if len(others) == len(lower.bounds):
        return lower
    why = "the claim is refuted, and its batches may be what is wrong; see dpaudit estimate"
    left_out = Unavailable(method="dpsgd", reason=why)
    return replace(lower, bounds=others, unavailable=(*lower.unavailable, left_out))


def policy_of(description: Description, question: Question) -> Policy:
    """When a small p-value is a violation: see `dpaudit.claims.policy`."""
    if description.live:
        return LIVE
    if not question.confirm:
        return unconfirmed()
    return STRICT if description.until_violation else CONFIRMED


def _upper_bounds(
    description: Description, claim: Claim | None, horizon: int, delta: float, *, every: bool
) -> Bounds:
    """The accountants' bounds on a mechanism; of a user's training only the claim is known."""
    if description.training is None:
        steps = description.noisy_steps(horizon)
        if every:
            bounds = all_upper_bounds(**steps, delta=delta)
        else:
            bounds = Bounds(bounds=(upper_bound(**steps, delta=delta),))
        hidden = description.hidden_upper(horizon, delta=delta)
        return bounds if hidden is None else replace(bounds, bounds=(*bounds.bounds, hidden))
    claimed = Bound(
        epsilon=float("inf") if claim is None else claim.epsilon(delta),
        delta=delta,
        side="upper",
        method="claimed",
        assumptions=() if claim is None else claim.assumptions,
    )
    return Bounds(bounds=(claimed,))


def _evidence(
    description: Description, phase: int, scores: Scores, failures: Sequence[Failure]
) -> Scores | dict[str, Scores]:
    """The scores, of named canaries by name, with failed runs as lowest scores."""
    if not description.names:
        return with_failures(scores, failures)
    seed, evidence = description.sample(phase).seed, {}
    for place, name in enumerate(description.names):
        own = scores.canary == place
        lost = [
            replace(
                failure,
                inserted=int(inserted_in(failure.run, canaries=failure.canaries, seed=seed)[place]),
                canaries=1,
            )
            for failure in failures
        ]
        evidence[name] = with_failures(scores.where(own), lost)
    return evidence


METHODS_OF_AUDITS = ("gaussian-dp", "clopper-pearson", "gaussian-fit")
"""The methods by which every audit is read."""

METHODS_OF_ONE_RUN = ("one-run", "one-run-fdp")
"""Further methods, for several canaries in a run."""

LIVE_METHODS = ("gaussian-dp", "clopper-pearson", "one-run", "one-run-fdp")
"""A live audit keeps the order of its scores only, which no fit can read."""


def watcher_of(
    description: Description, question: Question, tiles: Iterable[ScoreBlock | Failure]
) -> Watcher | None:
    """The anytime-valid test after these tiles; `None` if the audit has no such test."""
    claim = question.claim or description.claim(max(description.horizons, default=0))
    if claim is None or not description.until_violation:
        return None
    from dpaudit.audits.watching import Watcher  # few audits are watched

    watcher = Watcher(description, claim, policy_of(description, question))
    for tile in tiles:
        watcher.see(tile)
    return watcher


def failure_notes(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """How many runs failed with and without the canary, and how they are counted."""
    if not failures:
        return ()
    counted = "bounds and a violation count every failed run as a lowest score"
    table = _failed_and_others(scores, failures)
    if table is None:
        runs = scores.runs + len(failures)
        return (f"{len(failures)} of {runs} runs failed; {counted}",)
    (failed, rest), (other_failed, other_rest) = table
    return (
        f"{failed} of {failed + rest} runs with the canary and {other_failed} of "
        f"{other_failed + other_rest} runs without it failed; {counted}",
    )


def failure_doubts(scores: Scores, failures: Sequence[Failure]) -> tuple[str, ...]:
    """Why failed runs leave a verdict in doubt, as sentences."""
    if not failures:
        return ()
    doubts, runs = [], scores.runs + len(failures)
    table = _failed_and_others(scores, failures)
    if table is not None:
        from scipy.stats import fisher_exact  # slow to import

        chance = float(fisher_exact(table).pvalue)
        if chance < SUSPICIOUS:
            doubts.append(
                f"Failing depends on the canary (Fisher's exact test, p = {chance:.2g}): a failure "
                "is an output that reveals the canary, and the scores of the other runs do not "
                "show it. Find out why these runs fail, and repeat the audit."
            )
    if len(failures) > TOO_MANY * runs:
        share = f"{percent(len(failures) / runs, 2)} %"
        doubts.append(f"{share} of the runs failed: repair this, and repeat the audit.")
    return tuple(doubts)


def _failed_and_others(
    scores: Scores, failures: Sequence[Failure]
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Numbers of failed and of other runs, with and without the canary; `None` for several."""
    if any(failure.canaries > 1 for failure in failures):
        return None
    failed = sum(failure.inserted for failure in failures)
    inserted = int(scores.inserted.sum())
    return (failed, inserted), (len(failures) - failed, scores.runs - inserted)


def constant_scores(scores: Scores) -> tuple[str, ...]:
    """A reason to doubt the verdict if scores do not depend on the seed of their run."""
    groups = [
        scores.score[(scores.canary == canary) & (scores.inserted == inserted)]
        for canary in np.unique(scores.canary)[:50]
        for inserted in (False, True)
    ]
    if scores.runs < 8:
        return ()
    if all(len(group) < 2 or (group == group[0]).all() for group in groups):
        return (
            "All runs with the canary have the same score, and so have all runs without it: the "
            "training adds no noise, it does not draw its noise from its seed, or the score is too "
            "coarse.",
        )
    for group in groups:  # most scores repeat others, and are not just rounded
        different = np.unique(group[np.isfinite(group)])
        if len(group) < 8 or not 2 < len(different) <= len(group) / 2:
            continue
        apart = np.diff(different)
        multiples = apart / apart.min()
        if np.abs(multiples - np.round(multiples)).max() > 0.01:
            return (
                f"{len(group)} runs gave only {len(different)} different scores: the noise of some "
                "runs repeats that of others, so that the runs are not independent. Does the "
                "training use all digits of its seed?",
            )
    return ()
