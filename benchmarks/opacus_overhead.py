"""What a canary costs a training of Opacus: step times with and without, side by side in one run.

    export OMP_NUM_THREADS=1 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000
    python benchmarks/opacus_overhead.py [--pairs 40] [--out FILE]

The two settings of the allocator make it keep memory that was freed. Without them the time of a
ConvNet's step jumps between 45 and 80 ms, plain or watched, by how its blocks happen to fall.
Short blocks of one and the same training alternate between plain and watched, in random order, so
that a busy machine slows both. A step is the user's own: batch from the loader, backward pass,
optimizer; where the loader is most of it, the case is also measured without one. Times are those
of the processor in the one thread, so waiting for a neighbour does not count. The ratio of a pair
of blocks is that of their median step times; pairs give the spread. Inputs are noise: they take
the same time as images. Opening the context is timed apart, since a training does it once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import platform
import random
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.integrations.opacus import canary_for, insert_canary
from dpaudit.models import convnet, fcnn

BATCHES = 10


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training and the canaries in it."""

    model: str
    batch: int
    canaries: int
    through_clipping: bool
    sampling: str | float
    steps: int
    loader: bool

    @property
    def name(self) -> str:
        where = "through the clipping" if self.through_clipping else "after the clipping"
        sampled = "" if self.sampling == "every step" else f", sampled at rate {self.sampling}"
        loader = "" if self.loader else ", no loader"
        return f"{self.model}, B={self.batch}: {self.canaries:,} {where}{sampled}{loader}"


def cases() -> list[Case]:
    def case(
        model: str,
        canaries: int,
        through: bool,
        sampling: str | float = "every step",
        loader: bool = True,
    ) -> Case:
        batch, steps = {"fcnn": (400, 40), "convnet": (128, 3)}[model]
        return Case(
            model=model,
            batch=batch,
            canaries=canaries,
            through_clipping=through,
            sampling=sampling,
            steps=steps,
            loader=loader,
        )

    return [
        case("fcnn", 1, True),
        case("fcnn", 68, True),
        case("fcnn", 68, False),
        case("fcnn", 1, True, 0.5),
        case("fcnn", 1, True, loader=False),
        case("fcnn", 68, False, loader=False),
        case("convnet", 1, True),
        case("convnet", 1, False),
        case("convnet", 10_000, False),
        case("convnet", 10_000, False, 0.5),
    ]


def make_private(case: Case) -> tuple[opacus.optimizers.DPOptimizer, Callable[[], None]]:
    """The user's training: its optimizer, and a function that makes the next step."""
    torch.manual_seed(0)
    module, shape, classes = {
        "fcnn": (fcnn(), (8,), 2),
        "convnet": (convnet(), (3, 32, 32), 10),
    }[case.model]
    size = BATCHES * case.batch
    inputs, labels = torch.randn(size, *shape), torch.randint(classes, (size,))
    model, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.01),
        data_loader=DataLoader(TensorDataset(inputs, labels), batch_size=case.batch),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    criterion = nn.CrossEntropyLoss()
    source = loader if case.loader else list(loader)
    batches = itertools.chain.from_iterable(itertools.repeat(source))

    def step() -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return optimizer, step


def measure(case: Case, pairs: int) -> dict[str, object]:
    optimizer, step = make_private(case)
    canary = canary_for(optimizer, count=case.canaries)

    def watched() -> contextlib.AbstractContextManager[None]:
        return insert_canary(
            optimizer,
            canary,
            [True] * case.canaries,
            seed=0,
            sampling=case.sampling,
            through_clipping=case.through_clipping,
        )

    order = random.Random(0)
    plain, other, setups = [], [], []
    for _ in range(pairs + 1):
        for inside in order.sample([False, True], 2):
            began = time.thread_time()
            with watched() if inside else contextlib.nullcontext():
                if inside:
                    setups.append(time.thread_time() - began)
                step()  # settles how canaries are clipped; fills the caches
                times = statistics.median(seconds(step) for _ in range(case.steps))
            (other if inside else plain).append(times)
    ratios = [w / p for p, w in zip(plain[1:], other[1:], strict=True)]  # the first pair warms up
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "case": case.name,
        **asdict(case),
        "pairs": pairs,
        "plain_ms": 1e3 * statistics.median(plain),
        "watched_ms": 1e3 * statistics.median(other),
        "ratio_median": middle,
        "ratio_quartiles": [low, high],
        "setup_ms": 1e3 * statistics.median(setups),
    }


def seconds(step: Callable[[], None]) -> float:
    began = time.thread_time()
    step()
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40, help="pairs of blocks for each case")
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    rows = []
    for case in cases():
        if options.only not in case.name:
            continue
        row = measure(case, options.pairs)
        rows.append(row)
        low, high = row["ratio_quartiles"]
        print(
            f"{row['case']:62} {row['plain_ms']:8.2f} ms -> {row['watched_ms']:8.2f} ms  "
            f"ratio {row['ratio_median']:.3f} (quartiles {low:.3f} to {high:.3f}), "
            f"setup {row['setup_ms']:.2f} ms",
            flush=True,
        )
    if options.out:
        machine = {
            "machine": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "opacus": opacus.__version__,
        }
        options.out.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
