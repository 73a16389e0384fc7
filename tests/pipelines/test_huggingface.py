"""Whole pipelines with the trainer of Hugging Face and Opacus, observed through torch."""

import pytest

pytest.importorskip("opacus")
transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from helpers import rule_names, two_classes  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from dpaudit import check_pipeline  # noqa: E402
from dpaudit.pipelines import with_and_without  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Network(nn.Module):
    """A linear layer with the loss that a trainer wants."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs, labels):
        return {"loss": nn.functional.cross_entropy(self.layer(inputs), labels)}


class PrivateTrainer(transformers.Trainer):
    """A trainer with the loader of Opacus, which clears what Opacus keeps of every example."""

    def __init__(self, *, loader, **named):
        super().__init__(**named)
        self.loader = loader

    def get_train_dataloader(self):
        return self.loader

    def training_step(self, model, *more, **named):
        self.optimizer.optimizer.zero_grad()
        return super().training_step(model, *more, **named)


def collated(rows):
    inputs, labels = zip(*rows, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}


def pipeline(folder, *, poisson=True, prepare=lambda inputs: inputs):
    def train(data, seed):
        inputs, labels = data
        torch.manual_seed(seed)
        batches = DataLoader(
            TensorDataset(prepare(inputs), labels),
            batch_size=8,
            shuffle=True,
            collate_fn=collated,
        )
        model = Network()
        _, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=batches,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
            wrap_model=False,
        )
        arguments = transformers.TrainingArguments(
            output_dir=str(folder), max_steps=4, max_grad_norm=0.0, save_strategy="no",
            report_to=[], disable_tqdm=True, logging_strategy="no", use_cpu=True, seed=seed,
        )  # fmt: skip
        PrivateTrainer(
            model=model, args=arguments, optimizers=(optimizer, None), loader=loader
        ).train()
        return model

    return train


def test_correct_poisson_sampling_has_no_finding(tmp_path):
    result = check_pipeline(pipeline(tmp_path), with_and_without(two_classes(34)))
    assert result.passed, result
    assert not result.warnings
    assert "4 private releases" in result.note
    assert result["returned values"].verdict == "passed"


def test_correct_shuffling_with_a_replaced_record_has_no_finding(tmp_path):
    inputs, labels = two_classes(32)
    other = inputs.clone()
    other[-1] = 0
    result = check_pipeline(pipeline(tmp_path, poisson=False), ((inputs, labels), (other, labels)))
    assert result.passed, result
    assert not result.warnings


def test_the_number_of_records_and_private_statistics_are_found(tmp_path):
    result = check_pipeline(pipeline(tmp_path), with_and_without(two_classes(33)))
    assert rule_names(result.broken) >= {"sampling rate", "divisor"}
    train = pipeline(tmp_path, prepare=lambda inputs: inputs - inputs.mean(0))
    result = check_pipeline(train, with_and_without(two_classes(34)))
    assert rule_names(result.broken) == {"features of other records"}
