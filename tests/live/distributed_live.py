"""What each of two processes does in the test of a live audit of a distributed training."""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def process(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # FSDP2 would move the model to a GPU
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    results = {
        f"{kind}, {name}": _played(share, sharded=kind == "fsdp")
        for kind in ("ddp", "fsdp")
        for name, share in (("whole", 1.0), ("half", 0.5))
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()
    # FSDP keeps the group and its threads alive; ending with them running aborts now and then.
    os._exit(0)


def _played(share: float, *, sharded: bool) -> dict:
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP
    from opacus.utils.fsdp_utils import FSDP2Wrapper

    from dpaudit.live import live_audit

    torch.manual_seed(dist.get_rank())  # every process draws its own batches
    model = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 2))
    model = FSDP2Wrapper(model) if sharded else DPDDP(model)
    data = TensorDataset(torch.randn(64, 30), torch.randint(0, 2, (64,)))
    model, optimizer, *criterion, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        grad_sample_mode="ghost_fsdp" if sharded else "hooks",
        data_loader=DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    add_noise = optimizer.add_noise

    def quieter() -> None:
        optimizer.noise_multiplier *= share
        add_noise()
        optimizer.noise_multiplier /= share

    optimizer.add_noise = quieter
    seen = []
    criterion = criterion[0] if sharded else nn.CrossEntropyLoss()
    with live_audit(optimizer, canaries=600, seed=1, on_violation=lambda _: None) as live:
        observe = live.evidence.observe

        def remembering(observed: np.ndarray, **settings: object) -> None:
            seen.extend(np.atleast_2d(observed))
            observe(observed, **settings)

        live.evidence.observe = remembering
        for _ in range(4):
            for features, targets in loader:
                optimizer.zero_grad()
                criterion(model(features), targets).backward()
                optimizer.step()
    return {
        "others": float(np.std([values[~live.evidence.coins] for values in seen])),
        "inserted": float(np.mean([values[live.evidence.coins] for values in seen])),
        "rate": live.evidence.history[0][1],
        "e_value": min(live.e_value, 1e9),
        "scores": live.evidence.scores.tolist(),
        "moved": live.evidence.final.tolist(),
    }
