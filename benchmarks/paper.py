"""The time to make the figures of the paper by one command, with empty compiler caches.

    python benchmarks/paper.py --data-dir FOLDER [--jobs 5] [--scale full] [--save] [FIGURE ...]

Without figures all are made. ``--save`` adds the times to paper.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import commit

RESULTS = Path(__file__).with_suffix(".json")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")


def measure(figures: list[str], *, jobs: int, scale: str, data_dir: str | None) -> dict[str, Any]:
    """Seconds of the command and of every figure, with the trainings that took 20 s or more."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results"
        command = [sys.executable, "-m", "dpaudit_paper", *figures, "--scale", scale]
        command += ["--jobs", str(jobs), "--out", str(out)]
        command += [] if data_dir is None else ["--data-dir", data_dir]
        empty = {name: f"{folder}/{name}" for name in CACHES}
        began = time.perf_counter()
        subprocess.run(command, env=os.environ | empty, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        made = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    return {
        "jobs": jobs,
        "seconds": round(seconds),
        "sizes": f"those of this version, {scale}",
        "device": " and ".join(sorted({facts["device"] for facts in made})),
        "versions": made[0]["versions"],
        "commit": commit(),
        "figures": {
            facts["id"]: {
                "seconds": facts["seconds"],
                "trainings": [
                    [played["audit"], played["seconds"]]
                    for played in facts["audits"]
                    if played["seconds"] >= 20
                ],
            }
            for facts in made
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("figures", nargs="*", default=["all"])
    parser.add_argument("--data-dir")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--scale", default="full", choices=("quick", "full"))
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    found = measure(chosen.figures, jobs=chosen.jobs, scale=chosen.scale, data_dir=chosen.data_dir)
    for name, figure in found["figures"].items():
        print(f"{name:4} {figure['seconds']:7.1f} s")
    print(f"all  {found['seconds']:7.1f} s with {found['jobs']} jobs on {found['device']}")
    if chosen.save:
        kept = json.loads(RESULTS.read_text())
        kept["runs"].append(found)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
