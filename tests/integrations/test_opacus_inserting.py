"""A canary moves the parameters by exactly what DP-SGD allows one example, and nothing else."""

import contextlib
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus_trainings import EXAMPLES, OPACUS_WARNINGS, fit, flat, network, private
from torch import nn

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.integrations.opacus import canary_for, insert_canary
from dpaudit.trainings import GradientCanary

pytestmark = [
    OPACUS_WARNINGS,
    # No claim is tested here, so a canary in every step of a sampled training is no mistake.
    pytest.mark.filterwarnings("ignore:the canary is in every step:UserWarning"),
]

CLIP, RATE, BATCH = 0.5, 0.5, 8
PER_LAYER = [0.5, 0.2, 0.3, 0.4]

# One step, so that the canary cannot yet feed back through later gradients.
ONE_STEP = {"batch": EXAMPLES, "noise": 1.0}


WAYS = {
    "through": {},
    "after": {"through_clipping": False},
}


def moved_by_canary(canary_of, *, way="through", physical=None, passes=1, **options):
    """Parameters after one logical step without the canary, minus those with it."""
    ends = []
    for inserted in (False, True):
        training = private(**{**ONE_STEP, **options})
        canary = canary_of(training.optimizer)
        with insert_canary(
            training.optimizer,
            canary,
            [inserted] * canary.count,
            seed=0,
            sampling="every step",
            **WAYS[way],
        ):
            if physical is not None:
                with BatchMemoryManager(
                    data_loader=training.loader,
                    max_physical_batch_size=physical,
                    optimizer=training.optimizer,
                ) as loader:
                    fit(training, loader=loader)
            elif passes > 1:
                for inputs, labels in list(training.loader) * passes:
                    training.criterion(training.model(inputs), labels).backward()
                training.optimizer.step()
            else:
                fit(training)
        assert sum(steps for _, _, steps in training.engine.accountant.history) == 1
        ends.append(flat(training))
    return ends[0] - ends[1], canary


def along(canary: GradientCanary, length: float) -> torch.Tensor:
    expected = torch.zeros(canary.parameters)
    expected[canary.dimensions] = length
    return expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, RATE / EXAMPLES * CLIP),
        ({"loss_reduction": "sum"}, RATE * CLIP),
        ({"physical": 5}, RATE / EXAMPLES * CLIP),
        ({"passes": 3}, RATE / (3 * EXAMPLES) * CLIP),
        ({"grad_sample_mode": "functorch"}, RATE / EXAMPLES * CLIP),
        ({"grad_sample_mode": "ew"}, RATE / EXAMPLES * CLIP),
        # An axis moves by its own layer's norm, the largest of the four.
        ({"clipping": "per_layer", "clip": PER_LAYER}, RATE / EXAMPLES * max(PER_LAYER)),
    ],
    ids=["flat", "sum", "physical", "accumulated", "functorch", "ew", "per-layer"],
)
def test_one_step_moves_by_the_clip_norm_along_the_axis(way, count, options, length):
    moved, canary = moved_by_canary(
        lambda optimizer: canary_for(optimizer, count=count, seed=3),
        way=way,
        **options,
    )
    torch.testing.assert_close(moved, along(canary, length), rtol=1e-4, atol=2e-7)


@pytest.mark.parametrize("physical", [None, 5])
def test_ghost_clipping_takes_what_correct_clipping_leaves(physical):
    moved, canary = moved_by_canary(
        lambda optimizer: canary_for(optimizer, count=4, seed=1),
        way="after",
        physical=physical,
        grad_sample_mode="ghost",
    )
    expected = along(canary, RATE / EXAMPLES * CLIP)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=2e-7)


def test_each_layer_has_its_own_limit():
    everywhere = moved_by_canary(
        lambda optimizer: GradientCanary.draw(
            sum(p.numel() for p in optimizer.params), clip_norm=1.0, count=26
        ),
        way="after",
        clipping="per_layer",
        clip=PER_LAYER,
    )[0]
    sizes = [p.numel() for p in network().parameters()]
    limits = torch.cat([torch.full((n,), c) for n, c in zip(sizes, PER_LAYER, strict=True)])
    torch.testing.assert_close(everywhere, RATE / EXAMPLES * limits, rtol=1e-4, atol=2e-7)


@dataclass
class Spread:
    """One gradient with an axis in every tensor: what clipping per layer leaves the most of."""

    parameters: int = 26
    count: int = 1
    axes: tuple[int, ...] = (3, 13, 20, 25)

    def rows(self, inserted):
        row = np.zeros((1, self.parameters))
        row[0, list(self.axes)] = 10.0
        return row[np.atleast_1d(inserted)]


@pytest.mark.parametrize(
    ("options", "lengths"),
    [({}, [CLIP / 2] * 4), ({"clipping": "per_layer", "clip": PER_LAYER}, PER_LAYER)],
)
def test_a_canary_over_all_layers_moves_by_the_whole_sensitivity(options, lengths):
    moved, canary = moved_by_canary(lambda _: Spread(), **options)
    expected = torch.zeros(26)
    expected[list(canary.axes)] = RATE / EXAMPLES * torch.tensor(lengths)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=2e-7)
    clip = options.get("clip", [CLIP])
    assert moved.norm() == pytest.approx(RATE / EXAMPLES * math.hypot(*clip), rel=1e-4)


def test_adaptive_clipping():
    moved, canary = moved_by_canary(
        canary_for,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=2.0,
    )
    torch.testing.assert_close(moved, along(canary, RATE / EXAMPLES * CLIP), rtol=1e-4, atol=2e-7)


def test_other_order_of_parameters_follows_the_model():
    module = network()
    first, *rest = module.parameters()
    training = private(module=module, parameters=[*rest, first], **ONE_STEP)
    start = flat(training)
    canary = canary_for(training.optimizer, model=training.model, seed=2)
    training.optimizer.noise_multiplier = 0.0
    with insert_canary(
        training.optimizer, canary, True, seed=0, sampling="every step", model=training.model
    ):
        fit(training)
    other = private(noise=0.0, batch=EXAMPLES)
    fit(other)
    torch.testing.assert_close(flat(other) - flat(training), along(canary, RATE / EXAMPLES * CLIP))
    assert not torch.equal(start, flat(training))


def test_parameters_left_out_take_no_canary():
    module = network()
    training = private(module=module, parameters=list(module.parameters())[1:])
    canary = canary_for(training.optimizer, model=training.model, count=14)
    assert canary.parameters == 26
    assert canary.dimensions.min() == 12
    elsewhere = GradientCanary(
        parameters=26, dimensions=canary.dimensions - 12, clip_norm=1.0, norm=10.0
    )
    with (
        pytest.raises(InvalidInput, match="does not train"),
        insert_canary(training.optimizer, elsewhere, [True] * 14, seed=0, model=training.model),
    ):
        pass


@pytest.mark.parametrize("way", WAYS)
def test_without_the_canary_the_training_is_unchanged(way):
    plain, watched = private(noise=1.0, poisson=True), private(noise=1.0, poisson=True)
    torch.manual_seed(5)
    fit(plain, epochs=2)
    torch.manual_seed(5)
    with insert_canary(
        watched.optimizer,
        canary_for(watched.optimizer),
        False,
        seed=0,
        **WAYS[way],
    ):
        fit(watched, epochs=2)
    assert torch.equal(flat(plain), flat(watched))


class Interrupted(Exception):
    pass


def state_of(training) -> dict:
    """Everything that could be left behind, by name and identity."""
    optimizer, original = training.optimizer, training.optimizer.original_optimizer
    state = {("optimizer", name): id(value) for name, value in vars(optimizer).items()}
    state |= {("original", name): id(value) for name, value in vars(original).items()}
    state["hooks", "pre"] = tuple(original._optimizer_step_pre_hooks)
    for index, parameter in enumerate(training.model.parameters()):
        state["parameter", index] = tuple(sorted(vars(parameter)))
        state["hooks", index] = str(parameter._backward_hooks)
    for name, module in training.model.named_modules():
        state["module", name] = tuple(sorted(vars(module)))
    return state


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", [False, True])
def test_leaves_everything_as_it_was(way, fails):
    training = private(noise=1.0)
    fit(training)
    before = state_of(training)
    canary = canary_for(training.optimizer, count=3)
    context = insert_canary(
        training.optimizer, canary, [True] * 3, seed=0, sampling="every step", **WAYS[way]
    )
    with contextlib.suppress(Interrupted), context:
        fit(training)
        if fails:
            raise Interrupted
    after = state_of(training)
    skipped = ("optimizer", "_is_last_step_skipped")
    assert {key: after[key] for key in after if key != skipped} == {
        key: before[key] for key in before if key != skipped
    }
    assert all(len(p.grad_sample) == BATCH for p in training.model.parameters())
    assert all(hasattr(p.grad_sample, "_processed") for p in training.model.parameters())


@pytest.mark.parametrize("inside", [False, True])
def test_learning_rate_schedulers_go_on_working(inside):
    training = private()
    canary = canary_for(training.optimizer)

    def scheduler():
        return torch.optim.lr_scheduler.ExponentialLR(training.optimizer, gamma=0.5)

    schedule = None if inside else scheduler()
    with insert_canary(training.optimizer, canary, True, seed=0, sampling="every step"):
        schedule = schedule or scheduler()
        fit(training)
        schedule.step()
    fit(training)
    schedule.step()
    assert training.optimizer.param_groups[0]["lr"] == RATE / 4
    assert all(len(p.grad_sample) == BATCH for p in training.model.parameters())


def test_closures():
    moved = []
    for inserted in (False, True):
        training = private(**ONE_STEP)
        canary = canary_for(training.optimizer)
        inputs, labels = next(iter(training.loader))

        def closure(training=training, inputs=inputs, labels=labels):
            loss = training.criterion(training.model(inputs), labels)
            loss.backward()
            return loss

        with insert_canary(training.optimizer, canary, inserted, seed=0, sampling="every step"):
            training.optimizer.step(closure)
        moved.append(flat(training))
    expected = along(canary, RATE / EXAMPLES * CLIP)
    torch.testing.assert_close(moved[0] - moved[1], expected, rtol=1e-4, atol=2e-7)


def test_steps_without_zero_grad_are_still_refused_by_opacus():
    training = private()
    inputs, labels = next(iter(training.loader))
    with insert_canary(
        training.optimizer, canary_for(training.optimizer), True, seed=0, sampling="every step"
    ):
        training.criterion(training.model(inputs), labels).backward()
        training.optimizer.step()
        with pytest.raises(ValueError, match="haven't been cleared"):
            training.optimizer.step()


class NeverClips(DPOptimizer):
    """The clip norm is ignored."""

    def clip_and_accumulate(self):
        for p in self.params:
            p.summed_grad = p.grad_sample.sum(0)


class NeverClears(DPOptimizer):
    """Gradients are not zeroed: old sums count again, and nobody checks."""

    def zero_grad(self, set_to_none=False):
        self.original_optimizer.zero_grad(set_to_none)

    def clip_and_accumulate(self):
        for p in self.params:
            p.summed_grad = None
            for rows in p.grad_sample if isinstance(p.grad_sample, list) else [p.grad_sample]:
                vars(rows).pop("_processed", None)
        super().clip_and_accumulate()


class MixesInRaw(DPOptimizer):
    """The raw gradient is mixed into the private one."""

    def add_noise(self):
        raw = [p.grad for p in self.params]
        super().add_noise()
        for p, gradient in zip(self.params, raw, strict=True):
            p.grad += gradient


class Inactive(DPOptimizer):
    """The DP optimizer is there, and does nothing."""

    def step(self, closure=None):
        return self.original_optimizer.step()


def wrapped_in(kind, training):
    optimizer = kind(
        training.optimizer.original_optimizer,
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=EXAMPLES,
    )
    training.optimizer = optimizer
    return training


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        (DPOptimizer, RATE / EXAMPLES * CLIP),
        (NeverClips, RATE / EXAMPLES * 10 * CLIP),
        (MixesInRaw, RATE / EXAMPLES * (CLIP + 10 * CLIP / (EXAMPLES + 1))),
        (Inactive, RATE * 10 * CLIP / (EXAMPLES + 1)),
    ],
)
def test_bugs_of_a_fork_show_in_the_canary(kind, length):
    ends = []
    for inserted in (False, True):
        training = wrapped_in(kind, private(batch=EXAMPLES))
        canary = canary_for(training.optimizer)
        with insert_canary(training.optimizer, canary, inserted, seed=0, sampling="every step"):
            fit(training)
        ends.append(flat(training))
    if kind is MixesInRaw:
        length = RATE * (CLIP / EXAMPLES + 10 * CLIP / (EXAMPLES + 1) / EXAMPLES)
    difference = (ends[0] - ends[1])[canary.dimensions]
    torch.testing.assert_close(difference, torch.tensor([length]), rtol=1e-4, atol=1e-7)


def test_rows_that_were_not_cleared_contain_the_canary_again():
    ends = []
    for inserted in (False, True):
        training = wrapped_in(NeverClears, private(batch=BATCH))
        training.criterion = lambda outputs, labels: 0.0 * outputs.sum()
        training.optimizer.loss_reduction = "sum"
        canary = canary_for(training.optimizer)
        with insert_canary(training.optimizer, canary, inserted, seed=0, sampling="every step"):
            fit(training)
        ends.append(flat(training))
    # Three steps: the first canary counts three times, the second twice, the third once.
    expected = along(canary, (3 + 2 + 1) * RATE * CLIP)
    torch.testing.assert_close(ends[0] - ends[1], expected, rtol=1e-4, atol=1e-6)


def test_a_step_around_the_dp_optimizer_takes_the_canary_unclipped():
    ends = []
    for inserted in (False, True):
        training = private(batch=EXAMPLES, noise=1.0)
        plain = training.optimizer.original_optimizer
        canary = canary_for(training.optimizer)
        inputs, labels = next(iter(training.loader))
        with insert_canary(training.optimizer, canary, inserted, seed=0, sampling="every step"):
            training.criterion(training.model(inputs), labels).backward()
            plain.step()  # the user kept the optimizer from before make_private
        ends.append(flat(training))
    difference = (ends[0] - ends[1])[canary.dimensions]
    torch.testing.assert_close(difference, torch.tensor([RATE * 10 * CLIP / EXAMPLES]))


def test_pre_step_called_by_hand():
    ends = []
    for inserted in (False, True):
        training = private(**ONE_STEP)
        canary = canary_for(training.optimizer)
        inputs, labels = next(iter(training.loader))
        with insert_canary(training.optimizer, canary, inserted, seed=0, sampling="every step"):
            training.criterion(training.model(inputs), labels).backward()
            if training.optimizer.pre_step():
                training.optimizer.original_optimizer.step()
        ends.append(flat(training))
    expected = along(canary, RATE / EXAMPLES * CLIP)
    torch.testing.assert_close(ends[0] - ends[1], expected, rtol=1e-4, atol=2e-7)


class OwnSum(DPOptimizer):
    """Sums by itself, where no canary can be added after the clipping."""

    def pre_step(self, closure=None):
        return True


def test_says_when_nothing_was_audited():
    training = wrapped_in(OwnSum, private())
    with (
        pytest.raises(DpauditError, match="Nothing was audited"),
        insert_canary(
            training.optimizer,
            canary_for(training.optimizer),
            True,
            seed=0,
            sampling="every step",
            through_clipping=False,
        ),
    ):
        fit(training)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inserted": [True, False]}, "one boolean for each of the 1 canaries"),
        ({"optimizer": torch.optim.SGD(network().parameters())}, "must be a DPOptimizer"),
        ({"canary": GradientCanary.draw(9, clip_norm=1.0)}, "drawn for 9 parameters"),
        ({"memory": 10}, "through_clipping=False"),
        ({"sampling": 1.5}, "sampling must be in"),
        ({"sampling": "sometimes"}, "sampling must be one of"),
        ({"model": nn.Linear(2, 2)}, "must hold every parameter"),
        ({"canary": Spread(), "through_clipping": False}, "needs a GradientCanary"),
    ],
)
def test_refusals_name_the_remedy(change, message):
    training = private()
    given = {
        "optimizer": training.optimizer,
        "canary": canary_for(training.optimizer),
        "inserted": True,
        "seed": 0,
    } | change
    with pytest.raises(InvalidInput, match=message), insert_canary(**given):
        pass


def test_ghost_clipping_and_clipping_in_the_backward_pass_are_refused_with_a_reason():
    ghost = private(grad_sample_mode="ghost").optimizer
    with (
        pytest.raises(InvalidInput, match="use through_clipping=False"),
        insert_canary(ghost, canary_for(ghost), True, seed=0),
    ):
        pass
    in_hooks = private().optimizer
    in_hooks._ddp_per_layer_hook = lambda *_: None  # as DistributedPerLayerOptimizer has
    with (
        pytest.raises(InvalidInput, match="backward pass"),
        insert_canary(in_hooks, canary_for(in_hooks), True, seed=0),
    ):
        pass
