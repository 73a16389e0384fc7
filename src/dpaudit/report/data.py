"""What a page or a figure shows of one audit: plain data, computed by `dpaudit.audits`.

Nothing here knows what was trained, and nothing is computed from scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpaudit._arrays import Array

if TYPE_CHECKING:
    from dpaudit.claims import ClaimTest
    from dpaudit.lower_bounds.counts import ErrorCounts
    from dpaudit.privacy import Bound, Unavailable


SMALLEST_RATE = 1e-4
"""The end of the axes of error rates."""

SMALLEST_DELTA = 1e-9
"""The end of the axis of delta."""

MOST_THRESHOLDS = 20_000
"""The largest number of thresholds that a page carries for the reader to try."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Points to be joined by a line, x ascending."""

    x: Array
    y: Array


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """The scores with and without the canary in the same bins, as shares of each group.

    Arguments:
        edges: The edges of the bins, one more than there are bins.
        inserted: Share of the scores with the canary in each bin.
        others: Share of the scores without the canary in each bin.
        outside: Number of scores beyond the edges; they are counted in the last bin.
    """

    edges: Array
    inserted: Array
    others: Array
    outside: int


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """The bounds at one threshold that was fixed before the scores were seen.

    Arguments:
        threshold: Scores above it are guessed to be inserted.
        false_positives: Number of scores without the canary above the threshold.
        false_negatives: Number of scores with the canary at or below the threshold.
        false_positive_upper: Clopper-Pearson upper bound, with half of the error probability.
        false_negative_upper: The same for the false-negative rate.
        mu: Gaussian-DP parameter from both upper bounds; 0 if they show nothing.
        gaussian_epsilon: Epsilon at delta if the trade-off function is Gaussian.
        epsilon: Epsilon at delta without an assumption.
    """

    threshold: float
    false_positives: int
    false_negatives: int
    false_positive_upper: float
    false_negative_upper: float
    mu: float
    gaussian_epsilon: float
    epsilon: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """The errors at every threshold that a reader may choose.

    Arguments:
        counts: The errors at finite thresholds.
        start: Index of the threshold that the page shows first.
        reading: The bounds at that threshold.
        delta: Delta at which the epsilons are read.
        confidence: Confidence of each reading by itself.
    """

    counts: ErrorCounts
    start: int
    reading: Reading
    delta: float
    confidence: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TradeoffCurves:
    """False-negative rate against false-positive rate.

    Arguments:
        seen: The observed rates.
        proven: Upper bounds on both rates, valid together; the true curve lies below.
        claimed: The claimed trade-off function; the true curve lies above. `None` without a claim.
        fitted: The trade-off function of the fitted Gaussian; `None` if none was fitted.
        confidence: Confidence of the proven curve.
    """

    seen: Curve
    proven: Curve
    claimed: Curve | None
    fitted: Curve | None
    confidence: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileCurves:
    """Privacy profiles: delta against epsilon.

    Arguments:
        proven: Lower bounds on delta without an assumption, valid together.
        gaussian: Lower bounds if the trade-off function is Gaussian; `None` without a mu.
        claimed: The claimed profile; `None` without a claim.
        delta: The delta at which epsilon is bounded.
        confidence: Confidence of the proven curve.
    """

    proven: Curve
    gaussian: Curve | None
    claimed: Curve | None
    delta: float
    confidence: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Growth:
    """The lower bound against the number of runs, or of canaries if there is a single run.

    Arguments:
        unit: What the x axis counts: runs or canaries.
        bounds: The bound on the first x of them, by the leading method.
        free: The same by Clopper-Pearson at all thresholds at once, without an assumption.
        expected: The bound to expect if the scores stay as far apart as they look.
        attainable: The bound to expect if the canary leaks all that is claimed.
        outlook: One sentence on whether more would help.
    """

    unit: str
    bounds: Curve
    free: Curve
    expected: Curve | None
    attainable: Curve | None
    outlook: str


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """Settings under one heading.

    Arguments:
        heading: The heading.
        rows: Pairs of a name and a value.
        compared: Whether they are settings, which a comparison of audits shows if they differ.
    """

    heading: str
    rows: tuple[tuple[str, str], ...]
    compared: bool = True


@final
@dataclass(frozen=True, kw_only=True)
class Snippet:
    """A command, a file or a piece of Python to copy."""

    caption: str
    text: str


@final
@dataclass(frozen=True, kw_only=True)
class RunsDone:
    """How much of an audit is done.

    Arguments:
        done: Number of runs in the store.
        asked: Number of runs that were asked for.
        remedy: How to resume the audit.
    """

    done: int
    asked: int
    remedy: str


@final
@dataclass(frozen=True, kw_only=True)
class Horizon:
    """The bounds of a training that stops after this number of steps."""

    steps: int
    lower: Bound
    upper: Bound | None
    verdict: str


@final
@dataclass(frozen=True, kw_only=True)
class AuditEvidence:
    """The bounds of an audit and the curves behind them.

    Arguments:
        sample: The number of scores and runs, in words.
        leading: The lower bound that the verdict sentence names.
        cautious: The lower bound with the fewest assumptions; `None` if that is the leading one.
        lower: All lower bounds, each at its own confidence.
        upper: The accountants' bounds or the claimed one; empty without a claim.
        unavailable: Methods that have no number here, and why.
        test: The test of the claim.
        power: What the audit could have detected, in words; empty without a claim.
        histogram: The scores with and without the canary.
        thresholds: The errors at every threshold.
        tradeoff: The trade-off functions.
        profile: The privacy profiles.
        growth: The bound against the number of runs.
        band_assumes: What the simultaneous band assumes.
    """

    sample: str
    leading: Bound
    cautious: Bound | None
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    unavailable: tuple[Unavailable, ...]
    test: ClaimTest | None
    power: str
    histogram: Histogram | None
    thresholds: Thresholds | None
    tradeoff: TradeoffCurves
    profile: ProfileCurves
    growth: Growth | None
    band_assumes: tuple[str, ...]

    @property
    def least_upper(self) -> Bound | None:
        """The smallest finite upper bound; `None` if there is none."""
        finite = [bound for bound in self.upper if math.isfinite(bound.epsilon)]
        return min(finite, key=lambda bound: bound.epsilon, default=None)

    @property
    def above_claim(self) -> bool:
        """Whether the leading lower bound exceeds the upper bound."""
        least = self.least_upper
        return least is not None and self.leading.epsilon > least.epsilon


@final
@dataclass(frozen=True, kw_only=True)
class PageData:
    """One audit, ready to be rendered.

    See also: `dpaudit.report.write_page`; `dpaudit.AuditResult.page`, which makes one.

    Arguments:
        title: The name of the audit.
        subtitle: What was audited, and the adversary.
        identity: Its identity in a store, if it has one.
        verdict: The verdict in one word.
        sentence: The verdict in a sentence.
        evidence: Bounds and curves; `None` while there are too few scores for any.
        stored: Lower and upper bound as they were stored, where no evidence was computed.
        runs: Number of trainings that the bounds use, and number asked for.
        progress: How much is done; `None` if everything is.
        notices: Further remarks for the reader.
        doubts: Reasons, as sentences, why the verdict cannot be ``consistent``.
        horizons: Bounds of shorter trainings, the whole training last; empty without horizons.
        facts: Settings, seeds, versions.
        repeat: Commands and code that repeat the audit.
    """

    title: str
    subtitle: str
    identity: str
    verdict: str
    sentence: str
    evidence: AuditEvidence | None
    stored: tuple[Bound, Bound] | None = None
    runs: tuple[int, int] = (0, 0)
    progress: RunsDone | None = None
    notices: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    horizons: tuple[Horizon, ...] = ()
    facts: tuple[Facts, ...] = ()
    repeat: tuple[Snippet, ...] = ()

    @property
    def lower(self) -> Bound | None:
        """The lower bound that the verdict sentence names; `None` while there is none."""
        if self.evidence is not None:
            return self.evidence.leading
        return None if self.stored is None else self.stored[0]

    @property
    def upper(self) -> Bound | None:
        """The smallest finite upper bound; `None` if there is none."""
        if self.evidence is not None:
            return self.evidence.least_upper
        finite = self.stored is not None and math.isfinite(self.stored[1].epsilon)
        return self.stored[1] if self.stored is not None and finite else None
