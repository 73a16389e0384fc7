r"""Canaries in the clipped gradients of jax-privacy.

``clipped_grad`` computes, clips and sums per-example gradients in one function, so that no
per-example gradient is seen outside. A canary is therefore one more *example*: its loss is the
inner product :math:`\langle \theta, g \rangle` of the parameters with the crafted gradient, and its
gradient is exactly :math:`g`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from dpaudit.integrations.trees import imported, require_size, rows_like, traced_coins
from dpaudit.trainings.canaries import GradientCanary, require_known_clipping


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
    insert = _through if through_clipping else _after

    def with_canaries(fun: Any, argnums: Any = 0, has_aux: bool = False, **options: Any) -> Any:
        plain = clipped_grad(fun, argnums, has_aux, **options)
        clipping = imported("jax_privacy.clipping", "jax-privacy")

        def gradient(*arguments: Any, present: ArrayLike, **named: Any) -> Any:
            trained = _selected(arguments, argnums)
            require_size(trained, canary)
            coins = traced_coins(present, canary.count)
            if insert is _after:
                return _after(plain, canary, trained, coins, arguments, named)
            return _through(
                clipped_grad, fun, argnums, has_aux, options, canary, coins, arguments, named
            )

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
    found = function(
        *longer, numbers, is_padding_example=numpy.concatenate([padding, ~coins]), **named
    )
    if not function.has_aux:
        return found
    return found[0], jax.tree.map(lambda leaf: leaf[:size], found[1])


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
    found = plain(*arguments, **named)
    total = found[0] if plain.has_aux else found
    total = jax.tree.map(lambda one, other: one + other.astype(one.dtype), total, clipped)
    return (total, found[1]) if plain.has_aux else total
