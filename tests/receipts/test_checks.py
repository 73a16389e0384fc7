"""Receipts of checks: the verdict follows from the findings, and no core rule is left out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from dpaudit.checks import check_step
from dpaudit.errors import InvalidInput
from dpaudit.pipelines import check_pipeline
from dpaudit.receipts import CheckReceipt, combine, receipt_of_check, verify
from dpaudit.receipts.documents import DOCUMENTS
from dpaudit.receipts.form import as_plain, schema

Written = Callable[..., Path]
CLAIMED = {"clip_norm": 1.0, "noise_multiplier": 1.0, "parameters": 300}


def step(gradients: np.ndarray, seed: int, noise: float = 1.0) -> np.ndarray:
    clean = np.nan_to_num(gradients, nan=0, posinf=0, neginf=0)
    norms = np.linalg.norm(clean, axis=1, keepdims=True)
    clipped = clean * np.minimum(1, 1 / np.maximum(norms, 1e-300))
    return clipped.sum(axis=0) + np.random.default_rng(seed).normal(0, noise, len(clean[0]))


def quiet(gradients: np.ndarray, seed: int) -> np.ndarray:
    return step(gradients, seed, noise=0.5)


def receipt_of(function: Callable[..., Any]) -> CheckReceipt:
    result = check_step(function, **CLAIMED)
    return receipt_of_check(result, name="step", training=function, settings=CLAIMED)


@pytest.fixture(scope="module")
def broken() -> CheckReceipt:
    return receipt_of(quiet)


def test_the_receipt_of_a_check_agrees_with_itself(broken: CheckReceipt, written: Written) -> None:
    for receipt, verdict in ((broken, "broken"), (receipt_of(step), "passed")):
        result = verify(written(as_plain(receipt)))
        assert result.sentence == "internally consistent, origin unknown"
        assert result.verdicts == (verdict,)
        assert any("the findings themselves" in text for text in result.not_checked)
        jsonschema.validate(json.loads(receipt.text()), schema())
    assert broken.code != receipt_of(step).code != ""


def test_the_receipt_of_a_pipeline_agrees_with_itself(written: Written) -> None:
    def train(data: np.ndarray, seed: int) -> np.ndarray:
        return data.sum(axis=0) + np.random.default_rng(seed).normal(0, 1, 3)

    result = check_pipeline(train, (np.ones((5, 3)), np.ones((6, 3))))
    receipt = receipt_of_check(result, name="pipeline")
    assert verify(written(as_plain(receipt))).outcome == "consistent"


def test_edits_of_findings_and_rules_that_are_left_out_are_found(
    broken: CheckReceipt, written: Written
) -> None:
    def outcome(edit: Callable[[dict[str, Any]], object]) -> str:
        plain = copy.deepcopy(as_plain(broken))
        edit(plain["cases"][0])
        return verify(written(plain)).outcome

    def better(case: dict[str, Any]) -> None:
        case["verdict"] = "passed"

    def hidden(case: dict[str, Any]) -> None:
        for finding in case["evidence"]["findings"]:
            if finding["verdict"] == "broken":
                finding["verdict"] = "not tested"

    def shorter(case: dict[str, Any]) -> None:
        findings = case["evidence"]["findings"]
        del findings[next(i for i, one in enumerate(findings) if one["verdict"] == "broken")]

    def nonsense(case: dict[str, Any]) -> None:
        case["evidence"]["findings"] = 7

    assert outcome(lambda case: None) == "consistent"
    for edit in (better, hidden, shorter, nonsense):
        assert outcome(edit) == "inconsistent"


def test_documents_plans_and_products_are_of_audits_only(
    broken: CheckReceipt, written: Written
) -> None:
    path = written(as_plain(broken))
    for document in DOCUMENTS.values():
        with pytest.raises(InvalidInput, match="must be of an audit"):
            document(verify(path))
    with pytest.raises(InvalidInput, match="must be of an audit"):
        combine([path, path])
    with pytest.raises(InvalidInput, match="is the receipt of a check"):
        verify(path, plan=path)
