"""The time to make the figures of the paper by one resumable command, in parts of a few minutes.

    python benchmarks/paper.py --data-dir FOLDER [--part 530] [--jobs 5] [--save] [FIGURE ...]

Repeat the command until it says that all is made. A part that runs out of time is stopped, and the
next one resumes its trainings. The first part begins with empty compiler caches; the others keep
them. Without figures all are made but H2 and H3, which train nothing and take a quarter of an hour
of a CPU. ``--save`` adds the times to paper.json beside this file. Exit code 3: more is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import commit

from dpaudit_paper import FIGURES

RESULTS = Path(__file__).with_suffix(".json")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
MORE_IS_LEFT = 3


def play_part(command: list[str], out: Path, *, seconds: float) -> tuple[float, int | None]:
    """Play for at most ``seconds``: the time it took and the exit code, `None` if stopped."""
    caches = {name: str(out.resolve() / "caches" / name) for name in CACHES}
    began = time.perf_counter()
    # A session of its own, so that the processes of figures and trainings are stopped with it.
    playing = subprocess.Popen(command, env=os.environ | caches, start_new_session=True)
    try:
        status = playing.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        if playing.poll() is None:
            os.killpg(playing.pid, signal.SIGKILL)
            playing.wait()
    return time.perf_counter() - began, status


def described(out: Path, parts: list[float], *, jobs: int, scale: str) -> dict[str, Any]:
    """The seconds of the parts and of every figure, with the trainings that took 20 s or more."""
    made = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    made = [facts for facts in made if "audits" in facts]
    return {
        "jobs": jobs,
        "seconds": round(sum(parts)),
        "parts": [round(part) for part in parts],
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    default = [name for name in FIGURES if name not in ("H2", "H3")]
    parser.add_argument("figures", nargs="*", default=default)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path("build/paper"))
    parser.add_argument("--part", type=float, default=530.0, help="seconds of this part at most")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--scale", default="full", choices=("quick", "full"))
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dpaudit_paper", *chosen.figures, "--scale", chosen.scale]
    command += ["--jobs", str(chosen.jobs), "--out", str(chosen.out)]
    command += [] if chosen.data_dir is None else ["--data-dir", chosen.data_dir]
    seconds, status = play_part(command, chosen.out, seconds=chosen.part)
    ledger = chosen.out / "parts.json"
    parts: list[float] = json.loads(ledger.read_text()) if ledger.is_file() else []
    parts.append(seconds)
    ledger.write_text(json.dumps(parts))
    print(f"part {len(parts)}: {seconds:.0f} s; all parts: {sum(parts):.0f} s")
    if status is None:
        print("more is left: repeat the command")
        return MORE_IS_LEFT
    if status:
        return status
    made = described(chosen.out, parts, jobs=chosen.jobs, scale=chosen.scale)
    for name, figure in made["figures"].items():
        print(f"{name:4} {figure['seconds']:7.1f} s")
    print(f"all is made in {made['seconds']} s with {made['jobs']} jobs on {made['device']}")
    if chosen.save:
        saved = json.loads(RESULTS.read_text())
        saved["runs"].append(made)
        RESULTS.write_text(json.dumps(saved, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
