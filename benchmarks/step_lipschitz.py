"""Estimate the Lipschitz constant of a step along a training of the paper's networks.

    python benchmarks/step_lipschitz.py [--device cuda] [--data-dir D] PRESET…

Prints the norm of the Jacobian of the update at several steps of one noisy training. These are
estimates from below of the Lipschitz constant, not bounds.
"""

from __future__ import annotations

import argparse
import json

import torch

from dpaudit.engine import Speed
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.presets import preset
from dpaudit_paper.lipschitz import jacobian_norm

STEPS = (0, 25, 100, 249)


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
        iterates = engine.play(start, torch.arange(1), torch.zeros(1, 0))
        norms = {}
        current = start.to(given.device)
        for step in range(STEPS[-1] + 1):
            if step in STEPS:
                chunk = 64 if given.device == "cuda" else 16
                norms[step] = jacobian_norm(training, current[0], step=step, chunk=chunk)
            current = next(iterates)
        print(
            json.dumps({"preset": name, "norms": norms, "largest": max(norms.values())}), flush=True
        )


if __name__ == "__main__":
    main()
