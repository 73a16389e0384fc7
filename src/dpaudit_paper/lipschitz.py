r"""Estimates of the Lipschitz constant of a training step, by power iteration.

The update is :math:`\varphi(\theta) = \theta - \frac\eta B \sum_i \mathrm{clip}(g_i(\theta))`. Its
Jacobian at :math:`\theta` is :math:`J = I - \frac\eta B \sum_i P_i H_i` with the Hessians
:math:`H_i` of the examples and the Jacobians :math:`P_i` of clipping, both symmetric. Power
iteration on :math:`J^T J` gives the norm of :math:`J` at one point. A Lipschitz constant is the
largest norm over all points, so that this is an estimate from below and never a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD


def jacobian_norm(
    mechanism: DPSGD,
    parameters: torch.Tensor,
    *,
    step: int,
    iterations: int = 12,
    chunk: int = 32,
    seed: int = 0,
) -> float:
    """The norm of the Jacobian of one update at some parameters.

    Arguments:
        mechanism: The training.
        parameters: The model, shape (parameters,).
        step: The step whose batch is used, from 0.
        iterations: Number of power iterations.
        chunk: Examples that are differentiated together.
        seed: Random seed of the first vector.
    """
    import torch

    from dpaudit.engine.evaluate import _answer
    from dpaudit.engine.starting_points import as_tensor

    answer = _answer(mechanism, parameters.unsqueeze(0))
    indices = mechanism.batches.indices(step, len(mechanism.data))
    features = as_tensor(mechanism.data.features)[indices].to(parameters)
    targets = as_tensor(mechanism.data.targets)[indices].to(parameters.device)
    rate = mechanism.learning_rate / mechanism.batches.expected_size(len(mechanism.data))

    def loss(flat: torch.Tensor, point: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return mechanism.loss(answer(flat, point[None]), label[None]).sum()

    gradient = torch.func.grad(loss)

    def clip_slope(g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        norm = g.norm()
        unit = g / norm.clamp(min=1e-30)
        clipped = mechanism.clip_norm / norm * (v - unit * (unit @ v))
        return torch.where(norm > mechanism.clip_norm, clipped, v)

    def times(point: torch.Tensor, label: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def at(flat: torch.Tensor) -> torch.Tensor:
            return gradient(flat, point, label)

        g, product = torch.func.jvp(at, (parameters,), (v,))
        return clip_slope(g, product)

    def transposed(point: torch.Tensor, label: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def at(flat: torch.Tensor) -> torch.Tensor:
            return gradient(flat, point, label)

        turned = clip_slope(at(parameters), v)
        found: torch.Tensor = torch.func.jvp(at, (parameters,), (turned,))[1]
        return found

    def applied(one: object, v: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(v)
        for some, labels in zip(features.split(chunk), targets.split(chunk), strict=True):
            total += torch.func.vmap(one, in_dims=(0, 0, None))(some, labels, v).sum(0)  # type: ignore[arg-type]
        return v - rate * total

    random = torch.Generator().manual_seed(seed)
    v = torch.randn(len(parameters), generator=random).to(parameters)
    v /= v.norm()
    norm = 0.0
    for _ in range(iterations):
        moved = applied(times, v)
        norm = float(moved.norm())
        v = applied(transposed, moved)
        v /= v.norm()
    return norm
