"""Live audits, measured: what they find, what canaries do to a model, and what they cost.

    export OMP_NUM_THREADS=1 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000
    python benchmarks/live_audits.py [verdicts] [losses] [shown] [cost] [gpt2] [figure]
    python benchmarks/live_audits.py gpu

Every training is one of Opacus with Poisson sampling at rate 1/16 and Adam. Of `verdicts`, the
levels are those of the verdict of a live audit; bounds, which take seconds each, are computed in
`shown`. `gpu` measures for about two minutes; `gpu tiny` tests it on a CPU. Costs are ratios of the
processor time of blocks of steps in one training, which alternate between plain and watched in
random order; on a GPU, of their wall-clock time. Watched blocks end when all of their steps are
counted. Results of each part are kept in live_audits.json, those of `gpu` in live_audits_gpu.json
(in $OUT, if it is set).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
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
FOLDER = Path(os.environ.get("OUT", HERE))
OUT = FOLDER / "live_audits.json"
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
            scores, coins = live.evidence.ranks(live.evidence.scores)
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


def shown(trainings=10, canaries=10_000, epochs=10):
    """What correct trainings at epsilon 8 show, by `make_private_with_epsilon`."""
    rows = []
    for seed in range(trainings):
        torch.manual_seed(seed)
        model = small_convnet()
        model, optimizer, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            data_loader=DataLoader(images(256, seed), batch_size=16),
            target_epsilon=8.0,
            target_delta=1e-5,
            epochs=epochs,
            max_grad_norm=1.0,
        )
        with live_audit(optimizer, canaries=canaries, seed=seed) as live:
            for _ in range(epochs):
                for inputs, labels in loader:
                    step(model, optimizer, inputs, labels)
        result = live.result
        row = {"claimed": result.claimed_epsilon, "shown": result.leading.epsilon}
        rows.append(
            {name: round(epsilon, 3) for name, epsilon in row.items()}
            | {"method": result.leading.method, "verdict": result.verdict}
        )
    steps = epochs * len(loader)
    return {"canaries": canaries, "steps": steps, "noise": optimizer.noise_multiplier, "rows": rows}


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


def _cost(
    run_step, optimizer, *, canaries, pairs, steps, clock=time.process_time, seconds=float("inf")
):
    """Ratios of the time of watched and of plain blocks of steps, and the memory of a watch.

    No pair is begun after this many seconds, but two are measured.
    """
    end = time.perf_counter() + seconds
    tracemalloc.start()
    began = clock()
    watch = live_audit(optimizer, canaries=canaries, seed=0, check=False)
    opening = clock() - began
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    run_step()

    def block(*, watched):
        with watch if watched else contextlib.nullcontext():
            run_step()
            run_step()  # the watch looks at all parameters in its first two steps
            counted = watch.steps if watched else None
            began = clock()
            for _ in range(steps):
                run_step()
            assert counted is None or watch.steps == counted + steps  # all are counted
            return (clock() - began) / steps

    before = torch.cuda.memory_allocated()
    with watch:
        on_the_gpu = torch.cuda.memory_allocated() - before
    block(watched=True)
    ratios, plain = [], []
    while len(ratios) < pairs and (len(ratios) < 2 or time.perf_counter() < end):
        order = [True, False]
        random.shuffle(order)
        took = {watched: block(watched=watched) for watched in order}
        ratios.append(took[True] / took[False])
        plain.append(took[False])
    return {
        "canaries": canaries,
        "parameters": sum(parameter.numel() for parameter in optimizer.params),
        "tensors": len(optimizer.params),
        "step_ms": round(1000 * statistics.median(plain), 2),
        "ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(q, 4) for q in statistics.quantiles(ratios, n=4)[::2]],
        "mean": round(statistics.mean(ratios), 4),
        "standard_error": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 4),
        "pairs": len(ratios),
        "steps_per_block": steps,
        "opening_ms": round(1000 * opening, 1),
        "memory_kib": round(memory / 1024),
        "gpu_memory_kib": round(on_the_gpu / 1024),
    }


def cost(pairs=40, steps=8, *, batch=128, device="cpu", **options):
    """A ConvNet of 62,006 parameters with 2,000 canaries."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16 * batch, 3, 32, 32), torch.randint(10, (16 * batch,)))
    model, optimizer, _ = private(convnet().to(device), data, batch=batch, seed=0)
    inputs, labels = (tensor[:batch].to(device) for tensor in data.tensors)
    measured = _cost(
        lambda: step(model, optimizer, inputs, labels),
        optimizer, canaries=2000, pairs=pairs, steps=steps, **options,
    )  # fmt: skip
    return measured | {"batch": batch}


def _language_model(*, lora, examples, batch, length, device, **sizes):
    """A private training of a model of the size of GPT-2, whose weights are drawn."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    # Opacus does not train tied weights.
    config = transformers.GPT2Config(use_cache=False, tie_word_embeddings=False, **sizes)
    model = transformers.GPT2LMHeadModel(config)
    if lora:
        from peft import LoraConfig, get_peft_model

        target = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True)
        model = get_peft_model(model, target)
    model = model.to(device).train()
    tokens = torch.randint(config.vocab_size, (examples, length))
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4),
        data_loader=DataLoader(TensorDataset(tokens), batch_size=batch),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )

    def run_step(rows=tokens[:batch]):
        rows = rows.to(device)
        # Opacus needs a row of positions for each example.
        given = {"attention_mask": torch.ones_like(rows)}
        given["position_ids"] = torch.arange(rows.shape[1], device=device).expand_as(rows)
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows, **given).loss.backward()
        optimizer.step()

    return run_step, optimizer, loader


def gpt2(pairs=10, steps=2):
    """LoRA on a model of the size of GPT-2, on the CPU."""
    run_step, optimizer, _ = _language_model(
        lora=True, examples=32, batch=2, length=32, device="cpu"
    )
    return _cost(run_step, optimizer, canaries=2000, pairs=pairs, steps=steps)


def gpu(**sizes):
    """What a watch costs on a GPU, and one whole training of LoRA, watched."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    quick = bool(sizes)  # a test of this function on a CPU

    def clock():
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    measured = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    measured["versions"] = {"torch": torch.__version__, "dpaudit": dpaudit.__version__}
    measured["load"] = round(os.getloadavg()[0], 1)  # processes that kept the processor busy
    began = time.perf_counter()

    @contextlib.contextmanager
    def part(name):
        """Keeps what is put into the yielded results, at once; a failure ends its part only."""
        measured[name] = {}
        try:
            yield measured[name]
        except Exception as error:
            measured[name]["failed"] = f"{type(error).__name__}: {error}"[:500]
        measured[name]["finished_after_s"] = round(time.perf_counter() - began, 1)
        print(name, json.dumps(measured[name]), flush=True)
        target = FOLDER / "live_audits_gpu.json"
        beside = target.with_suffix(".part")
        beside.write_text(json.dumps(measured, indent=1) + "\n")
        beside.replace(target)  # whole or not at all, if this process is killed
        gc.collect()
        torch.cuda.empty_cache()

    timing = {"clock": clock, "pairs": 2 if quick else 40}
    for batch in (8,) if quick else (256, 1024):
        with part(f"convnet_{batch}") as results:
            steps = 2 if quick else 16
            results |= cost(batch=batch, device=device, seconds=9, steps=steps, **timing)
    for name, lora, batch, seconds in (
        ("gpt2_small", False, 16, 26),
        ("lora", True, 32, 14),
    ):
        batch = 8 if quick else batch
        with part(name) as results:
            run_step, optimizer, loader = _language_model(
                lora=lora, examples=16 * batch, batch=batch, device=device, length=64, **sizes
            )
            results |= {"batch": batch, "length": 64}
            canaries, steps = (200, 1) if quick else (2000, 4)
            results |= _cost(
                run_step, optimizer, canaries=canaries, steps=steps, seconds=seconds, **timing
            )
        if lora and "failed" not in results:
            with part("lora_training") as results:
                results |= _one_training(run_step, optimizer, loader, epochs=10)
        run_step = optimizer = loader = None


def _one_training(run_step, optimizer, loader, *, epochs):
    """A training that is watched from its first step to its last."""
    steps = epochs * len(loader)
    claim = dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=steps, sampling_rate=RATE)
    began = time.perf_counter()
    trained = sum(parameter.numel() for parameter in optimizer.params)
    with live_audit(optimizer, canaries=min(10_000, trained // 10), seed=0, claim=claim) as live:
        for _ in range(epochs):
            for (rows,) in loader:
                run_step(rows)
    training = time.perf_counter() - began
    result = live.result
    return {
        "verdict": result.verdict,
        "canaries": result.canaries,
        "steps": live.steps,
        "claimed": round(result.claimed_epsilon, 3),
        "shown": round(result.leading.epsilon, 3),
        "method": result.leading.method,
        "delta": result.delta,
        "p_value": result.test.p_value,
        "e_value": live.e_value,
        "doubts": list(result.final.doubts),
        "notices": list(result.notices),
        "training_s": round(training, 1),
        "result_s": round(time.perf_counter() - began - training, 1),
    }


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
    if parts[:1] == ["gpu"]:
        tiny = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 100}
        return gpu(**(tiny if parts[1:] == ["tiny"] else {}))
    measured = json.loads(OUT.read_text()) if OUT.exists() else {}
    for part in parts or ("verdicts", "losses", "shown", "cost", "gpt2", "figure"):
        began = time.process_time()
        result = globals()[part]()
        if result is not None:
            measured[part] = result | {"cpu_seconds": round(time.process_time() - began, 1)}
            OUT.write_text(json.dumps(measured, indent=1) + "\n")
        print(part, round(time.process_time() - began, 1), "s of processor time")


if __name__ == "__main__":
    main(sys.argv[1:])
