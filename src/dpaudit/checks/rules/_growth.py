r"""How noise and response grow from one step to several.

After T steps a linear optimizer, with or without momentum, has moved by
:math:`\sum_t w_t (g + z_t)` for some weights. By Cauchy and Schwarz
:math:`(\sum_t w_t)^2 \le T \sum_t w_t^2`: measured as noise over response times :math:`\sqrt T`,
the noise multiplier of T steps is at least that of one step. It is smaller if old gradients are
counted again, and :math:`\sqrt T` times larger if the same noise is added in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, smallest_ratio
from dpaudit.checks.measuring import SEVERAL, Measurements
from dpaudit.checks.rules._needs import noise, readable, same_output
from dpaudit.checks.rules._noise import noise_size, varies_too_much

SAME = 0.85
"""Of sqrt(T): at least this where the same noise is added in every step."""


@final
@dataclass(frozen=True, kw_only=True)
class Growth:
    """How the noise multiplier changes from one step to several.

    Arguments:
        factor: The ratio of the two. Where the canary is not in every step, it is the noise over
            the square root of the number of steps, as for plain SGD.
        least: The smallest ratio that chance and rounding explain.
        effect: How many times larger the canary's effect is.
        uncertain: Whether outputs vary more than the claimed noise does.
    """

    factor: float
    least: float
    effect: float
    uncertain: bool

    @property
    def in_every_step(self) -> bool:
        """Whether the canary takes part in every step."""
        return self.effect >= SAME * SEVERAL

    @property
    def words(self) -> str:
        """The factor, for the report."""
        return f"{self.factor:.3g} x one step"


def growth(measured: Measurements) -> Growth | str:
    """Compare one step with several; the reason, as a sentence, where that is impossible."""
    reason = _cannot(measured)
    if reason:
        return reason
    one, several = noise_size(measured), noise_size(measured, SEVERAL)
    scale, longer = measured.scales(), measured.scales(SEVERAL)
    if one is None or several is None or scale is None or longer is None:
        return "Rounding or noise hides the canary's contribution."
    effect = float(np.sqrt(np.mean(longer[0] ** 2) / np.mean(scale[0] ** 2)))
    chance = smallest_ratio(several.degrees, FALSE_ALARM / 2) / largest_ratio(
        one.degrees, FALSE_ALARM / 2
    )
    # A tenth is left for the other examples, which react to where the canary moved the model.
    least = 0.9 * float(np.sqrt(chance)) - one.blur - several.blur
    factor = float(np.sqrt(several.ratio / one.ratio))
    if effect < SAME * SEVERAL:
        factor = measured.noise_level(SEVERAL) / measured.noise_level() / float(np.sqrt(SEVERAL))
    return Growth(factor=factor, least=least, effect=effect, uncertain=varies_too_much(measured))


def _cannot(measured: Measurements) -> str:
    if not measured.noise_is_there:
        return noise(measured)
    if not measured.subject.steps_can_vary:
        return (
            "Let train take one more argument, `steps`, and train that many steps: then one step "
            f"can be compared with {SEVERAL}."
        )
    return same_output(measured) or readable(measured)
