r"""Lower bound from one run, if its canaries are independent of each other.

**Theorem.** Let the canaries be inserted by fair coins, let each canary's output have a trade-off
function of at least :math:`f`, its own inverse, and let the outputs be independent. If all canaries
are guessed at a threshold that was chosen without them, then the family's parameter through equal
error rates, both the upper confidence limit on the share of wrong guesses, exceeds that of
:math:`f` with probability at most the significance.

**Proof.** A guess of a fair coin with error rates :math:`(a, b)` is wrong with probability
:math:`(a+b)/2 \ge \min_a (a + f(a))/2`, which is the rate at which the curve meets its diagonal, as
:math:`f` is convex and its own inverse. Guesses are independent, so the number of wrong ones is
stochastically at least binomial with that rate, whose exact confidence limit is used. Canaries need
not be alike. For mu-GDP the rate is :math:`\Phi(-\mu/2)`, and the bound converges to the true mu.

Without independence the bound is false. Example: a common coin, thrown with probability 0.8 of
"heads", switches *all* canaries to randomised response with accuracy 0.73; otherwise nothing
depends on the canaries. Each canary is 1-GDP, but given "heads" the accuracy exceeds
:math:`\Phi(1/2) = 0.69`. The coverage page shows how often each method is wrong there.

References:
    Xiang, Wang, Xiao, Tian, Wang: *Tight Privacy Audit in One Run* (arXiv 2509.08704), for audits
    of f-DP in one run that are tight. The bound here is derived as above; it uses no abstentions.
"""

from __future__ import annotations

import numpy as np

from dpaudit._arrays import Array, Integers
from dpaudit.curves import Family
from dpaudit.lower_bounds.counts import midpoints, upper_rate
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan


def of_independent_guesses(guesses: Guesses, family: Family, significance: float) -> float:
    """The largest parameter of a family of symmetric curves that independent guesses refute.

    Example:
        >>> from dpaudit.curves import GAUSSIAN, pairs_family
        >>> from dpaudit.privacy import Question
        >>> guesses = Guesses(692, 1000, 1000)
        >>> round(of_independent_guesses(guesses, GAUSSIAN, 0.05), 3)
        0.864
        >>> family = pairs_family(Question(delta=1e-5))
        >>> round(of_independent_guesses(guesses, family, 0.05), 3)
        0.695
    """
    wrong = upper_rate(guesses.guesses - guesses.correct, guesses.guesses, significance)
    return max(0.0, float(family.through(wrong, wrong)))


def plan_every_guess(scores: Array, coins: Integers, remaining: int) -> GuessPlan:
    """A plan that guesses every remaining canary, at a threshold that the pilot chooses."""
    return GuessPlan(top=0, bottom=remaining, cut=_cut(scores, coins))


def _cut(scores: Array, coins: Integers) -> float:
    """The threshold with few errors in the pilot that is nearest to the middle of its ranking."""
    order = np.argsort(scores, kind="stable")
    ascending, inserted = scores[order], coins[order]
    ends = 1 + np.flatnonzero(ascending[1:] != ascending[:-1])
    if len(ends) == 0:
        return float(ascending[0])
    missed = np.cumsum(inserted)[ends - 1]
    errors = missed + (len(scores) - inserted.sum()) - (ends - missed)
    # All thresholds within one standard deviation of the fewest errors are as good.
    good = np.flatnonzero(errors <= errors.min() + np.sqrt(errors.min()))
    middle = good[np.abs(ends[good] - len(scores) / 2).argmin()]
    return float(midpoints(ascending[ends[middle] - 1 : ends[middle] + 1])[0])
