"""One call from a training to its bounds: what comes out, and that it goes on where it stopped."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import final

import numpy as np
import pytest
import torch

import dpaudit.engine.noise
from dpaudit.adversaries import RandomDimension, SimulatedDimension
from dpaudit.audits import Description, Progress, audit, read_result
from dpaudit.claims import Claim
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput, InvalidScores, StoreError, TrainingFailed
from dpaudit.mechanisms.batches import PoissonBatches, ReshuffledEpochs
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
from dpaudit.report.pages import result_page
from dpaudit.scores import Store
from dpaudit.testing import easy_training

SPEED = Speed(device="cpu", compile=False, workers=1, tile_size=50)


def quick(training: DPSGD | None = None, **settings: object) -> object:
    settings = {"runs": 200, "speed": SPEED, "anyway": True} | settings
    chosen = easy_training(noise_multiplier=2.0) if training is None else training
    return audit(chosen, settings.pop("adversary", RandomDimension()), **settings)  # type: ignore[arg-type]


@final
class Recorder(Progress):
    """Records its calls; may stop the audit as Ctrl-C does."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.told: list[tuple[str, object]] = []
        self._tiles_left = stop_after

    def begin(self, *, runs: int, done: int) -> None:
        self.told.append(("begin", (runs, done)))

    def advance(self, runs: int) -> None:
        self.told.append(("advance", runs))
        if self._tiles_left is not None:
            self._tiles_left -= 1
            if self._tiles_left == 0:
                raise KeyboardInterrupt

    def notice(self, text: str) -> None:
        self.told.append(("notice", text))

    def stop(self) -> None:
        self.told.append(("stop", None))


def test_one_canary_is_in_exactly_half_of_the_runs() -> None:
    result = quick()
    assert len(result.scores.inserted_scores) == len(result.scores.other_scores) == 100
    assert (result.runs, result.canaries, result.device, result.resumed) == (200, 1, "cpu", 0)
    assert result.seconds > 0


def test_many_canaries_have_a_fair_coin_each() -> None:
    result = quick(runs=40, canaries=20)
    coins = result.scores.inserted.reshape(-1, 20)
    assert len(result.scores) == 800
    assert len({row.tobytes() for row in coins}) == 40
    # 800 fair coins: within five standard deviations of half.
    assert abs(int(coins.sum()) - 400) < 5 * np.sqrt(200)
    assert {"one-run", "one-run-fdp"} <= {bound.method for bound in result.lower}


def test_one_training_with_many_canaries() -> None:
    result = quick(dataclasses.replace(easy_training(), noise_multiplier=1.0), runs=1, canaries=21)
    assert (result.runs, len(result.scores)) == (1, 21)
    assert any("one run only" in note for note in result.final.leading.notes)
    assert result.verdict != "violation"


def test_the_same_call_gives_the_same_scores_and_another_seed_does_not() -> None:
    one, two, other = quick(), quick(), quick(seed=1)
    assert np.array_equal(one.scores.score, two.scores.score)
    assert not np.array_equal(one.scores.score, other.scores.score)


def test_each_horizon_is_the_audit_of_a_training_that_stops_there() -> None:
    result = quick(horizons=(5, 10))
    assert [assessment.horizon for assessment in result.horizons] == [5, 10, 20]
    shorter = quick(dataclasses.replace(easy_training(noise_multiplier=2.0), steps=5))
    assert np.array_equal(result.at(5).scores.score, shorter.scores.score)
    assert result.at(5).least_upper.epsilon == shorter.final.least_upper.epsilon
    assert result.at(5).leading.epsilon == shorter.final.leading.epsilon
    with pytest.raises(InvalidInput, match=r"steps must be one of .*\(5, 10, 20\), got 7"):
        result.at(7)


def test_delta_and_confidence_ask_the_same_scores_again(tmp_path: Path) -> None:
    store = tmp_path / "audits.sqlite"
    played = quick(store=store)
    with Store.open(store) as opened:
        read = read_result(opened.audit(played.audit), delta=1e-3, confidence=0.9)
    assert (read.final.leading.delta, read.final.leading.confidence) == (1e-3, 0.9)
    assert np.array_equal(read.scores.score, played.scores.score)


def test_an_interrupted_audit_is_resumed_with_the_same_result(tmp_path: Path) -> None:
    store, whole = tmp_path / "audits.sqlite", quick()
    recorder = Recorder(stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        quick(store=store, progress=recorder)
    assert recorder.told[0] == ("begin", (200, 0))
    assert recorder.told[-1] == ("stop", None)
    with Store.open(store) as opened:
        (record,) = opened.audits()
        assert record.finished is None
        assert record.finished_tiles() == {0, 1}
        assert read_result(record).runs == 100  # what they prove so far
    resumed = Recorder()
    result = quick(store=store, progress=resumed)
    assert resumed.told[1] == ("begin", (200, 100))
    assert [what for what in resumed.told if what[0] == "advance"] == [("advance", 50)] * 2
    assert result.resumed == 100
    assert np.array_equal(result.scores.score, whole.scores.score)
    assert result.final.leading.epsilon == whole.final.leading.epsilon
    with Store.open(store) as opened:
        assert opened.audit(result.audit).summary["verdict"] == result.verdict


def test_the_tile_size_of_the_beginning_is_kept(tmp_path: Path) -> None:
    """It is settled from free memory, which may be another tomorrow."""
    store = tmp_path / "audits.sqlite"
    with pytest.raises(KeyboardInterrupt):
        quick(store=store, progress=Recorder(stop_after=1))
    left_open = dataclasses.replace(SPEED, tile_size=None)
    result = quick(store=store, speed=left_open)
    assert (result.resumed, result.configuration["speed"]["tile_size"]) == (50, 50)
    with Store.open(store) as opened:
        assert len(opened.audits()) == 1


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one audit that was interrupted after its first tile."""
    store = tmp_path_factory.mktemp("store") / "audits.sqlite"
    with pytest.raises(KeyboardInterrupt):
        quick(store=store, progress=Recorder(stop_after=1))
    return store


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"noise_multiplier": 3.0}},
        {"training": {"learning_rate": 0.25}},
        {"training": {"clip_norm": 0.5}},
        {"training": {"steps": 21}},
        {"training": {"batches": ReshuffledEpochs(batch_size=30)}},
        {"training": {"initialisation": FixedInitialisation(seed=1)}},
        {"training": {"loss": lambda o, t: (o.sum(1) - t) ** 2}},
        {"runs": 202},
        {"seed": 1},
        {"horizons": (5,)},
        {"insertion": Insertion(period=2)},
        {"canaries": 2},
        {"speed": dataclasses.replace(SPEED, precision="float64")},
    ],
    ids=lambda change: "-".join([*change, *change.get("training", ())]),
)
def test_a_changed_audit_does_not_resume_an_unfinished_one(
    unfinished: Path, change: dict[str, object]
) -> None:
    change = dict(change)
    training = dataclasses.replace(
        easy_training(noise_multiplier=2.0),
        **change.pop("training", {}),  # type: ignore[arg-type]
    )
    recorder = Recorder(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        quick(training, store=unfinished, progress=recorder, **change)
    assert recorder.told[0][1] == (change.get("runs", 200), 0)


def test_the_fewest_runs_allowed_give_a_bound() -> None:
    assert quick(runs=4).lower


def test_an_audit_that_is_played_but_has_no_bound_blocks_nothing(tmp_path: Path) -> None:
    store = tmp_path / "audits.sqlite"
    with pytest.raises((InvalidScores, TrainingFailed)):
        quick(store=store, runs=1, canaries=2)  # too few for a pilot, however the coins fall
    quick(store=store)


def test_an_unfinished_audit_has_no_verdict_whatever_its_scores_say(unfinished: Path) -> None:
    with Store.open(unfinished) as opened:
        result = read_result(opened.audits()[0])
    assert (result.finished, result.verdict) == (False, "unfinished")
    assert result.to_dict()["verdict"] == "unfinished"
    assert result.sentence.startswith("Unfinished: claimed epsilon <=")
    assert "50 of 200 trainings" in result.summary()
    assert result.summary(all_bounds=True).endswith(result.sentence)
    page = result_page(result)
    assert (page.verdict, page.sentence) == ("unfinished", result.sentence)
    assert page.evidence is not None
    assert page.evidence.test is None


def test_a_finished_audit_is_played_again_unless_its_reuse_is_asked_for(tmp_path: Path) -> None:
    store = tmp_path / "audits.sqlite"
    first, again = (quick(store=store, name="mine") for _ in range(2))
    assert (again.resumed, again.audit != first.audit) == (0, True)
    read = quick(store=store, name="mine", reuse=True)
    assert (read.resumed, read.audit) == (200, again.audit)
    stricter = quick(store=store, name="mine", reuse=True, claim=Claim.from_mu(0.01), anyway=True)
    assert stricter.test is not None
    assert (stricter.resumed, stricter.fresh_runs) == (200, 0)
    assert stricter.test.claim == Claim.from_mu(0.01)
    assert quick(store=store, name="other", reuse=True).resumed == 0
    with Store.open(store) as opened:
        assert [record.name for record in opened.audits()] == ["mine", "mine", "other"]
        assert all(record.finished for record in opened.audits())


def test_a_killed_process_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    """kill -9 in the middle; the same audit goes on, bit for bit."""
    store = tmp_path / "audits.sqlite"
    script = f"""
from dpaudit.adversaries import RandomDimension
from dpaudit.testing import easy_training
from dpaudit.audits import audit
from dpaudit.engine import Speed
audit(easy_training(noise_multiplier=2.0), RandomDimension(), runs=40_000, store={str(store)!r},
      speed=Speed(device="cpu", compile=False, workers=1, tile_size=50))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        deadline = time.monotonic() + 300
        while _stored_tiles(store) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = _stored_tiles(store)
    assert 3 <= kept < 800
    with Store.open(store) as opened:
        (record,) = opened.audits()
        part, seed = record.scores(), Description.of(record).sample(0).seed
    # A tile is a pure function of the game: the same tiles of a fresh game are the same numbers.
    from dpaudit.games import Game, play, prepare

    training, adversary = easy_training(noise_multiplier=2.0), RandomDimension()
    game = Game(
        mechanism=training,
        adversary=adversary,
        canaries=adversary.craft(training, Insertion(), canaries=1, seed=0),
        runs=40_000,
        coin="half",
    )
    game = dataclasses.replace(game, seed=seed)
    rest = frozenset(range(kept, 800))
    fresh = np.concatenate([block.score for _, block in play(prepare(game, SPEED), done=rest)])
    assert np.array_equal(part.score, fresh)


def _stored_tiles(store: Path) -> int:
    try:
        with Store.open(store, create=False) as opened:
            return sum(len(record.finished_tiles()) for record in opened.audits())
    except StoreError:
        return 0


def test_poisson_sampling_is_accounted_for_and_played() -> None:
    training = dataclasses.replace(
        easy_training(noise_multiplier=1.0), batches=PoissonBatches(rate=0.2)
    )
    result = quick(training)
    assert result.configuration["mechanism"]["sampling_rate"] == 0.2
    assert {bound.method for bound in result.upper} == {"pld", "prv", "rdp"}
    assert result.verdict != "violation"
    assert result.final.leading.epsilon <= result.final.least_upper.epsilon


def test_no_noise_has_no_upper_bound() -> None:
    result = quick(easy_training(noise_multiplier=0.0))
    assert np.isinf(result.upper["gaussian"].epsilon)
    assert result.verdict == "no-claim"
    assert json.loads(json.dumps(result.to_dict(), default=dict))["upper"][0]["epsilon"] == "inf"


def test_an_unknown_start_is_audited_too() -> None:
    training = dataclasses.replace(
        easy_training(noise_multiplier=2.0), initialisation=FreshInitialisation()
    )
    result = quick(training)
    assert result.final.leading.epsilon > 0


def test_half_of_the_noise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the engine's own noise: the claim is refuted, and a lower bound passes the upper."""
    whole = dpaudit.engine.noise.normals

    def half(*arguments: object, **named: object) -> torch.Tensor:
        return whole(*arguments, **named) / 2  # type: ignore[arg-type]

    training = easy_training(noise_multiplier=2.0)
    honest = quick(training, adversary=SimulatedDimension(), runs=1000)
    monkeypatch.setattr(dpaudit.engine.noise, "normals", half)
    broken = quick(training, adversary=SimulatedDimension(), runs=1000)
    assert honest.verdict != "violation"
    assert honest.final.leading.epsilon < honest.final.least_upper.epsilon
    assert broken.verdict == "violation"
    assert broken.final.leading.epsilon > broken.final.least_upper.epsilon
    assert "Look for a bug" in broken.sentence
    assert "by chance" not in broken.sentence
    assert broken.final.test is not None
    assert broken.fresh_runs == 2000
    alone = quick(training, adversary=SimulatedDimension(), runs=1000, confirm=False)
    assert (alone.verdict, alone.fresh_runs) == ("violation", 0)
    assert "One test at 5 % decides" in alone.sentence


def test_clipping_that_is_skipped_is_found_out() -> None:
    """A canary three times as long as C stands for a training that forgot to clip it."""
    training = easy_training(noise_multiplier=2.0)
    longer = dataclasses.replace(training, clip_norm=3.0, noise_multiplier=2.0 / 3.0)
    played = quick(longer, runs=1000)
    claimed = quick(training, runs=1000)
    from dpaudit.audits import Question, assess

    question = Question(confirm=False)
    found = assess(claimed.description, question, played.scores, horizon=20)
    assert found.verdict == "violation"


def test_the_result_is_drawn_and_put_in_words(tmp_path: Path) -> None:
    result = quick(horizons=(10,))
    figure = result.plot()
    figure.savefig(tmp_path / "audit.png")
    assert len(figure.axes) == 3
    assert (tmp_path / "audit.png").stat().st_size > 10_000
    assert result.summary(all_bounds=True).endswith(result.sentence)
    assert repr(result).startswith(f"AuditResult({result.verdict}, ")


def test_plain_data_has_the_documented_fields() -> None:
    printed = json.loads(json.dumps(quick(horizons=(10,)).to_dict(), default=dict))
    keys = {"audit", "lower", "upper", "runs", "canaries", "seconds", "device", "verdict"}
    assert keys <= set(printed)
    assert printed["runs"] == 200
    assert [entry["steps"] for entry in printed["horizons"]] == [10]
    assert {entry["side"] for entry in printed["lower"]} == {"lower"}
    assert {entry["side"] for entry in printed["upper"]} == {"upper"}
    assert printed["configuration"]["mechanism"]["data"]["name"] == "easy"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs": 5}, "runs must be even"),
        ({"runs": 2}, "runs must be at least 4, got 2"),
        ({"canaries": 0}, "canaries must be at least 1, got 0"),
        ({"delta": 2.0}, "delta must be in"),
        ({"confidence": 95}, "confidence must be in .*use 0.95"),
        ({"horizons": (21,)}, r"horizons must be at most the number of steps \(20\), got 21"),
        ({"adversary": 3}, "adversary must be an Adversary"),
        ({"training": "house"}, "preset must be one of"),
        ({"canary": 1}, "canary cannot be given for a DPSGD or a preset"),
        ({"workers": 2}, "workers cannot be given for a DPSGD or a preset"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
    ids=str,
)
def test_bad_arguments(settings: dict[str, object], message: str) -> None:
    settings = dict(settings)
    with pytest.raises(InvalidInput, match=message):
        quick(settings.pop("training", None), **settings)  # type: ignore[arg-type]
