"""How far one audit scales: the store that the driver writes, and 1,000 simulated GPUs.

    python benchmarks/scale.py store        # tiles per second, and 10 million scores in one store
    python benchmarks/scale.py simulate     # makespan of 1,000 GPUs with stragglers and failures
    python benchmarks/scale.py executors    # 5,000 Housing runs through Ray and local processes
    python benchmarks/scale.py workers      # 60 Opacus trainings, in process and in workers

Each prints a table and updates its part of ``benchmarks/scale.json``.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_suffix(".json")


def store() -> dict[str, Any]:
    """Write tiles of 64 runs in batches of half a second's worth, then read 10 million scores."""
    folder = Path(tempfile.mkdtemp())
    measured = {"write": _measured(_WRITE.format(path=str(folder / "tiles.sqlite")))}
    large = str(folder / "large.sqlite")
    measured["fill"] = _measured(_FILL.format(path=large))
    measured["size_mb"] = round(Path(large).stat().st_size / 1e6, 1)
    measured["list"] = _measured(_LIST.format(path=large))
    measured["read"] = _measured(_READ.format(path=large))
    return measured


_BLOCK = """
import time
import numpy as np
from dpaudit.scores import ScoreBlock, Store

def block(tile, runs=64):
    run = np.arange(runs) + tile * runs
    score = np.random.default_rng(tile).standard_normal(runs).astype(np.float32)
    return ScoreBlock(run=run, canary=np.zeros_like(run), horizon=np.full(runs, 250),
                      inserted=run % 2 == 0, score=score.astype(float))
"""

_WRITE = (
    _BLOCK
    + """
tiles = [(tile, block(tile)) for tile in range(10_000)]
with Store.open({path!r}) as store:
    record = store.begin("a", {{"runs": 640_000}}, {{}})
    began = time.perf_counter()
    for at in range(0, 10_000, 500):
        record.add_tiles(tiles[at : at + 500])
    seconds = time.perf_counter() - began
print({{"tiles_per_second": round(10_000 / seconds)}})
"""
)

_FILL = (
    _BLOCK
    + """
with Store.open({path!r}) as store:
    record = store.begin("a", {{"runs": 10_000_000}}, {{}})
    for at in range(0, 156_250, 5_000):
        record.add_tiles([(tile, block(tile)) for tile in range(at, min(at + 5_000, 156_250))])
    record.finish({{"verdict": "consistent"}})
print({{}})
"""
)

_LIST = """
import time
began = time.perf_counter()
from dpaudit.scores import Store
with Store.open({path!r}) as store:
    tiles = len(store.audits()[0].finished_tiles())
print({{"seconds": round(time.perf_counter() - began, 2), "tiles": tiles}})
"""

_READ = """
import time
began = time.perf_counter()
from dpaudit.scores import Store
with Store.open({path!r}) as store:
    scores = store.audits()[0].scores()
print({{"seconds": round(time.perf_counter() - began, 2), "scores": len(scores)}})
"""


def _measured(code: str) -> dict[str, Any]:
    """Run code in a process of its own; what it printed, and its largest memory in MB."""
    code += "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    printed, memory = ended.stdout.strip().rsplit("\n", 1)
    return {**eval(printed.splitlines()[-1]), "megabytes": round(int(memory) / 1024)}


def makespan(
    *,
    runs: int,
    tile: int,
    gpus: int,
    seconds: float,
    start_up: float,
    overhead: float,
    slow: float,
    failures: float,
    seed: int = 0,
) -> float:
    """Seconds until all tiles are done, by a discrete-event simulation.

    Arguments:
        runs: Number of runs.
        tile: Runs in a tile.
        gpus: Number of GPUs.
        seconds: Seconds of one run on one GPU.
        start_up: Seconds of a worker before its first tile (imports, compilation).
        overhead: Seconds that a tile costs beside its runs.
        slow: Share of GPUs that take three times as long.
        failures: Failures of a GPU per hour; it returns after five minutes, its tile is lost.
        seed: Random seed.
    """
    random = np.random.default_rng(seed)
    pace = np.where(random.random(gpus) < slow, 3.0, random.normal(1.0, 0.05, gpus).clip(0.8, 1.2))
    waiting = [min(tile, runs - at) for at in range(0, runs, tile)]
    free = [(start_up, gpu) for gpu in range(gpus)]
    heapq.heapify(free)
    last = 0.0
    while waiting:
        at, gpu = heapq.heappop(free)
        size = waiting.pop()
        long = (overhead + size * seconds) * pace[gpu]
        fails = random.exponential(3600 / failures) if failures else math.inf
        if fails < long:
            waiting.append(size)
            heapq.heappush(free, (at + fails + 300 + start_up, gpu))
        else:
            heapq.heappush(free, (at + long, gpu))
            last = max(last, at + long)
    return last


def simulate() -> list[dict[str, Any]]:
    """One million runs of 0.5 s on 1,000 GPUs, for several tile sizes."""
    runs, gpus, seconds, start_up, overhead = 1_000_000, 1_000, 0.5, 30.0, 1.0
    ideal = start_up + runs * seconds / gpus
    rows = []
    for tile in (8, 16, 32, 64, 128, 256, 512, 1000):
        row: dict[str, Any] = {"tile": tile, "tiles_per_gpu": round(runs / tile / gpus, 1)}
        for name, slow, failures in (
            ("calm", 0.0, 0.0),
            ("stragglers", 0.02, 0.0),
            ("stragglers_and_failures", 0.02, 0.5),
        ):
            took = makespan(
                runs=runs, tile=tile, gpus=gpus, seconds=seconds, start_up=start_up,
                overhead=overhead, slow=slow, failures=failures,
            )  # fmt: skip
            row[name] = round(took / ideal, 3)
        rows.append(row)
    return rows


def executors(rounds: int = 2) -> dict[str, Any]:
    """5,000 runs of the Housing preset, by two local processes and by Ray, in turn.

    The first tiles include the start of the workers and compilation. After the eighth tile both
    workers play.
    """
    import ray

    from dpaudit.adversaries import RandomDimension
    from dpaudit.engine import Speed
    from dpaudit.executors import EXECUTORS
    from dpaudit.games import Game, executor_for, play, prepare
    from dpaudit.mechanisms.dpsgd import Insertion
    from dpaudit.presets import preset

    mechanism, adversary = preset("housing").training(), RandomDimension()
    canaries = adversary.craft(mechanism, Insertion(), canaries=1, seed=0)
    game = Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=5_000)
    prepared = prepare(game, Speed(device="cpu", workers=2))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    measured: dict[str, Any] = {"tile_size": prepared.tile_size, "tiles": prepared.tiles}
    blocks: dict[str, dict[int, bytes]] = {}
    for _ in range(rounds):
        for name in ("local", "ray"):
            executor = executor_for(prepared) if name == "local" else EXECUTORS["ray"]()
            began, times, blocks[name] = time.perf_counter(), [], {}
            for tile, block in play(prepared, executor=executor):
                times.append(time.perf_counter() - began)
                blocks[name][tile] = block.score.tobytes()
            timing = {"start_up_s": round(times[7], 1), "after_s": round(times[-1] - times[7], 1)}
            measured.setdefault(name, []).append(timing)
            print(name, timing, flush=True)
    local, through_ray = (
        sum(row["after_s"] for row in measured[name]) for name in ("local", "ray")
    )
    measured["ray_over_local"] = round(through_ray / local, 3)
    measured["same_bits"] = blocks["local"] == blocks["ray"]
    return measured


_TRAINING = """
import warnings
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from dpaudit.integrations.opacus import canary_for, insert_canary
warnings.filterwarnings("ignore")

def private(seed):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    data = TensorDataset(torch.randn(256, 8), torch.randint(2, (256,)))
    torch.manual_seed(seed)
    return PrivacyEngine(accountant="rdp").make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=64), noise_multiplier=1.0, max_grad_norm=1.0,
        poisson_sampling=False)

canary = canary_for(private(0)[1])

def train(canary, inserted, seed):
    model, optimizer, loader = private(seed)
    with insert_canary(optimizer, canary, inserted, seed=seed):
        for _ in range(3):
            for inputs, labels in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
    return model
"""

_AUDIT = """
import os, sys, time
sys.path.insert(0, {folder!r})
began = time.perf_counter()
import dpaudit
given = "opacus_parts:train" if {isolated} else __import__("opacus_parts").train
result = dpaudit.audit(given, claim=dpaudit.Claim.from_mu(12 ** 0.5), runs=60, workers={workers},
                       isolated={isolated}, confirm=False, anyway=True)
times = os.times()
print({{"seconds": round(time.perf_counter() - began, 2), "failures": len(result.failures),
       "cpu_seconds": round(times.user + times.system + times.children_user
                            + times.children_system, 2)}})
"""


def workers(rounds: int = 3) -> dict[str, Any]:
    """Wall and CPU seconds of 60 small Opacus trainings with all imports, in turn."""
    folder = tempfile.mkdtemp()
    Path(folder, "opacus_parts.py").write_text(_TRAINING)
    ways = {"in process": (1, False), "one worker": (1, True), "two workers": (2, True)}
    found: dict[str, Any] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (count, isolated) in ways.items():
            code = _AUDIT.format(folder=folder, workers=count, isolated=isolated)
            found[name].append(_measured(code))
            print(f"{name}: {found[name][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def main(what: str) -> None:
    """Measure one part and store it."""
    measured = {part.__name__: part for part in (store, simulate, executors, workers)}[what]()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[what] = measured
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print(json.dumps(measured, indent=1))
    print("largest memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MB")


if __name__ == "__main__":
    main(sys.argv[1])
