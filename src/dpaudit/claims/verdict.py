"""The verdict on a claim: one function for every kind of evidence, in every command.

`judge` takes scores, counts, the scores of named canaries, or an anytime-valid test, and a policy
(`dpaudit.claims.policy`). The result holds facts: p-values and levels, what is suspected, what the
test could have found, and the verdict that follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.claims.anytime import AnytimeTest, Stream, pairs_to_refute
from dpaudit.claims.claim import Claim
from dpaudit.claims.fixed_sample import (
    FEW_RUNS,
    SampleTest,
    can_refute,
    can_refute_by_guesses,
    dependent_p_value,
    sample_test,
    scores_to_refute,
)
from dpaudit.claims.policy import STRICT, Policy, Verdict, unconfirmed
from dpaudit.claims.power import SAME_IN_ALL_RUNS, Power, detection_power, separation_of
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.diagnostics import Evidence, evidence_of
from dpaudit.lower_bounds.selection import Fixed, Pilot, ThresholdRule, threshold_rule
from dpaudit.privacy import DETECT, LEAST_POWER
from dpaudit.scores import Scores

UNNAMED = ""
"""The name in `ClaimTest.tensors` of all canaries together, where they have no names."""


@final
@dataclass(frozen=True, kw_only=True)
class TensorTest:
    """The test of one named canary, or of all canaries together.

    Arguments:
        p_value: If the claim were true, errors this few would occur with at most this probability:
            in the first runs, or at any time of an anytime-valid test.
        fresh_p_value: The same of the fresh runs; `None` if they were not tested.
        dependent_p_value: The p-value at the same stage if canaries of one run may depend on each
            other; `None` where it is not needed, or the claim is not suspected.
        e_value: For an anytime-valid test: the wealth of the bets against the claim.
        sample_size: Number of scores on which the p-value was read.
        suspected: Whether the evidence speaks against the claim.
        refuted: Whether the claim is refuted.
        needs_independence: Whether it is suspected only if canaries of one run are independent.
        hidden: Whether the scores of the runs that did not fail would make the claim suspected, and
            failed runs, which count as lowest scores, hide it.
    """

    p_value: float
    fresh_p_value: float | None = None
    dependent_p_value: float | None = None
    e_value: float | None = None
    sample_size: int
    suspected: bool
    refuted: bool
    needs_independence: bool = False
    hidden: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict of this test alone, whatever its power."""
        if self.refuted:
            return "violation"
        return "inconclusive" if self.suspected or self.hidden else "consistent"


@final
@dataclass(frozen=True, kw_only=True)
class ClaimTest:
    """The result of testing a claim: facts, and the verdict that follows from them.

    Arguments:
        claim: The claim that was tested.
        p_value: The p-value of the last stage, corrected for the number of tensors.
        e_value: For an anytime-valid test, or one along the way: the wealth of the bets against
            the claim, whose expectation is at most 1 if the claim is true.
        stage: 2 if fresh runs were tested, otherwise 1.
        tensors: The test of each named canary, or one test under the name `UNNAMED`.
        attainable: Whether scores without any error would have refuted the claim.
        assumptions: What must be true for the test to be valid.
        notes: Diagnostics of the scores.
        case: What `judge` was given.
    """

    claim: Claim
    p_value: float
    e_value: float | None = None
    stage: int = 1
    tensors: Mapping[str, TensorTest]
    attainable: bool
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    case: Case = field(repr=False, compare=False)

    @property
    def policy(self) -> Policy:
        """The levels of the tests."""
        return self.case.policy

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons, as sentences, why the verdict cannot be ``consistent``."""
        return self.case.doubts

    @property
    def anytime(self) -> bool:
        """Whether the scores were tested as they came."""
        return isinstance(self.case.evidence, AnytimeTest)

    @property
    def level(self) -> float:
        """A p-value of at most this is a violation, or where fresh runs decide, a suspicion."""
        if self.stage == 2:
            return self.policy.confirm or 0.0
        return self.policy.prove or self.policy.suspect

    @property
    def sample_size(self) -> int:
        """Number of scores that the test was evaluated on."""
        return sum(test.sample_size for test in self.tensors.values())

    @property
    def refuted(self) -> tuple[str, ...]:
        """Names of the canaries that refute the claim."""
        return tuple(name for name, test in self.tensors.items() if test.refuted)

    @property
    def suspects(self) -> tuple[str, ...]:
        """Names of the canaries by which the claim is suspected."""
        return tuple(name for name, test in self.tensors.items() if test.suspected)

    @property
    def suspected(self) -> bool:
        """Whether the evidence speaks against the claim, but does not prove a violation."""
        return bool(self.suspects) and not self.refuted

    @property
    def only_if_independent(self) -> bool:
        """Whether it is suspected only if canaries of one run are independent."""
        return self.suspected and all(
            self.tensors[name].needs_independence for name in self.suspects
        )

    @property
    def to_confirm(self) -> tuple[str, ...]:
        """Names of the canaries whose fresh runs decide; empty if fresh runs decide nothing."""
        if self.policy.confirm is None or self.stage == 2:
            return ()
        return tuple(name for name in self.suspects if not self.tensors[name].needs_independence)

    @property
    def hidden_by_failures(self) -> bool:
        """Whether only failed runs, which count as lowest scores, keep the claim unsuspected."""
        return any(test.hidden for test in self.tensors.values())

    @cached_property
    def power(self) -> Power:
        """What the test could have found, over all its stages; of the canary with the least."""
        return self.case.power(self.claim)

    @cached_property
    def scores_needed(self) -> int | None:
        """Number of scores, of each tensor, that refute the claim if they separate perfectly.

        `None` if it is larger than any number that can be collected.
        """
        tests, policy = len(self.tensors), self.policy
        if not self.anytime:
            return scores_to_refute(self.claim, policy=policy, tests=tests)
        pairs = pairs_to_refute(self.claim, confidence=1 - policy.prove / tests)
        return None if pairs is None else 2 * pairs

    @cached_property
    def bare(self) -> ClaimTest | None:
        """The test of the claimed pair alone; `None` if no pair was extended to a function."""
        return None if self.claim.bare is None else self.case.judged(self.claim.bare)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict; see `Verdict`."""
        if self.refuted:
            return "violation"
        if self.suspected or self.hidden_by_failures or self.doubts or not self.attainable:
            return "inconclusive"
        powerful = self.power.probability >= self.case.least_power
        return "consistent" if powerful else "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {
            "verdict": self.verdict,
            "suspected": self.suspected,
            "only_if_independent": self.only_if_independent,
            "p_value": self.p_value,
            "e_value": self.e_value,
            "stage": self.stage,
            "level": self.level,
            "false_alarms": self.policy.false_alarms,
            "claim": self.claim.description,
            "sample_size": self.sample_size,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "doubts": list(self.doubts),
            "bare_verdict": None if self.bare is None else self.bare.verdict,
        }

    def __repr__(self) -> str:
        word = f"{self.verdict}, suspected" if self.suspected else self.verdict
        return f"ClaimTest({word}, p = {self.p_value:.3g}, {self.claim!r})"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """The evidence, how it was collected, and the rules by which it is judged: see `judge`."""

    evidence: Mapping[str, Evidence] | AnytimeTest
    fresh: Mapping[str, Evidence] | None
    policy: Policy
    rule: Pilot | Fixed
    private_gradients: bool
    condition: str
    detect: float
    least_power: float
    doubts: tuple[str, ...]
    along_the_way: float | None = None

    def judged(self, claim: Claim) -> ClaimTest:
        """The verdict on a claim."""
        if isinstance(self.evidence, AnytimeTest):
            return self._anytime(self.evidence, claim)
        return self._fixed(self.evidence, claim)

    def power(self, claim: Claim) -> Power:
        """What the test could have found, by the canary whose scores depend on it least."""
        share = self.rule.share if isinstance(self.rule, Pilot) else 0.0
        parts: dict[str, Evidence | Stream]
        if isinstance(self.evidence, AnytimeTest):
            parts = dict(zip(self.evidence.names or (UNNAMED,), self.evidence.streams, strict=True))
        else:
            parts = dict(self.evidence)
        weakest = min(parts, key=lambda name: separation_of(parts[name]))
        power = detection_power(
            parts[weakest],
            claim,
            policy=self.policy,
            tests=len(parts) + (self.along_the_way is not None),
            detect=self.detect,
            pilot_share=share,
        )
        return replace(power, canary=weakest, condition=self.condition)

    def _fixed(self, first: Mapping[str, Evidence], claim: Claim) -> ClaimTest:
        """The verdict from a fixed number of runs, and perhaps from fresh ones."""
        number = len(first) + (self.along_the_way is not None)
        suspect, prove = self.policy.suspect / number, self.policy.prove / number
        samples = {name: sample_test(own, claim, self.rule) for name, own in first.items()}
        tests = {
            name: self._tested(own, claim, samples[name], suspect, prove)
            for name, own in first.items()
        }
        if self.along_the_way is not None:
            tests = {
                name: _with_e_value(test, self.along_the_way, suspect, prove)
                for name, test in tests.items()
            }
        p_value, stage = number * min(test.p_value for test in tests.values()), 1
        suspects = [
            name for name, test in tests.items() if test.suspected and not test.needs_independence
        ]
        if self.fresh is not None and self.policy.confirm is not None and suspects:
            stage, level = 2, self.policy.confirm / len(suspects)
            for name in suspects:
                own, p_first = self._fresh_of(name, first[name]), tests[name].p_value
                second = self._tested(own, claim, sample_test(own, claim, self.rule), level, level)
                tests[name] = replace(second, p_value=p_first, fresh_p_value=second.p_value)
            p_value = len(suspects) * min(tests[name].fresh_p_value or 0.0 for name in suspects)
        fewest = min(
            samples.values(), key=lambda each: min(each.counts.positives, each.counts.negatives)
        )
        sizes = fewest.counts.positives, fewest.counts.negatives
        return ClaimTest(
            claim=claim,
            p_value=min(1.0, p_value),
            e_value=self.along_the_way,
            stage=stage,
            tensors=tests,
            attainable=can_refute(claim, *sizes, policy=self.policy, tests=number),
            assumptions=(*claim.assumptions, *fewest.assumptions),
            notes=tuple(dict.fromkeys(note for each in samples.values() for note in each.notes)),
            case=self,
        )

    def _tested(
        self, own: Evidence, claim: Claim, sample: SampleTest, suspect: float, prove: float
    ) -> TensorTest:
        """The test of one canary at two levels."""
        suspected = sample.p_value <= suspect
        dependent = self._dependent(own, claim) if suspected else None
        passed = prove if sample.p_value <= prove else suspect
        return TensorTest(
            p_value=sample.p_value,
            dependent_p_value=dependent,
            sample_size=sample.counts.sample_size,
            suspected=suspected,
            refuted=max(sample.p_value, dependent or 0.0) <= prove,
            needs_independence=dependent is not None and dependent > passed,
            hidden=not suspected and self._hidden(own, claim, suspect),
        )

    def _fresh_of(self, name: str, first: Evidence) -> Evidence:
        """The evidence of fresh runs, of exactly the size that the policy asks for."""
        assert self.fresh is not None
        if name not in self.fresh:
            raise InvalidScores(
                f"fresh must hold scores of every suspected canary, got none of {name!r}"
            )
        wanted, played = self.policy.fresh * _size(first), _size(self.fresh[name])
        if played != wanted:
            raise InvalidScores(
                f"fresh must hold exactly {self.policy.fresh} times as many runs as the first "
                f"evidence, {wanted:,}, got {played:,}: a number that depends on the scores "
                "invalidates the test"
            )
        return self.fresh[name]

    def _dependent(self, own: Evidence, claim: Claim) -> float | None:
        """The p-value if canaries of one run may depend on each other; `None` if not needed."""
        exempt = claim.mechanism and self.private_gradients
        if exempt or not isinstance(own, Scores) or not own.clustered:
            return None
        seed = self.rule.seed if isinstance(self.rule, Pilot) else 0
        try:
            return dependent_p_value(own, claim, seed=seed)
        except InvalidScores:  # no test: too few scores, or coins that are not fair
            return 1.0

    def _hidden(self, own: Evidence, claim: Claim, level: float) -> bool:
        """Whether the claim would be suspected without the lowest scores, those of failed runs."""
        if not isinstance(own, Scores) or not np.isneginf(own.score).any():
            return False
        try:
            left = own.where(~np.isneginf(own.score))
            return sample_test(left, claim, self.rule).p_value <= level
        except InvalidScores:  # too few are left
            return False

    def _anytime(self, given: AnytimeTest, claim: Claim) -> ClaimTest:
        """The verdict of an anytime-valid test, replayed for a claim that it did not test."""
        test = given if given.claim == claim else given.replayed(claim)
        number, policy = max(1, len(test.names)), self.policy
        suspected, proven = test.p_value <= policy.suspect, test.p_value <= policy.prove
        # Without independence of the canaries of a run, nothing is proven.
        exempt = claim.mechanism and self.private_gradients
        unproven = bool(test.assumptions) and not exempt
        worst = float(test.p_values.min())
        tensors = {
            # The mean of all tensors decides; those whose own wealth is as large are named.
            name: TensorTest(
                p_value=float(p_value),
                e_value=float(e_value),
                sample_size=test.sample_size // number,
                suspected=suspected and p_value <= max(worst, policy.suspect / number),
                refuted=proven and not unproven and p_value <= max(worst, policy.prove / number),
                needs_independence=suspected and unproven,
            )
            for name, p_value, e_value in zip(
                test.names or (UNNAMED,), test.p_values, test.e_values, strict=True
            )
        }
        confidence = 1 - policy.prove / number
        pairs = min(stream.pairs for stream in test.streams)
        needed = 0 if proven else pairs_to_refute(claim, confidence=confidence, most=pairs)
        return ClaimTest(
            claim=claim,
            p_value=test.p_value,
            e_value=test.e_value,
            tensors=tensors,
            attainable=needed is not None,
            assumptions=(*claim.assumptions, *test.assumptions),
            case=self,
        )


def judge(
    evidence: Any,
    claim: Claim,
    *,
    policy: Policy = STRICT,
    fresh: Any = None,
    threshold: str | ThresholdRule = "pilot",
    seed: int = 0,
    private_gradients: bool = False,
    condition: str = SAME_IN_ALL_RUNS,
    detect: float = DETECT,
    least_power: float = LEAST_POWER,
    doubts: tuple[str, ...] = (),
    along_the_way: float | None = None,
) -> ClaimTest:
    """The verdict on a claim.

    With the policy `CONFIRMED`, judge the first runs; if the result has names `to_confirm`, play
    exactly twice as many fresh runs, and judge again with both.

    Arguments:
        evidence: `Scores` (with failed runs as lowest scores, see
            `dpaudit.lower_bounds.diagnostics.with_failures`), `ErrorCounts`, a data frame, a
            mapping from the names of canaries to the scores of each, or an `AnytimeTest`.
        claim: The claim to test.
        policy: The levels of the tests. Of an `AnytimeTest` they bound the wealth: `STRICT`
            suspects at 20 and proves at 1,000.
        fresh: Evidence from fresh runs, of the same kind; of named canaries at least those that
            are suspected. It is not read if the first evidence is not suspected.
        threshold: ``pilot`` (a share of the scores chooses the threshold) or ``fixed=VALUE``.
        seed: Random seed that draws the pilot scores.
        private_gradients: Whether every score is a coordinate of a private gradient. A claim that
            names the mechanism then includes that canaries of one run are independent.
        condition: What the power assumes beside, in words; empty if nothing but noise and canary
            differs between scores.
        detect: Noise of this fraction of the claimed noise must be detectable for ``consistent``.
        least_power: Probability with which such noise must be detected.
        doubts: Reasons, as sentences, why the verdict cannot be ``consistent``.
        along_the_way: The largest value of an e-process against the same claim, which watched the
            same scores come: one more test, which shares the level.

    Example:
        >>> from dpaudit.claims import CONFIRMED
        >>> random = np.random.default_rng(0)
        >>> def play(runs):
        ...     half = runs // 2
        ...     return Scores.from_samples(random.normal(2, 1, half), random.normal(0, 1, half))
        >>> runs, claim = play(1000), Claim.from_mu(1.5)
        >>> first = judge(runs, claim, policy=CONFIRMED)
        >>> first.verdict, first.suspected
        ('inconclusive', True)
        >>> judge(runs, claim, policy=CONFIRMED, fresh=play(2000)).verdict
        'violation'
    """
    if not isinstance(claim, Claim):
        raise InvalidInput(
            f"claim must be a Claim, got {_validate.shown(claim)}; see Claim.from_epsilon"
        )
    rule = threshold_rule(threshold, seed=seed)
    if not isinstance(rule, Pilot | Fixed):
        raise InvalidInput(
            f"threshold of a claim's test must be pilot or fixed=VALUE, got {threshold!r}; "
            "the p-value holds for a threshold chosen without the scores it is read on"
        )
    if isinstance(evidence, AnytimeTest):
        _check_anytime(policy)
    case = Case(
        evidence=evidence if isinstance(evidence, AnytimeTest) else _by_name(evidence),
        fresh=None if fresh is None else _by_name(fresh),
        policy=policy,
        rule=rule,
        private_gradients=private_gradients,
        condition=condition,
        detect=_validate.between("detect", detect, 0, 1),
        least_power=_validate.between("least_power", least_power, 0, 1, closed_low=True),
        doubts=tuple(doubts),
        along_the_way=along_the_way,
    )
    return case.judged(claim)


def test_claim(
    evidence: Evidence,
    claim: Claim,
    *,
    confidence: float | None = None,  # noqa: PT028
    threshold: str | ThresholdRule = "pilot",  # noqa: PT028
    seed: int = 0,  # noqa: PT028
) -> ClaimTest:
    """Test whether a mechanism satisfies a claim; valid for any distribution of the scores.

    A p-value of 0.001 or less is a violation. One of up to 0.05 makes the claim suspected: test
    fresh scores before you call it wrong.

    See also: `dpaudit.claims.judge`, for fresh runs, named canaries and other levels.

    Arguments:
        evidence: Scores, or the four counts.
        claim: The claim to test.
        confidence: One minus the level of a single test, in place of these two levels.
        threshold: ``pilot`` (a share of the scores chooses the threshold) or ``fixed=VALUE``.
        seed: Random seed that draws the pilot scores.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 1000), random.normal(0, 1, 1000))
        >>> test_claim(scores, Claim.from_mu(1.5)).verdict
        'violation'
        >>> test_claim(scores, Claim.from_mu(2.0)).verdict
        'consistent'
    """
    policy = STRICT if confidence is None else unconfirmed(1 - _validate.confidence(confidence))
    return judge(evidence, claim, policy=policy, threshold=threshold, seed=seed)


# Pytest would collect a public function of this name wherever it is imported.
test_claim.__test__ = False  # type: ignore[attr-defined]


def runs_to_refute(
    claim: Claim,
    *,
    policy: Policy = STRICT,
    canaries: int = 1,
    names: Sequence[str] = (),
    private_gradients: bool = False,
    anytime: bool = False,
) -> int | None:
    """The number of runs whose scores would refute the claim if they separated perfectly.

    Fewer runs cannot end in a violation. `None` if no number of runs that can be played does. Of a
    policy with two stages it is the number of the first one.

    Example:
        >>> runs_to_refute(Claim.from_mu(1.6)), runs_to_refute(Claim.from_mu(1.6), anytime=True)
        (34, 48)
    """
    tests = max(1, len(names))
    dependent = canaries > 1 and not names and not (claim.mechanism and private_gradients)
    if anytime:
        _check_anytime(policy)
        pairs = pairs_to_refute(claim, confidence=1 - policy.prove / tests)
        scores = None if pairs is None else 2 * pairs
    else:
        scores = scores_to_refute(claim, policy=policy, tests=tests)
    if scores is None or names or canaries == 1 or (anytime and dependent):
        return scores
    runs = math.ceil(scores / canaries)
    if not dependent:
        return runs
    for many in range(runs, FEW_RUNS):
        if can_refute_by_guesses(claim, many * canaries, policy):
            return many
    return max(FEW_RUNS, scores)  # then one canary of each run is tested


def _with_e_value(test: TensorTest, e_value: float, suspect: float, prove: float) -> TensorTest:
    """The test together with one along the way. By Ville's inequality 1 / e is a p-value."""
    p_value = 1 / e_value
    return replace(
        test,
        p_value=min(test.p_value, p_value),
        e_value=e_value,
        suspected=test.suspected or p_value <= suspect,
        refuted=test.refuted or p_value <= prove,
        needs_independence=test.needs_independence and p_value > suspect,
        hidden=test.hidden and p_value > suspect,
    )


def _by_name(evidence: Any) -> dict[str, Evidence]:
    if not isinstance(evidence, Mapping):
        return {UNNAMED: evidence_of(evidence)}
    if not evidence:
        raise InvalidScores("evidence must hold the scores of at least one canary, got none")
    return {str(name): evidence_of(own) for name, own in evidence.items()}


def _check_anytime(policy: Policy) -> None:
    if policy.confirm is not None:
        raise InvalidInput(
            f"policy of an anytime-valid test must have no stage of fresh runs, got {policy!r}; "
            "its wealth may be looked at until it proves a violation: use STRICT"
        )


def _size(evidence: Evidence) -> int:
    """Number of runs, or of counted scores."""
    return evidence.runs if isinstance(evidence, Scores) else evidence.sample_size
