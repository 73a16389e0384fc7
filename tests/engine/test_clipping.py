"""The fast clipped sums equal the slow twin's, for every kind of layer."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import slow_blocks  # noqa: F401  (its operations on a CPU)
import torch
from helpers import cross_entropy
from torch import Tensor, nn

from dpaudit.engine import reference
from dpaudit.engine.clipped_sums import ClippedSums, Taps, ruled_units
from dpaudit.engine.convolutions import PADDED_TO
from dpaudit.engine.kernels.rule import with_blocks
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.starting_points import trainable


def models(case: Any, count: int) -> list[nn.Module]:
    built = []
    for seed in range(count):
        torch.manual_seed(seed)
        built.append(case.build())
    return built


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainable(model)])


def fast(
    case: Any,
    built: list[nn.Module],
    weights: Tensor,
    clip_norm: float,
    dtype: torch.dtype,
    *,
    convolutions: Any = "product",
    taps: Taps | None = None,
) -> Tensor:
    template = copy.deepcopy(built[0]).to(dtype)
    features = case.features.to(dtype) if case.features.is_floating_point() else case.features
    if convolutions == "kernels":
        template = with_blocks(template, features)
    sums = ClippedSums(
        template,
        cross_entropy,
        features,
        taps,
        rule_for=partial(rule_for, products=convolutions == "product"),
    )
    parameters = torch.stack([flat(one) for one in built]).to(dtype)
    norm = torch.tensor(clip_norm, dtype=dtype)
    return sums(parameters, features, case.targets, weights.to(dtype), norm)


def slow(case: Any, built: list[nn.Module], weights: Tensor, clip_norm: float) -> Tensor:
    return torch.stack(
        [
            reference.clipped_sum(
                model,
                cross_entropy,
                case.features,
                case.targets,
                clip_norm=clip_norm,
                weights=weights[run],
            )
            for run, model in enumerate(built)
        ]
    )


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("convolutions", ["library", "product", "kernels"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["f32", "f64"]
)
def test_clipped_sums_equal_the_slow_twins(
    case: Any, dtype: torch.dtype, tolerance: float, convolutions: str
) -> None:
    built = models(case, 3)
    weights = torch.ones(3, len(case.targets))
    weights[1, 0] = 0
    norms = [0.3, 3.0, float("inf")]  # all clipped, some, none
    ways = [Taps(per_example=True)]
    covered = ruled_units(built[0], Taps())
    if sum(len(unit.parameters) for unit in covered) == len(trainable(built[0])):
        ways.append(Taps())
    for clip_norm in norms:
        expected = slow(case, built, weights, clip_norm)
        for taps in ways:
            found = fast(
                case, built, weights, clip_norm, dtype, convolutions=convolutions, taps=taps
            )
            assert relative(found, expected) < tolerance, (clip_norm, taps)


def test_all_parameters_can_be_tapped_at_their_values(case: Any) -> None:
    built = models(case, 2)
    if any(getattr(layer, "padding_idx", None) is not None for layer in built[0].modules()):
        pytest.skip("torch ignores padding_idx in a table with an axis of examples")
    weights = torch.ones(2, len(case.targets))
    taps = Taps(per_example=True, loose=frozenset(range(100)))
    found = fast(case, built, weights, 0.5, torch.float64, taps=taps)
    assert relative(found, slow(case, built, weights, 0.5)) < 1e-10


def test_columns_padded_for_tensor_cores_change_nothing(
    cases: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the columns of patches are padded with zeros; here the CPU does the same."""
    for name in ("convnet", "all kinds of convolutions"):
        case = cases[name]
        built = models(case, 2)
        weights = torch.ones(2, len(case.targets))
        plain = fast(case, built, weights, 0.5, torch.float64)
        with monkeypatch.context() as patch:
            patch.setitem(PADDED_TO, "cpu", 8)
            padded = fast(case, built, weights, 0.5, torch.float64)
        torch.testing.assert_close(padded, plain, rtol=1e-10, atol=1e-12)
