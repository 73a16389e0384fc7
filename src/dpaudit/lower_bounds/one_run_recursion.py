r"""The recursion of Mahloujifar et al. for any trade-off function, from the guesses of one run.

Let :math:`W` be the number of right guesses out of :math:`r`, for :math:`m` canaries. Flipping the
coin of one canary turns "guessed right, and at least :math:`c` right in all" into "guessed wrong,
and at least :math:`c-1` right in all". For an f-DP mechanism the probability of the first is at
most :math:`\bar f = 1 - f` of the second. Averaged over canaries (:math:`\bar f` is concave), with

.. math:: R_c = E[\tfrac{W}{m} 1_{W \ge c}], \qquad H_c = E[\tfrac{r-W}{m} 1_{W \ge c}],

this gives :math:`R_c \le \bar f(H_{c-1})`, that is :math:`H_{c-1} \ge f(1 - R_c)`, for every
:math:`c`. If :math:`P(W \ge c)` were at least the significance, these inequalities, followed from
:math:`c` down to 0, would require a total probability above 1; then the trade-off function is
refuted. Canaries may depend on each other; the number of guesses must be fixed beforehand.

References:
    Mahloujifar, Melis, Chaudhuri: *Auditing f-Differential Privacy in One Run* (ICML 2025,
    arXiv 2410.22235): the recursion of its numerical algorithm, with two guessed values per coin.
"""

from __future__ import annotations

from dpaudit._roots import sign_change
from dpaudit.curves import Curve, Family
from dpaudit.lower_bounds.guesses import Guesses


def guesses_refute(curve: Curve, seen: Guesses, significance: float) -> bool:
    """Whether so many right guesses have probability below ``significance``.

    Lower bounds ``right`` and ``wrong`` on :math:`R_i` and :math:`H_i`, for i from the number of
    right guesses down. The mass at exactly i of them adds in the proportion i to guesses - i.
    """
    correct, guesses, canaries = seen.correct, seen.guesses, seen.canaries
    right = significance * correct / canaries
    wrong = significance * (guesses - correct) / canaries
    everything = guesses / canaries
    for i in range(correct - 1, -1, -1):
        least = curve.at_complement(right)
        if least <= wrong:
            return False  # the inequality holds without more mass, here and at every smaller i
        right += i / (guesses - i) * (least - wrong)
        wrong = least
        if right + wrong >= everything:
            return True
    return False


def largest_refuted(
    family: Family, seen: Guesses, *, significance: float, tolerance: float
) -> float:
    """The largest parameter of a family of trade-off functions that the guesses refute, or 0.

    Arguments:
        family: The curve of each parameter.
        seen: The guesses of the run.
        significance: Error probability of the bound.
        tolerance: Relative accuracy of the parameter.
    """

    def excess(parameter: float) -> float:
        return -1.0 if guesses_refute(family.curve(parameter), seen, significance) else 1.0

    if seen.correct == 0 or excess(0.0) > 0:
        return 0.0
    return sign_change(excess, 0.0, 1.0, tolerance=tolerance)[0]
