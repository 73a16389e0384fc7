"""A canary is in as many steps as the claim says that an example is."""

import numpy as np
import pytest
import torch
from opacus_trainings import EXAMPLES, OPACUS_WARNINGS, fit, flat, private

from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus import canary_for, insert_canary

pytestmark = OPACUS_WARNINGS

CLIP, RATE = 0.5, 0.5


def participations(training, *, epochs=1, count=1, through_clipping=False, seed=0, sampling):
    """How often each canary took part, read from how far it moved its axis.

    With no learning from data (zero inputs to a linear loss) the canaries are all that moves.
    """
    canary = canary_for(training.optimizer, count=count)
    start = flat(training)
    with insert_canary(
        training.optimizer,
        canary,
        [True] * count,
        seed=seed,
        sampling=sampling,
        through_clipping=through_clipping,
    ):
        fit(training, epochs=epochs)
    once = RATE * CLIP / training.optimizer.expected_batch_size
    return ((start - flat(training))[canary.dimensions] / once).numpy()


class Still(torch.nn.CrossEntropyLoss):
    """A loss without gradient: only canaries move the parameters."""

    def forward(self, outputs, labels):
        return 0.0 * super().forward(outputs, labels)


def still(**options):
    training = private(**options)
    training.criterion = Still()
    return training


@pytest.mark.parametrize("through_clipping", [True, False])
def test_poisson_takes_part_at_the_accountants_rate(through_clipping):
    training = still(batch=6, poisson=True)
    torch.manual_seed(0)
    times = participations(
        training,
        epochs=25,
        count=20,
        through_clipping=through_clipping,
        sampling="from accountant",
    )
    np.testing.assert_allclose(times, np.round(times), atol=1e-3)
    # 100 steps at rate 1/4, 20 canaries: 25 each, standard deviation 4.3; the mean's is below 1.
    assert abs(times.mean() - 25) < 4
    assert 1.5 < times.std() < 8
    assert training.engine.accountant.history == [(0.0, 0.25, 100)]


def test_every_step_and_once_an_epoch():
    epochs = 6
    with pytest.warns(UserWarning, match=r"sampling rate of 0\.25"):
        every = participations(still(batch=6), epochs=epochs, count=5, sampling="every step")
    np.testing.assert_allclose(every, 4 * epochs, rtol=1e-4)
    once = participations(still(batch=6), epochs=epochs, count=5, sampling="once an epoch")
    np.testing.assert_allclose(once, epochs, rtol=1e-4)


@pytest.mark.parametrize("through_clipping", [True, False])
def test_accumulated_batches_raise_the_rate_given_to_the_accountant(through_clipping):
    training = still(batch=6)
    canary = canary_for(training.optimizer, count=10)
    start = flat(training)
    with insert_canary(
        training.optimizer, canary, [True] * 10, seed=0, through_clipping=through_clipping
    ):
        for _ in range(10):
            training.optimizer.zero_grad()
            for inputs, labels in training.loader:  # four batches in one step: the whole data
                training.criterion(training.model(inputs), labels).backward()
            training.optimizer.step()
    assert training.engine.accountant.history == [(0.0, 1.0, 10)]
    once = RATE * CLIP / EXAMPLES
    times = (start - flat(training))[canary.dimensions] / once
    torch.testing.assert_close(times, torch.full((10,), 10.0), rtol=1e-4, atol=0)


@pytest.mark.filterwarnings("ignore:the canary is in every step:UserWarning")
@pytest.mark.parametrize("through_clipping", [True, False])
def test_empty_batches_take_a_canary_too(through_clipping):
    training = still(batch=1, poisson=True)
    steps = len(training.loader)
    sizes = []
    torch.manual_seed(3)
    canary = canary_for(training.optimizer)
    start = flat(training)
    with insert_canary(
        training.optimizer,
        canary,
        True,
        seed=0,
        sampling="every step",
        through_clipping=through_clipping,
    ):
        for inputs, labels in training.loader:
            sizes.append(len(labels))
            training.optimizer.zero_grad()
            outputs = training.model(inputs)
            (0.0 * outputs.sum()).backward()
            training.optimizer.step()
    assert 0 in sizes
    moved = (start - flat(training))[canary.dimensions]
    torch.testing.assert_close(moved, torch.tensor([steps * RATE * CLIP]), rtol=1e-4, atol=0)


def test_no_accountant_no_default():
    training = private()
    training.optimizer.step_hook = None
    with (
        pytest.raises(InvalidInput, match="sampling=RATE"),
        insert_canary(training.optimizer, canary_for(training.optimizer), True, seed=0),
    ):
        pass
