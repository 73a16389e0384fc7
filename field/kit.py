"""Cases: one way of using one library, what it claims, and the evidence that dpaudit finds.

    from field.kit import case

    @case("flat clipping", claims="noise multiplier 1, clip norm 1")
    def flat():
        return check_step(private_step, clip_norm=1.0, noise_multiplier=1.0)

A case returns a result of dpaudit: of `check_step`, `check_training`, `audit`, `live_audit`,
`test_claim` or `check_pipeline`. Its status follows from that result alone:

- ``kept``: the rules passed, or the claim is consistent with the evidence;
- ``broken``: a rule is broken, or the claim is violated (confirmed, see docs/after-a-verdict.md);
- ``cannot tell``: anything else, also an exception, with its text.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpaudit import receipts
from dpaudit.checks import RULES

Status = Literal["kept", "broken", "cannot tell"]


@dataclass(frozen=True)
class Case:
    """One way of using a library.

    Attributes:
        name: Name of the function that makes the evidence.
        way: The way of using the library, in a few words.
        claims: What the library or its accountant claims for it.
        run: Makes the evidence.
        expected: The status that the authors of this case understand from the code of the library;
            a result that differs is shown as a surprise.
        cause: Why the claim is broken, with file and line, for the report to the maintainers.
        class_of_bug: The cause without the library's name, for the page.
        public: Where the cause is public already: an issue, a paper, a merged repair.
    """

    name: str
    way: str
    claims: str
    run: Callable[[], Any]
    expected: Status = "kept"
    cause: str = ""
    class_of_bug: str = ""
    public: str = ""


def case(
    way: str, *, claims: str, **facts: Any
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Mark a function without arguments as a case of its adapter."""

    def marked(run: Callable[[], Any]) -> Callable[[], Any]:
        run.case = Case(run.__name__, way, claims, run, **facts)  # type: ignore[attr-defined]
        return run

    return marked


def cases_of(adapter: Path) -> Iterator[Case]:
    """The cases of an adapter, in order."""
    spec = importlib.util.spec_from_file_location(f"field_adapter_{adapter.stem}", adapter)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for value in list(vars(module).values()):
        if isinstance(getattr(value, "case", None), Case):
            yield value.case


def evidence_of(result: Any) -> dict[str, Any]:
    """Status, claimed and shown epsilon and what is broken, of any result of dpaudit."""
    verdict = str(getattr(result, "verdict", ""))
    statuses: dict[str, Status] = {
        "passed": "kept",
        "consistent": "kept",
        "broken": "broken",
        "violation": "broken",
    }
    found: dict[str, Any] = {
        "status": statuses.get(verdict, "cannot tell"),
        "verdict": verdict,
        "by": "test of the claim",
    }
    broken = getattr(result, "broken", None)
    if broken is not None:
        of_a_step = result.findings[0].rule in RULES
        found["by"] = "`check`" if of_a_step else "`check --pipeline`"
        found["broken"] = [
            {"rule": finding.rule.name, "explanation": finding.explanation} for finding in broken
        ]
        found["not_tested"] = [finding.rule.name for finding in result.not_tested]
        found["checked"] = result.to_dict()
    if hasattr(result, "least_upper"):
        found["by"] = "audit"
        found["claimed_epsilon"] = round(result.least_upper.value, 4)
        found["shown_epsilon"] = round(result.leading.value, 4)
    if isinstance(getattr(result, "p_value", None), float):  # a test of a claim
        found["p_value"] = float(f"{result.p_value:.2g}")
    return found


def run_case(this: Case) -> dict[str, Any]:
    """The evidence of one case as plain data; an exception is an answer, too."""
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = this.run()
        evidence = result if isinstance(result, dict) else evidence_of(result)
    except Exception as error:
        evidence = {
            "status": "cannot tell",
            "verdict": "error",
            "error": f"{type(error).__name__}: {error}"[:400],
            "traceback": traceback.format_exc(limit=-3)[-1500:],
        }
    facts = {
        "name": this.name,
        "way": this.way,
        "claims": this.claims,
        "expected": this.expected,
        "cause": this.cause,
        "class_of_bug": this.class_of_bug,
        "public": this.public,
    }
    return facts | evidence | {"seconds": round(time.perf_counter() - started, 1)}


NUMBERS = ("verdict", "claimed_epsilon", "shown_epsilon", "p_value", "error")
"""What a receipt has of a case without findings."""


def main(adapter: str, out: str, subject: str, code: str) -> None:
    """Run all cases of an adapter, write their evidence as JSON, and their receipt beside it.

    Arguments:
        adapter: The file of the adapter.
        out: The file that is written.
        subject: The library and its version.
        code: Digest of everything that may change a result.
    """
    found, cases = [], []
    for this in cases_of(Path(adapter)):
        print(f"  {this.way}: ", end="", flush=True)
        evidence = run_case(this)
        print(evidence["status"], f"({evidence['seconds']:.0f} s)", evidence.get("error", ""))
        numbers = {name: evidence[name] for name in NUMBERS if name in evidence}
        cases.append(
            receipts.Case(
                name=this.way,
                settings={"claims": this.claims},
                verdict=evidence["verdict"],
                evidence=evidence.pop("checked", numbers),
            )
        )
        found.append(evidence)
    Path(out).write_text(json.dumps(found, indent=1) + "\n")
    receipt = receipts.receipt_of_cases(subject, cases, code=code)
    receipt.write(Path(out).with_suffix(".receipt.json"), overwrite=True)


if __name__ == "__main__":
    # The adapters import `field.kit`, which is another module than `__main__`.
    from field.kit import main as main_of_the_module

    main_of_the_module(*sys.argv[1:])
