"""`live_audit`: what it takes, when it speaks up, what its result says and hides."""

import contextlib
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dpaudit import Claim, Scores, estimate
from dpaudit.audits import read_result
from dpaudit.claims import LIVE, judge
from dpaudit.cli import app
from dpaudit.errors import DpauditError, InvalidInput, StoreError
from dpaudit.live import ViolationFound, live_audit
from dpaudit.live.result import PROVEN
from dpaudit.lower_bounds.diagnostics import FAIR_COINS
from dpaudit.mechanisms import CorrelatedNoise
from dpaudit.scores import Store

SETTINGS = {"clip_norm": 2.0, "noise_multiplier": 1.0, "sampling_rate": 0.25}


def train(live, *, share=1.0, steps=60, size=3000, seed=0, kind="numpy"):
    """A loop that clips to 2 and adds ``share`` of the claimed noise."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        sums = [random.normal(0, 3, size), random.normal(0, 3, (10, 5))]
        noise = [random.normal(0, 2 * share, np.shape(one)) for one in sums]
        if kind == "torch":
            sums, noise = [[torch.as_tensor(one) for one in group] for group in (sums, noise)]
        sums = live.add(sums)
        live.observe([total + extra for total, extra in zip(sums, noise, strict=True)])


def audited(share=1.0, **options):
    live = live_audit([3000, 50], **(SETTINGS | {"canaries": 1000, "seed": 1} | options))
    with live:
        train(live, share=share)
    return live


def test_a_correct_loop_is_consistent_and_a_bound_is_shown():
    result = audited().result
    assert (result.verdict, result.suspected) == ("consistent", False)
    assert 0.5 * result.least_upper.epsilon < result.leading.epsilon <= result.least_upper.epsilon
    assert result.leading.method == "dpsgd"
    assert result.lower["one-run"].assumptions == (FAIR_COINS,)  # canaries may depend on each other
    assert str(result) == result.summary()
    assert len(result.summary().splitlines()) <= 14
    assert "Not tested: sampling by the loader; clipping" in " ".join(result.summary().split())


def test_too_little_noise_is_a_violation_and_stops_the_training():
    live = live_audit([3000, 50], **SETTINGS, canaries=1000, seed=1, on_violation="raise")
    with pytest.raises(ViolationFound, match="less noise than claimed"), live:
        train(live, share=0.5)
    assert live.steps < 20
    assert live.result.verdict == "violation"
    assert live.result.final.doubts == ()
    assert live.result.test.p_value <= 0.001


def test_a_violation_is_reported_once():
    calls = []
    with live_audit(
        [3000, 50], **SETTINGS, canaries=1000, seed=1, on_violation=calls.append
    ) as live:
        train(live, share=0.5)
    assert calls == [live]
    with pytest.warns(UserWarning, match="less noise than claimed"):
        audited(share=0.5)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_libraries_give_the_same_scores(kind):
    live = live_audit([3000, 50], **SETTINGS, canaries=500, seed=1)
    with live:
        train(live, steps=5, kind=kind)
    plain = live_audit([3000, 50], **SETTINGS, canaries=500, seed=1)
    with plain:
        train(plain, steps=5)
    assert live.state_dict()["scores"] == pytest.approx(plain.state_dict()["scores"])


def test_correct_loops_are_rarely_suspected():
    # Each of the two tests suspects 5 % at most: more than 11 of 60 has probability below 0.02.
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=20, sampling_rate=0.25)
    suspected = 0
    for seed in range(60):
        live = live_audit([300], **SETTINGS, canaries=100, seed=seed)
        random = np.random.default_rng(1000 + seed)
        with live:
            for _ in range(20):
                (sums,) = live.add([np.zeros(300)])
                live.observe([sums + random.normal(0, 2, 300)])
        evidence = live.evidence
        scores = Scores(score=evidence.scores, inserted=evidence.coins)
        test = judge(scores, claim, policy=LIVE, along_the_way=live.e_value)
        assert not test.refuted
        assert live.e_value < PROVEN
        suspected += test.suspected
    assert suspected <= 11


def test_the_order_of_the_scores_gives_their_bounds():
    live = audited()
    scores = Scores(score=live.evidence.scores, inserted=live.evidence.coins)
    asked = {"method": "clopper-pearson", "threshold": "simultaneous", "delta": 1e-5}
    own = estimate(live.result.scores, **asked)
    assert own.epsilon == pytest.approx(estimate(scores, **asked).epsilon)
    ranks, coins = live.result.scores.score, live.result.scores.inserted
    assert np.array_equal(coins[np.argsort(ranks)], scores.inserted[np.argsort(scores.score)])


def test_scores_coins_and_seeds_are_nowhere_in_the_result(tmp_path):
    live = live_audit(
        [3000, 50], **SETTINGS, canaries=1000, seed=7**20, name="shipped", store=tmp_path / "s"
    )
    with live:
        train(live)
    result, evidence = live.result, live.evidence
    assert not np.isin(result.scores.score, evidence.scores).any()
    # Rows are shuffled: their place says nothing about the coordinate of a canary.
    assert abs(np.corrcoef(evidence.coins, result.scores.inserted)[0, 1]) < 0.2
    page = result.report(tmp_path / "page.html").read_text()
    text = json.dumps(result.to_dict()) + result.summary(all_bounds=True) + repr(result) + page
    stored = (tmp_path / "s").read_bytes()
    for score in evidence.scores:
        assert repr(float(score)) not in text
        assert f"{score:.9g}" not in text
        assert float(score).hex().encode() not in stored
        assert np.float64(score).tobytes() not in stored
    assert str(7**20) not in text
    assert str(7**20).encode() not in stored


def test_a_stored_result_is_read_again_and_only_by_its_owner(tmp_path):
    path = tmp_path / "audits.sqlite"
    live = live_audit([3000, 50], **SETTINGS, canaries=1000, seed=1, name="shipped", store=path)
    with live:
        train(live)
    assert path.stat().st_mode & 0o777 == 0o600
    with Store.open(path) as store:
        again = read_result(store.audit("shipped"))
        stricter = read_result(store.audit("shipped"), claim=Claim.from_mu(20.0))
    assert again.to_dict() == live.result.to_dict()
    assert again.test.e_value == pytest.approx(live.e_value)
    assert stricter.test.e_value is None  # the e-process was against the audit's own claim
    assert stricter.verdict != "violation"
    shown = CliRunner().invoke(app, ["show", "shipped", "--store", str(path), "--json"])
    assert json.loads(shown.stdout)["verdict"] == live.result.verdict
    page = tmp_path / "page.html"
    drawn = CliRunner().invoke(app, ["report", "shipped", "--store", str(path), "--out", str(page)])
    assert drawn.exit_code in (0, 1, 3), drawn.output
    assert "live audit" in page.read_text()


def test_a_claim_that_promises_more_than_is_reported_is_named():
    claim = Claim.from_dpsgd(noise_multiplier=3.0, steps=60, sampling_rate=0.25)
    result = audited(claim=claim).result
    assert result.verdict != "consistent"
    assert any("reports epsilon" in doubt for doubt in result.final.doubts)


def test_a_claim_about_other_steps_is_named():
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=600, sampling_rate=0.25)
    result = audited(claim=claim).result
    assert result.verdict == "inconclusive"
    assert "about 600 steps, and 60 were observed" in result.final.doubts[0]


def test_a_claim_about_another_sampling_rate_is_named():
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=60, sampling_rate=0.3)
    result = audited(claim=claim).result
    assert result.verdict == "inconclusive"
    assert "about sampling rate 0.3, and the optimizer reports 0.25" in result.final.doubts[-1]


def test_an_epsilon_can_be_claimed():
    result = audited(claimed_epsilon=1.0).result
    assert result.verdict == "violation"  # the noise that is reported allows more
    assert any("reports epsilon" in doubt for doubt in result.final.doubts)
    assert result.leading.epsilon > 1.0
    assert result.least_upper.epsilon == pytest.approx(1.0, abs=0.01)


def test_a_suspicion_is_followed_by_watching_the_next_training():
    result = audited(claimed_epsilon=2.5, canaries=300).result
    assert (result.verdict, result.suspected) == ("inconclusive", True)
    assert "Watch the next training too" in result.summary()
    assert "fewer canaries each" not in result.summary()


def test_a_store_is_opened_before_the_training_and_its_failure_does_not_end_it(tmp_path):
    with pytest.raises(StoreError, match="folder does not exist"):
        live_audit([100], **SETTINGS, store=tmp_path / "missing" / "audits.sqlite")
    path = tmp_path / "audits.sqlite"
    live = live_audit([3000, 50], **SETTINGS, store=path, seed=1)
    live.__enter__()
    train(live, steps=5)
    path.write_text("not a store")
    with pytest.warns(UserWarning, match="was not stored"):
        live.__exit__(None, None, None)
    assert live.result.final.horizon == 5


def test_the_scale_of_noise_that_changes_is_bounded():
    live = live_audit([3000], **SETTINGS, canaries=500, seed=2)
    random = np.random.default_rng(0)
    for step in range(40):
        noise = 1.0 if step < 20 else 2.0
        observed = live.evidence.take_part(0.25) + random.normal(0, noise, 500)
        live.evidence.observe(observed, rate=0.25, noise_multiplier=noise)
    result = live.result
    assert result.verdict != "violation"
    assert result.leading.method == "dpsgd"
    assert "unequal noise" in result.leading.assumptions[0]
    assert 0.6 < result.leading.epsilon / result.claimed_epsilon < 1


def test_sums_that_are_no_numbers_leave_a_doubt():
    with live_audit([100], **SETTINGS, seed=1) as live:
        for bad in (np.nan, np.inf, 0.0):
            (sums,) = live.add([np.zeros(100)])
            live.observe([sums + bad])
    assert live.result.verdict != "consistent"
    assert "2 of 3 steps" in live.result.final.doubts[0]


def test_a_training_that_ends_early_is_incomplete():
    live = live_audit([3000, 50], **SETTINGS, canaries=500, seed=1)
    with contextlib.suppress(ZeroDivisionError), live:
        train(live, steps=30)
        raise ZeroDivisionError
    assert live.result.verdict == "inconclusive"
    assert "Incomplete" in live.result.final.doubts[0]


def test_a_checkpoint_continues_the_audit(tmp_path):
    straight = audited()
    first = live_audit([3000, 50], **SETTINGS, canaries=1000, seed=1)
    random = np.random.default_rng(0)

    def some(live, steps):
        for _ in range(steps):
            sums = [random.normal(0, 3, 3000), random.normal(0, 3, (10, 5))]
            noise = [random.normal(0, 2, np.shape(one)) for one in sums]
            live.observe([a + b for a, b in zip(live.add(sums), noise, strict=True)])

    with first:
        some(first, 25)
    torch.save(first.state_dict(), tmp_path / "checkpoint.pt")
    second = live_audit([3000, 50], **SETTINGS, canaries=1000)
    second.load_state_dict(torch.load(tmp_path / "checkpoint.pt"))  # plain data, no code
    with second:
        some(second, 35)
        with pytest.raises(InvalidInput, match="before the with block"):
            second.load_state_dict(first.state_dict())
    assert np.array_equal(second.state_dict()["scores"], straight.state_dict()["scores"])


def test_no_step_is_an_error():
    live = live_audit([100], **SETTINGS)
    with live:
        pass
    with pytest.raises(DpauditError, match="no step"):
        _ = live.result


@pytest.mark.parametrize(
    ("training", "options", "message"),
    [
        ([100], {"canaries": 101}, "canaries"),
        ([100], {"sampling_rate": 1.5}, "sampling_rate"),
        ([100], {"noise_multiplier": 0.0}, "noise_multiplier"),
        ([100], {"sampling_rate": None}, "sampling_rate is missing"),
        ([100], {"score": "other"}, "score"),
        ([100], {"on_violation": "shout"}, "on_violation"),
        ([100], {"claim": Claim.from_mu(1.0), "claimed_epsilon": 1.0}, "not both"),
        ([100], {"claim": "epsilon 1"}, "claim must be a Claim"),
        ([100], {"claim": Claim.from_mu(1.0), "unit": "user"}, r"claim.per\('user'\)"),
        ([100], {"claim": Claim.from_mu(1.0).per("user")}, "unit='user'"),
        ([100], {"store": 3}, "store"),
        ([100], {"name": 3}, "name"),
        (3, {}, "training"),
        (torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=1.0), {}, "clip_norm"),
    ],
)
def test_bad_input_is_named(training, options, message):
    with (
        pytest.raises(InvalidInput, match=message),
        live_audit(training, **(SETTINGS | options)),
    ):
        pass


def test_an_optimizer_without_private_steps_is_refused():
    with pytest.raises(InvalidInput, match="DPOptimizer"):
        live_audit(torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=1.0))


def test_steps_that_do_not_fit_are_named():
    with live_audit([100], **SETTINGS) as live:
        with pytest.raises(InvalidInput, match="without add"):
            live.observe([np.zeros(100)])
        with pytest.raises(InvalidInput, match=r"\[100\] numbers, got \[99\]"):
            live.add([np.zeros(99)])
        live.add([np.zeros(100)])
        with pytest.raises(InvalidInput, match="twice"):
            live.add([np.zeros(100)])


def test_a_loop_with_correlated_noise_needs_every_step():
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    bands = CorrelatedNoise(coefficients=(1.0, 0.5))
    with pytest.raises(InvalidInput, match="sampling_rate must be 1 with correlation"):
        live_audit([100], sampling_rate=0.5, correlation=bands, **settings)
    bands = CorrelatedNoise(coefficients=(1.0, -1.0))
    with pytest.raises(InvalidInput, match="first sums are all above 0"):
        live_audit([100], sampling_rate=1.0, correlation=bands, **settings)
