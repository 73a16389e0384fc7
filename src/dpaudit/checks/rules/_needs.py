"""Conditions that several checks have: each gives the reason why it is not met, or no text."""

from __future__ import annotations

from dpaudit.checks.measuring import Measurements

NOT_LINEAR = (
    "Some coordinates of the output do not react to short gradients, as behind Adam, top-k or "
    "clamping: check the private gradient before it with check_step (--step)."
)


def same_output(measured: Measurements) -> str:
    """The same seed gives the same output."""
    return "" if measured.repeatable else "This needs the same output for the same seed."


def one_step(measured: Measurements) -> str:
    """The output is that of a single step."""
    if measured.steps == 1:
        return ""
    return "Only one step shows it; let train take `steps`, or check a training of one step."


def noise(measured: Measurements) -> str:
    """Something changes from seed to seed."""
    return "" if measured.noise_is_there else "See 'noise in every parameter' first."


def no_transform(measured: Measurements) -> str:
    """No public transform hides single coordinates of the noisy gradient."""
    if measured.subject.public_transform:
        return "A public transform of the noisy gradient is declared: check the step before it."
    return NOT_LINEAR if measured.thresholded else ""


def readable(measured: Measurements) -> str:
    """Noise and contributions can be read from the output."""
    reason = no_transform(measured)
    if not reason and not measured.unit.known:
        reason = f"Nothing to compare with: {measured.unit.why_not}."
    return reason


def clipping(measured: Measurements) -> str:
    """Contributions can be read from the output, and the user's code clips them."""
    reason = readable(measured)
    if not reason and measured.subject.clipping_is_skipped():
        reason = (
            "The training inserts canary.clipped_sum(inserted), which is clipped already. This "
            "rule needs canary.rows(inserted) as per-example gradients."
        )
    return reason
