"""The parameters of a trained model as one flat vector, for any framework.

No framework is imported: the training has loaded the one that it uses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput


def flat_parameters(returned: Any) -> Array:
    """All parameters as one vector, in the order of their framework.

    | returned | order |
    |---|---|
    | an array or tensor | flattened row by row |
    | a torch module | its trainable parameters, in the order of ``parameters()`` |
    | a Keras model | its ``trainable_variables`` |
    | a nested dictionary, list or tuple of arrays, a ``state_dict`` | its own order |
    | the same with JAX arrays (a pytree) | ``jax.tree.leaves``: keys sorted |

    Example:
        >>> flat_parameters({"weight": np.eye(2), "bias": [np.array(3.0)]})
        array([1., 0., 0., 1., 3.])
    """
    leaves = [as_array(leaf).ravel() for _, leaf in named_leaves(returned)]
    if not leaves:
        raise InvalidInput(f"there are no parameters in the {type(returned).__name__} returned")
    return np.concatenate(leaves)


def looks_like_parameters(returned: Any) -> bool:
    """Whether `flat_parameters` can read it."""
    try:
        flat_parameters(returned)
    except InvalidInput:
        return False
    return True


def as_array(value: Any) -> Array:
    """Numbers as a numpy array of float64, from any framework and device."""
    given = value
    if callable(getattr(value, "full_tensor", None)):  # sharded over processes (FSDP2)
        value = value.full_tensor()
    # A tensor on a GPU, with gradients or in bfloat16 has no numpy view.
    if callable(getattr(value, "detach", None)) and callable(getattr(value, "cpu", None)):
        value = value.detach().cpu().double()
    if callable(getattr(value, "numpy", None)):
        value = value.numpy()
    try:
        array = np.asarray(value)
        if array.dtype.kind in "OUSmMV" and not _custom_float(array):
            raise TypeError(f"{array.dtype} is not numeric")
        if array.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a {type(given).__name__} is no array of numbers: {error}") from None


def _custom_float(array: NDArray[Any]) -> bool:
    """Whether this is JAX's bfloat16 or float8, which numpy sees as kind V with their own name."""
    return array.dtype.kind == "V" and "float" in array.dtype.name


def named_leaves(returned: Any) -> Iterator[tuple[str, Any]]:
    """The arrays in what a training returned, with their names, in the order of their framework."""
    if callable(getattr(returned, "named_parameters", None)):
        for name, one in returned.named_parameters():
            if getattr(one, "requires_grad", True):
                yield name, one
    elif hasattr(returned, "trainable_variables"):
        variables = enumerate(returned.trainable_variables)
        yield from ((getattr(one, "name", f"variable {place}"), one) for place, one in variables)
    else:
        leaves = list(_nested("", returned))
        jax = sys.modules.get("jax")
        if jax is not None and any(isinstance(leaf, jax.Array) for _, leaf in leaves):
            paths = jax.tree_util.tree_leaves_with_path(returned)
            leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in paths]
        yield from leaves


def _nested(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        inner = enumerate(value)
    else:
        yield prefix or "parameters", value
        return
    for key, one in inner:
        yield from _nested(f"{prefix}.{key}" if prefix else str(key), one)
