"""Small trainings with the real Opacus, each made by the same few lines."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

opacus = pytest.importorskip("opacus")

EXAMPLES, FEATURES = 24, 3

OPACUS_WARNINGS = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Full backward hook is firing:UserWarning",
)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, 2))


def private(
    *,
    noise=0.0,
    clip=0.5,
    rate=0.5,
    batch=8,
    poisson=False,
    seed=0,
    accountant="prv",
    optimizer_of=torch.optim.SGD,
    module=None,
    parameters=None,
    **options,
):
    """Model, optimizer, loader, criterion and engine, as `make_private` returns them."""
    module = network(seed) if module is None else module
    random = torch.Generator().manual_seed(7)
    inputs = torch.randn(EXAMPLES, FEATURES, generator=random)
    labels = torch.randint(2, (EXAMPLES,), generator=random)
    data = DataLoader(TensorDataset(inputs, labels), batch_size=batch)
    trained = module.parameters() if parameters is None else parameters
    engine = opacus.PrivacyEngine(accountant=accountant)
    made = engine.make_private(
        module=module,
        optimizer=optimizer_of(trained, lr=rate),
        data_loader=data,
        noise_multiplier=noise,
        max_grad_norm=clip,
        poisson_sampling=poisson,
        noise_generator=torch.Generator().manual_seed(seed),
        criterion=nn.CrossEntropyLoss(reduction=options.get("loss_reduction", "mean")),
        **options,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = (
        made[2]
        if len(made) == 4
        else nn.CrossEntropyLoss(reduction=options.get("loss_reduction", "mean"))
    )
    return SimpleNamespace(
        model=model, optimizer=optimizer, loader=loader, criterion=criterion, engine=engine
    )


def fit(training, *, epochs=1, loader=None):
    """The user's own loop. Nothing in it knows of an audit."""
    for _ in range(epochs):
        for inputs, labels in training.loader if loader is None else loader:
            training.optimizer.zero_grad()
            training.criterion(training.model(inputs), labels).backward()
            training.optimizer.step()


def flat(training) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).clone() for p in training.model.parameters()])
