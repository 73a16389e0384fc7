"""``dpaudit verify``, ``combine`` and ``document``: evidence for others."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit import _validate
from dpaudit._numbers import decimals
from dpaudit._outputs import write_output
from dpaudit._validate import printable
from dpaudit.cli._exit import decided
from dpaudit.cli._options import Json, Overwrite, check_files, option
from dpaudit.cli._output import console, print_json, writing
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.receipts import CheckReceipt, Receipt, Verification

ReceiptOut = Annotated[
    Path | None,
    option(
        "Also write a receipt to this file: evidence that dpaudit verify checks.",
        "FILE.receipt.json",
    ),
]
IncludeScores = Annotated[
    bool | None,
    typer.Option(
        "--include-scores/--digest-only",
        help="Whether the receipt holds the scores, or only their digest. A live audit has no "
        "scores to include.",
        show_default="included, unless the audit is a live one",
    ),
]
PlanToName = Annotated[
    Path | None,
    option("Plan that was registered: the audit must be this one.", "PLAN.json"),
]

_CODES = {"consistent": 0, "inconsistent": 1, "incomplete": 3}
_MARKS = {True: "agrees", False: "DIFFERS", None: "open"}


def verify(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="The receipt to check.")],
    scores: Annotated[
        list[Path] | None,
        option(
            "Scores, if the receipt holds only their digest; twice if there are fresh runs.",
            "SCORES.csv",
        ),
    ] = None,
    signature: Annotated[
        Path | None,
        option("Signature of ssh-keygen -Y sign.", "FILE.sig", "RECEIPT.sig, if it is there"),
    ] = None,
    signer: Annotated[
        Path | None,
        option("Public key that must have signed it, or a file of allowed signers.", "KEY.pub"),
    ] = None,
    registered: Annotated[
        Path | None, option("The plan that was registered beforehand.", "PLAN.json")
    ] = None,
    json: Json = False,
) -> None:
    """Check a receipt: compute every bound and the verdict again.

    A receipt in which everything agrees is internally consistent. Anybody can
    write one; only a signature says who did.

    [bold]dpaudit verify audit.receipt.json[/]

    [bold]dpaudit verify audit.receipt.json --signer auditor.pub[/]

    Exit code 0: consistent, whatever the audit's verdict is; 1: something
    differs; 3: scores are missing, so that bounds were not computed again.
    """
    from dpaudit.receipts import verify as check

    result = check(
        receipt, scores=scores or (), signature=signature, signer=signer, plan=registered
    )
    if json:
        print_json({"receipt": str(receipt), **result.to_dict()})
    else:
        _print_verification(result, str(receipt))
    raise typer.Exit(_CODES[result.outcome])


def combine(
    receipts: Annotated[
        list[Path], typer.Argument(metavar="RECEIPT...", help="Receipts about the same claim.")
    ],
    json: Json = False,
) -> None:
    """Combine the receipts of several independent audits of one claim.

    Each is checked first. Their e-values multiply: 1,000 proves a violation, 20
    is a suspicion. A small product does not show that the claim is true. Audits
    that share runs, seeds or scores are refused. Combine all audits that were
    made: choosing among them by their results invalidates the product.

    [bold]dpaudit combine a.receipt.json b.receipt.json[/]
    """
    from dpaudit.receipts import combine as multiply

    result = multiply(receipts)
    code = decided(result.verdict)
    if json:
        print_json({"receipts": [str(receipt) for receipt in receipts], **result.to_dict()})
        raise typer.Exit(code)
    screen = console()
    word = f"{result.verdict}, suspected" if result.suspected else result.verdict
    screen.print(f"{word.upper()}   {len(receipts)} audits of {result.claim}", style="bold")
    product = " x ".join(f"{value:.3g}" for value in result.e_values)
    screen.print(f"e-value {product} = {result.e_value:,.4g}, p <= {result.p_value:.2g}")
    for text in (*(f"Assumes: {assumption}." for assumption in result.assumptions), *result.notes):
        screen.print(_hanging(text, 2))
    raise typer.Exit(code)


def document(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="The receipt.")],
    kind: Annotated[
        str,
        option("Which document to make.", "model-card|registry|controls|page|pdf"),
    ] = "model-card",
    out: Annotated[
        Path | None, option("File to write.", "FILE", "standard output, except of pdf")
    ] = None,
    scores: Annotated[
        list[Path] | None,
        option("Scores, if the receipt holds only their digest.", "SCORES.csv"),
    ] = None,
    signer: Annotated[
        Path | None, option("Public key that must have signed the receipt.", "KEY.pub")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make a document from a receipt, which is checked first.

    model-card: a section for a Hugging Face model card; registry: a draft entry
    for the DP Deployments Registry; controls: which items of OWASP AISVS, NIST
    SP 800-226 and EDPB Opinion 28/2024 the receipt has evidence about; page and
    pdf: two pages to file.

    [bold]dpaudit document audit.receipt.json --kind controls[/]

    [bold]dpaudit document audit.receipt.json --kind pdf --out audit.pdf[/]
    """
    check_files(locals(), "out")
    from dpaudit.receipts import verify as check
    from dpaudit.receipts.documents import DOCUMENTS
    from dpaudit.receipts.printing import pdf_of

    _validate.one_of("--kind", kind, (*DOCUMENTS, "pdf"))
    if out is None and kind == "pdf":
        raise InvalidInput("--out is needed for a PDF, such as --out audit.pdf")
    checked = check(receipt, scores=scores or (), signer=signer)
    if checked.outcome != "consistent":
        raise InvalidInput(
            f"a document needs a receipt that is consistent, and {receipt} is {checked.sentence}; "
            "see dpaudit verify"
        )
    text = DOCUMENTS["page" if kind == "pdf" else kind](checked)
    if out is not None:
        with writing("--out"):
            content = pdf_of(text) if kind == "pdf" else text
            write_output(out, content, name="--out", overwrite=overwrite)
    if json:
        written = None if out is None else str(out)
        body = text if out is None else None
        print_json({"kind": kind, "file": written, "text": body, **checked.to_dict()})
    elif out is None:
        print(printable(text), end="")
    else:
        print(printable(f"{kind} of {receipt} written to {out} ({checked.sentence})."))


def _print_verification(result: Verification, name: str) -> None:
    screen = console()
    screen.print(f"{name}: {result.sentence}", style="bold")
    screen.print(f"It states: {in_one_line(result.document)}\n", markup=False)
    for check in result.checks:
        if check.passed is not None:
            screen.print(_hanging(f"{_MARKS[check.passed]:<8}{check.name}: {check.detail}", 8))
    screen.print("\nNot checked:")
    for text in result.not_checked:
        screen.print(_hanging(f"- {text}", 2))


def _hanging(text: str, indent: int) -> str:
    return textwrap.fill(printable(text), 80, subsequent_indent=" " * indent)


def in_one_line(document: Receipt | CheckReceipt) -> str:
    """What was checked with its verdict; of an audit also what was shown and what was claimed."""
    from dpaudit.receipts import CheckReceipt

    if isinstance(document, CheckReceipt):
        counts = Counter(case.verdict for case in document.cases)
        verdicts = ", ".join(f"{verdict} ({count})" for verdict, count in counts.items())
        return printable(f"{document.subject}: {verdicts}")
    stated, lower = document.computed, document.computed.lower[0]
    claim = "" if stated.claim is None else f", claimed {stated.claim.get('description')}"
    shown = f"epsilon >= {_number(lower.get('epsilon'))} at delta {_number(lower.get('delta'))}"
    return printable(f"{stated.verdict}; shown {shown}{claim}")


def _number(value: Any) -> str:
    if isinstance(value, int | float):
        return decimals(float(value), 2) if value >= 0.01 else f"{value:g}"
    return str(value)


def write_receipt(record: Any, path: Path, *, overwrite: bool, **asked: Any) -> None:
    """Write the receipt of a stored audit."""
    from dpaudit.receipts import receipt_of

    receipt_of(record, **asked).write(path, overwrite=overwrite)


def plan_of(path: Path, configuration: Mapping[str, Any], question: Mapping[str, Any]) -> str:
    """The digest of a registered plan; `InvalidInput` if it is of another audit."""
    from dpaudit.receipts.registering import differences_from, read_plan

    plan = read_plan(path)
    differences = differences_from(plan, configuration, question)
    if differences:
        raise InvalidInput(
            f"--registered must be the plan of this audit, got {str(path)!r}: "
            f"{'; '.join(differences)}"
        )
    return plan.digest
