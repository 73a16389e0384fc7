"""Live audits inside Opacus optimizers: what is inserted, what is observed, what is left behind."""

import contextlib
import copy

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus import coordinates
from dpaudit.live import ViolationFound, live_audit
from dpaudit.live.evidence import LiveEvidence
from dpaudit.live.opacus import OpacusSums, largest_contribution, shares_of
from dpaudit.live.result import Watched
from dpaudit.scores import Store

NOISE = 1.0

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
]


def private(*, kind="flat", seed=0, batch=32, clipping=1.0, sgd=torch.optim.SGD):
    torch.manual_seed(seed)
    data = TensorDataset(torch.randn(256, 10), torch.randint(0, 3, (256,)))
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
    options = {}
    if kind == "per_layer":
        options, clipping = {"clipping": "per_layer"}, [clipping] * 4
    if kind == "ghost":
        options = {"grad_sample_mode": "ghost", "criterion": nn.CrossEntropyLoss()}
    if kind == "adaptive":
        options = {
            "clipping": "adaptive",
            "target_unclipped_quantile": 0.5,
            "clipbound_learning_rate": 0.2,
            "max_clipbound": 10.0,
            "min_clipbound": 0.1,
            "unclipped_num_std": 5.0,
        }
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=sgd(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=NOISE,
        max_grad_norm=clipping,
        **options,
    )
    model, optimizer, *rest = made
    criterion, loader = (rest[0], rest[-1]) if kind == "ghost" else (None, rest[-1])
    return model, optimizer, loader, criterion or functional.cross_entropy


def fit(model, optimizer, loader, criterion, *, epochs=6):
    for _ in range(epochs):
        for features, targets in loader:
            optimizer.zero_grad()
            criterion(model(features), targets).backward()
            optimizer.step()


def watched(optimizer, *, canaries=200, seed=0, subtract=True):
    evidence = LiveEvidence(
        [parameter.numel() for parameter in optimizer.params],
        canaries=canaries,
        seed=seed,
        shares=shares_of(optimizer),
    )
    return evidence, OpacusSums(optimizer, evidence, Watched(), subtract=subtract)


class Recorded:
    """Remembers every observation of an evidence."""

    def __init__(self, evidence):
        self.values, observe = [], evidence.observe

        def remembering(observed, **settings):
            self.values.extend(np.atleast_2d(observed))
            observe(observed, **settings)

        evidence.observe = remembering


@pytest.mark.parametrize("kind", ["flat", "per_layer", "adaptive", "ghost"])
def test_what_is_observed_is_the_canary_and_the_noise(kind):
    model, optimizer, loader, criterion = private(kind=kind)
    evidence, sums = watched(optimizer)
    recorded, taken = Recorded(evidence), []
    take_part = evidence.take_part
    evidence.take_part = lambda *drawn: taken.extend(take_part(*drawn)) or np.array(taken[-1:])
    with sums.watching():
        fit(model, optimizer, loader, criterion)
    assert evidence.steps == 48
    noise = np.array(recorded.values) - np.array(taken) * evidence.weights
    used = optimizer.noise_multiplier
    # 48 x 200 normal numbers.
    assert abs(noise.mean()) < 5 * used / np.sqrt(noise.size)
    assert noise.std() == pytest.approx(used, rel=5 / np.sqrt(2 * noise.size))
    if kind == "per_layer":  # tensors of 200, 20, 60 and 3, each with half of the clip norm
        expected = np.sqrt([1.0] * 3 + [0.75] * 17 + [0.5] * 40 + [0.25] * 140)
        assert evidence.weights == pytest.approx(expected)
    else:
        assert evidence.weights == pytest.approx(1.0)
    assert evidence.largest_e_value < 20


def test_less_noise_is_proven_with_clipping_per_layer():
    model, optimizer, loader, criterion = private(kind="per_layer", seed=1)
    add_noise = optimizer.add_noise

    def less():
        optimizer.noise_multiplier *= 0.5
        add_noise()
        optimizer.noise_multiplier /= 0.5

    optimizer.add_noise = less
    with live_audit(optimizer, canaries=200, seed=1, on_violation=lambda _: None) as live:
        fit(model, optimizer, loader, criterion, epochs=15)
    assert live.result.verdict == "violation"


def test_a_batch_in_parts_is_one_step():
    model, optimizer, loader, criterion = private(batch=64)
    evidence, sums = watched(optimizer)
    with (
        sums.watching(),
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=20, optimizer=optimizer
        ) as parts,
    ):
        fit(model, optimizer, parts, criterion, epochs=5)
    assert evidence.steps == 20 == len(sums._watched.batch_sizes)
    assert 45 < np.mean(sums._watched.batch_sizes) < 85


def test_batch_sizes_are_those_of_the_loader():
    model, optimizer, loader, criterion = private()
    sizes = []
    _, sums = watched(optimizer)
    with sums.watching():
        for features, targets in loader:
            sizes.append(len(features))
            optimizer.zero_grad()
            criterion(model(features), targets).backward()
            optimizer.step()
    assert sums._watched.batch_sizes == sizes


@pytest.mark.parametrize("bug", ["no noise", "half of the noise", "bypassed"])
def test_missing_noise_is_seen_after_a_few_steps(bug):
    model, optimizer, loader, criterion = private()
    if bug == "no noise":
        optimizer.add_noise = lambda: [
            setattr(p, "grad", p.summed_grad.clone()) for p in optimizer.params
        ]
    if bug == "half of the noise":
        add_noise = optimizer.add_noise

        def quieter():
            optimizer.noise_multiplier /= 2
            add_noise()
            optimizer.noise_multiplier *= 2

        optimizer.add_noise = quieter
    if bug == "bypassed":
        optimizer.step = lambda closure=None: optimizer.original_optimizer.step(closure)
    evidence, sums = watched(optimizer, canaries=250)
    with sums.watching():
        fit(model, optimizer, loader, criterion, epochs=5)
    assert evidence.largest_e_value > 2000
    assert sums._watched.bypassed == (evidence.steps if bug == "bypassed" else 0)


def test_nothing_is_disturbed_or_left_behind():
    results = []
    for audited in (False, True):
        model, optimizer, loader, criterion = private(seed=4, sgd=torch.optim.Adam)
        before = set(vars(optimizer)), copy.copy(vars(optimizer.params[0]))
        if audited:
            evidence, sums = watched(optimizer)
            evidence.coins[:] = False
            with contextlib.suppress(KeyError), sums.watching():
                fit(model, optimizer, loader, criterion, epochs=2)
                raise KeyError("from the user's training")
            hooks = optimizer.original_optimizer._optimizer_step_pre_hooks
            assert (set(vars(optimizer)), len(hooks)) == (before[0], 0)
            assert set(vars(optimizer.params[0])) == set(results[0][1])
        else:
            fit(model, optimizer, loader, criterion, epochs=2)
        results.append(
            (
                torch.cat([p.detach().ravel() for p in model.parameters()]),
                set(vars(optimizer.params[0])),
            )
        )
    assert torch.equal(results[0][0], results[1][0])


@pytest.mark.parametrize("kind", ["flat", "per_layer", "adaptive"])
def test_steps_that_are_counted_together_give_the_same_scores(kind, monkeypatch):
    """As on a GPU, for which the training does not wait, and whose small tensors are joined."""
    states, parameters = [], []
    for together in (1, 5):
        monkeypatch.setattr("dpaudit.live.opacus._steps_together", lambda _, n=together: n)
        monkeypatch.setattr(coordinates, "_is_joined", lambda *_, joined=together > 1: joined)
        model, optimizer, loader, criterion = private(kind=kind)
        live = live_audit(optimizer, canaries=150, seed=3)
        with live:
            fit(model, optimizer, loader, criterion, epochs=2)
            assert len(live.state_dict()["history"]) == 16
            fit(model, optimizer, loader, criterion, epochs=1)
            if kind != "adaptive":  # steps with another clip norm are not counted together
                assert live.evidence.steps == (24 if together == 1 else 21)
        assert live.evidence.steps == 24
        states.append({**live.state_dict(), "watched": None})  # which has a duration
        parameters.append(torch.cat([p.detach().ravel() for p in model.parameters()]))
    assert states[0] == states[1]
    assert torch.equal(*parameters)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_violation_in_the_last_steps_is_raised_at_the_end(interrupted, monkeypatch, tmp_path):
    monkeypatch.setattr("dpaudit.live.opacus._steps_together", lambda _: 1000)
    model, optimizer, loader, criterion = private()
    optimizer.add_noise = lambda: [
        setattr(p, "grad", p.summed_grad.clone()) for p in optimizer.params
    ]
    path = tmp_path / "audits.sqlite"
    live = live_audit(optimizer, canaries=250, name="shipped", store=path, on_violation="raise")

    def train():
        with live:
            fit(model, optimizer, loader, criterion, epochs=5)
            if interrupted:
                raise KeyError("from the user's training")

    with pytest.raises(KeyError if interrupted else ViolationFound):
        train()
    assert live.result.final.horizon == 40
    with Store.open(path) as store:
        assert len(store.audits()) == (0 if interrupted else 1)


def test_without_subtracting_only_noisy_gradients_are_used():
    model, optimizer, loader, criterion = private()
    evidence, sums = watched(optimizer, subtract=False)
    recorded, noisy = Recorded(evidence), []
    places = np.concatenate(
        [
            here + start
            for here, start in zip(
                evidence.places,
                np.cumsum([0, *[p.numel() for p in optimizer.params]])[:-1],
                strict=True,
            )
        ]
    )
    optimizer.original_optimizer.register_step_pre_hook(
        lambda *_: noisy.append(
            torch.cat([p.grad.ravel() for p in optimizer.params]).numpy()[places]
        )
    )
    with sums.watching():
        fit(model, optimizer, loader, criterion, epochs=1)
    expected = np.array(noisy) * optimizer.expected_batch_size
    assert np.array(recorded.values) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def with_rows(kind="flat"):
    """An optimizer after a backward pass."""
    model, optimizer, loader, criterion = private(kind=kind)
    features, targets = next(iter(loader))
    criterion(model(features), targets).backward()
    return optimizer


@pytest.mark.parametrize("kind", ["flat", "per_layer", "adaptive"])
def test_clipping_is_tested_on_a_copy(kind):
    optimizer = with_rows(kind)
    before = copy.deepcopy([p.grad_sample for p in optimizer.params])
    attributes, random = set(vars(optimizer)), torch.get_rng_state()
    contribution = largest_contribution(optimizer)
    assert 0.5 < contribution <= 1.001
    assert set(vars(optimizer)) == attributes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.summed_grad is None for p in optimizer.params)
    after = [p.grad_sample for p in optimizer.params]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_clipping_that_does_not_clip_is_named(monkeypatch):
    model, optimizer, loader, criterion = private()

    def unclipped(self):
        for parameter in self.params:
            parameter.summed_grad = self._get_flat_grad_sample(parameter).sum(dim=0)

    monkeypatch.setattr(type(optimizer), "clip_and_accumulate", unclipped)
    with live_audit(optimizer, canaries=28, seed=0) as live:
        fit(model, optimizer, loader, criterion, epochs=1)
    assert live.result.verdict != "consistent"
    assert any(doubt.startswith("Clipping: one long") for doubt in live.result.final.doubts)


@pytest.mark.parametrize("check", [True, False])
def test_what_is_tested_is_named(check):
    model, optimizer, loader, criterion = private()
    with live_audit(optimizer, canaries=28, seed=0, check=check) as live:
        fit(model, optimizer, loader, criterion, epochs=1)
    notice = live.result.notices[0]
    tested, _, untested = notice.partition("Not tested")
    assert "the sizes of batches" in tested
    assert ("clipping" in tested) == check
    assert ("clipping" in untested) == (not check)


def test_a_test_of_clipping_that_fails_does_not_end_the_training(monkeypatch):
    model, optimizer, loader, criterion = private()

    def too_large(optimizer):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("dpaudit.live.opacus.largest_contribution", too_large)
    with live_audit(optimizer, canaries=28, seed=0) as live:
        fit(model, optimizer, loader, criterion, epochs=1)
    assert live.steps == 8
    assert "clipping (its test ended in OutOfMemoryError; run dpaudit" in live.result.notices[0]


def test_ghost_clipping_is_named_as_not_tested():
    model, optimizer, loader, criterion = private(kind="ghost")
    with live_audit(optimizer, canaries=28, seed=0) as live:
        fit(model, optimizer, loader, criterion, epochs=1)
    assert "Not tested: sampling by the loader; clipping" in live.result.notices[0]
    assert live.result.final.doubts == ()


def test_the_noise_of_secure_mode_is_what_is_claimed():
    model, optimizer, loader, criterion = private()
    optimizer.secure_mode = True  # four numbers are drawn for each one
    evidence, sums = watched(optimizer)
    recorded = Recorded(evidence)
    with sums.watching():
        fit(model, optimizer, loader, criterion)
    others = np.array(recorded.values)[:, ~evidence.coins]
    assert others.std() == pytest.approx(NOISE, rel=5 / np.sqrt(2 * others.size))
    assert evidence.largest_e_value < 20


def test_a_training_without_noise_is_refused():
    _, optimizer, _, _ = private()
    optimizer.noise_multiplier = 0.0
    with pytest.raises(InvalidInput, match="noise_multiplier of the optimizer must be above 0"):
        live_audit(optimizer)


def test_sums_of_low_precision_are_refused():
    optimizer = with_rows()
    _, sums = watched(optimizer)
    optimizer.clip_and_accumulate()
    for parameter in optimizer.params:
        parameter.summed_grad = parameter.summed_grad.bfloat16()
    with sums.watching(), pytest.raises(InvalidInput, match=r"float32, got torch\.bfloat16"):
        optimizer.add_noise()


def test_noise_that_is_added_in_the_backward_pass_is_refused():
    _, optimizer, _, _ = private()
    optimizer._ddp_per_layer_hook = {}
    with pytest.raises(InvalidInput, match="in the backward pass"):
        live_audit(optimizer)


def test_a_loader_that_does_not_sample_is_named():
    model, optimizer, loader, criterion = private()
    shuffled = DataLoader(loader.dataset, batch_size=32, shuffle=True)
    with live_audit(optimizer, canaries=28, seed=0) as live:
        fit(model, optimizer, shuffled, criterion, epochs=6)
    assert live.result.verdict != "consistent"
    assert any("Poisson sampling" in doubt for doubt in live.result.final.doubts)
