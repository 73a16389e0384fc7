"""The contract of adversaries.

`check_adversary` plays a small game with almost no noise, so that an adversary whose score has the
wrong direction or no information is found within seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import torch

from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, check_game, play, prepare
from dpaudit.games.views import contributions, scored
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FreshInitialisation, Insertion
from dpaudit.privacy import ThreatModel
from dpaudit.scores import Scores
from dpaudit.testing._requiring import requiring
from dpaudit.threat_models import (
    AdaptiveAdversary,
    Adversary,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    HiddenStateAdversary,
    HiddenStateView,
    Moment,
    StandardAdversary,
    StandardView,
)

_HERE = Speed(device="cpu", compile=False, workers=1)
_RUNS = 40

_require = requiring("adversary")


def check_adversary(
    adversary: Adversary, *, mechanism: DPSGD | None = None, least_area: float = 0.95
) -> None:
    """Raise `AssertionError` with the failing case if ``adversary`` breaks the contract.

    See also: `easy_training`; ``examples/my_adversary.py``, a skeleton to copy.

    Arguments:
        adversary: The adversary to check.
        mechanism: The training for the check; it should be small, with almost no noise.
            `easy_training` by default.
        least_area: The area under the ROC curve that its scores must reach, from 0.5 (random) to
            1 (no errors).

    Example:
        >>> from dpaudit.adversaries import RandomDimension
        >>> check_adversary(RandomDimension())
    """
    check_identity(adversary)
    check_view(adversary)
    mechanism = audited_mechanism(adversary, easy_training() if mechanism is None else mechanism)
    for count in (1, 3) if getattr(adversary, "many", True) else (1,):
        canaries = check_craft(adversary, mechanism, count)
        if canaries is not None:
            check_score(adversary, mechanism, canaries)
            check_response(adversary, mechanism, canaries)
            check_direction(adversary, mechanism, canaries, least_area)
    check_unknown_start(adversary, mechanism)


def easy_training(*, noise_multiplier: float = 0.05) -> DPSGD:
    """A linear model with 21 parameters, 20 steps and almost no noise."""
    random = np.random.default_rng(0)
    features = random.normal(size=(120, 6))
    return DPSGD(
        name="easy",
        build_model=_linear,
        loss=torch.nn.CrossEntropyLoss(reduction="none"),
        data=Examples(features=features, targets=features[:, :3].argmax(1), classes=3, name="easy"),
        batches=FixedBatches(batch_size=30),
        steps=20,
        learning_rate=0.5,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
    )


def check_identity(adversary: Adversary) -> None:
    """The adversary has a name, a paper and the threat model of its base class."""
    for attribute in ("name", "paper"):
        value = getattr(adversary, attribute, None)
        _require(isinstance(value, str), f"{attribute} is", value, "; give it a string")
    _require(adversary.name.strip(), "name is empty; give it one")
    models = {
        HiddenStateAdversary: ThreatModel.HIDDEN_STATE,
        StandardAdversary: ThreatModel.STANDARD,
        BlackBoxAdversary: ThreatModel.BLACK_BOX,
    }
    expected = [model for kind, model in models.items() if isinstance(adversary, kind)]
    names = ", ".join(kind.__name__ for kind in models)
    _require(len(expected) == 1, f"it must extend one of {names}, and extends", len(expected))
    _require(
        adversary.threat_model is expected[0],
        "threat_model is",
        adversary.threat_model,
        "; leave it to the base class",
    )


def check_view(adversary: Adversary) -> None:
    """The signature of ``score`` names the view of its threat model, if it names any."""
    views: dict[type, type] = {
        HiddenStateAdversary: HiddenStateView,
        StandardAdversary: StandardView,
        BlackBoxAdversary: BlackBoxView,
    }
    expected = next(view for kind, view in views.items() if isinstance(adversary, kind))
    parameters = list(inspect.signature(adversary.score).parameters.values())  # type: ignore[attr-defined]
    given = ", ".join(parameter.name for parameter in parameters)
    _require(len(parameters) == 2, f"score must take (self, view, canaries), not (self, {given})")
    annotation = parameters[0].annotation
    if annotation is inspect.Parameter.empty:
        return
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "nothing")
    _require(
        name.split(".")[-1] == expected.__name__,
        f"score takes a {name}, and its base class gives it a {expected.__name__}; extend the base "
        "class of the view that you need",
    )


def check_craft(adversary: Adversary, mechanism: DPSGD, count: int) -> Canaries | None:
    """Crafting is repeatable, does not use torch's generator, and gives valid canaries.

    Returns `None` if the adversary refuses several canaries with `InvalidInput`.
    """
    insertion, state = Insertion(), torch.get_rng_state()
    try:
        canaries = adversary.craft(mechanism, insertion, canaries=count, seed=7)
    except InvalidInput:
        if count == 1:
            raise
        return None
    _require(
        torch.equal(torch.get_rng_state(), state),
        "craft draws from torch's own generator; draw from "
        "dpaudit.adversaries.crafting.generator(seed)",
    )
    again = adversary.craft(mechanism, insertion, canaries=count, seed=7)
    for (name, first), (_, second) in zip(_tensors(canaries), _tensors(again), strict=True):
        _require(
            torch.equal(first, second),
            f"the same seed gives another {name}: a resumed audit could not craft it again; draw "
            "from dpaudit.adversaries.crafting.generator(seed)",
        )
    _require(
        canaries.count == count,
        f"asked for {count} canaries, got {canaries.count}; set many = False if there is only one",
    )
    try:
        check_game(_game(adversary, mechanism, canaries))
    except InvalidInput as error:
        raise AssertionError(f"adversary breaks the contract: {error}") from error
    return canaries


def check_score(adversary: Adversary, mechanism: DPSGD, canaries: Canaries) -> None:
    """Scores are finite, one for each (run, canary), and each run is scored separately."""
    random = torch.Generator().manual_seed(0)
    parameters = sum(p.numel() for p in mechanism.build_model().parameters() if p.requires_grad)
    iterates = torch.randn(mechanism.steps + 1, 5, parameters, generator=random)
    iterates[0] = iterates[0, 0]
    before = [(name, tensor.clone()) for name, tensor in _tensors(canaries)]
    before_iterates = iterates.clone()
    scores = _scored(adversary, mechanism, iterates, canaries)
    _require(
        tuple(scores.shape) == (5, canaries.count),
        f"shape of scores is {tuple(scores.shape)} for 5 runs and {canaries.count} canaries; it "
        "must be (runs, canaries)",
    )
    _require(torch.isfinite(scores).all(), "scores are not finite:", scores)
    for (name, old), (_, new) in zip(before, _tensors(canaries), strict=True):
        _require(torch.equal(old, new), f"score changes {name}; compute with a copy")
    changed = "final" if isinstance(adversary, HiddenStateAdversary) else "iterates"
    _require(torch.equal(iterates, before_iterates), f"score changes {changed}; use a copy")
    alone = _scored(adversary, mechanism, iterates[:, 2:3], canaries)
    _require(
        torch.allclose(alone[0], scores[2], rtol=1e-3, atol=1e-5),
        "a run's scores depend on other runs, which would make the runs dependent:",
        alone,
        "alone,",
        scores[2],
        "beside others; score each run by itself",
    )


def check_response(adversary: Adversary, mechanism: DPSGD, canaries: Canaries) -> None:
    """Adaptive canaries are finite, repeatable and computed separately for each run."""
    if not isinstance(adversary, AdaptiveAdversary):
        return
    parameters = sum(p.numel() for p in mechanism.build_model().parameters() if p.requires_grad)
    current = torch.randn(4, parameters, generator=torch.Generator().manual_seed(1))

    def added(runs: torch.Tensor) -> torch.Tensor:
        moment = Moment(mechanism=mechanism, step=3, current=runs.clone())
        return contributions(adversary, moment, canaries)

    together = added(current)
    _require(torch.isfinite(together).all(), "the response is not finite", together)
    _require(torch.equal(together, added(current)), "the response to the same moment differs")
    _require(
        torch.allclose(added(current[1:2])[0], together[1], rtol=1e-3, atol=1e-5),
        "the response to a run depends on other runs",
    )


def check_direction(
    adversary: Adversary, mechanism: DPSGD, canaries: Canaries, least_area: float
) -> None:
    """Higher means inserted: in an easy game, scores with and without the canary hardly overlap.

    Each canary is tested separately, because genuine gradients move dimensions differently.
    """
    played = play(prepare(_game(adversary, mechanism, canaries), _HERE))
    scores = Scores.concat(block.scores(mechanism.steps) for _, block in played)
    for number in range(canaries.count):
        rows = scores.canary == number
        area = area_under_curve(scores.where(rows))
        _require(area > least_area, _direction_in_words(area, least_area, number, canaries.count))


def _direction_in_words(area: float, least: float, number: int, count: int) -> str:
    """What a small area under the curve says about a score."""
    if area < 0.5:
        reason = "the score is lower with the canary; change its sign"
    else:
        reason = "with hardly any noise the score does not tell the models with the canary apart"
    place = f"canary {number + 1} of {count}"
    return f"area under the curve {area:.3g}, needed {least:g}: {reason} ({place})"


def check_unknown_start(adversary: Adversary, mechanism: DPSGD) -> None:
    """With an unknown initialisation there is a score or a refusal with `InvalidInput`."""
    fresh = replace(mechanism, initialisation=FreshInitialisation())
    try:
        canaries = adversary.craft(fresh, Insertion(), canaries=1, seed=7)
        check_score(adversary, fresh, canaries)
    except InvalidInput:
        return
    except (TypeError, AttributeError) as error:
        raise AssertionError(
            "adversary breaks the contract: view.initial is None where every run starts elsewhere, "
            f"and there it fails ({error}); score view.final alone, or refuse such a training with "
            "InvalidInput in craft"
        ) from error


def area_under_curve(scores: Scores) -> float:
    """The probability that an inserted canary scores above another; ties count one half.

    Example:
        >>> area_under_curve(Scores(score=[3.0, 2.0, 1.0], inserted=[1, 0, 1]))
        0.5
    """
    inserted, others = scores.inserted_scores, np.sort(scores.other_scores)
    below = np.searchsorted(others, inserted, side="left") + np.searchsorted(
        others, inserted, side="right"
    )
    return float(below.mean()) / (2 * len(others))


def _linear() -> torch.nn.Module:
    return torch.nn.Linear(6, 3)


def _game(adversary: Adversary, mechanism: DPSGD, canaries: Canaries) -> Game:
    return Game(
        mechanism=mechanism, adversary=adversary, canaries=canaries, runs=_RUNS, seed=7, coin="half"
    )


def _scored(
    adversary: Adversary, mechanism: DPSGD, iterates: torch.Tensor, canaries: Canaries
) -> torch.Tensor:
    public = not isinstance(mechanism.initialisation, FreshInitialisation)
    initial = iterates[0, 0].clone() if public else None
    game = _game(adversary, mechanism, canaries)
    return scored(game, mechanism.steps, initial, list(iterates), canaries)


def _tensors(owner: object) -> Iterator[tuple[str, torch.Tensor]]:
    for field in fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, field.name)
        if isinstance(value, torch.Tensor):
            yield field.name, value
