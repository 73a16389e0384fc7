"""An example with a zero gradient must not change the update."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import one_step, same_output
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="zero gradient has no effect",
    requirement="One more example, with a gradient of zero, changes nothing.",
    cause="The noisy sum is divided by the actual number of examples in the batch, so one more "
    "example rescales the noise and all other gradients.",
    remedy="Divide by the expected batch size, a constant; with Poisson sampling that is sampling "
    "rate times size of the data set. If the batch size is fixed and public (neighbours replace a "
    "record), this is no leak: say so (fixed_batch_size=True, --fixed-batch-size).",
    seen_in="loops that take the mean over a Poisson batch; optax's "
    "differentially_private_aggregate does, and is meant for batches of a fixed size",
)


def check(measured: Measurements, found: Found) -> Finding:
    """Compare outputs with and without an example whose gradient is zero."""
    changed = measured.presence
    if not np.all(np.isfinite(changed)):
        huge = found["huge"].rule.name
        return RULE.unknown(f"A zero gradient makes the output infinite or NaN; see '{huge}'.")
    size = float(np.sqrt(np.mean(changed**2)))
    noise = measured.noise_level()
    floor = float(np.sqrt(np.mean(measured.rounding**2)))
    # Some trainings compute in float32 and return float64: rounding is not below this.
    allowed = max(10 * floor, 1e-6 * max(noise, measured.unit.size))
    seen = {"measured": f"{size / (noise or 1.0):.2g} x noise", "allowed": "rounding"}
    if size <= allowed:
        return RULE.passed(**seen)
    if noise > 0 and size > noise:
        return RULE.unknown(
            "With one more example the training draws other noise under the same seed. This is no "
            "leak, but it hides this rule: draw the noise from a generator of its own.",
            **seen,
        )
    factor = _rescaling(measured)
    about = f", by a factor of about {1 + factor:.4g}" if factor else ""
    return RULE.broken(
        f"An example with a zero gradient rescales all the others and the noise{about}.", **seen
    )


def _rescaling(measured: Measurements) -> float:
    """By how much the noise is rescaled, B / (B + 1) - 1 for a mean, from two seeds."""
    if not measured.noise_is_there:
        return 0.0
    zeros = np.zeros(measured.subject.parameters)
    with_example = measured.subject.output(zeros, measured.seeds[1], measured.steps)
    noise = measured.noise()
    between = noise[1] - noise[0]
    other = (with_example - measured.quiet)[measured.watched] - between
    rescaled = other - measured.presence[measured.watched]
    return float(rescaled @ between / (between @ between))


CHECK = Check(rule=RULE, run=check, after=("bounded",), needs=(same_output, one_step))
