"""Private steps of real Opacus optimizers: all rules hold but the one on infinite gradients."""

import pytest
import torch
from opacus.optimizers import DPOptimizer
from opacus.optimizers.perlayeroptimizer import DPPerLayerOptimizer
from opacus_trainings import OPACUS_WARNINGS, network, private

from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus import OpacusStep, check_optimizer

SHAPES = ((20, 30), (20,), (5, 20), (5,))


def parameters():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def optimizer(kind=DPOptimizer, **changed):
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "expected_batch_size": 16}
    return kind(torch.optim.SGD(parameters(), lr=0.1), **settings | changed)


def names(findings):
    return {finding.rule.name for finding in findings}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_stock_opacus_passes_with_a_note_about_infinite_gradients(reduction):
    result = check_optimizer(optimizer(loss_reduction=reduction))
    assert result.passed
    assert {finding.verdict for finding in result} == {"passed", "warning"}
    note = result["infinite and NaN gradients"]
    assert note.verdict == "warning"
    assert "nan_to_num" in note.remedy
    declared = check_optimizer(optimizer(loss_reduction=reduction), finite_gradients=True)
    assert declared["infinite and NaN gradients"].verdict == "left out"


def test_clipping_per_layer_bounds_the_norm_of_all_layers_together():
    layered = optimizer(DPPerLayerOptimizer, max_grad_norm=[0.35] * len(SHAPES))
    assert OpacusStep(layered).clip_norm == pytest.approx(0.7)
    assert check_optimizer(layered).passed
    # The same optimizer, with a claim that the whole gradient is clipped to 0.35.
    result = check_optimizer(layered, clip_norm=0.35, noise_multiplier=2.2)
    assert names(result.broken) == {"bounded contribution"}


class ClipNormIgnored(DPOptimizer):
    def clip_and_accumulate(self):
        for parameter in self.params:
            parameter.summed_grad = parameter.grad_sample.sum(dim=0)


class OneKeyForAll(DPOptimizer):
    def add_noise(self):
        state = self.generator.get_state()
        for parameter in self.params:
            self.generator.set_state(state)
            draw = torch.randn(parameter.shape, generator=self.generator)
            noise = self.noise_multiplier * self.max_grad_norm * draw
            parameter.grad = parameter.summed_grad + noise


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (ClipNormIgnored, "bounded contribution"),
        (OneKeyForAll, "noise differs between parameters"),
    ],
)
def test_optimizers_with_a_bug(kind, rule):
    assert names(check_optimizer(optimizer(kind)).broken) - {"infinite and NaN gradients"} == {rule}


def test_the_users_objects_are_not_changed():
    told = []
    given = optimizer(generator=torch.Generator().manual_seed(5))
    given.attach_step_hook(told.append)
    before = [parameter.detach().clone() for parameter in given.params]
    state = given.generator.get_state()
    attributes = [set(vars(parameter)) for parameter in given.params]
    check_optimizer(given)
    assert told == []
    assert torch.equal(state, given.generator.get_state())
    assert attributes == [set(vars(parameter)) for parameter in given.params]
    for parameter, value in zip(given.params, before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.grad is None
        assert parameter.summed_grad is None


def test_other_optimizers_are_refused():
    with pytest.raises(InvalidInput, match="must be a DPOptimizer, got SGD"):
        check_optimizer(torch.optim.SGD(parameters(), lr=0.1))


@OPACUS_WARNINGS
class TestGhostClipping:
    """Version 0.1 refused ghost clipping here, and sent the user in a circle."""

    def test_noise_is_checked_without_a_model(self):
        training = private(grad_sample_mode="ghost", noise=1.0)
        assert check_optimizer(training.optimizer)["noise size"].verdict == "passed"
        result = check_optimizer(training.optimizer, noise_multiplier=2.0)
        assert names(result.broken) == {"noise size"}
        assert "examples=" in result["bounded contribution"].explanation

    def checked(self, training):
        examples = next(iter(training.loader))
        return check_optimizer(
            training.optimizer,
            model=training.model,
            criterion=training.criterion,
            examples=examples,
        )

    def test_clipping_is_checked_with_a_batch_of_examples(self):
        training = private(grad_sample_mode="ghost", noise=1.0)
        result = self.checked(training)
        assert result.passed, result
        assert result["bounded contribution"].verdict == "passed"
        assert all(p.grad is None for p in training.model.parameters())

    def test_ghost_clipping_that_ignores_the_norm_is_found(self, monkeypatch):
        training = private(grad_sample_mode="ghost", noise=1.0)
        monkeypatch.setattr(
            type(training.model),
            "get_clipping_coef",
            lambda self: torch.ones_like(self.get_norm_sample()),
        )
        assert names(self.checked(training).broken) == {"bounded contribution"}


@OPACUS_WARNINGS
def test_parameters_outside_the_private_optimizer_are_named():
    module = network()
    training = private(noise=1.0, module=module, parameters=module[0].parameters())
    result = check_optimizer(training.optimizer, model=training.model)
    assert names(result.broken) == {"every tensor is private"}
    assert "2.weight" in result["every tensor is private"].explanation
