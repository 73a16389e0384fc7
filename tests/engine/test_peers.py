"""Opacus, the library of the paper, gives the same clipped sums."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from helpers import cross_entropy
from torch import Tensor

from dpaudit.engine.clipped_sums import ClippedSums
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.starting_points import flat_parameters, trainable

opacus = pytest.importorskip("opacus")

CLIP_NORM = 0.7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["fcnn", "convnet", "small resnet", "embedding and layer norm", "partly frozen"]
)
def test_opacus_agrees(cases: dict[str, Any], name: str) -> None:
    case = cases[name]
    torch.manual_seed(1)
    template = case.build()
    for layer in template.modules():
        if isinstance(layer, torch.nn.Embedding):
            layer.padding_idx = None  # Opacus gives the padding row a gradient; torch does not
    found = _ours(case, template)
    expected = _opacus(case, copy.deepcopy(template))
    assert float((found - expected).norm() / expected.norm()) < 2e-5  # Opacus adds 1e-6 to norms


def _ours(case: Any, template: torch.nn.Module) -> Tensor:
    sums = ClippedSums(
        template, cross_entropy, case.features, rule_for=partial(rule_for, products=True)
    )
    weights = torch.ones(1, len(case.targets))
    start = flat_parameters(template).unsqueeze(0)
    return sums(start, case.features, case.targets, weights, torch.tensor(CLIP_NORM))[0]


def _opacus(case: Any, model: torch.nn.Module) -> Tensor:
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(trainable(model), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=1,
        loss_reduction="sum",
    )
    cross_entropy(wrapped(case.features), case.targets).sum().backward()
    optimizer.clip_and_accumulate()
    return torch.cat([p.summed_grad.flatten() for p in trainable(model)])
