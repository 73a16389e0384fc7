"""The paper's networks: their sizes, their shapes, and that no example sees another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from dpaudit.errors import InvalidInput
from dpaudit.models import convnet, fcnn, linear_head, resnet18

NETWORKS: list[tuple[Callable[[], nn.Module], int, tuple[int, ...], int]] = [
    (fcnn, 68, (8,), 2),
    (convnet, 62_006, (3, 32, 32), 10),
    (resnet18, 11_173_962, (3, 32, 32), 10),
    (lambda: linear_head(2304, 10), 23_050, (2304,), 10),
]
NAMES = ["fcnn", "convnet", "resnet18", "linear_head"]


@pytest.mark.parametrize(("build", "parameters", "shape", "classes"), NETWORKS, ids=NAMES)
def test_sizes_and_shapes(
    build: Callable[[], nn.Module], parameters: int, shape: tuple[int, ...], classes: int
) -> None:
    torch.manual_seed(0)
    network = build()
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert list(network.buffers()) == []  # state outside the parameters would escape the noise
    images = torch.randn(3, *shape)
    together = network(images)
    assert together.shape == (3, classes)
    alone = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [fcnn, convnet, resnet18], ids=NAMES[:3])
def test_weights_come_from_torchs_global_generator(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(3)
    one = nn.utils.parameters_to_vector(build().parameters())
    torch.manual_seed(3)
    two = nn.utils.parameters_to_vector(build().parameters())
    assert torch.equal(one, two)
    assert not torch.equal(one, nn.utils.parameters_to_vector(build().parameters()))


def test_resnet18_halves_the_image_three_times() -> None:
    sizes: list[tuple[int, ...]] = []
    network = resnet18(width=8, groups=4)
    for module in network:  # type: ignore[attr-defined]
        module.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    network(torch.zeros(1, 3, 32, 32))
    blocks = sizes[3:-3]
    assert blocks == [(8, 32, 32)] * 2 + [(16, 16, 16)] * 2 + [(32, 8, 8)] * 2 + [(64, 4, 4)] * 2


def test_resnet18_has_eighteen_weighted_layers_and_no_batch_norm() -> None:
    network = resnet18()
    weighted = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    shortcuts = [m for m in weighted if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    assert len(weighted) - len(shortcuts) == 18
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == len(weighted) - 1
    assert {m.num_groups for m in norms} == {32}
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())


def test_the_number_of_groups_does_not_change_the_parameter_count() -> None:
    sizes = {sum(p.numel() for p in resnet18(groups=g).parameters()) for g in (1, 16, 64)}
    assert sizes == {11_173_962}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: resnet18(groups=48), r"groups must divide the width \(64\), got 48; .* as 32"),
        (lambda: resnet18(classes=1), "classes must be at least 2, got 1"),
        (lambda: linear_head(0, 10), "features must be at least 1, got 0"),
    ],
)
def test_bad_arguments(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build()
