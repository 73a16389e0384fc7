"""Audit the presets of the hidden state, and compare with the upper bounds.

    python benchmarks/hidden_state.py [--runs N] [--out FILE.json] [--device cuda] CASE…

A case is preset:period:canaries:weight-decay, for example ``logistic:5:1:0``. The results of the
committed figure H2 come from these cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

from dpaudit.adversaries import RareFeature
from dpaudit.audits import audit
from dpaudit.engine import Speed
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import INSERTIONS, preset
from dpaudit_paper.readings import DELTA, mu_by_moments, readings


def measured(case: str, *, runs: int, device: str) -> dict[str, Any]:
    """One audit: mu by moments and the lower bounds."""
    name, period, canaries, decay = case.split(":")
    steps = INSERTIONS * int(period)
    training = preset(name).training(steps=steps, period=int(period))
    training = dataclasses.replace(training, weight_decay=float(decay))
    constant = None if training.smoothness is None else training.smoothness.step_lipschitz(training)
    began = time.perf_counter()
    scores = audit(
        training,
        RareFeature(),
        runs=runs,
        canaries=int(canaries),
        insertion=Insertion(period=int(period)),
        seed=1,
        speed=Speed(device=device),
    ).scores
    mu = mu_by_moments(scores) or math.nan
    return {
        "preset": name,
        "period": int(period),
        "canaries": int(canaries),
        "weight_decay": float(decay),
        "runs": runs,
        "step_lipschitz": constant,
        "mu": mu,
        "standard_error": math.sqrt(4 / len(scores) + mu**2 / (2 * len(scores))),
        **readings(scores, delta=DELTA, seed=1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = []
    for case in given.cases:
        found.append(measured(case, runs=given.runs, device=given.device))
        print(json.dumps(found[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
