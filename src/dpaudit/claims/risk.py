r"""Privacy loss in risk terms: for readers who do not think in epsilon.

An adversary decides whether one record was in the training. A trade-off function :math:`f` says how
well: a test with false-positive rate :math:`\alpha` has a true-positive rate of at most
:math:`1 - f(\alpha)`.

- **Advantage**: the true-positive rate less the false-positive rate, at its largest:
  :math:`\max_\alpha\, 1 - \alpha - f(\alpha)`. This is delta at epsilon 0.
- **True-positive rate** at a false-positive rate of 1 % and of 0.1 %: :math:`1 - f(\alpha)`.
- **Posterior odds** after a positive decision of that test, where both answers were equally likely
  before: :math:`(1 - f(\alpha)) / \alpha` to 1.

**Claimed.** A claim is that the true function is nowhere below ``claim.tradeoff``, so its values
are upper bounds for every test.

**Shown.** *Theorem.* Let the points :math:`(\alpha_i, \beta_i)` lie above the mechanism's trade-off
function :math:`f`, all of them together with the probability ``confidence`` (`ProvenCurve`), and
let :math:`h` be the lower convex hull of these points, (0, 1) and (1, 0). Then the values computed
with :math:`h` in place of :math:`f` are lower bounds, all together with that probability. *Proof.*
A trade-off function is convex, :math:`f(0) \le 1` and :math:`f(1) = 0`. A convex function that is
below some points is below the chords between them, so :math:`f \le h`; every value above falls as
:math:`f` grows. ∎ The bound of mu-GDP gives further values under its own assumption.

References:
    Dong, Roth, Su: *Gaussian Differential Privacy* (JRSS-B 2022), section 2, trade-off functions.
    Yeom et al.: *Privacy risk in machine learning* (CSF 2018), the advantage.
    Carlini et al.: *Membership inference attacks from first principles* (S&P 2022), why to report
    the true-positive rate at low false-positive rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import ndtr, ndtri

from dpaudit._arrays import Array
from dpaudit.claims.claim import Claim
from dpaudit.curves import lower_hull
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import proven_curve
from dpaudit.lower_bounds.diagnostics import dependence_of
from dpaudit.privacy import Bound, Side
from dpaudit.scores import Scores

RATES = (0.01, 0.001)
"""The false-positive rates at which true-positive rates are stated."""


@final
@dataclass(frozen=True, kw_only=True)
class RiskTerms:
    """What an adversary can do at most (a claim), or at least (what an audit has shown).

    Arguments:
        side: ``"upper"`` for what a claim allows, ``"lower"`` for what an audit has shown.
        source: The claim, or the method.
        advantage: Largest difference of true-positive and false-positive rate.
        true_positive_rates: At the false-positive rates `RATES`.
        confidence: Probability that shown values hold, all together; `None` for a claim.
        assumptions: What must be true for them to hold.

    Example:
        >>> risk = claimed_risk(Claim.from_mu(1.0))
        >>> round(risk.advantage, 4), [round(rate, 4) for rate in risk.true_positive_rates]
        (0.3829, [0.0924, 0.0183])
        >>> [round(odds, 1) for odds in risk.posterior_odds]
        [9.2, 18.3]
    """

    side: Side
    source: str
    advantage: float
    true_positive_rates: tuple[float, ...]
    confidence: float | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def posterior_odds(self) -> tuple[float, ...]:
        """Odds to 1 that the record was in the training, after a positive at each rate."""
        pairs = zip(self.true_positive_rates, RATES, strict=True)
        return tuple(true / false for true, false in pairs)

    def to_dict(self) -> dict[str, Any]:
        """The terms as plain data."""
        return {
            "side": self.side,
            "source": self.source,
            "advantage": self.advantage,
            "at": [
                {
                    "false_positive_rate": rate,
                    "true_positive_rate": true,
                    "posterior_odds": odds,
                }
                for rate, true, odds in zip(
                    RATES, self.true_positive_rates, self.posterior_odds, strict=True
                )
            ],
            "confidence": self.confidence,
            "assumptions": list(self.assumptions),
        }


def claimed_risk(claim: Claim) -> RiskTerms:
    """The most that a claim allows any adversary.

    The advantage of a Gaussian claim has a closed form. Of (epsilon, delta) pairs, 1 - alpha -
    f(alpha) is concave and linear between kinks, so that it is largest at one of them.
    """
    if claim.mu is not None:
        advantage = _gaussian_advantage(claim.mu)
    else:
        places = np.array([0.0, *claim.curve.kinks, 1.0])
        advantage = float(np.max(1 - places - claim.tradeoff(places)))
    return RiskTerms(
        side="upper",
        source=claim.description,
        advantage=max(0.0, advantage),
        true_positive_rates=tuple((1 - claim.tradeoff(np.array(RATES))).tolist()),
        assumptions=claim.assumptions,
    )


def shown_risk(scores: Scores, *, confidence: float = 0.95) -> RiskTerms:
    """What an audit of a fixed number of runs has shown, whatever the trade-off function.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 2000), random.normal(0, 1, 2000))
        >>> 0.6 < shown_risk(scores).advantage < 0.683  # the truth
        True
    """
    curve = proven_curve(scores, confidence=confidence)
    advantage, rates = _below_points(curve.false_positive_upper, curve.false_negative_upper)
    return RiskTerms(
        side="lower",
        source="every threshold",
        advantage=advantage,
        true_positive_rates=rates,
        confidence=confidence,
        assumptions=dependence_of(scores)[0],
    )


def gaussian_risk(bound: Bound) -> RiskTerms:
    """What a lower bound on mu shows, under its assumption that the trade-off is Gaussian."""
    mu = bound.mu
    if bound.side != "lower" or mu is None or bound.confidence is None:
        raise InvalidScores(f"bound must be a lower bound on mu, got {bound!r}")
    return RiskTerms(
        side="lower",
        source=bound.method,
        advantage=_gaussian_advantage(mu),
        true_positive_rates=tuple(ndtr(ndtri(np.array(RATES)) + mu).tolist()),
        confidence=bound.confidence,
        assumptions=bound.assumptions,
    )


def risk_terms(
    claim: Claim | None, scores: Scores, leading: Bound, *, fixed_sample: bool
) -> tuple[RiskTerms, ...]:
    """The risk terms of a claim, and those that an audit has shown with its leading bound.

    If the scores decided when to stop (no ``fixed_sample``), `shown_risk` does not hold.
    """
    terms = [] if claim is None else [claimed_risk(claim)]
    if leading.mu is not None:
        terms.append(gaussian_risk(leading))
    if fixed_sample:
        terms.append(shown_risk(scores, confidence=leading.confidence or 0.95))
    return tuple(terms)


def _gaussian_advantage(mu: float) -> float:
    return float(2 * ndtr(mu / 2) - 1)


def _below_points(alpha: Array, beta: Array) -> tuple[float, tuple[float, ...]]:
    """The advantage, and the true-positive rates at `RATES`, that points above a curve prove."""
    advantage = float(np.max(1 - alpha - beta, initial=0.0))
    hull = lower_hull([(0.0, 1.0), (1.0, 0.0), *zip(alpha.tolist(), beta.tolist(), strict=True)])
    left, height = np.array(hull).T
    return advantage, tuple(np.clip(1 - np.interp(RATES, left, height), 0.0, 1.0).tolist())
