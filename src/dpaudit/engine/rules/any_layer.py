"""Any other layer: every example gets its own copy of the parameters, which is differentiated.

Correct for every layer that treats examples separately. Slow, because the gradients of all examples
are in memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree


def call_with_own_parameters(
    layer: torch.nn.Module,
    parameters: dict[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call ``layer`` with parameters of shape (examples, …): one set for each example.

    Tensor arguments and outputs have the example as their first axis.
    """
    leaves, structure = _pytree.tree_flatten((args, kwargs))
    is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def one_example(own: dict[str, Tensor], *own_tensors: Tensor) -> Any:
        remaining = iter(own_tensors)
        filled = [
            next(remaining).unsqueeze(0) if tensor else leaf
            for leaf, tensor in zip(leaves, is_tensor, strict=True)
        ]
        own_args, own_kwargs = _pytree.tree_unflatten(filled, structure)
        outputs = torch.func.functional_call(layer, own, own_args, own_kwargs)
        return _pytree.tree_map(lambda output: output.squeeze(0), outputs)

    return torch.func.vmap(one_example)(parameters, *tensors)
