"""Transformers, wide residual networks and adapters: sizes, gradients and bad arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.data import Examples
from dpaudit.data.text import byte_sequences, generated_text, token_sequences
from dpaudit.engine import check_mechanism
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, FixedBatches
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models import gpt, vit_tiny, wide_resnet
from dpaudit.models.lora import add_adapters, huggingface_lora

TEXT = byte_sequences(None, length=16, characters=2000)
IMAGES = Examples(
    features=np.random.default_rng(0).normal(size=(12, 3, 32, 32)),
    targets=np.arange(12) % 10,
    classes=10,
)
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


def mechanism(build: Callable[[], nn.Module], data: Examples) -> DPSGD:
    return DPSGD(
        build_model=build,
        loss=cross_entropy,
        data=data,
        batches=FixedBatches(batch_size=4),
        steps=2,
        learning_rate=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )


@pytest.mark.parametrize(
    ("build", "parameters"),
    [(gpt, 10_795_008), (vit_tiny, 5_362_762), (wide_resnet, 2_751_146)],
)
def test_sizes(build: Callable[[], nn.Module], parameters: int) -> None:
    assert sum(p.numel() for p in build().parameters()) == parameters


@pytest.mark.parametrize(
    ("build", "data", "slow"),
    [
        (functools.partial(gpt, length=16, width=12, layers=2, heads=2), TEXT, 0),
        (functools.partial(vit_tiny, width=12, layers=2), IMAGES, 1),
        (functools.partial(wide_resnet, depth=10, widen=1), IMAGES, 0),
    ],
    ids=["gpt", "vit", "wrn"],
)
def test_per_example_gradients_are_cheap(
    build: Callable[[], nn.Module], data: Examples, slow: int
) -> None:
    checked = check_mechanism(mechanism(build, data))
    assert not checked.taps.loose
    assert len(checked.notices) == slow  # ViT uses its positions and its class token directly


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_only_adapters_of_a_hugging_face_model_are_trained(config: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    checked = check_mechanism(mechanism(functools.partial(huggingface_lora, config, rank=2), TEXT))
    assert not checked.notices
    projections = {"gpt2": [(16, 48)], "llama": [(16, 16), (16, 8)]}[config["model_type"]]
    assert checked.parameters == sum(2 * (inputs + outputs) for inputs, outputs in projections)


def test_weights_are_read_from_a_folder(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    settings = {name: value for name, value in GPT2.items() if name != "model_type"}
    saved = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).eval()
    saved.save_pretrained(tmp_path)
    tokens = torch.arange(16).view(2, 8)
    model = huggingface_lora(tmp_path)
    torch.testing.assert_close(model(tokens), saved(tokens).logits)


def test_adapters_start_as_the_frozen_model() -> None:
    plain = nn.Sequential()
    plain.add_module("query", nn.Linear(4, 3))
    inputs = torch.randn(5, 4)
    before = plain(inputs)
    adapted = add_adapters(plain, rank=2)
    torch.testing.assert_close(adapted(inputs), before)
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == 2 * (4 + 3)
    with pytest.raises(InvalidInput, match="names"):
        add_adapters(nn.Linear(3, 3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gpt(width=10, heads=3), "heads"),
        (lambda: vit_tiny(width=10, heads=3), "heads"),
        (lambda: wide_resnet(depth=15), "depth"),
        (lambda: wide_resnet(groups=5), "groups"),
        (lambda: token_sequences([1, 2], length=4, vocabulary=3, name="x"), "tokens"),
        (lambda: generated_text(0), "characters"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_text_in_the_folder_is_used(tmp_path: Any) -> None:
    (tmp_path / "text.txt").write_text("abcdefghij" * 10, encoding="utf8")
    data = byte_sequences(tmp_path, length=5, characters=50)
    assert data.name == "text.txt"
    assert bytes(data.features[0].astype(np.uint8)) == b"abcde"
    assert bytes(data.targets[0].astype(np.uint8)) == b"bcdef"
