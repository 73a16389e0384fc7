"""An example that has nothing to say must change nothing."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.contribution import BOUNDED
from dpaudit.checks.rules.judging import hidden_by

RULE = Rule(
    name="batch size stays private",
    promise="One more example, with a gradient of zero, changes nothing.",
    cause="The noisy sum is divided by the number of examples that happen to be in the batch, so "
    "one more of them rescales the noise and everybody else's gradient.",
    remedy="Divide by the expected batch size, a constant; with Poisson sampling that is sampling "
    "rate times size of the data set. If the batch size is fixed and public (neighbours replace a "
    "record), this is no leak: say so (fixed_batch_size=True, --fixed-batch-size).",
    seen_in="every loop that takes the mean over a Poisson batch; optax's "
    "differentially_private_aggregate does, and is meant for batches of a fixed size",
)


def check(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Compare outputs with and without an example whose gradient is zero."""
    reason = _cannot(measured) or hidden_by(found, BOUNDED)
    if reason:
        return Finding(rule=RULE, verdict="could not tell", explanation=reason)
    changed = measured.presence
    if not np.all(np.isfinite(changed)):
        return Finding(
            rule=RULE,
            verdict="could not tell",
            explanation=f"A gradient of zero gives no number; see '{_huge()}'.",
        )
    seen = float(np.sqrt(np.mean(changed**2)))
    noise = measured.noise_level()
    floor = float(np.sqrt(np.mean(measured.rounding**2)))
    # Some trainings compute in float32 and return float64: rounding is not below this.
    allowed = max(10 * floor, 1e-6 * max(noise, measured.unit.size))
    told = {"measured": f"{seen / (noise or 1.0):.2g} x noise", "allowed": "rounding"}
    if seen <= allowed:
        return Finding(rule=RULE, verdict="passed", **told)
    if noise > 0 and seen > noise:
        return Finding(
            rule=RULE,
            verdict="could not tell",
            **told,
            explanation="With one more example the training draws other noise under the same seed. "
            "That is no leak, but it hides this rule: draw the noise from a generator of its own.",
        )
    factor = _rescaling(measured)
    about = f", by a factor of about {1 + factor:.4g}" if factor else ""
    return Finding(
        rule=RULE,
        verdict="broken",
        **told,
        explanation=f"An example with a gradient of zero rescales all the others and the noise"
        f"{about}.",
    )


def _cannot(measured: Measurements) -> str:
    if not measured.repeatable:
        return "The same seed must give the same output for this."
    if measured.steps > 1:
        return "Only one step shows it; let train take `steps`, or check a training of one step."
    return ""


def _rescaling(measured: Measurements) -> float:
    """By how much the noise is rescaled: 1/(B+1) - 1/B over 1/B, from two seeds."""
    if not measured.noise_is_there:
        return 0.0
    zeros = np.zeros(measured.subject.parameters)
    with_example = measured.subject.output(zeros, measured.seeds[1], measured.steps)
    noise = measured.noise()
    between = noise[1] - noise[0]
    other = (with_example - measured.quiet)[measured.watched] - between
    rescaled = other - measured.presence[measured.watched]
    return float(rescaled @ between / (between @ between))


def _huge() -> str:
    from dpaudit.checks.rules.strange_gradients import HUGE

    return HUGE.name
