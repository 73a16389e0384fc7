"""LoRA fine-tuning of a Hugging Face language model.

A folder ``model`` in the data folder, if there is one, gives the weights and the tokenizer.
Otherwise the model is a small GPT-2 with random weights on bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpaudit._torch import torch
from dpaudit.data import Examples
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.data.text import GENERATED, read_text, token_sequences
from dpaudit.presets._gpt import CHARACTERS, LENGTH, read_bytes
from dpaudit.presets.base import Preset

CONFIG: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": LENGTH,
    "n_embd": 128,
    "n_layer": 4,
    "n_head": 4,
}
"""Where there are no weights: a GPT-2 of 0.9 million parameters for bytes."""


def _read(data_dir: DataDir) -> Examples:
    folder = _model_folder(data_dir)
    if folder is None:
        return read_bytes(data_dir)
    import transformers

    text, name = read_text(data_dir, characters=CHARACTERS)
    library: Any = transformers  # only partly typed
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(text)["input_ids"]
    return token_sequences(
        tokens, length=LENGTH, vocabulary=len(tokenizer), name=f"{name} {folder}"
    )


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models.lora import huggingface_lora

    folder = data.name.partition(" ")[2]
    return functools.partial(huggingface_lora, folder or CONFIG)


def _model_folder(data_dir: DataDir) -> Path | None:
    folder = data_folder(data_dir)
    if folder is None or not (folder / "model" / "config.json").is_file():
        return None
    return folder / "model"


GPT2_LORA = Preset(
    name="gpt2-lora",
    summary="LoRA on a Hugging Face GPT-2",
    read=_read,
    model_for=_model,
    batch_size=64,
    learning_rate=0.1,
    noise_multiplier=1.0,
    adversary="random-dimension",
    stand_in=GENERATED,
)
