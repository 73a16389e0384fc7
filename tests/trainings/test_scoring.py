"""Parameters of any framework come to the same flat vector, in the framework's own order."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit import GradientCanary, Predictions
from dpaudit.errors import InvalidInput, UnscorableReturn
from dpaudit.trainings.scoring import Scorer, flat_parameters

VALUES = np.arange(9.0)


def test_numpy_in_every_wrapping():
    for returned in (
        VALUES,
        VALUES.astype(np.float32),
        VALUES.reshape(3, 3),
        list(VALUES),
        {"b": VALUES[:4], "a": {"x": [VALUES[4:6], (VALUES[6:8],)], "y": 8.0}},
    ):
        assert flat_parameters(returned).tolist() == VALUES.tolist()


def test_torch_modules_state_dicts_and_tensors():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    whole = torch.nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()
    for returned in (model, model.state_dict(), list(model.parameters()), torch.tensor(whole)):
        assert flat_parameters(returned) == pytest.approx(whole)
    model[0].weight.requires_grad_(False)
    assert len(flat_parameters(model)) == len(whole) - 6
    half = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    assert flat_parameters(half).tolist() == [1.0, 1.0, 1.0]


def test_modules_of_frameworks_without_requires_grad():
    class Module:
        def named_parameters(self):
            return iter({"weight": VALUES[:4], "bias": VALUES[4:]}.items())

    assert flat_parameters(Module()).tolist() == VALUES.tolist()


def test_jax_trees_have_sorted_keys():
    jax = pytest.importorskip("jax")
    tree = {"w": jax.numpy.arange(4.0).reshape(2, 2), "b": jax.numpy.ones(2, jax.numpy.bfloat16)}
    from jax import flatten_util

    flat, _ = flatten_util.ravel_pytree(tree)
    assert flat_parameters(tree).tolist() == np.asarray(flat).tolist() == [1, 1, 0, 1, 2, 3]


def test_keras_models_by_their_trainable_variables():
    class Variable:
        def __init__(self, value):
            self.value = value

        def numpy(self):
            return self.value

    class Model:
        trainable_variables = (Variable(VALUES[:4]), Variable(VALUES[4:].reshape(5, 1)))

    assert flat_parameters(Model()).tolist() == VALUES.tolist()


@pytest.mark.parametrize("returned", [None, "weights.pt", {}, [], {"w": None}, np.array([1j])])
def test_what_is_no_parameters(returned):
    with pytest.raises(InvalidInput):
        flat_parameters(returned)


def test_scores_and_parameters_are_distinguished_by_their_number():
    canary = GradientCanary.draw(9, clip_norm=1.0, count=3)
    scorer = Scorer(canary=canary)
    assert scorer.score(VALUES)[0] == "parameters"
    assert scorer.score(VALUES)[1].tolist() == (-VALUES[canary.dimensions]).tolist()
    assert scorer.score([0.1, 0.2, 0.3])[0] == "score"
    with pytest.raises(UnscorableReturn, match="9 parameters"):
        scorer.score(np.zeros(5))
    every = Scorer(canary=GradientCanary.draw(3, clip_norm=1.0, count=3))
    assert every.score(np.zeros(3))[0] == "parameters"


def test_predictions_score_the_log_likelihood():
    logits = np.array([[2.0, 0.5, -1.0], [0.0, 0.0, 0.0]])
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    from_logits = Predictions(logits=logits, target=[0, 2]).log_likelihood()
    from_chances = Predictions(probabilities=chances, target=[0, 2]).log_likelihood()
    assert from_logits == pytest.approx(from_chances)
    assert from_logits[1] == pytest.approx(-np.log(3))
    huge = Predictions(logits=[1000.0, 0.0], target=1).log_likelihood()
    assert huge.tolist() == [-1000.0]
    assert np.isfinite(Predictions(probabilities=[1.0, 0.0], target=1).log_likelihood()).all()
    with pytest.raises(InvalidInput, match="exactly one of"):
        Predictions(target=1)
    with pytest.raises(InvalidInput, match="one row of classes for each target"):
        Predictions(logits=logits, target=1).log_likelihood()
