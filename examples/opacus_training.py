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

EXAMPLES, BATCH, EPOCHS = 256, 64, 2


# --- The user's own script, which knows nothing of audits. ---------------------------------------


def make_private(
    seed, *, module=None, shape=(8,), noise_multiplier=1.0, examples=EXAMPLES, batch=BATCH
):
    torch.manual_seed(0)  # the same data and initial model in every run
    module = (
        nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)) if module is None else module
    )
    data = TensorDataset(torch.randn(examples, *shape), torch.randint(2, (examples,)))
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


def fit(model, optimizer, loader, epochs=EPOCHS):
    criterion = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()


# --- The audit of the training that is shipped. --------------------------------------------------


def live(*, true_share: float = 1.0, canaries: int = 2000, seed: int = 0) -> dpaudit.AuditResult:
    """One training of a ConvNet; with a share below 1, that much of the noise is added."""
    model, optimizer, loader = make_private(seed, module=convnet(), shape=(3, 32, 32))
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


# --- The audit of the final model, in many trainings. --------------------------------------------


def train(canary, inserted, seed):
    model, optimizer, loader = make_private(seed)
    with insert_canary(optimizer, canary, inserted, seed=seed):
        fit(model, optimizer, loader)
    return model


def audit(runs: int = 200) -> dpaudit.AuditResult:
    """Many trainings with one canary: the clipping, the noise, the sampling."""
    model, optimizer, loader = make_private(0)
    return dpaudit.audit(
        train,
        canary=canary_for(optimizer),
        claim=claim_of(optimizer, steps=EPOCHS * len(loader)),
        initial=model,
        runs=runs,
    )


def audit_in_one_training(
    *, true_share: float = 0.8, canaries: int = 10_000, steps: int = 10, seed: int = 0
) -> dpaudit.AuditResult:
    """One training of a ConvNet with many canaries, whose noise is a share of what it claims."""
    noise = noise_multiplier_for(epsilon=8.0, delta=1e-5, steps=steps)

    def private_convnet(seed):
        torch.manual_seed(0)
        return make_private(
            seed, module=convnet(), shape=(3, 32, 32), noise_multiplier=noise, examples=BATCH
        )

    def train_once(canary, inserted, seed):
        model, optimizer, loader = private_convnet(seed)
        optimizer.noise_multiplier = true_share * noise  # the bug
        with insert_canary(optimizer, canary, inserted, seed=seed, through_clipping=False):
            fit(model, optimizer, loader, epochs=steps)
        return model

    model, optimizer, _ = private_convnet(0)
    return dpaudit.audit(
        train_once,
        canary=canary_for(optimizer, count=canaries),
        claim=claim_of(optimizer, steps=steps),
        initial=model,
        runs=1,
        seed=seed,
    )


def main(runs: int = 200) -> None:
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    print(live(), live(true_share=0.7), sep="\n\n")
    if runs:
        print(f"\nThe final model alone, {runs} trainings:\n\n{audit(runs)}")


if __name__ == "__main__":
    main()
