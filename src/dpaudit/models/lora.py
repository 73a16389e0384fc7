"""A Hugging Face language model with low-rank adapters (LoRA)."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from dpaudit import _validate
from dpaudit.errors import MissingExtra


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
    config: dict[str, Any] | str | os.PathLike[str], *, rank: int = 8, alpha: int = 16
) -> nn.Module:
    """A causal language model of ``transformers`` with adapters of ``peft``, in evaluation mode.

    The adapters are at the attention projections that ``peft`` chooses for the type of the model;
    everything else is frozen. Evaluation mode switches dropout off; adapters are trained all the
    same.

    Paper: Hu et al., *LoRA* (ICLR 2022), equation 3.

    Arguments:
        config: A folder with a model, whose weights are read; or the settings of a configuration
            with its ``model_type``, for random weights.
        rank: Rank of each adapter.
        alpha: The adapters are multiplied by ``alpha / rank``.
    """
    _validate.integer("rank", rank, at_least=1)
    try:
        import peft
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
    with warnings.catch_warnings():
        # GPT-2's Conv1D holds its weight transposed; peft sees this and says so.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=alpha), inner)
    return LanguageModel(inner.float().eval())
