"""Documents made from a receipt: model card, registry entry, control map, and a page to file.

They say no more than the receipt: each names its digest, what was tested, and what was not. Fields
that an audit cannot know read ``FILL IN``.

Sources, as read in November 2026: the schema of the Differential Privacy Deployments Registry
(github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml, of 15 July 2026);
OWASP AISVS 1.0, chapter C11 (github.com/OWASP/AISVS, of 15 July 2026); of NIST SP 800-226 the
initial public draft of December 2023, whose section numbers are given, not the final text of March
2025; of EDPB Opinion 28/2024 the summary only, not paragraphs 55 and 58, which are paraphrased from
secondary knowledge. The control map says so.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from dpaudit._numbers import decimals, percent
from dpaudit._outputs import MARKER
from dpaudit.receipts.form import Receipt
from dpaudit.receipts.verifying import Verification

FILL_IN = "FILL IN"

Answer = Literal["evidence in this receipt", "not tested"]


@final
@dataclass(frozen=True, kw_only=True)
class Item:
    """One item of a control map.

    Arguments:
        source: The document.
        number: Number of the item in it.
        topic: What it asks, in a few words.
        answer: Whether the receipt has evidence about it.
        detail: What the evidence is, and its limit.
    """

    source: str
    number: str
    topic: str
    answer: Answer
    detail: str


# ---- what a receipt says ---------------------------------------------------------------------


def facts(checked: Verification) -> list[tuple[str, str]]:
    """What a receipt states, as pairs of a name and a sentence."""
    receipt = checked.receipt
    stated, given = receipt.computed, receipt.given
    power = stated.power
    rows = [
        ("Verdict", _verdict(receipt)),
        ("Claimed", _claimed(receipt)),
        ("Shown", _shown(receipt)),
        ("Tested", f"{stated.unit}; {stated.adjacency}; the adversary sees {_sees(receipt)}"),
        ("Runs", _runs(receipt)),
        ("Date", f"{given.created[:10]}, by the auditor's clock; dpaudit {receipt.dpaudit}"),
        ("Tested when", stated.looks),
    ]
    if power is not None:
        noise, share = _number(power["detect_noise"]), 100 * float(power["probability"])
        alone = power.get("only_noise_varies")
        condition = "" if alone else ", if nothing but noise and canary differs between runs"
        text = f"noise {noise} times as large as claimed is found in {share:.3g} % of such audits"
        rows.append(("Power", text + condition))
    if stated.covers:
        rows.append(("Covers", stated.covers))
    rows += [("Doubt", text) for text in stated.doubts]
    attempts = given.attempts
    rows += [
        (
            "Attempts",
            f"{attempts.same_training:,} of this training, {attempts.same_name:,} of trainings of "
            "its name, as far as known to the auditor's store",
        ),
        ("Registered", "names a plan" if given.plan else "names no plan"),
        ("Receipt", f"{checked.sentence}; SHA-256 {receipt.digest}"),
    ]
    return rows


def risk_rows(receipt: Receipt) -> list[tuple[str, ...]]:
    """Risk terms: what the claim allows and what was shown, one row each."""
    rows = []
    for term in receipt.computed.risk:
        sign = "at most" if term["side"] == "upper" else "at least"
        at = term["at"]
        rows.append(
            (
                f"{'claimed' if term['side'] == 'upper' else 'shown'}: {term['source']}",
                f"{sign} {_number(term['advantage'])}",
                *(f"{sign} {100 * float(point['true_positive_rate']):.3g} %" for point in at),
                *(f"{sign} {_number(point['posterior_odds'])} : 1" for point in at),
            )
        )
    return rows


RISK_HEADER = (
    "",
    "advantage",
    "true positives at 1 % false positives",
    "true positives at 0.1 %",
    "odds after a positive at 1 %",
    "odds at 0.1 %",
)

MEANING = {
    "violation": "The claim is refuted by these scores, at the stated level.",
    "consistent": "The claim is not refuted, and the audit would probably have found noise that is "
    "too small by the stated factor. This is no proof of the claim.",
    "inconclusive": "The audit decides nothing.",
    "no-claim": "Nothing finite was claimed, so that nothing was tested.",
}


def _verdict(receipt: Receipt) -> str:
    word = receipt.computed.verdict
    suspected = " (suspected)" if receipt.computed.suspected else ""
    return f"{word}{suspected}. {MEANING.get(word, '')}"


def _claimed(receipt: Receipt) -> str:
    claim = receipt.computed.claim
    if claim is None:
        return "nothing"
    epsilon, delta = claimed_pair(receipt)
    value = "no finite epsilon" if epsilon is None else f"epsilon <= {_number(epsilon)}"
    assumed = _if(claim.get("assumptions", ()))
    return f"{value} at delta {_number(delta)}: {claim['description']}{assumed}"


def _shown(receipt: Receipt) -> str:
    lower = receipt.computed.lower[0]
    return (
        f"epsilon >= {_number(lower['epsilon'])} at delta {_number(lower['delta'])}, "
        f"{percent(float(lower['confidence']))} % confidence, {lower['method']}"
        f"{_if(lower.get('assumptions', ()))}"
    )


def claimed_pair(receipt: Receipt) -> tuple[float | None, float]:
    """The least upper bound that is stated, and its delta."""
    bounds = [b for b in receipt.computed.upper if isinstance(b["epsilon"], int | float)]
    delta = float(receipt.computed.lower[0]["delta"])
    return min((float(bound["epsilon"]) for bound in bounds), default=None), delta


def _sees(receipt: Receipt) -> str:
    return {
        "standard": "every iterate",
        "hidden state": "only the final model",
        "black box": "only losses or predictions",
    }.get(receipt.computed.threat_model or "", "what the auditor's score was made of")


def _runs(receipt: Receipt) -> str:
    stated = receipt.computed
    fresh = f", {stated.fresh_runs:,} fresh ones" if stated.fresh_runs else ""
    stopped = "" if stated.stopped_at is None else f", stopped after {stated.stopped_at:,}"
    return f"{stated.runs:,} ({stated.failed:,} failed){fresh}{stopped}"


def _if(assumptions: Sequence[str]) -> str:
    return f", if {' and '.join(assumptions)}" if assumptions else ""


def _number(value: Any) -> str:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    if value == 0 or 0.01 <= abs(value) < 1e6:
        return decimals(float(value), 2) if not float(value).is_integer() else f"{value:,.0f}"
    return f"{value:.3g}"


# ---- YAML --------------------------------------------------------------------------------------


def yaml(value: Mapping[str, Any], indent: str = "") -> str:
    """Plain data as YAML; texts are written as in JSON, which is a part of YAML.

    Example:
        >>> print(yaml({"a": {"b": [1, "x: y"]}, "c": None}), end="")
        a:
          b:
            - 1
            - "x: y"
        c: null
    """
    return "".join(f"{indent}{line}\n" for line in _yaml_lines(value))


def _yaml_lines(value: Mapping[str, Any]) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield f"{key}:"
            yield from (f"  {line}" for line in _yaml_lines(item))
        elif isinstance(item, list | tuple) and item:
            yield f"{key}:"
            yield from (f"  - {_scalar(entry)}" for entry in item)
        else:
            yield f"{key}: {_scalar(item)}"


def _scalar(value: Any) -> str:
    """JSON, but 1.0e-05 for 1e-05, which YAML 1.1 reads as text."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


# ---- the documents -----------------------------------------------------------------------------


def model_card(checked: Verification) -> str:
    """A section for a Hugging Face model card: metadata in YAML, and Markdown.

    The metadata belongs into the block at the top of the card; ``privacy_audit`` is no entry that
    the Hub evaluates.
    """
    receipt = checked.receipt
    epsilon, delta = claimed_pair(receipt)
    lower = receipt.computed.lower[0]
    metadata = {
        "tags": ["differential-privacy", "privacy-audit"],
        "privacy_audit": {
            "tool": f"dpaudit {receipt.dpaudit}",
            "verdict": receipt.computed.verdict,
            "delta": delta,
            "claimed_epsilon_at_most": epsilon,
            "shown_epsilon_at_least": lower["epsilon"],
            "confidence": lower["confidence"],
            "assumptions": list(lower.get("assumptions", ())),
            "receipt_sha256": receipt.digest,
        },
    }
    return "\n".join(
        [
            f"---\n# {MARKER}\n{yaml(metadata)}---\n",
            "## Privacy audit\n",
            *_markdown_table(("", ""), facts(checked)),
            "\n### In risk terms\n",
            "Advantage: true-positive rate less false-positive rate of a membership inference "
            "test, at its largest. Odds: that a record was in the training, if both answers were "
            "equally likely before.\n",
            *_markdown_table(RISK_HEADER, risk_rows(receipt)),
            "\n### Not tested\n",
            *(f"- {text}" for text in (*checked.not_checked, NOT_THIS_MODEL)),
            "",
        ]
    )


NOT_THIS_MODEL = (
    "that the released model is the one that was audited, unless the audit ran inside its training"
)


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(_cell(text) for text in row)} |"


def _cell(text: str) -> str:
    """Text of a receipt in a Markdown table: it cannot end a cell, a line, or open HTML."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def registry_entry(checked: Verification) -> str:
    """A draft entry for the Differential Privacy Deployments Registry.

    What an audit knows is filled in; the rest reads ``FILL IN``.
    """
    receipt = checked.receipt
    epsilon, delta = claimed_pair(receipt)
    parameters: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    entry = {
        "url_slug": FILL_IN,
        "status": "Draft",
        "tier": 2,
        "deployment": {
            "basic": {
                "name": FILL_IN,
                "data_curators": [FILL_IN],
                "intended_use": FILL_IN,
                "data_product_type": "Machine learning model",
                "data_product_region": FILL_IN,
                "description": FILL_IN,
                "publication_date": "1900-01-01",
            },
            "dp_variant": {"variant_name": "Approximate DP" if delta > 0 else "Pure DP"},
            "privacy_loss": {
                "privacy_unit": FILL_IN,
                "privacy_unit_details": f"{FILL_IN}. The audit tested: {receipt.computed.unit}; "
                f"{receipt.computed.adjacency}.",
                "privacy_parameters": {**parameters, "delta": delta},
                "privacy_parameters_details": f"As claimed in the audit: {_claimed(receipt)}.",
            },
            "implementation": {
                "mechanisms": FILL_IN,
                "justification": "Audit of the claim. "
                + " ".join(f"{name}: {text.rstrip('.')}." for name, text in facts(checked)),
            },
            "administrative": {
                "notes": "Not tested by the audit: "
                + "; ".join((*checked.not_checked, NOT_THIS_MODEL))
                + ".",
                "registry_authors": [FILL_IN],
            },
        },
    }
    head = (
        f"# {MARKER}\n"
        "# Draft for github.com/opendp/deployments-registry-data, folder deployments; its file "
        "names\n# have lower-case letters, digits and underscores. Replace every FILL IN and the "
        "date.\n"
    )
    return head + yaml(entry)


def control_map(checked: Verification) -> list[Item]:
    """Which items of three documents the receipt has evidence about."""
    receipt = checked.receipt
    decided = receipt.computed.verdict in ("consistent", "violation")
    refuted = receipt.computed.verdict == "violation"
    verdict = (
        "evidence against: verdict violation"
        if refuted
        else (f"verdict {receipt.computed.verdict}")
    )
    shown = _shown(receipt)
    risk = [term for term in receipt.computed.risk if term["side"] == "lower"]
    advantage = (
        f"; advantage at least {_number(risk[-1]['advantage'])}{_if(risk[-1]['assumptions'])}"
        if risk
        else ""
    )

    def item(source: str, number: str, topic: str, detail: str, *, evidence: bool) -> Item:
        answer: Answer = "evidence in this receipt" if evidence else "not tested"
        return Item(source=source, number=number, topic=topic, answer=answer, detail=detail)

    owasp, nist, edpb = "OWASP AISVS 1.0", "NIST SP 800-226 (draft 2023)", "EDPB Opinion 28/2024"
    not_decided = f"the audit decided nothing ({verdict})"
    return [
        item(
            owasp,
            "11.2.4",
            "differentially private optimization on sensitive data",
            f"{verdict} on {_claimed(receipt)}; which data are sensitive, and whether the released "
            "model was trained this way, is not in it"
            if decided
            else not_decided,
            evidence=decided,
        ),
        item(
            owasp,
            "11.2.5",
            "simulated membership inference compared with random guessing",
            f"one adversary, who sees {_sees(receipt)}: {shown}{advantage}; other attacks may "
            "succeed more often",
            evidence=True,
        ),
        item(owasp, "11.2.1 to 11.2.3", "outputs, rate limits, calibration", "", evidence=False),
        item(
            nist,
            "2.2, 2.3",
            "privacy parameters and variant",
            f"claimed: {_claimed(receipt)}; shown: {shown}",
            evidence=decided,
        ),
        item(
            nist,
            "2.4",
            "unit of privacy",
            f"the unit of the test was: {receipt.computed.unit}; whether it fits a person's data "
            "is not in it",
            evidence=False,
        ),
        item(nist, "2.6", "other releases of the same data", "", evidence=False),
        item(nist, "3.2, 3.3", "utility and bias", "", evidence=False),
        item(
            nist,
            "3.5, 4.3",
            "implementation of the mechanism in machine learning",
            f"{verdict}; floating-point and timing attacks are not tested"
            if decided
            else not_decided,
            evidence=decided,
        ),
        item(
            nist,
            "4.2",
            "threat model",
            f"the adversary of the test sees {_sees(receipt)}; whether this is the one of the "
            "deployment is not in it",
            evidence=receipt.computed.threat_model is not None,
        ),
        item(nist, "4.4, 4.5", "data security, access, exposure at collection", "", evidence=False),
        item(
            edpb,
            "55",
            "tests against membership inference",
            f"{shown}{advantage}; scope, number and dates of the runs are in the receipt",
            evidence=True,
        ),
        item(
            edpb,
            "55",
            "tests against attribute inference, exfiltration, regurgitation, inversion, "
            "reconstruction",
            "",
            evidence=False,
        ),
        item(
            edpb,
            "58",
            "documentation of resistance to identification, with metrics",
            f"claimed and shown epsilon, and risk terms: {shown}{advantage}",
            evidence=decided,
        ),
        item(
            edpb,
            "58",
            "impact assessment, advice of the data protection officer, organisational measures",
            "",
            evidence=False,
        ),
    ]


ABOUT_SOURCES = (
    "AISVS was read as of July 2026. Of NIST SP 800-226 only the draft of December 2023 was "
    "available, whose section numbers these are. The text of EDPB Opinion 28/2024, paragraphs 55 "
    "and 58, was not available and is paraphrased. Compare with the documents before you rely on "
    "it. Evidence means that the receipt has something to say, not that a requirement is met."
)


def controls(checked: Verification) -> str:
    """The control map in Markdown."""
    header = ("document", "item", "topic", "answer", "detail")
    rows = [
        (item.source, item.number, item.topic, item.answer, item.detail)
        for item in control_map(checked)
    ]
    head = f"<!-- {MARKER} -->\n\n# Control map of the receipt {checked.receipt.digest[:16]}\n"
    return (
        "\n".join(
            [
                head,
                f"Receipt: {checked.sentence}.\n",
                *_markdown_table(header, rows),
                "",
                ABOUT_SOURCES,
            ]
        )
        + "\n"
    )


def filing_page(checked: Verification) -> str:
    """Two pages of HTML for print: what was found, and the control map."""
    receipt = checked.receipt
    name = receipt.given.name or str(receipt.given.configuration["mechanism"]["name"])
    rows = [(item.source, item.number, item.topic, item.answer) for item in control_map(checked)]
    untested = "".join(f"<li>{_cell(text)}</li>" for text in (*checked.not_checked, NOT_THIS_MODEL))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><!-- {MARKER} -->'
        f"<title>Privacy audit of {_cell(name)}</title><style>{_PRINT}</style>"
        f"<section><h1>Privacy audit of {_cell(name)}</h1>"
        f"{_html_table((), facts(checked))}<h2>In risk terms</h2>"
        f"{_html_table(RISK_HEADER, risk_rows(receipt))}</section>"
        f"<section><h2>Not checked</h2><ul>{untested}</ul><h2>Control map</h2>"
        f"<p>Evidence here is that of the verdict: {_cell(_verdict(receipt))}</p>"
        f"{_html_table(('document', 'item', 'topic', 'answer'), rows)}"
        f"<p>{_cell(ABOUT_SOURCES)}</p></section></html>"
    )


_PRINT = """
@page { size: A4; margin: 14mm }
body { font: 9pt/1.35 system-ui, sans-serif; color: #111; margin: 0 }
h1 { font-size: 15pt } h2 { font-size: 11pt; margin: 10pt 0 3pt }
section + section { break-before: page; page-break-before: always }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: .4pt solid #999; padding: 2pt 4pt; text-align: left; vertical-align: top;
  overflow-wrap: break-word }
td:first-child { font-weight: 600; min-width: 18mm } ul { margin: 0; padding-left: 12pt }
"""


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_cell(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if header else ''}{body}</table>"


DOCUMENTS: Mapping[str, Callable[[Verification], str]] = {
    "model-card": model_card,
    "registry": registry_entry,
    "controls": controls,
    "page": filing_page,
}
"""The documents that are text, by name; ``pdf`` is the page in print."""
