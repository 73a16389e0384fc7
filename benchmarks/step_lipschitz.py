r"""Estimate the Lipschitz constant of a step along a training of the paper's networks.

    python benchmarks/step_lipschitz.py [--device cuda] [--data-dir D] PRESET…

Prints the norm of the Jacobian of the update at several steps of one noisy training. These are
estimates from below of the Lipschitz constant, not bounds.

The update is :math:`\varphi(\theta) = \theta - \frac\eta B \sum_i \mathrm{clip}(g_i(\theta))`. Its
Jacobian at :math:`\theta` is :math:`J = I - A` with :math:`A = \frac\eta B \sum_i P_i H_i`, the
Hessians :math:`H_i` of the examples and the Jacobians :math:`P_i` of clipping, both symmetric. All
singular values of :math:`J` are close to 1, so that the largest eigenvalue of
:math:`J^T J - I = A^T A - A - A^T` is computed by Lanczos iterations. A Lipschitz constant is the
largest norm over all points, so that this is an estimate from below and never a bound.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable

import torch

from dpaudit.engine import Speed
from dpaudit.engine.evaluate import model_function
from dpaudit.engine.starting_points import as_tensor, initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.mechanisms import DPSGD
from dpaudit.presets import preset

STEPS = (0, 25, 100, 249)


Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def jacobian_norm(
    mechanism: DPSGD,
    parameters: torch.Tensor,
    *,
    step: int,
    iterations: int = 20,
    chunk: int = 32,
    seed: int = 0,
) -> float:
    """The norm of the Jacobian of one update at some parameters.

    Arguments:
        mechanism: The training.
        parameters: The model, shape (parameters,).
        step: The step whose batch is used, from 0.
        iterations: Number of Lanczos iterations.
        chunk: Examples that are differentiated together.
        seed: Random seed of the first vector.
    """
    answer = model_function(mechanism, parameters.unsqueeze(0))
    indices = mechanism.batches.indices(step, len(mechanism.data))
    features = as_tensor(mechanism.data.features)[indices].to(parameters)
    targets = as_tensor(mechanism.data.targets)[indices].to(parameters.device)
    rate = mechanism.learning_rate / mechanism.batches.expected_size(len(mechanism.data))

    def loss(flat: torch.Tensor, point: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = mechanism.loss(answer(flat, point[None]), label[None]).sum()
        return found

    gradient = torch.func.grad(loss)

    def clip_slope(g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        norm = g.norm()
        unit = g / norm.clamp(min=1e-30)
        clipped = mechanism.clip_norm / norm * (v - unit * (unit @ v))
        found: torch.Tensor = torch.where(norm > mechanism.clip_norm, clipped, v)
        return found

    def times(point: torch.Tensor, label: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def at(flat: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = gradient(flat, point, label)
            return found

        pair: tuple[torch.Tensor, ...] = torch.func.jvp(at, (parameters,), (v,))
        return clip_slope(pair[0], pair[1])

    def transposed(point: torch.Tensor, label: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def at(flat: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = gradient(flat, point, label)
            return found

        turned = clip_slope(at(parameters), v)
        pair: tuple[torch.Tensor, ...] = torch.func.jvp(at, (parameters,), (turned,))
        return pair[1]

    def applied(one: Product, v: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(v)
        for first in range(0, len(targets), chunk):
            some, labels = features[first : first + chunk], targets[first : first + chunk]
            total += torch.func.vmap(one, in_dims=(0, 0, None))(some, labels, v).sum(0)
        return rate * total

    def excess(v: torch.Tensor) -> torch.Tensor:
        """The product of v with J^T J - I."""
        moved = applied(times, v)
        return applied(transposed, moved) - moved - applied(transposed, v)

    random = torch.Generator().manual_seed(seed)
    start = torch.randn(len(parameters), generator=random).to(parameters)
    return math.sqrt(max(0.0, 1 + _largest_eigenvalue(excess, start, iterations)))


def _largest_eigenvalue(
    product: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, iterations: int
) -> float:
    """The largest Ritz value of a symmetric operator, with full reorthogonalisation."""
    basis = [start / start.norm()]
    diagonal: list[float] = []
    below: list[float] = []
    for _ in range(min(iterations, len(start))):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):
            for vector in basis:
                image = image - (image @ vector) * vector
        size = float(image.norm())
        if size < 1e-12:
            break
        below.append(size)
        basis.append(image / size)
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for i in range(len(diagonal) - 1):
        matrix[i, i + 1] = matrix[i + 1, i] = below[i]
    return float(torch.linalg.eigvalsh(matrix)[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    given = parser.parse_args()
    for name in given.presets:
        training = preset(name).training(data_dir=given.data_dir)
        engine = Engine(
            training,
            runs=1,
            speed=Speed(device=given.device),
            seed=1,
        )
        start = initial_parameters(training, seed=1, runs=torch.arange(1))
        iterates = engine.states(start, torch.arange(1), torch.zeros(1, 0))
        norms = {}
        current = start.to(given.device)
        for step in range(STEPS[-1] + 1):
            if step in STEPS:
                chunk = 64 if given.device == "cuda" else 16
                norms[step] = jacobian_norm(training, current[0], step=step, chunk=chunk)
            current = next(iterates)[0]
        print(
            json.dumps({"preset": name, "norms": norms, "largest": max(norms.values())}), flush=True
        )


if __name__ == "__main__":
    main()
