"""Starting weights drawn by Xavier's and Kaiming's rules."""

import functools
import math
import pickle

import pytest
import torch
from torch import nn

from dpaudit.errors import InvalidInput
from dpaudit.models import convnet
from dpaudit.models.initialisations import drawn_by


@pytest.mark.parametrize(("rule", "variance"), [("xavier", 2 / (400 + 120)), ("kaiming", 2 / 400)])
def test_weights_have_the_variance_of_their_paper(rule, variance):
    torch.manual_seed(0)
    weights = drawn_by(rule, convnet)[7].weight.detach()  # 400 to 120: 48,000 weights
    # Four standard errors of the variance of a uniform sample this large.
    error = 4 * math.sqrt(0.8 / weights.numel())
    assert float(weights.var()) == pytest.approx(variance, rel=error)


@pytest.mark.parametrize("rule", ["xavier", "kaiming"])
def test_every_bias_starts_at_zero_and_normalisation_is_left_alone(rule):
    model = drawn_by(rule, lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)))
    assert not model[0].bias.any()
    assert bool((model[1].weight == 1).all())


def test_two_seeds_give_two_starts_and_one_gives_one():
    def start(seed):
        torch.manual_seed(seed)
        return drawn_by("xavier", convnet)[0].weight

    assert torch.equal(start(0), start(0))
    assert not torch.equal(start(0), start(1))


def test_weights_are_the_same_in_worker_processes():
    build = functools.partial(drawn_by, "kaiming", convnet)
    assert isinstance(pickle.loads(pickle.dumps(build))(), nn.Sequential)


def test_an_unknown_rule_is_refused():
    with pytest.raises(InvalidInput, match="rule must be one of"):
        drawn_by("lecun", convnet)
