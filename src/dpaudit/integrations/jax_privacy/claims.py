"""The claim of a training with jax-privacy, read from its configuration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.histories import History, curve_of, in_words, merged


def claim_of(source: Any, *, steps: int | None = None, every_step: bool = False) -> Claim:
    """Read the privacy claim from a configuration of jax-privacy.

    Steps without sampling have a Gaussian trade-off function in closed form, and sampled steps a
    pessimistic privacy-loss distribution. A truncated Poisson sample is accounted for by the PLD
    accountant of ``dp_accounting``, with "replace special" neighbours.

    See also: `Claim.from_matrix_factorisation`, for other participations.

    Arguments:
        source: A ``BandMFExecutionPlanConfig`` (DP-SGD is the one with one band), its ``plan``, a
            ``DpEvent``, ``DpParams`` of ``jax_privacy.accounting``, or a ``DPKerasConfig``.
        steps: Number of steps; needed for ``DpParams`` only.
        every_step: The claim for an example in every step, whatever the batch selection says. With
            correlated noise this needs the configuration, which has the strategy.

    Example:
        >>> from jax_privacy.accounting import DpParams
        >>> parameters = DpParams(
        ...     noise_multipliers=2.0, num_samples=100, delta=1e-5, batch_size=100
        ... )
        >>> claim_of(parameters, steps=9)
        Claim(DP-SGD with noise multiplier 2, 9 steps)
    """
    if hasattr(source, "train_steps"):
        return _of_history(_of_keras(source), every_step)
    if hasattr(source, "noise_multipliers"):
        return _of_history(_of_parameters(source, steps), every_step)
    if every_step and hasattr(source, "strategy"):
        history = _of_event(source.plan.dp_event)
        noise = source.noise_multiplier if history is None else history[0][0]
        if noise is not None:
            return Claim.from_matrix_factorisation(
                noise_multiplier=float(noise),
                coefficients=np.asarray(source.strategy, dtype=np.float64).tolist(),
                steps=source.iterations,
            )
    event = getattr(getattr(source, "plan", source), "dp_event", source)
    if not type(event).__name__.endswith("DpEvent"):
        raise InvalidInput(
            "source must be a BandMFExecutionPlanConfig, a DPExecutionPlan, a DpEvent or DpParams; "
            f"got {type(source).__name__}. Use Claim.from_dpsgd or Claim.from_matrix_factorisation"
        )
    found = _of_event(event)
    if found is not None:
        return _of_history(found, every_step)
    if every_step:
        raise InvalidInput(
            f"every_step=True needs Gaussian steps or a configuration, got {type(event).__name__}"
        )
    return _of_any_event(event)


def _of_history(history: History, every_step: bool) -> Claim:
    if every_step:
        history = [(noise, 1.0, count) for noise, _, count in history]
    history = merged(history)
    return curve_of(history, in_words(history))


def _of_event(event: Any) -> History | None:
    """The history of Gaussian steps, Poisson sampled or not; `None` if there are others."""
    match type(event).__name__:
        case "GaussianDpEvent":
            return [(float(event.noise_multiplier), 1.0, 1)]
        case "PoissonSampledDpEvent":
            inner = _of_event(event.event)
            if inner is None or len(inner) != 1 or inner[0][1:] != (1.0, 1):
                return None
            return [(inner[0][0], float(event.sampling_probability), 1)]
        case "SelfComposedDpEvent":
            inner = _of_event(event.event)
            return inner and [(noise, rate, n * int(event.count)) for noise, rate, n in inner]
        case "ComposedDpEvent":
            parts = [_of_event(one) for one in event.events]
            return None if None in parts else [group for part in parts for group in part or ()]
    return None


def _of_any_event(event: Any) -> Claim:
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    if not accountant.supports(event):
        raise InvalidInput(
            f"source must have a DpEvent that the PLD accountant supports, got {event!r}"
        )
    accountant.compose(event)
    epsilons = np.concatenate([np.linspace(0, 4, 41), np.linspace(4.5, 40, 72)])
    deltas = [min(1.0, max(0.0, accountant.get_delta(epsilon))) for epsilon in epsilons]
    return Claim(
        description=f"{type(event).__name__} by the PLD accountant",
        epsilons=tuple(epsilons.tolist()),
        deltas=tuple(deltas),
    )


def _of_parameters(source: Any, steps: int | None) -> History:
    """One group of steps, as ``DpsgdTrainingAccountant`` counts them."""
    if steps is None:
        raise InvalidInput("steps must be given with DpParams, which do not have it; got None")
    steps = _validate.integer("steps", steps, at_least=1)
    method = source.sampling_method.name
    constant = all(isinstance(value, int | float) for value in (source.noise_multipliers,))
    constant = constant and isinstance(source.batch_sizes, int | float)
    plain = constant and not source.truncated_batch_size and (source.examples_per_user or 1) == 1
    if not plain or method not in ("POISSON", "FIXED_BATCH_SIZE"):
        raise InvalidInput(
            "source must be DpParams with one noise multiplier, one batch size, one example per "
            f"user and sampling POISSON or FIXED_BATCH_SIZE, got {source!r}; give its DpEvent"
        )
    cycle = source.cycle_length or 1
    rate = source.batch_size / (source.num_samples // cycle)
    # A fixed batch size has twice the sensitivity: an example takes the place of another one.
    noise = float(source.noise_multipliers) / (1 if method == "POISSON" else 2)
    return [(noise, min(1.0, rate), math.ceil(steps / cycle))]


def _of_keras(source: Any) -> History:
    """One group of steps, as ``DPKerasConfig`` accounts for them."""
    if source.noise_multiplier is None:
        raise InvalidInput(
            "noise_multiplier of the DPKerasConfig must be known, got None; use "
            "config.update_with_calibrated_noise_multiplier()"
        )
    rate = source.effective_batch_size / source.train_size
    return [(float(source.noise_multiplier), min(1.0, rate), source.train_steps)]
