"""The check of a game before any training."""

from __future__ import annotations

import torch

from dpaudit.engine.checking import Checked, check_mechanism
from dpaudit.errors import InvalidInput
from dpaudit.games.game import Game
from dpaudit.threat_models import CanaryPoints, CraftedDimensions, CraftedGradients


def check_game(game: Game) -> Checked:
    """Raise `InvalidInput` or `UnsupportedModel` if the game cannot be played as described."""
    checked, canaries = check_mechanism(game.mechanism), game.canaries
    parameters, clip_norm = checked.parameters, game.mechanism.clip_norm
    norm = clip_norm
    match canaries:
        case CraftedDimensions(dimensions=dimensions):
            norm, distinct = canaries.norm, set(dimensions.tolist())
            if canaries.count > parameters:
                raise InvalidInput(
                    "canaries must be at most as many as the model's parameters "
                    f"({parameters}), got {canaries.count}"
                )
            wrong = [dimension for dimension in distinct if not 0 <= dimension < parameters]
            if wrong:
                raise InvalidInput(f"dimensions must be from 0 to {parameters - 1}, got {wrong[0]}")
            if len(distinct) != canaries.count:
                raise InvalidInput(
                    "dimensions must be distinct: canaries in one dimension would add up"
                )
        case CraftedGradients(gradients=gradients):
            if gradients.ndim != 2 or gradients.shape[1] != parameters:
                raise InvalidInput(
                    f"gradients must have shape (canaries, {parameters}), "
                    f"got {tuple(gradients.shape)}"
                )
            norm = float(gradients.double().norm(dim=1).max())
        case CanaryPoints():
            _check_points(game, canaries)
    if not 0 < norm <= clip_norm * (1 + 1e-6):
        raise InvalidInput(
            f"the norm of a crafted gradient must be above 0 and at most the clip norm "
            f"({clip_norm:g}), got {norm:g}; no example can contribute more"
        )
    return checked


def _check_points(game: Game, canaries: CanaryPoints) -> None:
    data = game.mechanism.data
    for name in ("features", "targets"):
        values, wanted = getattr(canaries, name), getattr(data, name).shape[1:]
        if tuple(values.shape[1:]) != wanted:
            raise InvalidInput(
                f"{name} of canaries must have the shape of the data's, {wanted}, "
                f"got {tuple(values.shape[1:])}"
            )
        if not torch.isfinite(values.double()).all():
            raise InvalidInput(f"{name} of canaries must be finite, got NaN or infinity")
    if data.classes is not None:
        low, high = int(canaries.targets.min()), int(canaries.targets.max())
        if low < 0 or high >= data.classes:
            raise InvalidInput(
                f"targets of canaries must be from 0 to {data.classes - 1}, "
                f"got {low if low < 0 else high}"
            )
