"""A short benchmark, compared with the committed one: `make bench`.

Everything is measured in one run on this machine, so that ratios can be compared between machines
of one kind. Times of peers that train one model at a time are extrapolated from a few steps.

    python benchmarks/bench.py             measure, and compare with benchmarks/bench-cpu.json
    python benchmarks/bench.py --strict    exit code 1 if a ratio got worse by more than 25 %
    python benchmarks/bench.py --save      replace the committed file

Every ratio is a speed-up: larger is better.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

WORSE = 0.25
"""Share of a ratio that may be lost before it counts as worse: timings vary by about this much."""

_VERDICTS = (0, 1, 3)
"""Exit codes of an audit that ended: consistent, violation, inconclusive."""

HERE = Path(__file__).parent
SWEEP_SECONDS = 5.0
"""Goal for the sweep of 40 exact landscapes on one core."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One ratio then and now.

    Arguments:
        name: What is compared.
        then: The committed ratio, if there is one.
        now: The measured ratio, if there is one.
    """

    name: str
    then: float | None
    now: float | None

    @property
    def relative(self) -> float | None:
        """The change relative to the committed ratio."""
        return None if not self.then or self.now is None else self.now / self.then - 1

    @property
    def worse(self) -> bool:
        """Whether the ratio got worse by more than timings vary."""
        return self.relative is not None and self.relative < -WORSE


def compare(then: Mapping[str, float], now: Mapping[str, float]) -> list[Change]:
    """All ratios of both runs, in the order of the new one."""
    names = dict.fromkeys([*now, *then])
    return [Change(name=name, then=then.get(name), now=now.get(name)) for name in names]


def table(changes: list[Change]) -> str:
    """Then, now and change of every ratio."""
    width = max(len(change.name) for change in changes)
    lines = [f"{'speed-up':{width}}  {'then':>8}  {'now':>8}  change"]
    for change in changes:
        numbers = ["" if value is None else f"{value:.3g}" for value in (change.then, change.now)]
        relative = "" if change.relative is None else f"{change.relative:+.0%}"
        mark = "  WORSE" if change.worse else ""
        lines.append(
            f"{change.name:{width}}  {numbers[0]:>8}  {numbers[1]:>8}  {relative:>6}{mark}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--runs", type=int, default=5000, help="trainings of the whole command")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a ratio got worse")
    parser.add_argument("--save", action="store_true", help="replace the committed file")
    options = parser.parse_args()
    measured = measure(options)
    path = HERE / f"bench-{measured['kind']}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    if before:
        print(f"\nthen: {before['device']}, torch {before['torch']}, commit {before['commit']}")
    print(f"now:  {measured['device']}, torch {measured['torch']}, commit {measured['commit']}\n")
    changes = compare(before.get("ratios", {}), measured["ratios"])
    print(table(changes))
    worse = [change.name for change in changes if change.worse]
    if worse:
        print(f"\nWorse by more than {WORSE:.0%}: {'; '.join(worse)}")
    if options.save:
        path.write_text(json.dumps(measured, indent=1) + "\n")
    sys.exit(bool(worse and options.strict))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ratios and seconds, with device, versions and commit."""
    import torch

    from dpaudit import __version__
    from dpaudit.engine import Speed

    device = Speed(device=options.device).torch_device()
    seconds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    parts: list[Callable[[], Iterator[tuple[str, float, bool]]]] = [
        lambda: network_steps(device),
        landscapes,
    ]
    if device.type == "cuda":
        parts.append(lambda: convnet_steps(device))
    else:
        parts.append(lambda: whole_command(options.runs, seconds))
    for part in parts:
        for name, value, is_ratio in part():
            print(f"{name}: {value:.4g}{'x' if is_ratio else ' s'}", flush=True)
            (ratios if is_ratio else seconds)[name] = value
    return {
        "kind": device.type,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "dpaudit": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "ratios": {name: round(value, 4) for name, value in ratios.items()},
        "seconds": {name: float(f"{value:.4g}") for name, value in seconds.items()},
    }


def network_steps(device: Any) -> Iterator[tuple[str, float, bool]]:
    """A step of one FCNN on Housing, B = 400, beside its peers."""
    import engine_peers as peers
    import torch

    from dpaudit.engine.fused import can_build
    from dpaudit.presets import preset

    mechanism = preset("housing").training()
    steps: dict[str, float | None] = {
        "Opacus's recipe": peers.opacus_as_documented(mechanism, device, steps=60),
        "lean Opacus loop": peers.opacus(mechanism, device, steps=100),
        "vmap(vmap(grad))": peers.nested_vmap(
            mechanism, device, runs=64, steps=10, dtype=torch.float32
        ),
        "non-private step": peers.not_private(mechanism, device, runs=64, steps=20),
        "arithmetic floor": peers.arithmetic_floor(mechanism, device),
    }
    kinds: list[tuple[str, Any]] = [("compiled engine", True)]
    if device.type == "cpu" and can_build():
        kinds.append(("fused engine", "fused"))
    for name, compiled in kinds:
        own = peers.engine(mechanism, device, runs=79, steps=60, compiled=compiled)
        yield from _beside_peers(f"FCNN step, {name}", own, steps)
    yield from _peers("FCNN step", steps)


def convnet_steps(device: Any) -> Iterator[tuple[str, float, bool]]:
    """A step of one ConvNet, B = 128, 512 runs together, in two precisions, beside its peers."""
    import engine_peers as peers
    import torch

    import engine as benchmark
    from dpaudit.models import convnet

    mechanism = benchmark._images(convnet, argparse.Namespace(data_dir=None))
    steps: dict[str, float | None] = {
        "lean Opacus loop": peers.opacus(mechanism, device, steps=30),
        "vmap(vmap(grad))": peers.nested_vmap(
            mechanism, device, runs=32, steps=5, dtype=torch.float32
        ),
        "non-private step": peers.not_private(mechanism, device, runs=64, steps=5),
    }
    for precision in ("tf32", "bfloat16"):
        own = peers.engine(
            mechanism, device, runs=512, steps=20, compiled=True, precision=precision
        )
        yield from _beside_peers(f"ConvNet step, engine in {precision}", own, steps)
    yield from _peers("ConvNet step", steps)


def _beside_peers(
    name: str, own: float, peers: Mapping[str, float | None]
) -> Iterator[tuple[str, float, bool]]:
    """Seconds of a step, and how much faster it is than each peer that could be measured."""
    yield name, own, False
    yield from (
        (f"{name} over {peer}", peer_time / own, True)
        for peer, peer_time in peers.items()
        if peer_time
    )


def _peers(name: str, peers: Mapping[str, float | None]) -> Iterator[tuple[str, float, bool]]:
    yield from ((f"{name}, {peer}", ratio, False) for peer, ratio in peers.items() if ratio)


def landscapes() -> Iterator[tuple[str, float, bool]]:
    """The paper's figure 3: 40 exact landscapes on one core."""
    from dpaudit_paper.figures.landscapes import BATCH_SIZES, NOISE_MULTIPLIERS, threshold_process
    from dpaudit_paper.landscapes import exact_privacy

    begin = time.process_time()
    for sigma, batch in product(NOISE_MULTIPLIERS, BATCH_SIZES):
        exact_privacy(threshold_process(sigma, batch))
    spent = time.process_time() - begin
    yield "40 exact landscapes, CPU seconds", spent, False
    yield (
        f"40 exact landscapes, over the goal of {SWEEP_SECONDS:g} CPU s",
        SWEEP_SECONDS / spent,
        True,
    )


def whole_command(runs: int, seconds: Mapping[str, float]) -> Iterator[tuple[str, float, bool]]:
    """``dpaudit audit`` from start to end, with empty caches and again."""
    recipe = seconds.get("FCNN step, Opacus's recipe")
    for compiled in ("fused", "torch"):
        with tempfile.TemporaryDirectory() as folder:
            for start in ("cold", "warm"):
                command = [sys.executable, "-m", "dpaudit", "audit", "--runs", str(runs)]
                command += ["--compile", compiled, "--store", f"{folder}/{start}.sqlite"]
                caches = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
                first, spent = _on_a_terminal([*command, "--device", "cpu"], caches)
                name = f"dpaudit audit --compile {compiled}, {start}"
                yield f"{name}: first sign of progress", first, False
                yield name, spent, False
                if recipe is not None:
                    yield f"{name}, over Opacus's recipe", recipe * runs * 250 / spent, True


def _on_a_terminal(command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds until a command first writes to its terminal, and until it ends."""
    begin, (terminal, theirs) = time.perf_counter(), pty.openpty()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    os.read(terminal, 1)
    first = time.perf_counter() - begin
    with contextlib.suppress(OSError):  # the other end is closed
        while os.read(terminal, 4096):
            pass
    os.close(terminal)
    if process.wait() not in _VERDICTS:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return first, time.perf_counter() - begin


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def commit() -> str:
    """The commit that is measured, shortened."""
    finished = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
