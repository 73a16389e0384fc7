r"""Several steps: each with noise of its own, and each with its own gradients only.

After T steps a linear optimizer, with or without momentum, has moved by
:math:`\sum_t w_t (g + z_t)` for some weights. By Cauchy and Schwarz
:math:`(\sum_t w_t)^2 \le T \sum_t w_t^2`: measured as noise over response times :math:`\sqrt T`,
the noise multiplier of T steps is at least that of one step. It is smaller if old gradients are
counted again, and :math:`\sqrt T` times larger if the same noise is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, smallest_ratio
from dpaudit.checks.measuring import SEVERAL, Measurements
from dpaudit.checks.rules.noise_size import THERE, noise_size, varies_too_much

INDEPENDENT = Rule(
    name="noise differs between steps",
    promise="Every step draws noise of its own: its variance grows like the number of steps.",
    cause="The generator is seeded again, or the same key is used, at every step: the difference "
    "of two iterates is then free of noise.",
    remedy="Seed once, before training; in JAX fold the step into the key (jax.random.fold_in).",
    seen_in="the JAX cousin of jax PR #3646",
)
ACCUMULATION = Rule(
    name="every gradient counts once",
    promise="An example's contribution to T steps is at most T times that to one.",
    cause="Sums of earlier steps are not set to zero, so old gradients are added again under noise "
    "that was meant for one step.",
    remedy="Call zero_grad() after every step, also while accumulating; Opacus clears summed_grad "
    "there.",
    seen_in="opacus PR #203",
)

_SAME = 0.85  # of sqrt(T): momentum and curvature leave no training between this ...
_APART = 0.65  # ... and this


def check_independent(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Noise over response after several steps, compared with one step."""
    growth = _growth(measured)
    if isinstance(growth, str):
        return Finding(rule=INDEPENDENT, verdict="could not tell", explanation=growth)
    most = float(np.sqrt(SEVERAL))
    told = {"measured": growth.words, "allowed": f"below {_APART * most:.3g}"}
    if growth.factor < _APART * most:
        return Finding(rule=INDEPENDENT, verdict="passed", **told)
    if growth.factor < _SAME * most or growth.uncertain:
        return Finding(
            rule=INDEPENDENT,
            verdict="could not tell",
            explanation="Outputs vary more with the number of steps than independent noise "
            "explains; more than the noise may depend on the seed.",
            **told,
        )
    return Finding(
        rule=INDEPENDENT,
        verdict="broken",
        explanation=f"In {SEVERAL} steps the noise grows {SEVERAL} times, as if it were the same "
        f"in every step, not {most:.3g} times.",
        **told,
    )


def check_accumulation(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """The same comparison, on its other side; of a step, the same call once more."""
    if measured.subject.noun == "private_step":
        return _check_memory(measured)
    growth = _growth(measured)
    if isinstance(growth, str):
        return Finding(rule=ACCUMULATION, verdict="could not tell", explanation=growth)
    if not growth.in_every_step:
        return Finding(
            rule=ACCUMULATION,
            verdict="could not tell",
            explanation=f"In {SEVERAL} steps the canary has {growth.effect:.3g} times the effect "
            "of one: it is not in every step, as this rule needs it to be.",
        )
    told = {"measured": growth.words, "allowed": f"at least {growth.least:.3g}"}
    if growth.factor >= growth.least:
        return Finding(rule=ACCUMULATION, verdict="passed", **told)
    if growth.uncertain:
        return Finding(
            rule=ACCUMULATION,
            verdict="could not tell",
            explanation="More than the noise depends on the seed: keep the starting point, the "
            "data and the batches fixed.",
            **told,
        )
    return Finding(
        rule=ACCUMULATION,
        verdict="broken",
        explanation=f"After {SEVERAL} steps an example has {1 / growth.factor:.3g} times the "
        "influence, relative to the noise, that one step gives it.",
        **told,
    )


def _check_memory(measured: Measurements) -> Finding:
    """A step must not know what it was called with before."""
    if measured.remembers:
        return Finding(
            rule=ACCUMULATION,
            verdict="broken",
            measured="grows",
            allowed="no change",
            explanation="The step adds the sums of earlier calls to its own.",
        )
    if not measured.repeatable:
        return Finding(rule=ACCUMULATION, verdict="could not tell", explanation=_UNREPEATABLE)
    again = measured.subject.output(None, measured.seeds[0], measured.steps)
    changed = float(np.abs(again - measured.quiet).max())
    told = {
        "measured": f"{changed:.2g} apart",
        "allowed": "rounding",
    }
    if changed <= 1e-3 * measured.noise_level():
        return Finding(rule=ACCUMULATION, verdict="passed", **told)
    return Finding(
        rule=ACCUMULATION,
        verdict="broken",
        explanation="What the step was called with before comes back in later calls.",
        **told,
    )


_UNREPEATABLE = "The same seed must give the same output for this."


@final
@dataclass(frozen=True, kw_only=True)
class _Growth:
    """How the noise multiplier changes from one step to several.

    Arguments:
        factor: The ratio of the two. Where the canary is not in every step, noise over the square
            root of the number of steps takes its place, as for plain SGD.
        least: The least ratio that chance and rounding explain.
        effect: How many times the canary's effect grows.
        uncertain: Whether outputs vary more than the claimed noise does.
    """

    factor: float
    least: float
    effect: float
    uncertain: bool

    @property
    def in_every_step(self) -> bool:
        return self.effect >= _SAME * SEVERAL

    @property
    def words(self) -> str:
        return f"{self.factor:.3g} x one step"


def _growth(measured: Measurements) -> _Growth | str:
    """Compare one step with several; a sentence where that cannot be done."""
    reason = _cannot(measured)
    if reason:
        return reason
    one, several = noise_size(measured), noise_size(measured, SEVERAL)
    scale, longer = measured.scales(), measured.scales(SEVERAL)
    if one is None or several is None or scale is None or longer is None:
        return "Rounding, or noise, hides the canary's contribution."
    effect = float(np.sqrt(np.mean(longer[0] ** 2) / np.mean(scale[0] ** 2)))
    chance = smallest_ratio(several.degrees, FALSE_ALARM / 2) / largest_ratio(
        one.degrees, FALSE_ALARM / 2
    )
    # A tenth is left for the other examples, which react to where the canary moved the model.
    least = 0.9 * float(np.sqrt(chance)) - one.blur - several.blur
    factor = float(np.sqrt(several.ratio / one.ratio))
    if effect < _SAME * SEVERAL:
        factor = measured.noise_level(SEVERAL) / measured.noise_level() / float(np.sqrt(SEVERAL))
    return _Growth(factor=factor, least=least, effect=effect, uncertain=varies_too_much(measured))


def _cannot(measured: Measurements) -> str:
    if not measured.noise_is_there:
        return f"See '{THERE.name}' first."
    if measured.subject.noun == "private_step":
        return "One step was given; a training that takes `steps` shows this."
    if not measured.subject.steps_can_vary:
        return (
            "Let train take one more argument, `steps`, and train so many steps: then one step "
            f"can be compared with {SEVERAL}."
        )
    return "" if measured.repeatable else _UNREPEATABLE
