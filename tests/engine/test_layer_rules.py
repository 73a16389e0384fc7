"""Every registered layer rule keeps the contract, and the contract finds rules that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dpaudit.engine.gradients import Explicit
from dpaudit.engine.kernels.rule import ConvolutionBlock
from dpaudit.engine.layer_rules import LAYER_RULES, LINEAR, Gradients, LayerRule, Notes, Tap, rules
from dpaudit.testing import check_layer_rule


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


CASES: dict[str, list[tuple[Any, ...]]] = {
    "linear": [
        (nn.Linear(4, 3), numbers(5, 4)),
        (nn.Linear(4, 3, bias=False), numbers(5, 2, 6, 4)),
    ],
    "convolution-block": [
        (ConvolutionBlock(nn.Conv2d(2, 3, (2, 3), bias=False)), numbers(3, 2, 9, 7)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 3), relu=True, pool=2), numbers(3, 2, 7, 9)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 2, padding=1), relu=True), numbers(3, 2, 4, 5)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 3, stride=2), pool=2), numbers(3, 2, 8, 9)),
    ],
    "convolution-product": [
        (nn.Conv2d(3, 4, 3, stride=2, padding=1), numbers(3, 3, 7, 8)),
        (nn.Conv1d(2, 4, 3, dilation=2, bias=False), numbers(3, 2, 9)),
        (nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1), padding=1), numbers(3, 2, 4, 5, 3)),
    ],
    "convolution": [
        (nn.Conv2d(4, 6, (3, 1), groups=2, padding="same"), numbers(3, 4, 6, 5)),
        (nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), numbers(3, 2, 9)),
        (nn.Conv3d(2, 4, 2, groups=2, dilation=(2, 1, 1)), numbers(3, 2, 4, 3, 3)),
    ],
    "rms-norm": [(nn.RMSNorm(4), numbers(5, 3, 4)), (nn.RMSNorm((3, 4)), numbers(5, 3, 4))],
    "attention": [
        (nn.MultiheadAttention(4, 2, batch_first=True), *[numbers(3, 5, 4)] * 3),
        (
            nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
            numbers(3, 5, 4),
            numbers(3, 6, 4) + 1,
            numbers(3, 6, 4),
        ),
    ],
    "recurrent": [
        (nn.RNN(3, 4, nonlinearity="relu", batch_first=True), numbers(5, 6, 3)),
        (nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), numbers(5, 6, 3)),
        (nn.GRU(3, 4, bias=False, batch_first=True), numbers(5, 6, 3)),
        (nn.GRU(3, 2, bidirectional=True, batch_first=True), numbers(5, 4, 3)),
    ],
    "group-norm": [(nn.GroupNorm(2, 6), numbers(4, 6, 5))],
    "layer-norm": [
        (nn.LayerNorm((3, 4)), numbers(5, 2, 3, 4)),
        (nn.LayerNorm(4, bias=False), numbers(5, 4)),
    ],
    "embedding": [(nn.Embedding(7, 3, padding_idx=2), torch.randint(0, 7, (5, 6)))],
}


OF_OTHER_LIBRARIES = {"transposed-linear"}


def test_every_registered_rule_has_a_case() -> None:
    assert CASES.keys() | OF_OTHER_LIBRARIES == set(LAYER_RULES)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in CASES for number in range(len(CASES[name]))]
)
def test_registered_rules_keep_the_contract(name: str, number: int) -> None:
    layer, *inputs = CASES[name][number]
    check_layer_rule(LAYER_RULES[name], layer, *inputs)


@pytest.mark.parametrize("inputs", [numbers(5, 4), numbers(5, 6, 4)], ids=["flat", "sequences"])
def test_the_rule_for_projections_of_transformers_keeps_the_contract(inputs: Tensor) -> None:
    library = pytest.importorskip("transformers.pytorch_utils")
    check_layer_rule(LAYER_RULES["transposed-linear"], library.Conv1D(3, 4), inputs)
    assert not LAYER_RULES["transposed-linear"].handles(nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("convolutions", "expected"),
    [
        ("library", "convolution"),
        ("product", "convolution-product"),
        ("kernels", "convolution-product"),
    ],
)
def test_the_rule_of_convolutions_is_chosen(convolutions: Any, expected: str) -> None:
    chosen = [r for r in rules(convolutions=convolutions) if r.handles(nn.Conv2d(3, 4, 3))]
    assert chosen[0] is LAYER_RULES[expected]


def _double(layer: nn.Linear, tap: Tap, inputs: Tensor) -> Tensor:
    output: Tensor = 2 * LINEAR.forward(layer, tap, inputs)
    return output


def _without_bias(layer: nn.Linear, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    gradients = LINEAR.gradients(layer, part, notes, outputs)
    return {**gradients, "bias": Explicit(torch.zeros_like(outputs))}


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (replace(LINEAR, handles=lambda layer: False), "handle"),
        (replace(LINEAR, forward=_double), "forward"),
        (replace(LINEAR, gradients=_without_bias), "clipped sums"),
    ],
)
def test_broken_rules_are_found(broken: LayerRule, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_layer_rule(broken, nn.Linear(4, 3), numbers(5, 4))
