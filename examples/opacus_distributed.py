"""Audit an Opacus training of two processes: data parallel (DDP), or sharded (FSDP2).

torchrun --nproc-per-node 2 examples/opacus_distributed.py ddp
torchrun --nproc-per-node 2 examples/opacus_distributed.py fsdp

Every process runs the same audit with the same seed, so all of them train the same runs together.
The canary is in the batch of rank 0.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
import torch.distributed as dist
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP
from opacus.utils.fsdp_utils import FSDP2Wrapper
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import dpaudit
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary

EXAMPLES, STEPS, NOISE = 16, 4, 2.0


# --- The user's own script. ----------------------------------------------------------------------


def make_private(seed, *, sharded=False, noise_multiplier=NOISE, **options):
    torch.manual_seed(0)  # the same data and initial model in every run
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    data = TensorDataset(torch.randn(EXAMPLES, 4), torch.randint(2, (EXAMPLES,)))
    wrapped = FSDP2Wrapper(module) if sharded else DPDDP(module)
    loader = DataLoader(
        data, batch_size=EXAMPLES // dist.get_world_size(), sampler=DistributedSampler(data)
    )
    if sharded:
        options["grad_sample_mode"] = "ghost_fsdp"
    model, optimizer, *criterion, loader = PrivacyEngine().make_private(
        module=wrapped,
        optimizer=torch.optim.SGD(wrapped.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        data_loader=loader,
        noise_multiplier=noise_multiplier,
        poisson_sampling=False,
        # With FSDP2 every process draws the noise of its own part.
        noise_generator=torch.Generator().manual_seed(seed + dist.get_rank()),
        **{"max_grad_norm": 1.0, **options},
    )
    return model, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), loader


def fit(model, optimizer, criterion, loader, epochs=STEPS):
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()


# --- The audit. ----------------------------------------------------------------------------------


def audit(*, sharded: bool, runs: int = 100, true_share: float = 1.0) -> dpaudit.AuditResult:
    """Two processes call this together."""

    def train(canary, inserted, seed):
        training = make_private(seed, sharded=sharded, noise_multiplier=true_share * NOISE)
        with insert_canary(training[1], canary, inserted, seed=seed, through_clipping=not sharded):
            fit(*training)
        return training[0]

    model, optimizer, _, loader = make_private(0, sharded=sharded)
    return dpaudit.audit(
        train,
        canary=canary_for(optimizer),
        claim=claim_of(optimizer, steps=STEPS * len(loader)),
        initial=model,
        runs=runs,
        anyway=True,  # a few runs show that it works
    )


def main(kind: str = "ddp") -> None:
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # both processes train on the CPU
    dist.init_process_group("gloo")
    try:
        result = audit(sharded=kind == "fsdp")
        if dist.get_rank() == 0:
            print(result.summary())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:2])
