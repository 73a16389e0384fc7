"""Documents say no more than the receipt."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace
from small_audits import noisy, play

import dpaudit.receipts.printing
from dpaudit.errors import DpauditError
from dpaudit.receipts import Receipt, verify
from dpaudit.receipts.documents import (
    DOCUMENTS,
    FILL_IN,
    control_map,
    filing_page,
    model_card,
    registry_entry,
)
from dpaudit.receipts.printing import BROWSERS, pdf_of

Written = Callable[..., Path]


def test_the_metadata_of_a_model_card_are_the_numbers_of_the_receipt(
    violated: Receipt, written: Written
) -> None:
    card = model_card(verify(written(violated)))
    metadata = yaml.safe_load(card.split("---\n")[1])["privacy_audit"]
    lower = violated.computed.lower[0]
    assert metadata["shown_epsilon_at_least"] == lower["epsilon"]
    assert (metadata["delta"], metadata["verdict"]) == (1e-5, "violation")
    assert metadata["receipt_sha256"] == violated.digest
    assert "origin unknown" in card
    assert "is the one that was audited" in card


def test_a_registry_entry_has_the_form_of_the_registry(violated: Receipt, written: Written) -> None:
    """Names and values of schemas/deployments-schema.yaml of 15 July 2026."""
    entry = yaml.safe_load(registry_entry(verify(written(violated))))
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert (entry["status"], entry["tier"]) == ("Draft", 2)
    deployment = entry["deployment"]
    assert set(deployment["basic"]) == {
        "name", "data_curators", "intended_use", "data_product_type", "data_product_region",
        "description", "publication_date",
    }  # fmt: skip
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert deployment["privacy_loss"]["privacy_parameters"]["delta"] == 1e-5
    assert deployment["basic"]["name"] == deployment["privacy_loss"]["privacy_unit"] == FILL_IN
    assert set(deployment["privacy_loss"]) <= {
        "privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details",
    }  # fmt: skip
    assert "violation" in deployment["implementation"]["justification"]


def test_a_control_map_has_two_answers_and_claims_no_evidence_of_an_undecided_audit(
    violated: Receipt, tmp_path: Path, written: Written
) -> None:
    few = play(tmp_path / "s.sqlite", noisy(1.0), runs=10, anyway=True)
    assert few.computed.verdict == "inconclusive"
    answers = {}
    for name, receipt in (("violated", violated), ("few", few)):
        items = control_map(verify(written(receipt)))
        assert {one.answer for one in items} == {"evidence in this receipt", "not tested"}
        answers[name] = {(one.source[:5], one.number): one for one in items}
    assert answers["few"]["OWASP", "11.2.4"].answer == "not tested"
    assert answers["violated"]["OWASP", "11.2.4"].answer == "evidence in this receipt"
    assert "evidence against" in answers["violated"]["OWASP", "11.2.4"].detail
    assert answers["violated"]["NIST ", "2.4"].answer == "not tested"


def test_text_of_a_stranger_cannot_break_out_of_a_document(
    violated: Receipt, written: Written
) -> None:
    harm = "<script>alert(1)</script> | x\n## Forged\n---"
    given = replace(violated.given, name=harm)
    checked = verify(written(replace(violated, given=given).sealed()))
    for make in DOCUMENTS.values():
        text = make(checked)
        assert "<script" not in text
        assert "\n## Forged" not in text


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="a PDF needs Chromium or Chrome")
def test_the_pdf_has_two_pages(violated: Receipt, written: Written) -> None:
    content = pdf_of(filing_page(verify(written(violated))))
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == 2


def test_without_a_browser_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpaudit.receipts.printing.shutil, "which", lambda _: None)
    monkeypatch.setattr(dpaudit.receipts.printing.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DpauditError, match=r"Chromium or Chrome .* WeasyPrint"):
        pdf_of("<p>")
