"""Hugging Face models with adapters: what is trained, the start, and weights from a folder."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from dpaudit.data.text import byte_sequences
from dpaudit.engine import check_mechanism
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, FixedBatches
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models.lora import huggingface_lora

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": 16,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_only_adapters_are_trained_and_by_fast_rules(config: dict[str, Any]) -> None:
    mechanism = DPSGD(
        build_model=functools.partial(huggingface_lora, config, rank=2),
        loss=cross_entropy,
        data=byte_sequences(None, length=16, characters=2000),
        batches=FixedBatches(batch_size=4),
        steps=2,
        learning_rate=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    checked = check_mechanism(mechanism)
    assert not checked.notices
    projections = {"gpt2": [(16, 48)], "llama": [(16, 16), (16, 8)]}[config["model_type"]]
    assert checked.parameters == sum(2 * (inputs + outputs) for inputs, outputs in projections)


def test_weights_are_read_from_a_folder_and_adapters_start_as_the_frozen_model(
    tmp_path: Path,
) -> None:
    torch.manual_seed(3)
    settings = {name: value for name, value in GPT2.items() if name != "model_type"}
    saved = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).eval()
    saved.save_pretrained(tmp_path)
    tokens = torch.arange(16).view(2, 8)
    model = huggingface_lora(tmp_path)
    torch.testing.assert_close(model(tokens), saved(tokens).logits)
    trained = [value for value in model.parameters() if value.requires_grad]
    for value in trained:
        torch.nn.init.ones_(value)
    assert not torch.allclose(model(tokens), saved(tokens).logits)


def test_the_rank_is_checked() -> None:
    with pytest.raises(InvalidInput, match="rank must be at least 1"):
        huggingface_lora(GPT2, rank=0)
