"""In every way of training with Opacus one canary counts as one clipped example."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from opacus_trainings import EXAMPLES, OPACUS_WARNINGS, fit, flat, network, opacus, private
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary

pytestmark = OPACUS_WARNINGS

CLIP, RATE = 0.5, 0.5


def seen(make, train=fit, **options):
    """By how many clip norms each recorded gradient differs with and without the canary."""
    found = []
    for inserted in (False, True):
        torch.manual_seed(3)
        training = make()
        canary = canary_for(training.optimizer)
        with insert_canary(
            training.optimizer, canary, inserted, seed=0, sampling=1.0, **options
        ) as gradients:
            train(training)
        found.append(gradients.projections[:, 0])
    return found[1] - found[0]


def fast_gradient_clipping():
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    module = GradSampleModuleFastGradientClipping(
        network(), max_grad_norm=CLIP, use_ghost_clipping=False
    )
    return private(module=module, grad_sample_mode="ghost", batch=EXAMPLES)


def hooks_without_a_wrapper(mode="hooks"):
    module = network()
    training = private(module=module, wrap_model=False, grad_sample_mode=mode, batch=EXAMPLES)
    training.model = module
    return training


def adaptive_ghost_clipping():
    from opacus.utils.adaptive_clipping.adaptive_clipping_utils import (
        PrivacyEngineAdaptiveClipping,
    )

    module, data = network(), TensorDataset(torch.randn(EXAMPLES, 3), torch.arange(EXAMPLES) % 2)
    model, optimizer, criterion, loader = PrivacyEngineAdaptiveClipping().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=RATE),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(data, batch_size=EXAMPLES),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode="ghost",
        min_clipbound=0.1,
        max_clipbound=CLIP,
    )
    return SimpleNamespace(model=model, optimizer=optimizer, criterion=criterion, loader=loader)


@pytest.mark.parametrize(
    ("make", "through_clipping"),
    [
        (fast_gradient_clipping, False),
        (hooks_without_a_wrapper, True),
        (lambda: hooks_without_a_wrapper("ghost"), False),
        (adaptive_ghost_clipping, False),
    ],
)
def test_any_way_of_clipping(make, through_clipping):
    first = seen(make, through_clipping=through_clipping)
    assert first[0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_physical_batches_of_a_poisson_loader(mode):
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    def in_parts(training):
        with BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=3, optimizer=training.optimizer
        ) as loader:
            fit(training, loader=loader)

    def make():
        return private(batch=8, poisson=True, grad_sample_mode=mode)

    once = seen(make, in_parts, through_clipping=mode == "hooks")
    assert once == pytest.approx(np.ones(3), abs=0.01)


@pytest.mark.parametrize("kind", ["ExponentialNoise", "ExponentialGradClip"])
def test_schedules_of_noise_and_clip_norm(kind):
    from opacus import schedulers

    def scheduled(training):
        schedule = getattr(schedulers, kind)(training.optimizer, gamma=0.5)
        for _ in range(3):
            fit(training)
            schedule.step()
        # After a step of the schedule the claim follows the accountant's history.
        claims.append(claim_of(training.engine))

    claims = []
    once = seen(lambda: private(batch=EXAMPLES, noise=4.0, accountant="rdp"), scheduled)
    assert once == pytest.approx(np.ones(3), abs=0.02)
    noises = [4.0 * 0.5**step for step in range(3)] if kind == "ExponentialNoise" else [4.0] * 3
    assert claims[0].mu == pytest.approx(np.sqrt(sum(noise**-2 for noise in noises)))


@pytest.mark.filterwarnings("ignore::dpaudit.trainings.run.UncoveredParameters")
def test_two_private_optimizers_of_one_model():
    """A canary belongs to one of them; `model` says where its parameters are."""
    ends = []
    for inserted in (False, True):
        module = network()
        first = private(module=module, parameters=module[0].parameters(), batch=EXAMPLES)
        second = private(
            module=first.model, parameters=module[2].parameters(), batch=EXAMPLES, rate=RATE
        )
        canary = canary_for(second.optimizer, model=first.model)
        with insert_canary(second.optimizer, canary, inserted, seed=0, model=first.model):
            inputs, labels = next(iter(first.loader))
            first.criterion(first.model(inputs), labels).backward()
            first.optimizer.step()
            second.optimizer.step()
        ends.append(flat(first))
    moved = (ends[0] - ends[1]).numpy()
    assert canary.score(-moved) == pytest.approx([RATE * CLIP / EXAMPLES], rel=1e-3)
    assert np.linalg.norm(moved) == pytest.approx(RATE * CLIP / EXAMPLES, rel=1e-3)


@pytest.mark.filterwarnings("ignore:Optimal order is the:UserWarning")
def test_the_claim_of_make_private_with_epsilon():
    module = network()
    data = TensorDataset(torch.randn(EXAMPLES, 3), torch.randint(2, (EXAMPLES,)))
    epochs, epsilon, delta = 2, 3.0, 1e-5
    _, optimizer, loader = opacus.PrivacyEngine(accountant="rdp").make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=RATE),
        data_loader=DataLoader(data, batch_size=8),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=epochs,
        max_grad_norm=CLIP,
    )
    pair = claim_of(optimizer, steps=epochs * len(loader), delta=delta, curve=False)
    assert pair.epsilons[-1] <= epsilon
    assert pair.epsilons[-1] == pytest.approx(epsilon, abs=0.02)


def test_lora_adapters_of_peft():
    peft = pytest.importorskip("peft")

    def make():
        torch.manual_seed(0)
        module = peft.get_peft_model(network(), peft.LoraConfig(r=2, target_modules=["0", "2"]))
        trained = [p for p in module.parameters() if p.requires_grad]
        assert sum(p.numel() for p in trained) == 2 * (3 + 4) + 2 * (4 + 2)
        return private(module=module, parameters=trained, batch=EXAMPLES)

    assert seen(make) == pytest.approx([1.0], abs=1e-3)


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers")


def test_a_whole_transformer_with_positions_of_each_example(transformers):
    """Opacus needs one row for each example, also of the embeddings of positions."""

    class WithPositions(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.bert = transformers.BertForSequenceClassification(
                transformers.BertConfig(
                    vocab_size=9,
                    hidden_size=4,
                    num_hidden_layers=1,
                    num_attention_heads=1,
                    intermediate_size=4,
                    max_position_embeddings=4,
                    hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0,
                )
            )

        def forward(self, inputs):
            tokens = (3 * inputs).round().long().clamp(-4, 4) + 4
            return self.bert(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                token_type_ids=torch.zeros_like(tokens),
                position_ids=torch.arange(tokens.shape[1]).expand_as(tokens),
            ).logits

    assert seen(lambda: private(module=WithPositions().train(), batch=EXAMPLES)) == pytest.approx(
        [1.0], abs=1e-3
    )
