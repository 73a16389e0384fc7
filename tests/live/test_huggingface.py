"""A live audit of a training by transformers.Trainer: the example, with and without a bug."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("opacus")

from dpaudit.errors import InvalidInput
from dpaudit.live.huggingface import LiveAuditCallback

EXAMPLE = Path(__file__).parents[2] / "examples" / "huggingface_lora.py"

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("huggingface_lora", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_trainer_is_audited(example, share):
    model, optimizer, loader = example.make_private(0)
    add_noise = optimizer.add_noise

    def quieter():
        optimizer.noise_multiplier *= share
        add_noise()
        optimizer.noise_multiplier /= share

    optimizer.add_noise = quieter
    live = LiveAuditCallback(canaries=1000, seed=0, on_violation=lambda _: None)
    example.fit(model, optimizer, loader, callbacks=[live])
    assert live.live.steps == example.STEPS
    assert live.result.verdict == ("violation" if share < 1 else "consistent")
    assert optimizer.add_noise is quieter  # everything is put back


def test_a_trainer_that_fails_leaves_an_incomplete_result(example):
    model, optimizer, loader = example.make_private(0)
    live = LiveAuditCallback(canaries=100, seed=0)
    with pytest.raises(InvalidInput, match="has not begun"):
        _ = live.result

    class Failing(example.TrainerCallback):
        def on_step_end(self, *_, **__):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        example.fit(model, optimizer, loader, callbacks=[live, Failing()])
    assert "has not ended" in live.result.final.doubts[0]
    live.close()
    assert "ended early" in live.result.final.doubts[0]
    assert "add_noise" not in vars(optimizer)


def test_a_training_that_continues_from_a_checkpoint_is_one_audit(example):
    model, optimizer, loader = example.make_private(0)
    first = LiveAuditCallback(canaries=200, seed=0)
    example.fit(model, optimizer, loader, callbacks=[first])
    second = LiveAuditCallback(canaries=200, state=first.live.state_dict())
    example.fit(model, optimizer, loader, callbacks=[second])
    assert second.live.steps == 2 * example.STEPS
    assert second.live.evidence.history[: example.STEPS] == first.live.evidence.history
