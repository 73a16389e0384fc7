"""The private step of a jax-privacy configuration: its clipping, its noise and its scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks import CheckResult, check_step
from dpaudit.errors import InvalidInput
from dpaudit.integrations.trees import imported


def private_step(source: Any) -> Callable[[Array, int], Array]:
    """``private_step(gradients, seed)`` by the ``clipped_grad`` and the noise of a plan.

    ``clipped_grad`` computes gradients itself. The loss of an example is therefore the inner
    product of the parameters with a row of ``gradients``, so that its gradient is this row.

    Arguments:
        source: A ``BandMFExecutionPlanConfig`` or its ``plan``. With correlated noise this is the
            first step.
    """
    plan = getattr(source, "plan", source)
    if not hasattr(plan, "clipped_grad") or not hasattr(plan, "noise_addition_transform"):
        raise InvalidInput(
            "source must be a BandMFExecutionPlanConfig or its plan, got "
            f"{type(source).__name__}; check your training with dpaudit.check_training"
        )
    jax = imported("jax")
    noise = plan.noise_addition_transform

    def noisy(total: Any, key: Any) -> Any:
        _, *state = noise.init(total)  # without the key of the plan
        return noise.update(total, (key, *state))[0]

    clipped_sum = jax.jit(plan.clipped_grad(jax.numpy.vdot, keep_batch_dim=False))
    with_noise = jax.jit(noisy)

    def step(gradients: Array, seed: int) -> Array:
        with np.errstate(over="ignore"):
            rows = np.asarray(gradients).astype(np.float32)
        parameters = np.zeros(rows.shape[1], dtype=np.float32)
        total = clipped_sum(parameters, rows) if len(rows) else parameters
        return np.asarray(with_noise(total, jax.random.key(seed)), dtype=np.float64)

    return step


def check(
    config: Any,
    *,
    clip_norm: float | None = None,
    noise_multiplier: float | None = None,
    **options: Any,
) -> CheckResult:
    """Check the private step of a configuration against its own settings or another claim.

    Arguments:
        config: A ``BandMFExecutionPlanConfig``. With correlated noise its first step is checked.
        clip_norm: The claimed clip norm C; that of the configuration by default.
        noise_multiplier: The claimed sigma; that of the configuration by default.
        options: Further arguments of `dpaudit.checks.check_step`.

    Example:
        >>> from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
        >>> config = BandMFExecutionPlanConfig(
        ...     strategy=[1.0], iterations=4, epsilon=None, delta=None, noise_multiplier=1.0
        ... )
        >>> check(config, runs=8, noise_multiplier=2.0)["noise size"].verdict
        'broken'
    """
    if not hasattr(config, "strategy"):
        raise InvalidInput(
            "config must be a BandMFExecutionPlanConfig, which has the clip norm and the strategy; "
            f"got {type(config).__name__}"
        )
    sigma = (
        _noise_multiplier(config.plan.dp_event) if noise_multiplier is None else noise_multiplier
    )
    return check_step(
        private_step(config),
        clip_norm=config.l2_clip_norm if clip_norm is None else clip_norm,
        noise_multiplier=sigma * _of_first_step(config),
        **{"parameters": 64, **options},
    )


def _noise_multiplier(event: Any) -> float:
    """That of all Gaussian steps of a plan's event, which are nested in other events."""
    while not hasattr(event, "noise_multiplier"):
        event = event.event if hasattr(event, "event") else event.events[0]
    return float(event.noise_multiplier)


def _of_first_step(config: Any) -> float:
    """Standard deviation of the noise in the first step, relative to sigma times the clip norm.

    The noise is inverse(C) Z, where Z is scaled by the norm of the columns of C and by the
    sensitivity: twice the clip norm if neighbouring data sets replace a record.
    """
    strategy = np.asarray(config.strategy, dtype=np.float64)
    bound = config.plan.clipped_grad(lambda: None)
    sensitivity = bound.sensitivity(config.accountant.neighboring_relation)
    return float(np.linalg.norm(strategy) / strategy[0] * sensitivity / bound.sensitivity())
