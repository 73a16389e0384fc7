"""Low-rank adapters (LoRA), and a Hugging Face language model with them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from dpaudit import _validate
from dpaudit.errors import InvalidInput, MissingExtra

ATTENTION = ("q_proj", "v_proj", "c_attn", "query", "value", "query_key_value")
"""Names of the attention projections of common models, which usually get adapters."""


@final
class LowRank(nn.Module):
    r"""A frozen layer with a trained low-rank adapter: :math:`f(x) + \frac{\alpha}{r} B A x`.

    Paper: Hu et al., *LoRA* (ICLR 2022), equation 3.
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, scale: float) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        self.scale = scale
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        total: Tensor = self.base(inputs) + self.scale * self.up(self.down(inputs))
        return total


def add_adapters(
    model: nn.Module, *, rank: int = 8, alpha: float = 16.0, names: Collection[str] = ATTENTION
) -> nn.Module:
    """Freeze ``model`` and give the layers with these ``names`` low-rank adapters, in place.

    Arguments:
        model: The model. `torch.nn.Linear` and the ``Conv1D`` of GPT-2 can have adapters.
        rank: Rank :math:`r` of each adapter.
        alpha: The adapters are multiplied by ``alpha / rank``.
        names: Last parts of the names of the layers.
    """
    _validate.integer("rank", rank, at_least=1)
    model.requires_grad_(False)
    found = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            sizes = _sizes(child)
            if name in names and sizes is not None:
                setattr(parent, name, LowRank(child, *sizes, rank, alpha / rank))
                found += 1
    if not found:
        raise InvalidInput(f"names must occur in the model, got {', '.join(names)}")
    return model


@final
class LanguageModel(nn.Module):
    """A Hugging Face language model that maps tokens to logits."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=tokens, use_cache=False).logits
        return logits


def huggingface_lora(
    config: dict[str, Any] | str | os.PathLike[str], *, rank: int = 8, alpha: float = 16.0
) -> nn.Module:
    """A causal language model of the ``transformers`` library with adapters, in evaluation mode.

    Evaluation mode switches dropout off; adapters are trained all the same.

    Arguments:
        config: A folder with a model, whose weights are read; or the settings of a configuration
            with its ``model_type``, for random weights.
        rank: Rank of each adapter.
        alpha: The adapters are multiplied by ``alpha / rank``.
    """
    try:
        import transformers
    except ImportError:
        raise MissingExtra("Hugging Face models", "huggingface") from None
    library: Any = transformers  # only partly typed
    options = {"attn_implementation": "eager"}
    if isinstance(config, dict):
        settings = dict(config)
        described = library.AutoConfig.for_model(settings.pop("model_type"), **settings)
        inner = library.AutoModelForCausalLM.from_config(described, **options)
    else:
        folder = Path(config).expanduser()
        inner = library.AutoModelForCausalLM.from_pretrained(folder, **options)
    return LanguageModel(add_adapters(inner.float().eval(), rank=rank, alpha=alpha))


def _sizes(layer: nn.Module) -> tuple[int, int] | None:
    """Numbers of inputs and outputs of a layer that can have an adapter."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D" and isinstance(layer.weight, torch.Tensor):
        return int(layer.weight.shape[0]), int(layer.weight.shape[1])
    return None
