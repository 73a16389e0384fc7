"""Transformers, adapters and other ways to write a model: clipped sums equal the slow twin's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpaudit.data import Examples
from dpaudit.engine import check_mechanism, products
from dpaudit.engine.clipped_sums import ClippedSums
from dpaudit.engine.layer_rules import rule_for
from dpaudit.engine.reference import clipped_sum
from dpaudit.engine.starting_points import flat_parameters, known_model
from dpaudit.errors import UnsupportedModel
from dpaudit.mechanisms import DPSGD, FixedBatches
from dpaudit.mechanisms.losses import cross_entropy

VOCABULARY, LENGTH, WIDTH = 11, 6, 8


class Language(nn.Module):
    """A small language model; positions are looked up once for the whole batch."""

    def __init__(self, *, tied: bool = False, positions: str = "arange") -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.kind = positions
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        if self.kind == "arange":
            hidden = self.tokens(tokens) + self.places(places)
        elif self.kind == "unsqueezed":
            hidden = self.tokens(tokens) + self.places(places).unsqueeze(0)
        else:
            hidden = self.tokens(tokens) + self.places(places.unsqueeze(0))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=hidden.dtype)
        inner = self.norm(hidden)
        mixed, _ = self.attention(inner, inner, inner, attn_mask=mask, need_weights=False)
        return self.head(hidden + mixed)


class Encoder(nn.Module):
    """torch's own encoder, in either order of axes, in evaluation mode because of its dropout."""

    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=batch_first)
        self.batch_first = batch_first
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        if self.batch_first:
            return self.head(self.encoder(hidden))
        return self.head(self.encoder(hidden.transpose(0, 1)).transpose(0, 1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU], *, batch_first: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = kind(WIDTH, 5, batch_first=batch_first)
        self.head, self.batch_first = nn.Linear(5, VOCABULARY), batch_first

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        if self.batch_first:
            return self.head(self.rnn(hidden)[0])
        return self.head(self.rnn(hidden.transpose(0, 1))[0].transpose(0, 1))


class ClassToken(nn.Module):
    """Parameters that the model uses directly, as vision transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.start = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(LENGTH + 1, WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        start = self.start.expand(len(tokens), -1, -1)
        hidden = torch.cat([start, self.tokens(tokens)], dim=1) + self.places
        return self.head(torch.tanh(hidden).cumsum(1))[:, 1:]


class UsedWeights(nn.Module):
    """Uses the attention weights, which the rule for attention does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        mixed, weights = self.attention(hidden, hidden, hidden)
        return self.head(mixed + weights.amax(2, keepdim=True))


class LowRank(nn.Module):
    """A frozen linear layer with a trained adapter (LoRA)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base(inputs) + 0.5 * self.up(self.down(inputs))


def adapted() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH).requires_grad_(False),
        LowRank(nn.Linear(WIDTH, WIDTH)),
        nn.Tanh(),
        LowRank(nn.Linear(WIDTH, VOCABULARY)),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "positions of arange": (Language, ()),
    "positions unsqueezed": (lambda: Language(positions="unsqueezed"), ()),
    "positions of one row": (lambda: Language(positions="row"), ()),
    "tied weights": (lambda: Language(tied=True), ()),
    "encoder": (Encoder, ()),
    "encoder, places first": (lambda: Encoder(batch_first=False), ()),
    "LSTM": (lambda: Recurrent(nn.LSTM, batch_first=True), ()),
    "GRU, places first": (lambda: Recurrent(nn.GRU, batch_first=False), ()),
    "parameters used directly": (ClassToken, ("ClassToken",)),
    "attention weights used": (UsedWeights, ("'attention'", "'attention.out_proj'")),
    "LoRA": (adapted, ()),
}


def mechanism(build: Callable[[], nn.Module]) -> DPSGD:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (9, LENGTH + 1))
    return DPSGD(
        build_model=build,
        loss=cross_entropy,
        data=Examples(features=tokens[:, :-1].copy(), targets=tokens[:, 1:], classes=VOCABULARY),
        batches=FixedBatches(batch_size=6),
        steps=2,
        learning_rate=0.1,
        clip_norm=0.5,
        noise_multiplier=1.0,
    )


@pytest.mark.parametrize("name", MODELS)
def test_only_parameters_without_a_rule_are_slow(name: str) -> None:
    build, slow = MODELS[name]
    checked = check_mechanism(mechanism(build))
    assert len(checked.notices) == len(slow)
    assert all("MiB for each example and run" in notice for notice in checked.notices)
    assert all(words in notice for words, notice in zip(slow, checked.notices, strict=True))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("frozen", [False, True])
def test_projections_of_an_lstm_are_refused_by_name_unless_they_are_frozen(frozen: bool) -> None:
    def build() -> nn.Module:
        model = Recurrent(nn.LSTM, batch_first=True)
        model.rnn = nn.LSTM(WIDTH, 7, proj_size=5, batch_first=True).requires_grad_(not frozen)
        model.tokens.requires_grad_(not frozen)  # frozen features: only the head is trained
        return model

    if frozen:
        assert not check_mechanism(mechanism(build)).notices
    else:
        with pytest.raises(UnsupportedModel, match=r"'rnn' \(LSTM\).*proj_size"):
            check_mechanism(mechanism(build))


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_clipped_sums_of_several_runs_equal_the_slow_twins(
    monkeypatch: pytest.MonkeyPatch, name: str, on_gpu: bool
) -> None:
    monkeypatch.setattr(products, "on_gpu", lambda _: on_gpu)
    training = mechanism(MODELS[name][0])
    taps = check_mechanism(training).taps
    models = [known_model(training).double()]
    torch.manual_seed(1)
    models.append(training.build_model().double())
    for parameter, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        if not parameter.requires_grad:
            other.data = parameter.data
    features = torch.from_numpy(training.data.features[:6])
    targets = torch.from_numpy(training.data.targets[:6])
    sums = ClippedSums(
        models[0], cross_entropy, features, taps, rule_for=partial(rule_for, products=True)
    )
    parameters = torch.stack([flat_parameters(model, torch.float64) for model in models])
    found = sums(
        parameters,
        features,
        targets,
        torch.ones(2, 6, dtype=torch.float64),
        torch.tensor(0.5, dtype=torch.float64),
    )
    for model, one in zip(models, found, strict=True):
        expected = clipped_sum(model, cross_entropy, features, targets, clip_norm=0.5)
        torch.testing.assert_close(one, expected, rtol=1e-9, atol=1e-11)
