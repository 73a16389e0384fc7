"""Check a receipt: compute everything again that follows from what it states.

What is checked, what is not, and why is the result. Nothing is claimed beyond that: a receipt in
which everything agrees is *internally consistent*. Who made it only a signature says, and whether
its scores come from the training that it names nobody can see in the receipt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

import msgspec
import numpy as np
from msgspec import Meta

from dpaudit import _validate
from dpaudit._numbers import counted
from dpaudit._version import __version__
from dpaudit.audits import Description
from dpaudit.audits.game import coins_of
from dpaudit.errors import DpauditError, InvalidInput, MissingExtra
from dpaudit.receipts.checks import computed_again, core_rules_left_out
from dpaudit.receipts.form import (
    Canaries,
    Case,
    CheckReceipt,
    Given,
    InvalidReceipt,
    Receipt,
    Runs,
    Steps,
    as_plain,
    digest_of,
    failures_in,
    parse,
    read_bytes,
    scores_in,
)
from dpaudit.receipts.making import computed_from, description_of, result_from
from dpaudit.receipts.registering import compare_with_plan, read_plan
from dpaudit.receipts.signing import Signature, check_signature
from dpaudit.scores import Scores, read_scores

Outcome = Literal["consistent", "incomplete", "inconsistent"]
"""``consistent``: all that could be computed again agrees. ``incomplete``: the scores are missing,
so that bounds and verdict were not computed again. ``inconsistent``: something disagrees."""

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Numbers that are computed again may differ by this much between processors and libraries."""

NONSENSE = (
    msgspec.MsgspecError,
    DpauditError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What evaluating a receipt raises that is of the right form and makes no sense."""

MOST_NAMED = 6
"""So many differences are named."""

RECOMPUTED = ("bounds and verdict", "verdicts of the rules")
"""The checks that compute again what a receipt of an audit, or of a check, is about."""

_DIGEST = {
    True: "the content is the one that was written",
    False: "the content was changed after it was written",
}

NOT_CHECKED = (
    "that the training, data and code named in the receipt are those that were played",
    "that the scores come from these trainings",
    "that no other audits were made, beside those that the auditor's store knew",
    "that clocks, software and hardware were as stated",
)
"""What no receipt of an audit can show by itself."""

NOT_CHECKED_OF_CHECKS = (
    "the findings themselves, which the same check of the same code shows again",
    "that the code is the one with the stated digest",
    "that clocks, software and hardware were as stated",
)
"""What no receipt of a check can show by itself."""


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was compared.

    Arguments:
        name: What.
        passed: Whether it agrees; `None` if it was not checked.
        detail: What was compared, what differs, or why it was not checked.
    """

    name: str
    passed: bool | None
    detail: str


@final
@dataclass(frozen=True, kw_only=True)
class Verification:
    """What checking a receipt gave.

    Arguments:
        document: The receipt, of an audit or of a check.
        checks: Everything that was compared, or could not be.
        signature: Who signed it; `None` without a valid signature.
    """

    document: Receipt | CheckReceipt
    checks: tuple[Check, ...]
    signature: Signature | None = None

    @property
    def receipt(self) -> Receipt:
        """The receipt, if it is of an audit; `InvalidInput` if it is of a check."""
        if isinstance(self.document, CheckReceipt):
            raise InvalidInput(
                "the receipt must be of an audit, whose scores show an epsilon, and this one is of "
                "a check of rules"
            )
        return self.document

    @property
    def outcome(self) -> Outcome:
        """The outcome in one word; see `Outcome`."""
        if any(check.passed is False for check in self.checks):
            return "inconsistent"
        recomputed = [check.passed for check in self.checks if check.name in RECOMPUTED]
        return "consistent" if True in recomputed else "incomplete"

    @property
    def sentence(self) -> str:
        """The outcome, and what is known about the origin."""
        if self.outcome == "inconsistent":
            return (
                "inconsistent: it was changed, was not written by dpaudit, or another version "
                "computes something else"
            )
        origin = "origin unknown" if self.signature is None else self.signature.sentence
        if self.outcome == "incomplete":
            return f"not computed again, because scores are missing; {origin}"
        return f"internally consistent, {origin}"

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What was not checked, with the reason where there is one."""
        own = [f"{c.name}: {c.detail}" for c in self.checks if c.passed is None]
        of_check = isinstance(self.document, CheckReceipt)
        return (*own, *(NOT_CHECKED_OF_CHECKS if of_check else NOT_CHECKED))

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The verdict that the receipt states; of a field run one for each way of use."""
        if isinstance(self.document, CheckReceipt):
            return tuple(case.verdict for case in self.document.cases)
        return (self.document.computed.verdict,)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "outcome": self.outcome,
            "sentence": self.sentence,
            "verdicts": list(self.verdicts),
            "checks": [vars(check) for check in self.checks],
            "signature": None if self.signature is None else as_plain(self.signature),
            "not_checked": list(self.not_checked),
        }


def verify(
    path: str | Path,
    *,
    scores: Sequence[str | Path] = (),
    signature: str | Path | None = None,
    signer: str | Path | None = None,
    plan: str | Path | None = None,
) -> Verification:
    """Check a receipt: signature, digests, coins, and every bound and verdict from the scores.

    See also: `dpaudit.receipts.receipt_of`, which makes one.

    Arguments:
        path: The receipt.
        scores: Files of scores, if the receipt holds only their digest: of the first runs, and of
            the fresh ones if there are any, in any order.
        signature: A detached signature by ``ssh-keygen -Y sign``; by default the file
            ``PATH.sig``, if there is one.
        signer: The public key that must have signed it, or a file of allowed signers.
        plan: The plan that was registered beforehand.
    """
    content = read_bytes(path)
    document = parse(content, Receipt, CheckReceipt, name=str(path))
    assert isinstance(document, Receipt | CheckReceipt)
    valid, words, signed = check_signature(Path(path), content, signature, signer)
    agrees = document.digest == document.correct_digest
    checks = [
        Check(name="signature", passed=valid, detail=words),
        Check(name="digest", passed=agrees, detail=_DIGEST[agrees]),
    ]
    if isinstance(document, Receipt):
        checks += _checks(document, [(str(file), read_scores(file)) for file in scores])
        checks += _as_registered(document.given, plan)
        checks.append(Check(name="attempts", passed=None, detail=_attempts(document.given)))
    elif scores or plan is not None:
        raise InvalidInput(f"{path} is the receipt of a check: leave out scores and plan")
    else:
        checks += [_case_again(case) for case in document.cases]
    return Verification(document=document, checks=tuple(checks), signature=signed)


def _as_registered(given: Given, plan: str | Path | None) -> Iterator[Check]:
    """Whether the audit is the one that was planned."""
    name = "registered beforehand"
    if plan is not None:
        registered = read_plan(plan)
        try:
            for passed, detail in compare_with_plan(given, registered):
                yield Check(name=name, passed=passed, detail=detail)
        except NONSENSE as error:
            yield Check(name=name, passed=False, detail=_reason(error))
    elif given.plan is not None:
        detail = f"the receipt names the plan {given.plan[:16]}; give it with --registered"
        yield Check(name=name, passed=None, detail=detail)
    else:
        detail = "the receipt names no plan: this may be one of several audits"
        yield Check(name=name, passed=None, detail=detail)


def _case_again(case: Case) -> Check:
    """The verdict of a check from its findings."""
    name = RECOMPUTED[1]
    try:
        left_out = ", ".join(core_rules_left_out(case))
        again = computed_again(case)
    except NONSENSE as error:
        return Check(name=name, passed=False, detail=_reason(error))
    differences = [text for text, _ in _differences(as_plain(case), as_plain(again))]
    if left_out:
        differences.append(f"core rules are left out: {left_out}")
    stated = f"{case.name}: {case.verdict}"
    if not differences and "findings" not in case.evidence:
        return Check(name=name, passed=None, detail=f"{stated}, a test whose scores are not here")
    follows = f"{stated}, as follows from its findings"
    detail = "; ".join(differences[:MOST_NAMED]) or follows
    return Check(name=name, passed=not differences, detail=detail)


def _attempts(given: Given) -> str:
    attempts = given.attempts
    return (
        f"the auditor's store knew {counted(attempts.same_training, 'audit')} of this training, "
        f"and {attempts.same_name:,} of trainings of its name ({attempts.unfinished:,} unfinished)"
    )


def _checks(receipt: Receipt, files: Sequence[tuple[str, Scores]]) -> list[Check]:
    given = receipt.given
    try:
        _check_sizes(given)
        description = description_of(given)
        tables, checks = _tables(given, files)
        missing = [phase for phase in given.phases if phase.phase not in tables]
        if not missing:
            checks.append(_check_coins(given, description, tables))
    except NONSENSE as error:
        return [Check(name="settings", passed=False, detail=_reason(error))]
    if missing:
        reason = "scores are missing; give them with --scores FILE"
        checks.append(Check(name="bounds and verdict", passed=None, detail=reason))
        return checks
    return [*checks, *_computed_again(receipt, tables)]


class _Training(msgspec.Struct):
    steps: Steps = 0


class _Configuration(msgspec.Struct):
    """The settings that decide how much memory an evaluation takes, each with its limit."""

    runs: Runs
    canaries: Canaries
    seed: Annotated[int, Meta(ge=0)]
    horizons: tuple[Steps, ...]
    mechanism: _Training


class _Claim(msgspec.Struct):
    epsilons: Annotated[tuple[Any, ...], Meta(max_length=10**4)] | None = None


class _Question(msgspec.Struct):
    claim: _Claim | None = None


def _check_sizes(given: Given) -> None:
    """Refuse settings whose evaluation would fill the memory, and what no audit has."""
    msgspec.convert(given.configuration, _Configuration)
    msgspec.convert(given.question, _Question)
    _validate.label("name", given.name)
    failed = [failure for phase in given.phases for failure in phase.failures]
    if sum(failure.canaries for failure in failed) > 10**7:
        raise InvalidReceipt("failed runs must have at most 10,000,000 canaries together")
    if any(failure.inserted > failure.canaries for failure in failed):
        raise InvalidReceipt("a failed run must have at most as many insertions as canaries")
    if [phase.phase for phase in given.phases] not in ([0], [0, 1]):
        raise InvalidReceipt("phases must be 0, or 0 and 1")


def _tables(
    given: Given, files: Sequence[tuple[str, Scores]]
) -> tuple[dict[int, Scores], list[Check]]:
    """The scores of each phase, from the receipt or from files with the stated digest."""
    by_digest = {digest_of(scores): (name, scores) for name, scores in files}
    tables: dict[int, Scores] = {}
    checks, used = [], set()
    for phase in given.phases:
        what = "fresh scores" if phase.phase else "scores"
        if phase.table is not None:
            scores, place = scores_in(phase.table), "in the receipt"
        elif phase.digest in by_digest:
            name, scores = by_digest[phase.digest]
            place = f"in {name}"
        else:
            detail = f"the receipt holds only their digest, {phase.digest[:16]}"
            checks.append(Check(name=what, passed=None, detail=detail))
            continue
        used.add(digest_of(scores))
        agrees = (digest_of(scores), len(scores), scores.runs) == (
            phase.digest,
            phase.scores,
            phase.runs,
        )
        words = "fit" if agrees else "do not fit"
        detail = f"{len(scores):,} scores {place} {words} the stated digest"
        checks.append(Check(name=what, passed=agrees, detail=detail))
        tables[phase.phase] = scores
    for digest, (name, _) in by_digest.items():
        if digest not in used:
            detail = f"{name} holds scores of another audit"
            checks.append(Check(name="scores", passed=False, detail=detail))
    return tables, checks


def _check_coins(given: Given, description: Description, tables: Mapping[int, Scores]) -> Check:
    """Whether runs, canaries and coins are those that the seed gives."""
    name, problem = "runs and coins", ""
    if description.live:
        secret = "the seed of a live audit is secret, like its noise: coins were not checked"
        return Check(name=name, passed=None, detail=secret)
    for phase in given.phases:
        sample, scores = description.sample(phase.phase), tables[phase.phase]
        failed = failures_in(phase)
        in_range = scores.run.min() >= 0 and scores.run.max() < sample.runs
        in_range &= scores.canary.min() >= 0 and scores.canary.max() < description.canaries
        if not in_range or any(failure.run >= sample.runs for failure in failed):
            problem = "there are runs or canaries beyond those of the settings"
            break
        runs = np.unique(scores.run)
        try:
            every = coins_of(
                description, sample, [*runs.tolist(), *(failure.run for failure in failed)]
            )
        except (ImportError, MissingExtra):
            return Check(name=name, passed=None, detail="this takes torch, which is not installed")
        rows = np.searchsorted(runs, scores.run)
        if not np.array_equal(every[rows, scores.canary], scores.inserted):
            problem = "the labels are not the coins of the stated seed"
        lost = every[len(runs) :].sum(axis=1)
        if any(int(coins) != failure.inserted for coins, failure in zip(lost, failed, strict=True)):
            problem = "the labels of failed runs are not the coins of the stated seed"
    detail = problem or "all labels are the coins of the stated seed"
    return Check(name=name, passed=not problem, detail=detail)


def _computed_again(receipt: Receipt, tables: Mapping[int, Scores]) -> Iterator[Check]:
    """Every bound, the test, the verdict and the risk terms, from the scores."""
    name = "bounds and verdict"
    try:
        again = as_plain(computed_from(result_from(receipt.given, tables)))
    except NONSENSE as error:
        yield Check(name=name, passed=False, detail=_reason(error))
        return
    differences = list(_differences(as_plain(receipt.computed), again))
    same_version = receipt.dpaudit == __version__
    numbers = [text for text, words_only in differences if same_version or not words_only]
    words = [text for text, words_only in differences if words_only and not same_version]
    listed = "; ".join(numbers[:MOST_NAMED])
    more = f"; and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    by = (
        "" if same_version else f" (written by dpaudit {receipt.dpaudit}, checked by {__version__})"
    )
    agrees = f"computed again from the scores, all equal to a relative {RELATIVE:g}"
    yield Check(name=name, passed=not numbers, detail=f"{listed or agrees}{more}{by}")
    if words:
        detail = f"{len(words)} sentences of another version of dpaudit read differently"
        yield Check(name="wording", passed=None, detail=detail)


def _differences(stated: Any, again: Any, where: str = "") -> Iterator[tuple[str, bool]]:
    """Where two plain values differ, and whether only in words."""
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in sorted({*stated, *again}):
            place = f"{where}.{key}" if where else str(key)
            if key not in stated or key not in again:
                yield f"{place} is {'missing' if key in again else 'unknown'}", False
            else:
                yield from _differences(stated[key], again[key], place)
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for number, pair in enumerate(zip(stated, again, strict=True)):
            yield from _differences(*pair, f"{where}[{number}]")
    elif not _equal(stated, again):
        texts = isinstance(stated, str) and isinstance(again, str)
        words_only = texts and len(stated.split()) > 1
        yield f"{where} is {_short(stated)}, computed {_short(again)}", words_only


def _equal(stated: Any, again: Any) -> bool:
    numbers = (int, float)
    if isinstance(stated, bool) or isinstance(again, bool):
        return stated is again
    if isinstance(stated, numbers) and isinstance(again, numbers):
        return math.isclose(stated, again, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(stated == again)


def _short(value: Any) -> str:
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"it cannot be evaluated: {text if len(text) <= 300 else text[:297] + '...'}"
