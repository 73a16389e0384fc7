"""Audit an Opacus training while it runs, once; then what the final model alone shows.

python examples/opacus_training.py
"""

from __future__ import annotations

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary
from dpaudit.models import convnet
from dpaudit.upper_bounds import noise_multiplier_for

EXAMPLES, BATCH = 256, 64


# --- The user's own script, which knows nothing of audits. ---------------------------------------


def make_private(seed, *, noise_multiplier=1.0, examples=EXAMPLES, batch=BATCH):
    torch.manual_seed(0)  # the same initial model and data in every run
    module = convnet()
    data = TensorDataset(torch.randn(examples, 3, 32, 32), torch.randint(2, (examples,)))
    torch.manual_seed(seed)  # another sample and other noise
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        poisson_sampling=batch < examples,
    )
    return model, optimizer, loader


def fit(model, optimizer, loader, epochs):
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()


# --- The audit of the training that is shipped. --------------------------------------------------


def live(*, true_share: float = 1.0, canaries: int = 2000, seed: int = 0) -> dpaudit.AuditResult:
    """One training of a ConvNet; with a share below 1, that much of the noise is added."""
    model, optimizer, loader = make_private(seed)
    if true_share < 1:
        plant_a_bug(optimizer, true_share)
    with dpaudit.live_audit(optimizer, canaries=canaries, seed=seed) as live:  # the one line
        fit(model, optimizer, loader, epochs=5)
    return live.result


def plant_a_bug(optimizer, share):
    """Less noise than is reported to the accountant."""
    add_noise = optimizer.add_noise

    def add_less_noise():
        optimizer.noise_multiplier *= share
        add_noise()
        optimizer.noise_multiplier /= share

    optimizer.add_noise = add_less_noise


# --- The audit of the final model alone: an adversary who sees no step of the training. ----------


def final_model(
    *, true_share: float = 1.0, canaries: int = 10_000, steps: int = 10, seed: int = 0
) -> dpaudit.AuditResult:
    """One training of a ConvNet on all examples, with many canaries in its sums."""
    noise = noise_multiplier_for(epsilon=8.0, delta=1e-5, steps=steps)

    def train(canary, inserted, seed):
        model, optimizer, loader = make_private(seed, noise_multiplier=noise, examples=BATCH)
        optimizer.noise_multiplier = true_share * noise  # the bug, if there is one
        with insert_canary(optimizer, canary, inserted, seed=seed, through_clipping=False):
            fit(model, optimizer, loader, epochs=steps)
        return model

    model, optimizer, _ = make_private(0, noise_multiplier=noise, examples=BATCH)
    return dpaudit.audit(
        train,
        canary=canary_for(optimizer, count=canaries),
        claim=claim_of(optimizer, steps=steps),
        initial=model,
        runs=1,
        seed=seed,
    )


def main() -> None:
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    print(live(), live(true_share=0.7), final_model(), sep="\n\n")


if __name__ == "__main__":
    main()
