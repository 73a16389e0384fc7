"""Plans that were registered beforehand, and the evidence of several auditors together."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.integrate import quad
from small_audits import CANARY, noisy, play

import dpaudit
from dpaudit import Claim
from dpaudit.errors import InvalidInput
from dpaudit.receipts import Receipt, combine, read_plan, receipt_of, register, verify
from dpaudit.receipts.combining import calibrated, e_value_of, shared_evidence
from dpaudit.scores import Scores, Store

Written = Callable[..., Path]


def test_the_calibrator_gives_e_values() -> None:
    assert quad(calibrated, 0, 1)[0] == pytest.approx(1.0)
    grid = np.linspace(1e-6, 1, 1000)
    assert (np.diff([calibrated(p) for p in grid]) < 0).all()
    # An exact p-value of a discrete test: its distribution is above the uniform one.
    chances = np.array([math.comb(20, k) for k in range(21)]) / 2**20
    p_values = np.cumsum(chances)
    assert sum(c * calibrated(p) for c, p in zip(chances, p_values, strict=True)) <= 1


def test_e_values_of_true_claims_are_at_most_one_on_average() -> None:
    """With fresh runs where the first ones are suspected: the rule of a whole audit."""
    random, claim, values = np.random.default_rng(0), Claim.from_mu(1.0), []
    for _ in range(400):

        def scores(runs: int) -> Scores:
            return Scores.from_samples(random.normal(1, 1, runs), random.normal(0, 1, runs))

        test = dpaudit.claims.judge(first := scores(40), claim, policy=dpaudit.claims.CONFIRMED)
        value = calibrated(test.p_value)
        if test.to_confirm:
            test = dpaudit.claims.judge(
                first, claim, policy=dpaudit.claims.CONFIRMED, fresh=scores(80)
            )
            value *= calibrated(test.p_value)
        values.append(value)
    assert np.mean(values) <= 1 + 3 * np.std(values) / 20


def test_independent_audits_multiply(store: Path, written: Written) -> None:
    paths, product = [], 1.0
    for seed in (21, 22):
        receipt = play(store, noisy(0.75), seed=seed, confirm=False)
        product *= e_value_of(receipt)
        paths.append(written(receipt, f"{seed}.json"))
    result = combine(paths)
    assert result.e_value == pytest.approx(product)
    assert result.p_value == pytest.approx(min(1.0, 1 / product))
    assert result.claim == "1-GDP"


def test_fresh_runs_and_audits_that_stop_count_with_all_their_evidence(
    violated: Receipt, written: Written, tmp_path: Path
) -> None:
    (tensor,) = violated.computed.tensors.values()
    expected = calibrated(tensor["p_value"]) * calibrated(tensor["fresh_p_value"])
    assert e_value_of(violated) == pytest.approx(expected)
    stopped = play(tmp_path / "s.sqlite", noisy(0.4), until_violation=True, seed=5, runs=200)
    assert stopped.computed.test is not None
    assert e_value_of(stopped) == stopped.computed.test["e_value"]
    result = combine([written(violated, "a.json"), written(stopped, "b.json")])
    assert result.verdict == "violation"


def test_dependent_or_different_audits_are_refused(
    violated: Receipt, kept: Receipt, written: Written, tmp_path: Path
) -> None:
    first = written(violated, "a.json")
    with pytest.raises(InvalidInput, match="the same audit"):
        combine([first, written(violated, "b.json")])
    again = play(tmp_path / "s.sqlite", noisy(0.6))
    with pytest.raises(InvalidInput, match="the same seed"):
        combine([first, written(again, "c.json")])
    renamed = replace(kept.given, audit="0" * 16)
    assert shared_evidence(kept, replace(kept, given=renamed)) == "the same seed"
    other = play(tmp_path / "t.sqlite", noisy(1.0), claim=Claim.from_mu(2.0), seed=9)
    with pytest.raises(InvalidInput, match="same claim"):
        combine([first, written(other, "d.json")])
    with Store.open(tmp_path / "t.sqlite") as opened:
        afterwards = receipt_of(opened.audits()[-1], claim=Claim.from_mu(1.0))
    with pytest.raises(InvalidInput, match="chosen afterwards"):
        combine([first, written(afterwards, "f.json")])
    with pytest.raises(InvalidInput, match="at least two"):
        combine([first])
    changed = replace(kept, computed=replace(kept.computed, verdict="violation")).sealed()
    with pytest.raises(InvalidInput, match="must be consistent"):
        combine([first, written(changed, "e.json")])


def test_a_registered_audit_is_recognised_and_another_one_is_not(
    tmp_path: Path, written: Written
) -> None:
    train, store = noisy(1.0), tmp_path / "s.sqlite"
    settings = {"canary": CANARY, "claim": Claim.from_mu(1.0), "runs": 120}
    plan = register(train, **settings)
    path = plan.write(tmp_path / "plan.json")
    assert read_plan(path) == plan

    def checked(plan_of_receipt: str | None, **changed: object) -> dict[str, list[bool | None]]:
        result = dpaudit.audit(train, store=store, **(settings | changed))  # type: ignore[arg-type]
        with Store.open(store) as opened:
            receipt = receipt_of(opened.audit(result.audit), plan=plan_of_receipt)
        checks = verify(written(receipt), plan=path).checks
        return {"registered": [c.passed for c in checks if c.name == "registered beforehand"]}

    assert checked(plan.digest) == {"registered": [True, None]}
    assert checked(None) == {"registered": [False]}
    assert checked(plan.digest, seed=1) == {"registered": [False]}
    assert checked(plan.digest, claim=Claim.from_mu(2.0)) == {"registered": [False]}
    text = path.read_text("utf8")
    path.write_text(text.replace('"runs":120', '"runs":122'), "utf8")
    with pytest.raises(InvalidInput, match="was changed"):
        read_plan(path)


def test_a_plan_written_after_the_audit_is_not_accepted(
    kept: Receipt, tmp_path: Path, written: Written
) -> None:
    settings = {"canary": CANARY, "claim": Claim.from_mu(1.0), "runs": 120, "seed": 3}
    plan = register(noisy(1.0), **settings)
    late = replace(plan, created="2099-01-01T00:00:00+00:00")
    late = replace(late, digest=late.correct_digest)
    receipt = replace(
        kept,
        given=replace(
            kept.given, plan=late.digest, configuration=plan.configuration, question=plan.question
        ),
    ).sealed()
    checks = verify(written(receipt), plan=late.write(tmp_path / "plan.json")).checks
    assert False in [c.passed for c in checks if c.name == "registered beforehand"]
