"""Are gradients of several norms, spread over all parameters, clipped to C?

A canary along one axis cannot see that every tensor, or every coordinate, is clipped on its own,
and a canary of one norm does not show how other norms are clipped. Before an audit with such
canaries, five trainings with the same seed compare longer gradients over all parameters with a
short one, which clipping may shorten, but never makes longer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.trainings.canaries import GradientCanary
from dpaudit.trainings.directions import DirectionCanary
from dpaudit.trainings.parameters import flat_parameters
from dpaudit.trainings.playing import Job

_SHORT = 0.25  # norms, in units of the clip norm
_LONG = (2.0, 4.0, 100.0)
_ALLOWED = 1.3  # other examples react to a canary, so that effects are not quite in proportion
_PARALLEL = 0.5  # cosine: a smaller one says that more than the canary changed
_MOST_NUMBERS = 1 << 24


def spread_contribution(job: Job, run: int) -> float | None:
    """The largest possible contribution of a longer gradient over all parameters, in units of C.

    The one that is farthest from what is allowed, of several norms; negative if the gradient has
    the opposite effect. It is computed from how far the parameters move, compared with a short
    gradient that contributes no more than its own norm, so that the learning rate does not matter.
    `None` if the training does not show it: it scores predictions, takes only canaries along axes,
    or left the canary out.

    Arguments:
        job: The training, with canaries along axes.
        run: Number of the run whose seed is used.
    """
    canary = job.scorer.canary
    if not isinstance(canary, GradientCanary):
        return None
    if not 1 < canary.parameters <= _MOST_NUMBERS // canary.count:
        return None
    rows = canary.unit_rows(np.ones(canary.count, dtype=bool))
    along = np.random.default_rng(17).standard_normal(canary.parameters)
    along /= np.linalg.norm(along)
    rows[0] = along
    coins = np.arange(canary.count) == 0
    try:
        without, short, *long = (
            _parameters(job, run, coins & inserted, _in_directions(canary, rows, norm))
            for inserted, norm in ((False, _SHORT), (True, _SHORT), *((True, one) for one in _LONG))
        )
    except (Exception, SystemExit):
        return None  # the training reads something that only canaries along axes have
    step = short - without
    effect = float(step @ along)
    if not np.isfinite(long).all() or abs(effect) <= _PARALLEL * float(np.linalg.norm(step)):
        return None
    if not effect:
        return None
    found = [_SHORT * float((one - without) @ along) / effect for one in long]
    return max(found, key=_excess)


def _excess(contribution: float) -> float:
    """How far a contribution is outside what clipping to C gives: from 0 to C."""
    return max(contribution - 1, -contribution)


def _in_directions(canary: GradientCanary, rows: Array, norm: float) -> DirectionCanary:
    """Canaries in other directions, with this norm in units of the clip norm."""
    return DirectionCanary(
        directions=rows,
        clip_norm=canary.clip_norm,
        norm=norm * canary.clip_norm,
        names=canary.names,
    )


def _parameters(job: Job, run: int, coins: NDArray[np.bool_], canary: DirectionCanary) -> Array:
    other = replace(job, scorer=replace(job.scorer, canary=canary))
    flat = flat_parameters(other.returned(run, coins))
    if flat.shape != (canary.parameters,):
        raise InvalidInput(f"parameters have shape {flat.shape}")
    return flat


def spread_doubt(contribution: float | None) -> str:
    """Why the verdict cannot be ``consistent``; empty if nothing is wrong."""
    if contribution is None or _excess(contribution) <= _ALLOWED - 1:
        return ""
    how = (
        "each tensor or coordinate seems to be clipped on its own, or gradients of some norms are "
        "clipped to more than C"
        if contribution > 0
        else "it changes more than its own clipped contribution, as if steps were skipped"
    )
    return (
        f"A longer gradient spread over all parameters contributes {contribution:.2g} C: {how}, "
        "which the canaries cannot show. Audit with dpaudit.trainings.DirectionCanary.draw, or "
        "run dpaudit check."
    )


def spread_coverage(canary: object, contribution: float | None) -> str:
    """What was seen of gradients over several tensors, to follow what the canaries test."""
    if not isinstance(canary, GradientCanary):
        return ""
    if contribution is None:
        return (
            "; whether each tensor or coordinate is clipped on its own was not tested "
            "(dpaudit.trainings.DirectionCanary.draw does)"
        )
    return f"; one gradient over all parameters contributed at most {contribution:.2g} C"
