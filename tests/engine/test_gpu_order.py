"""The order of axes and the norms that are used on a GPU, tested on a CPU."""

from __future__ import annotations

import pytest
import torch
from helpers import normal_numbers
from torch import Tensor, nn

from dpaudit.engine import products
from dpaudit.engine.gradients import OuterProducts
from dpaudit.engine.layer_rules import LAYER_RULES
from dpaudit.testing import check_layer_rule


@pytest.mark.parametrize(
    ("rule", "layer", "inputs"),
    [
        ("torch.Linear", nn.Linear(4, 3), normal_numbers(5, 4)),
        ("torch.Linear", nn.Linear(9, 8), normal_numbers(5, 2, 9)),
        ("torch.Linear", nn.Linear(4, 3, bias=False), normal_numbers(5, 2, 6, 4)),
        ("torch.Conv2d", nn.Conv2d(4, 6, 3, groups=2), normal_numbers(3, 4, 6, 5)),
        ("torch.Conv1d as product", nn.Conv1d(2, 4, 3), normal_numbers(3, 2, 9)),
        ("torch.GroupNorm", nn.GroupNorm(2, 6), normal_numbers(4, 6, 5)),
        ("torch.LayerNorm", nn.LayerNorm((3, 4)), normal_numbers(5, 2, 3, 4)),
        ("torch.Embedding", nn.Embedding(7, 3), torch.arange(30).view(5, 6) % 7),
        ("torch.GRU", nn.GRU(3, 4, batch_first=True), normal_numbers(5, 6, 3)),
    ],
)
def test_rules_keep_the_contract(
    monkeypatch: pytest.MonkeyPatch, rule: str, layer: nn.Module, inputs: Tensor
) -> None:
    monkeypatch.setattr(products, "on_gpu", lambda _: True)
    check_layer_rule(LAYER_RULES[rule], layer, inputs)


@pytest.mark.parametrize("features", [products.ALIGNMENT, products.ALIGNMENT + 1])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_linear_layer_on_sequences_gives_contiguous_features_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool, features: int
) -> None:
    """Unless their number leaves the rows unaligned, which slows every product that uses them."""
    monkeypatch.setattr(products, "on_gpu", lambda _: on_gpu)
    layer, inputs = nn.Linear(4, features), normal_numbers(2, 5, 4)
    found = products.linear(inputs, layer.weight, None)
    torch.testing.assert_close(found, inputs @ layer.weight.T)
    assert found.is_contiguous() == (on_gpu and features == products.ALIGNMENT)


@pytest.mark.parametrize("shape", [(8, 3), (3, 8)])
def test_the_narrower_factor_is_weighted_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    """The sums are those of the explicit gradients."""
    monkeypatch.setattr(products, "on_gpu", lambda _: True)
    outputs, inputs = normal_numbers(5, 2, shape[0]), normal_numbers(5, 2, shape[1])
    weights = torch.arange(5.0)
    gradients = OuterProducts(outputs, inputs, torch.Size(shape))
    expected = torch.einsum("b,bli,blj->ij", weights, outputs, inputs)
    torch.testing.assert_close(gradients.weighted_sum(weights), expected)
