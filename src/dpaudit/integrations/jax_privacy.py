"""Audit a training with jax-privacy 2.

`insert_canary` makes a ``clipped_grad`` that takes canaries, `select_batches` lets a batch
selection strategy choose their steps, and `claim_of` reads the claim from a configuration.

``clipped_grad`` computes, clips and sums per-example gradients in one function, so that no
per-example gradient is visible outside. A canary is therefore one more *example*: its loss is the
inner product of the parameters with the crafted gradient, and its gradient is exactly that. In the
same way `private_step` makes a step under check out of ``clipped_grad`` and the noise of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.checks import CheckResult, check_step
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.base import History, Integration, curve_of, in_words, merged
from dpaudit.integrations.jax import (
    canary_for,
    imported,
    record_gradient,
    require_size,
    rows_like,
    traced_coins,
)
from dpaudit.trainings import GradientCanary
from dpaudit.trainings.canary import coins_of, require_known_clipping
from dpaudit.trainings.run import report_batch

__all__ = [
    "JaxPrivacyIntegration",
    "canary_for",
    "check",
    "claim_of",
    "insert_canary",
    "private_step",
    "record_gradient",
    "select_batches",
]


def insert_canary(
    canary: Any, *, clipped_grad: Callable[..., Any] | None = None, through_clipping: bool = True
) -> Callable[..., Any]:
    """A ``clipped_grad`` whose gradient function also takes ``present=``: the canaries of a step.

    Through the clipping, every canary is one more example in the batch, which jax-privacy clips
    itself; canaries that are not present are padding examples. After the clipping, what correct
    clipping leaves of them is added to the sum, which tests the noise and the accounting.

    See also: `dpaudit.integrations.jax_privacy.select_batches`, for ``present``.

    Arguments:
        canary: The crafted gradients, a `GradientCanary`.
        clipped_grad: ``jax_privacy.clipped_grad`` by default; an execution plan has its own,
            ``plan.clipped_grad``.
        through_clipping: Whether jax-privacy clips the canaries.

    Example:
        >>> import jax.numpy as jnp
        >>> from dpaudit.integrations.jax_privacy import canary_for
        >>> canary = canary_for(jnp.zeros(3), clip_norm=0.5, seed=1)
        >>> clipped_grad = insert_canary(canary)
        >>> gradient = clipped_grad(lambda w, x: jnp.vdot(w, x.ravel()), l2_clip_norm=0.5)
        >>> zeros = jnp.zeros((4, 3))
        >>> gradient(jnp.ones(3), zeros, present=True).tolist()
        [0.0, 0.5, 0.0]
        >>> gradient(jnp.ones(3), zeros, present=False).tolist()
        [0.0, 0.0, 0.0]
    """
    require_known_clipping(canary, through_clipping)
    if clipped_grad is None:
        clipped_grad = imported("jax_privacy", "jax-privacy").clipped_grad

    def with_canaries(fun: Any, argnums: Any = 0, has_aux: bool = False, **options: Any) -> Any:
        plain = clipped_grad(fun, argnums, has_aux, **options)
        clipping = imported("jax_privacy.clipping", "jax-privacy")

        def gradient(*arguments: Any, present: ArrayLike, **named: Any) -> Any:
            trained = _selected(arguments, argnums)
            require_size(trained, canary)
            coins = traced_coins(present, canary.count)
            if through_clipping:
                given = clipped_grad, fun, argnums, has_aux, options
                return _through(*given, canary, coins, arguments, named)
            return _after(plain, canary, trained, coins, arguments, named)

        return clipping.BoundedSensitivityCallable(gradient, plain.l2_norm_bound, plain.has_aux)

    return with_canaries


def _selected(arguments: tuple[Any, ...], argnums: Any) -> Any:
    """The arguments with respect to which the gradient is taken."""
    if isinstance(argnums, int):
        return arguments[argnums]
    return tuple(arguments[place] for place in argnums)


def _through(
    clipped_grad: Any,
    fun: Any,
    argnums: Any,
    has_aux: bool,
    options: dict[str, Any],
    canary: Any,
    coins: Any,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """The clipped sum of the batch and one further example for each canary."""
    jax = imported("jax")
    numpy = jax.numpy
    batched = options.get("batch_argnums", 1)
    batched = (batched,) if isinstance(batched, int) else tuple(batched)
    size = jax.tree.leaves(arguments[batched[0]])[0].shape[0]
    rows = rows_like(_selected(arguments, argnums), canary)

    def loss(*given: Any) -> Any:
        *original, number = given
        number = numpy.ravel(number)[0]
        value = fun(*original)
        own = jax.tree.map(lambda leaf: leaf[numpy.maximum(number, 0)], rows)
        products = jax.tree.map(numpy.vdot, _selected(tuple(original), argnums), own)
        crafted = sum(jax.tree.leaves(products))
        if not has_aux:
            return numpy.where(number < 0, value, crafted)
        return numpy.where(number < 0, value[0], crafted), value[1]

    # A canary's own input is not used; a copy of an example has the right shape and type.
    longer = list(arguments)
    for place in batched:
        longer[place] = jax.tree.map(
            lambda leaf: (
                numpy.concatenate([leaf, *[leaf[:1]] * canary.count])
                if size
                else numpy.zeros((canary.count, *leaf.shape[1:]), leaf.dtype)
            ),
            arguments[place],
        )
    numbers = numpy.concatenate([numpy.full(size, -1), numpy.arange(canary.count)])
    padding = named.pop("is_padding_example", None)
    padding = numpy.zeros(size, dtype=bool) if padding is None else padding
    function = clipped_grad(
        loss, argnums, has_aux, **{**options, "batch_argnums": (*batched, len(arguments))}
    )
    clipped = function(
        *longer, numbers, is_padding_example=numpy.concatenate([padding, ~coins]), **named
    )
    if not function.has_aux:
        return clipped
    return clipped[0], jax.tree.map(lambda leaf: leaf[:size], clipped[1])


def _after(
    plain: Any,
    canary: GradientCanary,
    trained: Any,
    coins: Any,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """The clipped sum of the batch, and what correct clipping leaves of the canaries."""
    jax = imported("jax")
    flat, unravel = jax.flatten_util.ravel_pytree(trained)
    lengths = plain.l2_norm_bound * coins.astype(flat.dtype)
    clipped = unravel(jax.numpy.zeros_like(flat).at[canary.dimensions].add(lengths))
    output = plain(*arguments, **named)
    total = output[0] if plain.has_aux else output
    total = jax.tree.map(
        lambda genuine, canaries: genuine + canaries.astype(genuine.dtype), total, clipped
    )
    return (total, output[1]) if plain.has_aux else total


def select_batches(
    strategy: Any,
    examples: int,
    canary: Any,
    inserted: ArrayLike,
    *,
    rng: np.random.Generator | int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """The examples of each batch, and which canaries are in it.

    The strategy selects from the examples and the canaries together, so that a canary takes part
    exactly as an example would, with any strategy: Poisson, cyclic Poisson, balls in bins, fixed
    batch sizes, with and without truncation. A canary that is not inserted is removed from its
    batches, which is what add/remove adjacency means.

    Arguments:
        strategy: A ``BatchSelectionStrategy``.
        examples: Number of genuine examples.
        canary: The crafted gradients.
        inserted: One boolean for each canary: whether this training contains it.
        rng: Random generator of the batches, or its seed.

    Example:
        >>> from jax_privacy.batch_selection import CyclicPoissonSampling
        >>> from dpaudit.integrations.jax_privacy import canary_for
        >>> everything = CyclicPoissonSampling(sampling_prob=1.0, iterations=2)
        >>> for indices, present in select_batches(
        ...     everything, 3, canary_for(5, clip_norm=1.0), True, rng=0
        ... ):
        ...     print(sorted(indices.tolist()), present)
        [0, 1, 2] [ True]
        [0, 1, 2] [ True]
    """
    if not hasattr(strategy, "batch_iterator"):
        raise InvalidInput(
            "strategy must be a BatchSelectionStrategy of jax-privacy, got "
            f"{type(strategy).__name__}"
        )
    examples = _validate.integer("examples", examples, at_least=1)
    coins = coins_of(inserted, canary.count)
    generator = np.random.default_rng(rng)
    for step, batch in enumerate(strategy.batch_iterator(examples + canary.count, rng=generator)):
        indices = np.asarray(batch, dtype=np.int64)
        genuine = (indices >= 0) & (indices < examples)
        if step == 0:
            report_batch(sorted(indices[genuine].tolist()))
        present = np.zeros(canary.count, dtype=bool)
        present[indices[indices >= examples] - examples] = True
        yield indices[genuine], present & coins


# Claims.


def claim_of(source: Any, *, every_step: bool = False) -> Claim:
    """Read the privacy claim from a configuration of jax-privacy.

    Steps without sampling have a Gaussian trade-off function in closed form, and sampled steps a
    pessimistic privacy-loss distribution. A truncated Poisson sample is accounted for by the PLD
    accountant of ``dp_accounting``, with "replace special" neighbours.

    See also: `Claim.from_matrix_factorisation`, for other participations.

    Arguments:
        source: A ``BandMFExecutionPlanConfig`` (DP-SGD is the one with one band), its ``plan``, a
            ``DpEvent``, or a ``DPKerasConfig``.
        every_step: The claim for an example in every step, whatever the batch selection says. With
            correlated noise this needs the configuration, which has the strategy.

    Example:
        >>> import dp_accounting
        >>> claim_of(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 9))
        Claim(DP-SGD with noise multiplier 2, 9 steps)
    """
    if hasattr(source, "train_steps"):
        return _of_history(_of_keras(source), every_step)
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
            "source must be a BandMFExecutionPlanConfig, a DPExecutionPlan or a DpEvent; "
            f"got {type(source).__name__}. Use Claim.from_dpsgd or Claim.from_matrix_factorisation"
        )
    groups = _of_event(event)
    if groups is not None:
        return _of_history(groups, every_step)
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
            parts = [_of_event(inner) for inner in event.events]
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


def _of_keras(source: Any) -> History:
    """One group of steps, as ``DPKerasConfig`` accounts for them."""
    if source.noise_multiplier is None:
        raise InvalidInput(
            "noise_multiplier of the DPKerasConfig must be known, got None; use "
            "config.update_with_calibrated_noise_multiplier()"
        )
    rate = source.effective_batch_size / source.train_size
    return [(float(source.noise_multiplier), min(1.0, rate), source.train_steps)]


# The private step under check.


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


@final
class JaxPrivacyIntegration(Integration):
    """jax-privacy 2: execution plans, their configurations, and privacy parameters."""

    name: ClassVar[str] = "jax-privacy"
    extra: ClassVar[str] = "jax-privacy"

    def recognises(self, source: Any) -> bool:
        return type(source).__module__.partition(".")[0] == "jax_privacy"

    def canary_for(self, optimizer: Any, *, count: int = 1, seed: int = 0) -> GradientCanary:
        raise self.unsupported(
            "canaries without the parameters",
            "use dpaudit.integrations.jax_privacy.canary_for(parameters, clip_norm=...)",
        )

    def insert_canary(
        self, optimizer: Any, canary: Any, inserted: Any, *, seed: int, **options: Any
    ) -> AbstractContextManager[Any]:
        raise self.unsupported(
            "insertion from outside",
            "use dpaudit.integrations.jax_privacy.insert_canary(canary) in place of clipped_grad",
        )

    def claim_of(self, source: Any, *, steps: int | None = None) -> Claim:
        return claim_of(source)

    def private_step(self, optimizer: Any) -> Callable[..., Any]:
        return private_step(optimizer)

    def check(self, optimizer: Any, **options: Any) -> CheckResult:
        return check(optimizer, **options)
