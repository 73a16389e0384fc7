"""Live audits, measured: what they find, what canaries do to a model, and what they cost.

    export OMP_NUM_THREADS=1 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000
    python benchmarks/live_audits.py [verdicts] [losses] [cost] [gpt2] [figure]

Every training is one of Opacus with Poisson sampling at rate 1/16 and Adam. Of `verdicts`, the
levels are those of the verdict of a live audit; bounds, which take seconds each, are not computed.
Costs are ratios of the processor time of blocks of steps in one training, which alternate between
plain and watched in random order. Results of each part are kept in live_audits.json.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.claims import LIVE, judge
from dpaudit.live import live_audit
from dpaudit.models import convnet

HERE = Path(__file__).parent
OUT = HERE / "live_audits.json"
FIGURE = HERE.parent / "docs" / "figures" / "live-losses.svg"
NOISE, RATE = 0.9, 1 / 16


def small_convnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 16),
        nn.ReLU(), nn.Linear(16, 4),
    )  # fmt: skip


def images(count, seed, *, side=16, classes=4):
    """Noisy images of one pattern for each class: easy to learn, but not at once."""
    patterns = torch.randn(classes, 3, side, side, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    noise = torch.randn(count, 3, side, side, generator=generator)
    return TensorDataset(0.3 * patterns[labels] + noise, labels)


def private(model, data, *, batch, seed, share=1.0):
    """An ordinary private training; with a share below 1, less noise than is accounted for."""
    torch.manual_seed(seed)
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    if share < 1:
        add_noise = optimizer.add_noise

        def add_less_noise():
            optimizer.noise_multiplier *= share
            add_noise()
            optimizer.noise_multiplier /= share

        optimizer.add_noise = add_less_noise
    return model, optimizer, loader


def step(model, optimizer, inputs, labels):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def verdicts(canaries=10_000, epochs=2):
    """20 trainings with 80 % of the noise, and 100 correct ones."""
    claim = dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=16 * epochs, sampling_rate=RATE)
    results = {"canaries": canaries, "steps": 16 * epochs, "rate": RATE, "noise": NOISE}
    for name, share, trainings in (("less noise", 0.8, 20), ("correct", 1.0, 100)):
        rows = []
        for seed in range(trainings):
            torch.manual_seed(seed)
            model = private(small_convnet(), images(256, seed), batch=16, seed=seed, share=share)
            first = []

            def proven(live, first=first):
                first.append(live.steps)

            with live_audit(
                model[1], canaries=canaries, seed=seed, on_violation=proven, check=False
            ) as live:
                for _ in range(epochs):
                    for inputs, labels in model[2]:
                        step(*model[:2], inputs, labels)
            scores, coins = live.evidence.ranks()
            test = judge(
                dpaudit.Scores(score=scores, inserted=coins),
                claim,
                policy=LIVE,
                along_the_way=live.e_value,
            )
            rows.append(
                {
                    "violation": bool(test.refuted),
                    "suspected": test.suspected,
                    "p_value": test.p_value,
                    "e_value": min(live.e_value, 1e300),
                    "proven_after": first[0] if first else None,
                }
            )
        results[name] = {
            "trainings": trainings,
            "violations": sum(row["violation"] for row in rows),
            "suspected": sum(row["suspected"] for row in rows),
            "proven_after": [row["proven_after"] for row in rows if row["proven_after"]],
            "rows": rows,
        }
    return results


def losses(epochs=8, seeds=3):
    """Losses on fresh examples after every epoch, with and without canaries."""
    fresh = images(512, 10_000)
    curves = {}
    for canaries in (0, 1000, 10_000):
        curves[canaries] = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            model, optimizer, loader = private(
                small_convnet(), images(1024, seed), batch=64, seed=seed
            )
            watch = (
                live_audit(optimizer, canaries=canaries, seed=seed, check=False)
                if canaries
                else contextlib.nullcontext()
            )
            curve = [_loss(model, fresh)]
            with watch:
                for _ in range(epochs):
                    for inputs, labels in loader:
                        step(model, optimizer, inputs, labels)
                    curve.append(_loss(model, fresh))
            curves[canaries].append(curve)
    parameters = sum(parameter.numel() for parameter in small_convnet().parameters())
    return {"parameters": parameters, "steps_per_epoch": 16, "curves": curves}


def _loss(model, data):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(data.tensors[0]), data.tensors[1]))


def _cost(run_step, optimizer, *, canaries, pairs, steps):
    """Ratios of the processor time of watched and of plain blocks, and the memory of a watch."""
    tracemalloc.start()
    began = time.process_time()
    watch = live_audit(optimizer, canaries=canaries, seed=0, check=False)
    opening = time.process_time() - began
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    run_step()

    def block(*, watched):
        with watch if watched else contextlib.nullcontext():
            times = []
            for _ in range(steps):
                began = time.process_time()
                run_step()
                times.append(time.process_time() - began)
        return statistics.median(times)

    block(watched=True)
    ratios, plain = [], []
    for _ in range(pairs):
        order = [True, False]
        random.shuffle(order)
        seconds = {watched: block(watched=watched) for watched in order}
        ratios.append(seconds[True] / seconds[False])
        plain.append(seconds[False])
    return {
        "canaries": canaries,
        "parameters": sum(parameter.numel() for parameter in optimizer.params),
        "step_ms": round(1000 * statistics.median(plain), 2),
        "ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(q, 4) for q in statistics.quantiles(ratios, n=4)[::2]],
        "pairs": pairs,
        "steps_per_block": steps,
        "opening_ms": round(1000 * opening, 1),
        "memory_kib": round(memory / 1024),
    }


def cost(pairs=12, steps=8):
    """A ConvNet of 62,006 parameters with 2,000 canaries."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(10, (2048,)))
    model, optimizer, _ = private(convnet(), data, batch=128, seed=0)
    inputs, labels = data.tensors[0][:128], data.tensors[1][:128]
    return _cost(
        lambda: step(model, optimizer, inputs, labels),
        optimizer, canaries=2000, pairs=pairs, steps=steps,
    )  # fmt: skip


def gpt2(pairs=4, steps=2):
    """LoRA on a model of the size of GPT-2, on the CPU, with weights that are drawn."""
    import transformers
    from peft import LoraConfig, get_peft_model

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    base = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    model = get_peft_model(base, LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))
    tokens = torch.randint(50_000, (32, 32))
    model, optimizer, _ = PrivacyEngine().make_private(
        module=model.train(),
        optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]),
        data_loader=DataLoader(TensorDataset(tokens), batch_size=2),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )

    def run_step():
        optimizer.zero_grad()
        model(input_ids=tokens[:2], labels=tokens[:2]).loss.backward()
        optimizer.step()

    return _cost(run_step, optimizer, canaries=2000, pairs=pairs, steps=steps)


def figure():
    """Draw the losses."""
    import matplotlib.pyplot as plt

    measured = json.loads(OUT.read_text())["losses"]
    plt.rcParams["svg.hashsalt"] = "dpaudit"
    drawn, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for number, (canaries, curves) in enumerate(measured["curves"].items()):
        curves = np.array(curves)
        name = "no canary" if canaries == "0" else f"{int(canaries):,} canaries"
        axes.plot(curves.mean(axis=0), color=f"C{number}", label=name)
        axes.fill_between(
            range(curves.shape[1]), curves.min(axis=0), curves.max(axis=0),
            color=f"C{number}", alpha=0.15,
        )  # fmt: skip
    axes.set(xlabel="epoch", ylabel="loss on fresh examples")
    axes.legend(frameon=False)
    drawn.savefig(FIGURE, metadata={"Date": None})


def main(parts):
    warnings.simplefilter("ignore")
    measured = json.loads(OUT.read_text()) if OUT.exists() else {}
    for part in parts or ("verdicts", "losses", "cost", "gpt2", "figure"):
        began = time.process_time()
        result = globals()[part]()
        if result is not None:
            measured[part] = result | {"cpu_seconds": round(time.process_time() - began, 1)}
            OUT.write_text(json.dumps(measured, indent=1) + "\n")
        print(part, round(time.process_time() - began, 1), "s of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
