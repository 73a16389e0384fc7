"""Whole pipelines in plain torch: a loader, an optimizer, and a private step written by hand."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers import rule_names  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Sampler, TensorDataset, random_split  # noqa: E402

from dpaudit import check_pipeline  # noqa: E402
from dpaudit.pipelines import public, release, with_and_without  # noqa: E402

INPUTS = torch.as_tensor(np.random.default_rng(1).normal(size=(24, 3)), dtype=torch.float32)
DATA = INPUTS, torch.arange(24) % 2
REPLACED = DATA, (torch.cat([INPUTS[:-1], torch.zeros(1, 3)]), DATA[1])


def linear():
    return nn.Linear(3, 2)


def normalised():
    return nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))


def centred(data):
    return data[0] - data[0].mean(dim=0), data[1]


def one(rows):
    return 1.0


def shuffled(inputs, labels):
    return DataLoader(TensorDataset(inputs, labels), batch_size=6, shuffle=True)


def train(data, seed, *, make=linear, rate=one, sigma=one, clip=one, loaded=shuffled):
    torch.manual_seed(seed)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate(data[0]))
    for inputs, labels in loaded(*data):
        model(inputs)  # running means of a batch normalisation follow the private batch
        rows = []
        for row, label in zip(inputs, labels, strict=True):
            loss = nn.functional.cross_entropy(model.eval()(row[None]), label[None])
            gradients = torch.autograd.grad(loss, [*model.parameters()])
            rows.append(torch.cat([gradient.ravel() for gradient in gradients]))
        model.train()
        rows = torch.stack(rows)
        norm, noise = clip(rows), sigma(data[0])
        public(clip_norm=norm, noise_multiplier=noise)
        clipped = rows * (norm / rows.norm(dim=1).clamp(min=norm))[:, None]
        noisy = release(clipped.sum(dim=0) + noise * norm * torch.randn(rows.shape[1])) / 6
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, part in zip(model.parameters(), noisy.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
    return model


def test_correct_shuffling_with_a_replaced_record_has_no_finding():
    result = check_pipeline(train, REPLACED)
    assert result.passed
    assert not result.warnings
    assert result["batches of other records"].verdict == "passed"
    assert result["features of other records"].verdict == "passed"


class PoissonBatches(Sampler):
    """Batches that every record joins by a coin of its own."""

    def __init__(self, data, rate, steps):
        super().__init__()
        self.records, self.rate, self.steps = len(data), rate, steps

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            yield (torch.rand(self.records) < self.rate).nonzero().ravel().tolist()


@pytest.mark.parametrize("place", [-1, 0, 11])
@pytest.mark.parametrize("by_loader", [True, False])
def test_correct_poisson_sampling_of_an_added_record_has_no_finding(place, by_loader):
    def loaded(inputs, labels):
        batches = PoissonBatches(inputs, 0.25, steps=4)
        if by_loader:
            yield from DataLoader(TensorDataset(inputs, labels), batch_sampler=batches)
        else:
            yield from ((inputs[places], labels[places]) for places in batches)

    result = check_pipeline(functools.partial(train, loaded=loaded), with_and_without(DATA, place))
    assert result.passed
    assert not result.warnings
    batches = result["batches of other records"].verdict
    assert batches == ("passed" if by_loader else "not tested")


def test_a_random_split_is_coupled_although_torch_imports_its_permutation_by_name():
    def split(data, seed):
        torch.manual_seed(seed)
        indices = random_split(TensorDataset(*data), [18, len(data[0]) - 18])[0].indices
        return train((data[0][indices], data[1][indices]), seed)

    for pair in (REPLACED, with_and_without(DATA), with_and_without(DATA, 4)):
        result = check_pipeline(split, pair)
        assert result.passed, result
    result = check_pipeline(lambda data, seed: split(centred(data), seed), pair)
    assert rule_names(result.broken) == {"features of other records"}


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"rate": lambda inputs: 2 / len(inputs)}, "learning rate"),
        ({"sigma": lambda inputs: 24 / len(inputs)}, "noise scale"),
        ({"clip": lambda rows: float(rows.norm(dim=1).mean())}, "clip norm"),
    ],
)
def test_a_quantity_that_the_data_decide_is_named_with_its_epsilon(options, rule):
    result = check_pipeline(functools.partial(train, **options), with_and_without(DATA))
    assert rule in rule_names(result.broken)
    assert result[rule].epsilon > 0


def test_running_means_of_private_batches():
    result = check_pipeline(functools.partial(train, make=normalised), REPLACED)
    assert "buffers of the model" in rule_names(result.broken)


@pytest.mark.parametrize("label", [0, 1])
def test_a_checkpoint_that_is_chosen_by_a_private_loss(label):
    """The record that is added has a long row, so that it decides; one of its labels changes it."""

    def chosen(data, seed):
        models = [train(data, seed + number) for number in range(2)]
        losses = [nn.functional.cross_entropy(model(data[0]), data[1]) for model in models]
        return models[int(losses[1] < losses[0])]

    pair = [
        (torch.cat([INPUTS, torch.full((1, 3), 99.0)]), torch.tensor([*DATA[1], other]))
        for other in (label, 1 - label)
    ]
    assert "returned values" in rule_names(check_pipeline(chosen, pair).broken)
