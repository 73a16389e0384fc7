"""Noise 20 % too small at epsilon 8, looked for in single trainings with 10,000 canaries.

    OMP_NUM_THREADS=1 python benchmarks/opacus_one_run.py [--wrong 10] [--right 40] [--out FILE]

Each training is one of Opacus, on a ConvNet of 62,006 parameters (examples/opacus_training.py), and
is judged by itself. Right noise must be flagged in no more than 5 % of trainings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from opacus_training import audit_in_one_training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrong", type=int, default=10, help="trainings with too little noise")
    parser.add_argument("--right", type=int, default=40, help="trainings that keep their claim")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    rows = []
    for true_share, count in ((0.8, options.wrong), (1.0, options.right)):
        for seed in range(count):
            began = time.perf_counter()
            test = audit_in_one_training(true_share=true_share, seed=seed).test
            rows.append(
                {
                    "true_share_of_noise": true_share,
                    "seed": seed,
                    "verdict": test.verdict,
                    "p_value": test.p_value,
                    "seconds": round(time.perf_counter() - began, 2),
                }
            )
        chosen = [row for row in rows if row["true_share_of_noise"] == true_share]
        flagged = sum(row["verdict"] == "violation" for row in chosen)
        largest = max(row["p_value"] for row in chosen)
        smallest = min(row["p_value"] for row in chosen)
        print(
            f"noise {true_share:g} of the claim: {flagged} of {count} trainings flagged, "
            f"p-values from {smallest:.2g} to {largest:.2g}",
            flush=True,
        )
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
