"""Layers for which per-example clipping cannot be correct, each with a remedy.

If a layer mixes examples, one example's gradient depends on the others, and clipping does not bound
an example's influence. If a layer draws random numbers or keeps state between batches, the training
cannot be repeated. Some layers have no per-example gradients in torch.
"""

from __future__ import annotations

import torch
from torch import nn

from dpaudit.engine.tapping import describe
from dpaudit.errors import UnsupportedModel

_WITH_DROPOUT_INSIDE = (nn.MultiheadAttention, nn.RNNBase)
_LOOK_UP = (nn.Embedding, nn.EmbeddingBag)


def refuse_layers(model: nn.Module) -> None:
    """Raise `UnsupportedModel` for the first layer that cannot be clipped, naming it."""
    for name, layer in model.named_modules():
        reason = _reason(layer)
        if reason is not None:
            raise UnsupportedModel(f"{describe(name, layer)} {reason}")


def refuse_types(model: nn.Module) -> None:
    """Raise `UnsupportedModel` unless the trained parameters are float32 or float64 numbers."""
    trained = 0
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedModel(
                f"parameter {name!r} has no shape yet; call the lazy model once in build_model"
            )
        if parameter.dtype not in (torch.float32, torch.float64):
            raise UnsupportedModel(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}; build the "
                "model in float32, and choose Speed(precision='bfloat16') to compute faster"
            )
        trained += parameter.requires_grad
    if not trained:
        raise UnsupportedModel(
            "the model has no parameter to train; set requires_grad on those to be trained"
        )


def _reason(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        if layer.training or layer.running_mean is None:
            return (
                "mixes the examples of a batch, so one example's gradient depends on the others; "
                f"use torch.nn.GroupNorm(groups, {layer.num_features}) instead"
            )
    elif isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        if layer.training and layer.track_running_stats:
            return (
                "keeps running statistics over all examples; set track_running_stats=False, or "
                f"use torch.nn.GroupNorm(groups, {layer.num_features})"
            )
    elif isinstance(layer, _LOOK_UP):
        if layer.max_norm is not None:
            return "rewrites its table during the forward pass; set max_norm=None"
        if layer.scale_grad_by_freq:
            return "counts indices across examples; set scale_grad_by_freq=False"
    elif _is_beyond_torch_func(layer):
        return (
            "has no per-example gradients in torch.func; use torch.nn.LSTM without proj_size, and "
            "torch.nn.Linear for a projection"
        )
    elif layer.training and _draws(layer):
        return (
            "draws random numbers during training, so the training could not be repeated; remove "
            "it, set its probability to 0, or call .eval() on it in build_model"
        )
    return None


def _is_beyond_torch_func(layer: nn.Module) -> bool:
    """Whether the layer is a trained LSTM that neither a rule nor `torch.func.vmap` handles."""
    unruled = isinstance(layer, nn.LSTMCell) or (isinstance(layer, nn.LSTM) and layer.proj_size > 0)
    return unruled and any(parameter.requires_grad for parameter in layer.parameters())


def _draws(layer: nn.Module) -> bool:
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    if isinstance(layer, _WITH_DROPOUT_INSIDE):
        return float(layer.dropout) > 0
    return isinstance(layer, nn.RReLU)
