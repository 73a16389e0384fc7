"""Every registered layer rule keeps the contract, and the contract finds rules that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import slow_blocks  # noqa: F401  (its operations on a CPU)
import torch
from helpers import normal_numbers
from torch import Tensor, nn

from dpaudit.engine.gradients import Explicit
from dpaudit.engine.kernels.rule import ConvolutionBlock
from dpaudit.engine.layer_rules import (
    LAYER_RULES,
    LINEAR,
    Gradients,
    LayerRule,
    Notes,
    Tap,
    rule_for,
)
from dpaudit.testing import check_layer_rule

CASES: dict[str, list[tuple[Any, ...]]] = {
    "torch.Linear": [
        (nn.Linear(4, 3), normal_numbers(5, 4)),
        (nn.Linear(4, 3, bias=False), normal_numbers(5, 2, 6, 4)),
    ],
    "dpaudit.ConvolutionBlock": [
        (ConvolutionBlock(nn.Conv2d(2, 3, (2, 3), bias=False)), normal_numbers(3, 2, 9, 7)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 3), relu=True, pool=2), normal_numbers(3, 2, 7, 9)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 2, padding=1), relu=True), normal_numbers(3, 2, 4, 5)),
        (ConvolutionBlock(nn.Conv2d(2, 3, 3, stride=2), pool=2), normal_numbers(3, 2, 8, 9)),
    ],
    "torch.Conv1d as product": [
        (nn.Conv1d(2, 4, 3, dilation=2, bias=False), normal_numbers(3, 2, 9)),
    ],
    "torch.Conv2d as product": [
        (nn.Conv2d(3, 4, 3, stride=2, padding=1), normal_numbers(3, 3, 7, 8)),
    ],
    "torch.Conv3d as product": [
        (nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1), padding=1), normal_numbers(3, 2, 4, 5, 3)),
    ],
    "torch.Conv1d": [
        (nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), normal_numbers(3, 2, 9)),
    ],
    "torch.Conv2d": [
        (nn.Conv2d(4, 6, (3, 1), groups=2, padding="same"), normal_numbers(3, 4, 6, 5)),
    ],
    "torch.Conv3d": [
        (nn.Conv3d(2, 4, 2, groups=2, dilation=(2, 1, 1)), normal_numbers(3, 2, 4, 3, 3)),
    ],
    "torch.RMSNorm": [
        (nn.RMSNorm(4), normal_numbers(5, 3, 4)),
        (nn.RMSNorm((3, 4)), normal_numbers(5, 3, 4)),
    ],
    "torch.MultiheadAttention": [
        (nn.MultiheadAttention(4, 2, batch_first=True), *[normal_numbers(3, 5, 4)] * 3),
        (
            nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
            normal_numbers(3, 5, 4),
            normal_numbers(3, 6, 4) + 1,
            normal_numbers(3, 6, 4),
        ),
    ],
    "torch.RNN": [
        (nn.RNN(3, 4, nonlinearity="relu", batch_first=True), normal_numbers(5, 6, 3)),
    ],
    "torch.LSTM": [
        (
            nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
            normal_numbers(5, 6, 3),
        ),
    ],
    "torch.GRU": [
        (nn.GRU(3, 4, bias=False, batch_first=True), normal_numbers(5, 6, 3)),
        (nn.GRU(3, 2, bidirectional=True, batch_first=True), normal_numbers(5, 4, 3)),
    ],
    "torch.GroupNorm": [(nn.GroupNorm(2, 6), normal_numbers(4, 6, 5))],
    "torch.LayerNorm": [
        (nn.LayerNorm((3, 4)), normal_numbers(5, 2, 3, 4)),
        (nn.LayerNorm(4, bias=False), normal_numbers(5, 4)),
    ],
    "torch.Embedding": [(nn.Embedding(7, 3, padding_idx=2), torch.randint(0, 7, (5, 6)))],
}


def test_every_registered_rule_has_a_case() -> None:
    assert CASES.keys() | {"transformers.Conv1D"} == set(LAYER_RULES)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in CASES for number in range(len(CASES[name]))]
)
def test_registered_rules_keep_the_contract(name: str, number: int) -> None:
    layer, *inputs = CASES[name][number]
    check_layer_rule(LAYER_RULES[name], layer, *inputs)
    assert rule_for(layer, products="product" in name) is LAYER_RULES[name]


@pytest.mark.parametrize(
    "inputs", [normal_numbers(5, 4), normal_numbers(5, 6, 4)], ids=["flat", "sequences"]
)
def test_the_rule_for_projections_of_transformers_keeps_the_contract(inputs: Tensor) -> None:
    library = pytest.importorskip("transformers.pytorch_utils")
    layer = library.Conv1D(3, 4)
    check_layer_rule(LAYER_RULES["transformers.Conv1D"], layer, inputs)
    assert rule_for(layer) is LAYER_RULES["transformers.Conv1D"]


class _SameForward(nn.Linear):
    pass


class _OtherForward(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + 1


def test_subclasses_have_the_rule_of_the_class_whose_forward_they_have() -> None:
    assert rule_for(_SameForward(4, 3)) is LINEAR
    assert rule_for(_OtherForward(4, 3)) is None
    assert rule_for(nn.Conv2d(4, 4, 3, groups=2), products=True) is LAYER_RULES["torch.Conv2d"]


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
        check_layer_rule(broken, nn.Linear(4, 3), normal_numbers(5, 4))
