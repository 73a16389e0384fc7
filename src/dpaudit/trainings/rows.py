"""A model whose per-example gradient is the example, so that any library's clipping can be checked.

The loss of an example x is <theta, x>: its gradient is x itself. With it the crafted gradients of
`dpaudit.check_step` reach any library that computes per-example gradients with hooks or with
``vmap``, through its own backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from dpaudit.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn


def rows_model(tensors: Mapping[str, Sequence[int]]) -> nn.Module:
    """A torch module that returns <theta, x> for each row x: the loss of the example x.

    See also: `dpaudit.checks.check_step`, whose gradients are such rows.

    Arguments:
        tensors: Names and shapes of the parameter tensors, which start at zero, in the order in
            which a row is divided among them.

    Example:
        >>> import torch
        >>> model = rows_model({"weight": (2, 3), "bias": (2,)})
        >>> rows = torch.arange(16.0).reshape(2, 8)
        >>> model(rows).sum().backward()
        >>> model.bias.grad
        tensor([20., 22.])
    """
    try:
        import torch
        from torch import nn
    except ImportError as error:
        raise MissingExtra("a model of rows", "torch") from error
    sizes = [prod(shape) for shape in tensors.values()]
    if not sizes or min(sizes) < 1:
        raise InvalidInput(
            "tensors must hold the name and shape of at least one parameter, none of them empty, "
            f"got {dict(tensors)}"
        )

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in tensors.items():
                self.register_parameter(name, nn.Parameter(torch.zeros(*shape)))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            parts = torch.split(rows, sizes, dim=1)
            products = [
                part @ parameter.reshape(-1)
                for part, parameter in zip(parts, self.parameters(), strict=True)
            ]
            return torch.stack(products).sum(dim=0)

    return Rows()
