"""A live audit of a training with optax or jax-privacy, inside ``jax.jit`` or outside.

The private transformation adds noise to a sum. `watched` puts the canaries in front of it and
observes what comes out. The numbers at the coordinates of the canaries travel to Python through
ordered callbacks, so that jitted steps and ``lax.scan`` are watched as well.

``differentially_private_aggregate`` of optax takes the gradients of each example, clips, sums, adds
noise and divides in one function. There the canaries are added behind it, which is the same number
because noise is added to the sum, and the genuine sum is clipped once more to be known.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from dpaudit.errors import InvalidInput
from dpaudit.integrations.jax import imported, private_settings
from dpaudit.live.audit import LiveAudit

_ROWS = 64


def watched(live: LiveAudit, private: Any) -> Any:
    """A private gradient transformation with the canaries of a live audit in it.

    Put it where the private transformation was, first in ``optax.chain``. Train inside the block of
    the live audit.

    See also: `dpaudit.live_audit`, with the parameters, ``clip_norm``, ``noise_multiplier`` and
    ``sampling_rate``.

    Arguments:
        live: The live audit of these parameters.
        private: ``optax.contrib.differentially_private_aggregate``, or a privatizer of jax-privacy
            which takes sums of clipped gradients. If its noise is correlated, the live audit needs
            ``correlation``.

    Example:
        >>> import jax, optax
        >>> from jax_privacy.noise_addition import gaussian_privatizer
        >>> import dpaudit
        >>> from dpaudit.live.jax import watched
        >>> weights = jax.numpy.zeros(3000)
        >>> live = dpaudit.live_audit(
        ...     weights, clip_norm=1.0, noise_multiplier=2.0, sampling_rate=1.0, seed=0
        ... )
        >>> private = watched(live, gaussian_privatizer(stddev=2.0, prng_key=0))
        >>> optimizer = optax.chain(private, optax.adam(1e-3))
        >>> state = optimizer.init(weights)
        >>> update = jax.jit(optimizer.update)
        >>> with live:
        ...     for _ in range(5):
        ...         updates, state = update(jax.numpy.zeros(3000), state)
        >>> live.steps, live.e_value < 20
        (5, True)
    """
    jax, optax = imported("jax"), imported("optax")
    inside = inspect.getclosurevars(private.update).nonlocals
    _require_correlation(inside, live.evidence.bands)
    rows = {"l2_norm_clip", "noise_std"} <= inside.keys()
    if not rows and private_settings(private) is not None:
        raise InvalidInput(
            "private must be differentially_private_aggregate itself, got a chain that contains "
            "it; use optax.chain(watched(live, private), ...)"
        )
    places, count = live.evidence.places, len(live.evidence.coins)
    callback = jax.experimental.io_callback
    lengths = jax.ShapeDtypeStruct((count,), np.float32)
    live.when_closed(jax.effects_barrier)

    def at_canaries(leaves: Any) -> Any:
        parts = [leaf.reshape(-1)[here] for leaf, here in zip(leaves, places, strict=True)]
        return jax.numpy.concatenate(parts)

    def with_canaries(leaves: Any, added: Any) -> Any:
        starts = np.cumsum([0, *map(len, places)])
        return [
            leaf.reshape(-1).at[here].add(added[start : start + len(here)]).reshape(leaf.shape)
            for leaf, here, start in zip(leaves, places, starts[:-1], strict=True)
        ]

    def add(genuine: Any) -> Any:
        return live.add_at_canaries(np.asarray(genuine, dtype=float)).astype(np.float32)

    def observe(noisy: Any) -> None:
        live.observe_at_canaries(np.asarray(noisy, dtype=float))

    def update_sums(updates: Any, state: Any, params: Any = None) -> Any:
        leaves, structure = jax.tree.flatten(updates)
        added = callback(add, lengths, at_canaries(leaves), ordered=True)
        total = jax.tree.unflatten(structure, with_canaries(leaves, added))
        noisy, state = private.update(total, state, params)
        callback(observe, None, at_canaries(jax.tree.leaves(noisy)), ordered=True)
        return noisy, state

    def update_rows(updates: Any, state: Any, params: Any = None) -> Any:
        leaves, structure = jax.tree.flatten(updates)
        size = leaves[0].shape[0]
        clipped, _ = optax.transforms.per_example_global_norm_clip(leaves, inside["l2_norm_clip"])
        added = callback(add, lengths, at_canaries(clipped), ordered=True)
        noisy, state = private.update(updates, state, params)
        shown = with_canaries(jax.tree.leaves(noisy), added / size)
        callback(observe, None, size * at_canaries(shown), ordered=True)
        return jax.tree.unflatten(structure, shown), state

    return optax.GradientTransformation(private.init, update_rows if rows else update_sums)


def _require_correlation(inside: Any, bands: tuple[float, ...]) -> None:
    """Refuse noise that is correlated in another way than the live audit was told."""
    matrix = inside.get("noising_matrix")
    # A band correlates neighbouring steps, so that it shows in the first ones.
    noising = np.eye(_ROWS)
    if matrix is not None:
        rows = matrix.materialize(_ROWS) if hasattr(matrix, "materialize") else matrix
        noising = np.asarray(rows, dtype=float)
    steps = len(noising)
    strategy = np.sum([c * np.eye(steps, k=-j) for j, c in enumerate(bands[:steps])], axis=0)
    without = strategy @ noising
    if not np.allclose(without, without[0, 0] * np.eye(steps), atol=1e-5):
        raise InvalidInput(
            "private adds noise that is correlated between steps (matrix factorisation), and not "
            "as the live audit was told; pass correlation=CorrelatedNoise(coefficients=...) with "
            "the coefficients of its strategy to dpaudit.live_audit, or none if there is none"
        )
