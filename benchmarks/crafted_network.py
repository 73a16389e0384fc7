"""The exact epsilon of the crafted network, rounding to whole gradients included.

The canary moves one parameter of the network only, and the genuine gradients of the others cancel,
so this parameter alone decides. Its drift repeats from cell to cell: the state is a density for
each cell, on Gauss nodes between the jumps of the drift. The drift at the nodes is computed by the
network itself, as the sum of its clipped gradients.

    python benchmarks/crafted_network.py
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import torch

from dpaudit.engine.evaluate import clipped_gradients
from dpaudit.presets import preset
from dpaudit_paper.crafted_network import CraftedDesign
from dpaudit_paper.landscapes import ReadingWells
from dpaudit_paper.landscapes.pair import DiscretePair
from dpaudit_paper.landscapes.panels import Panels

SIGMA, INSERTIONS, DELTA, BATCH = 4.0, 250, 1e-5, 128
LOWEST, HIGHEST = -330, 450  # cells that are followed: ten deviations of both distributions
SHARE = 0.99  # gradient of one example, in units of C


def panels(design: CraftedDesign, order: int) -> Panels:
    """A cell, cut at every jump of the drift of both kinds of batches."""
    half = design.width / 2
    wells = (np.arange(math.ceil(half / SHARE)) + 0.5) * SHARE
    reads = np.unique([cut for example in range(BATCH) for cut in design._active(example)])
    edges = np.concatenate([[-half, half], wells, -wells, 0.5 + reads, 0.5 - reads])
    # A read measures distances from 1/2, so that its cells end half a unit further up.
    edges = np.append((edges + half) % design.width - half, [half, 0.5 - half])
    edges = np.unique(np.round(edges, 9))
    return Panels(edges[:-1], edges[1:], order)


def moves(training, positions: np.ndarray, step: int) -> np.ndarray:
    """Where the batch of a step sends positions, by the network's own clipped gradients."""
    design = training.build_model.args[0]
    models = torch.zeros(len(positions), 9)
    models[:, 0] = torch.from_numpy(-positions / design.scale)  # descent mirrors the process
    places = training.batches.indices(step, len(training.data))
    sums = clipped_gradients(
        training,
        models,
        torch.from_numpy(training.data.features[places]),
        torch.from_numpy(training.data.targets[places]),
    ).sum(1)
    assert sums[:, 1:].abs().max() < 1e-4  # the other parameters stay alone
    # Whole gradients: float32 has rounded them.
    return np.round(sums[:, 0].double().numpy() / SHARE) * SHARE


def kernel(target, source, move, width, jumps, canary):
    """From masses at the source nodes of a cell to densities at the target nodes of others."""
    landed = source + move
    blocks = [
        np.exp(-0.5 * ((target[:, None] + jump * width - landed - canary) / SIGMA) ** 2)
        for jump in jumps
    ]
    return np.concatenate(blocks, axis=1).T / (SIGMA * math.sqrt(2 * math.pi))


def step_of(state, matrix, jumps, weights):
    """One step: cells that are left by more than the window are lost."""
    masses = state * weights
    size = len(state)
    moved = np.zeros((size, len(jumps), state.shape[1]))
    for place, jump in enumerate(jumps):
        first, last = max(0, jump), min(size, size + jump)
        moved[first:last, place] = masses[first - jump : last - jump]
    return moved.reshape(size, -1) @ matrix


def exact(period: int, *, order: int) -> dict[str, float]:
    """Epsilon of the parameter, and of its cell alone, after all steps."""
    training = preset("crafted-network").training(steps=10, period=period, batch_size=BATCH)
    design = training.build_model.args[0]
    cell = panels(design, order)
    nodes, weights = cell.nodes.ravel(), cell.weights.ravel()
    near, far = range(-2, 3), range(-design.most - 2, design.most + 3)
    well, read = moves(training, nodes, 0), moves(training, nodes, 1)
    wells = [kernel(nodes, nodes, well, design.width, near, canary) for canary in (0.0, 1.0)]
    reads = kernel(nodes, nodes, read, design.width, far, 0.0)
    centres = np.arange(LOWEST, HIGHEST + 1)[:, None] * design.width
    ends = []
    for canary in (0, 1):
        z = (centres + nodes - canary) / SIGMA
        state = np.exp(-0.5 * z**2) / (SIGMA * math.sqrt(2 * math.pi))
        for step in range(1, period * INSERTIONS):
            if step % period == 1:
                state = step_of(state, reads, far, weights)
            else:
                inserted = canary if step % period == 0 else 0
                state = step_of(state, wells[inserted], near, weights)
        ends.append(state * weights)
    stray = tuple(abs(1 - float(end.sum())) for end in ends)
    position = DiscretePair(ends[0].ravel(), ends[1].ravel())
    by_cell = DiscretePair(ends[0].sum(1), ends[1].sum(1))
    ideal = ReadingWells(period=period, width=design.width, unit=design.unit, most=design.most)
    return {
        "period": period,
        "order": order,
        "epsilon": position.epsilon(DELTA),
        "epsilon_of_the_cell": by_cell.epsilon(DELTA),
        "epsilon_of_the_chain_without_rounding": ideal.after(
            INSERTIONS, noise_multiplier=SIGMA
        ).epsilon(DELTA),
        "mass_lost": max(stray),
    }


def main() -> None:
    rows = []
    for period, order in ((5, 2), (5, 3), (25, 3)):
        began = time.perf_counter()
        rows.append(exact(period, order=order))
        print(rows[-1], f"{time.perf_counter() - began:.0f} s", flush=True)
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", "utf8")


if __name__ == "__main__":
    main()
