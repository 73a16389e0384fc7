"""The check of a game before any training."""

from __future__ import annotations

import torch

from dpaudit.data import Examples
from dpaudit.engine.checking import Checked, check_mechanism
from dpaudit.errors import InvalidInput
from dpaudit.games.game import Game
from dpaudit.threat_models import CanaryPoints, CraftedDimensions, CraftedGradients


def check_game(game: Game) -> Checked:
    """Raise `InvalidInput` or `UnsupportedModel` if the game cannot be played as described."""
    checked = check_mechanism(game.mechanism)
    _check_canaries(game, checked.parameters)
    return checked


def _check_canaries(game: Game, parameters: int) -> None:
    canaries, clip_norm = game.canaries, game.mechanism.clip_norm
    match canaries:
        case CraftedDimensions():
            _check_dimensions(canaries, parameters)
            _check_norm(canaries.norm, clip_norm)
        case CraftedGradients():
            if canaries.gradients.ndim != 2 or canaries.gradients.shape[1] != parameters:
                raise InvalidInput(
                    f"gradients must have shape (canaries, {parameters}), "
                    f"got {tuple(canaries.gradients.shape)}"
                )
            _check_norm(float(canaries.gradients.double().norm(dim=1).max()), clip_norm)
        case CanaryPoints():
            data = game.mechanism.data
            if tuple(canaries.features.shape[1:]) != data.features.shape[1:]:
                raise InvalidInput(
                    f"features of canaries must have the shape of the data's, "
                    f"{data.features.shape[1:]}, got {tuple(canaries.features.shape[1:])}"
                )
            if not torch.isfinite(canaries.features.double()).all():
                raise InvalidInput("features of canaries must be finite, got NaN or infinity")
            _check_targets(canaries.targets, data)


def _check_targets(targets: torch.Tensor, data: Examples) -> None:
    if tuple(targets.shape[1:]) != data.targets.shape[1:]:
        raise InvalidInput(
            f"targets of canaries must have the shape of the data's, {data.targets.shape[1:]}, "
            f"got {tuple(targets.shape[1:])}"
        )
    if data.classes is None:
        if not torch.isfinite(targets).all():
            raise InvalidInput("targets of canaries must be finite, got NaN or infinity")
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= data.classes:
        raise InvalidInput(
            f"targets of canaries must be from 0 to {data.classes - 1}, "
            f"got {low if low < 0 else high}"
        )


def _check_dimensions(canaries: CraftedDimensions, parameters: int) -> None:
    dimensions = canaries.dimensions
    if canaries.count > parameters:
        raise InvalidInput(
            f"canaries must be at most as many as the model's parameters ({parameters}), "
            f"got {canaries.count}"
        )
    if int(dimensions.min()) < 0 or int(dimensions.max()) >= parameters:
        wrong = int(dimensions.max()) if int(dimensions.min()) >= 0 else int(dimensions.min())
        raise InvalidInput(f"dimensions must be from 0 to {parameters - 1}, got {wrong}")
    if len(set(dimensions.tolist())) != canaries.count:
        raise InvalidInput("dimensions must be distinct: canaries in one dimension would add up")


def _check_norm(norm: float, clip_norm: float) -> None:
    if not 0 < norm <= clip_norm * (1 + 1e-6):
        raise InvalidInput(
            f"the norm of a crafted gradient must be above 0 and at most the clip norm "
            f"({clip_norm:g}), got {norm:g}; no example can contribute more"
        )
