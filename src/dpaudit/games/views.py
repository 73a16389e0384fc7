"""The only place where views are created: it determines what an adversary can see."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dpaudit.engine.training import canary_draws
from dpaudit.errors import InvalidInput
from dpaudit.games.game import Game
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import (
    AdaptedGradients,
    AdaptedPoints,
    AdaptiveAdversary,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    HiddenStateAdversary,
    HiddenStateView,
    Moment,
    StandardAdversary,
    StandardView,
)


def scored(
    game: Game, steps: int, initial: Tensor | None, iterates: Sequence[Tensor], canaries: Canaries
) -> Tensor:
    """The adversary's scores of some runs after ``steps``, from the view of its threat model.

    The common start is `None` if it is not public. Adversaries that do not see all iterates get
    only the last one. The canaries are on the device of the iterates.
    """
    mechanism, adversary = game.mechanism, game.adversary
    if isinstance(adversary, StandardAdversary):
        shown = torch.stack(list(iterates))
        view = StandardView(mechanism=mechanism, iterates=shown, insertion=game.insertion)
        return adversary.score(view, canaries)
    if isinstance(adversary, HiddenStateAdversary):
        return adversary.score(
            HiddenStateView(
                mechanism=mechanism,
                steps=steps,
                initial=initial,
                final=iterates[-1],
                insertion=game.insertion,
            ),
            canaries,
        )
    if isinstance(adversary, BlackBoxAdversary):
        asked = adversary.queries(mechanism, canaries)
        answers = _answers(mechanism, steps, initial, iterates[-1], asked)
        return adversary.score(answers, canaries)
    raise InvalidInput(
        "adversary must be a HiddenStateAdversary, a StandardAdversary or a BlackBoxAdversary, "
        f"got {type(adversary).__name__}"
    )


def _answers(
    mechanism: DPSGD, steps: int, initial: Tensor | None, final: Tensor, asked: CanaryPoints
) -> BlackBoxView:
    from dpaudit.engine.evaluate import losses, outputs  # no other adversary needs them

    before = None
    if initial is not None:
        before = losses(mechanism, initial.unsqueeze(0), asked.features, asked.targets)[0]
    # Copies, so that neither a base tensor nor a graph leads from an answer to the parameters.
    return BlackBoxView(
        mechanism=mechanism,
        steps=steps,
        initial_losses=None if before is None else before.detach().clone(),
        losses=losses(mechanism, final, asked.features, asked.targets).detach().clone(),
        outputs=outputs(mechanism, final, asked.features).detach().clone(),
    )


def contributions(adversary: AdaptiveAdversary, moment: Moment, canaries: Canaries) -> Tensor:
    """The contributions of adaptive canaries to this step, shape (runs, count, parameters)."""
    from dpaudit.engine.evaluate import clipped_gradients

    mechanism, runs = moment.mechanism, len(moment.current)
    match adversary.respond(moment, canaries):
        case AdaptedPoints(features=features, targets=targets):
            shape = (runs, canaries.count)
            expected = (*shape, *mechanism.data.features.shape[1:])
            labels = (*shape, *mechanism.data.targets.shape[1:])
            if tuple(targets.shape) != labels or tuple(features.shape) != expected:
                raise InvalidInput(
                    f"adversary {adversary.name!r} must respond with points of shape {expected} "
                    f"and targets of shape {labels}, got {tuple(features.shape)} and "
                    f"{tuple(targets.shape)}"
                )
            draws = canary_draws(mechanism, moment.step, canaries.count).to(features.device)
            return clipped_gradients(
                mechanism, moment.current, features, targets, draws=draws
            ).detach()
        case AdaptedGradients(gradients=gradients):
            return _checked_gradients(adversary, moment, canaries.count, gradients)
        case other:
            raise InvalidInput(
                f"adversary {adversary.name!r} must respond with AdaptedPoints or "
                f"AdaptedGradients, got {type(other).__name__}"
            )


def _checked_gradients(
    adversary: AdaptiveAdversary, moment: Moment, count: int, gradients: Tensor
) -> Tensor:
    expected = (len(moment.current), count, moment.current.shape[1])
    if tuple(gradients.shape) != expected:
        raise InvalidInput(
            f"adversary {adversary.name!r} must respond with gradients of shape {expected}, "
            f"got {tuple(gradients.shape)}"
        )
    longest, clip_norm = float(gradients.norm(dim=2).max()), moment.mechanism.clip_norm
    if not longest <= clip_norm * (1 + 1e-5):
        raise InvalidInput(
            f"adversary {adversary.name!r} must respond with gradients of norm at most the clip "
            f"norm ({clip_norm:g}), got {longest:g}; no example can contribute more"
        )
    return gradients.detach()
