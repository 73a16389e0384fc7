"""Opacus: the private step in every clipping, and what surrounds it."""

import torch
from field.kit import case
from field.parts import BATCH, CLIP, SHAPES, SIGMA, check_step, flat, linear_model
from opacus import GradSampleModule, PrivacyEngine
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DistributedDPOptimizer,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    DPPerLayerOptimizer,
)
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.pipelines import with_and_without
from dpaudit.trainings import rows_model


def step_with(make_optimizer, parts=1):
    """The private step of an optimizer of Opacus; ``parts`` is the number of physical batches."""

    def step(gradients, seed):
        model = GradSampleModule(rows_model(SHAPES))
        optimizer = make_optimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), torch.Generator().manual_seed(seed)
        )
        rows = torch.as_tensor(gradients, dtype=torch.float32)
        pieces = rows.tensor_split(parts)
        for place, piece in enumerate(pieces):
            optimizer.signal_skip_step(do_skip=place < len(pieces) - 1)
            optimizer.zero_grad()
            model(piece).mean().backward()
            optimizer.step()
        return flat(model.parameters())

    return step


def flat_clipping(sgd, generator):
    return DPOptimizer(
        sgd,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
        generator=generator,
    )


@case("flat clipping", claims="noise multiplier 1, clip norm 1")
def flat_step():
    return check_step(step_with(flat_clipping))


@case("several physical batches for one logical batch", claims="noise multiplier 1, clip norm 1")
def virtual_batches():
    return check_step(step_with(flat_clipping, parts=3))


@case(
    "distributed optimizer (DPDDP), one process of gloo", claims="noise multiplier 1, clip norm 1"
)
def distributed():
    def optimizer(sgd, generator):
        return DistributedDPOptimizer(
            sgd,
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            expected_batch_size=BATCH,
            generator=generator,
        )

    alone = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **alone)
    try:
        return check_step(step_with(optimizer))
    finally:
        torch.distributed.destroy_process_group()


@case("clipping per layer", claims="noise multiplier 1, clip norms of total length 1")
def per_layer():
    def optimizer(sgd, generator):
        return DPPerLayerOptimizer(
            sgd,
            noise_multiplier=SIGMA,
            max_grad_norm=[0.8, 0.6],
            expected_batch_size=BATCH,
            generator=generator,
        )

    return check_step(step_with(optimizer))


@case("adaptive clipping, one step", claims="noise multiplier 1, clip norm 1")
def adaptive():
    def optimizer(sgd, generator):
        return AdaClipDPOptimizer(
            sgd,
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            expected_batch_size=BATCH,
            generator=generator,
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=0.2,
            max_clipbound=10.0,
            min_clipbound=0.1,
            unclipped_num_std=1.0,
        )

    return check_step(step_with(optimizer))


class OutputAsLoss(torch.nn.Module):
    """The loss of an example is the output of the model."""

    reduction = "mean"

    def forward(self, outputs, targets):
        losses = outputs[:, 0]
        return losses if self.reduction == "none" else losses.mean()


@case("ghost clipping", claims="noise multiplier 1, clip norm 1")
def ghost():
    def step(gradients, seed):
        module = GradSampleModuleFastGradientClipping(
            linear_model(), max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
        )
        optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(module.parameters(), lr=1.0),
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            expected_batch_size=BATCH,
            generator=torch.Generator().manual_seed(seed),
        )
        loss = DPLossFastGradientClipping(module, optimizer, OutputAsLoss(), "mean")
        rows = torch.as_tensor(gradients, dtype=torch.float32)
        loss(module(rows), torch.zeros(len(rows))).backward()
        optimizer.step()
        return flat(module.parameters())

    return check_step(step)


def shipped_training(sigma=1.0, batches=160):
    """An ordinary training with Adam and Poisson sampling, audited while it runs."""
    torch.manual_seed(0)
    features = torch.randn(1024, 32)
    labels = (features[:, 0] > 0).long()
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 2),
    )  # fmt: skip
    loader = DataLoader(TensorDataset(features, labels), batch_size=64)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        data_loader=loader,
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
    )
    with dpaudit.live_audit(optimizer, canaries=10_000, seed=1, delta=1e-5) as live:
        for _ in range(batches // len(loader)):
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
    return live.result


@case("an ordinary training, audited live", claims="what its accountant records")
def live():
    return shipped_training()


def tutorial(batch, **options):
    """The pipeline of the tutorials: loader, make_private, five epochs."""

    def train(data, seed):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 2)
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(*data), batch_size=batch, shuffle=True),
            noise_multiplier=SIGMA,
            max_grad_norm=CLIP,
            **options,
        )
        for _ in range(5):
            for inputs, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
        return model

    return train


def records(count):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, 4, generator=generator)
    return features, (features[:, 0] > 0).long()


@case(
    "the whole pipeline of the tutorials, 64 records and one more at batch size 64",
    claims="what its accountant says, for adding a record",
    expected="broken",
    cause="the number of steps, the sampling rate and the divisor depend on the number of records",
    class_of_bug="a training library: steps and divisor depend on the number of records",
    public="opacus#571",
)
def number_of_records():
    return dpaudit.check_pipeline(tutorial(64), with_and_without(records(65)))


@case(
    "the whole pipeline of the tutorials, where the number of batches stays the same",
    claims="what its accountant says, for adding a record",
)
def number_of_records_elsewhere():
    return dpaudit.check_pipeline(tutorial(16), with_and_without(records(67)))


@case("`poisson_sampling=False`, a record replaced", claims="what it says for batches in order")
def replaced_record():
    features, labels = records(48)
    other = features.clone(), labels
    other[0][-1] = 0
    train = tutorial(16, poisson_sampling=False)
    return dpaudit.check_pipeline(train, ((features, labels), other))
