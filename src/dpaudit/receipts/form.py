"""The form of a receipt: typed data, one canonical JSON text, and its published schema.

A receipt of an audit has two parts. ``given`` is what the auditor recorded: settings, question,
scores and where they were played. ``computed`` follows from it, and `dpaudit.receipts.verifying`
computes it again. The digest at the end finds accidents; anybody can compute it, so that only a
signature finds forgery.

Receipts come from strangers. Reading one runs no code and opens no other file. msgspec refuses what
is unknown or of another type; what is too large, or not the canonical text of its content (a key
twice, another order, a number written otherwise), is refused here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, final

import msgspec
import numpy as np
from msgspec import Meta

from dpaudit import _validate
from dpaudit._inputs import open_input
from dpaudit._outputs import write_output
from dpaudit._validate import printable
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.scores import Failure, Scores
from dpaudit.scores.store import canonical_json

LARGEST_FILE = 64 * 2**20
"""Bytes of the largest receipt or plan that is read."""

MOST_SCORES_INSIDE = 1_000_000
"""A receipt of more scores holds their digest only."""

Plain = Mapping[str, Any]
"""Named plain values: text, numbers, truth values, lists and further mappings."""

Runs = Annotated[int, Meta(ge=0, le=10**8)]
Steps = Annotated[int, Meta(ge=0, le=10**6)]
Canaries = Annotated[int, Meta(ge=0, le=10**6)]
"""Larger settings are refused: a stranger's receipt must not fill the memory."""


class InvalidReceipt(InvalidInput):
    """A file that is not a receipt, or not one that this version of dpaudit can read."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a document."""


class Document(Part, frozen=True, kw_only=True):
    """A file with a digest, which is handed to others.

    Every kind has the fields ``format`` and ``version``, which can have one value only; a change of
    meaning raises the version.

    Arguments:
        dpaudit: Version of dpaudit that wrote it.
        digest: SHA-256 of the canonical text of everything else.
    """

    dpaudit: str
    digest: str = ""

    @property
    def correct_digest(self) -> str:
        """The digest that the content has."""
        plain = as_plain(self)
        del plain["digest"]
        return text_digest(plain)

    def sealed(self) -> Self:
        """The document with the digest of its content."""
        return msgspec.structs.replace(self, digest=self.correct_digest)

    def text(self) -> str:
        """The canonical JSON text: sorted keys, no spaces, one line."""
        return canonical_json(as_plain(self)) + "\n"

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the canonical text to a file, whole or not at all.

        Arguments:
            path: The file; an existing one that dpaudit did not write is refused.
            overwrite: Replace any existing file.
        """
        return write_output(path, self.text(), overwrite=overwrite)


@final
class Table(Part, frozen=True, kw_only=True):
    """Scores in the order of the store; ``run`` and ``canary`` are left out where they count up.

    Arguments:
        score: The scores; infinities are the texts "inf" and "-inf".
        inserted: One character for each score: 1 with the canary, 0 without it.
        run: Number of the run of each score.
        canary: Number of the canary of each score.
    """

    score: tuple[float | Literal["inf", "-inf"], ...]
    inserted: str
    run: tuple[int, ...] | None = None
    canary: tuple[int, ...] | None = None


@final
class FailedRun(Part, frozen=True, kw_only=True):
    """One training that failed. Its traceback stays in the store: it may name files."""

    run: Runs
    inserted: Canaries
    canaries: Canaries
    error: str


@final
class Phase(Part, frozen=True, kw_only=True):
    """The scores of one phase of an audit, at the end of training.

    Arguments:
        phase: 0 for the runs that were asked for, 1 for the fresh runs that confirm a suspicion.
        runs: Number of runs with scores.
        scores: Number of scores.
        digest: SHA-256 of the scores; see `digest_of`.
        table: The scores; `None` if they are kept elsewhere.
        failures: The runs that failed.
    """

    phase: Annotated[int, Meta(ge=0, le=1)]
    runs: Runs
    scores: int
    digest: str
    table: Table | None = None
    failures: tuple[FailedRun, ...] = ()


@final
class Given(Part, frozen=True, kw_only=True):
    """What the auditor recorded. Nothing here can be computed from the rest of the receipt.

    Arguments:
        audit: Identity of the audit in its store.
        name: Its name, if it has one.
        created: When it began, by the clock of that machine (UTC).
        finished: When it ended.
        call: The command that was called.
        configuration: Everything that decided the scores: training, data, adversary, seeds.
        question: The claim and what else was asked of the scores.
        facts: What the first trainings showed: the adversary, what the canaries cover, doubts.
        phases: The scores.
        sessions: Software and device of each session.
        played_on: Machines, each with the number of tiles that it played.
        horizon: Number of steps after which the scores were taken; 0 if the training decides.
        attempts: Audits that this store knew when the receipt was written.
        plan: Digest of the plan that was registered beforehand, if one was named.
        asked_afterwards: Whether the claim was chosen after the audit, so that no fresh runs can
            confirm a suspicion.
    """

    audit: str
    name: str | None = None
    created: str
    finished: str | None
    call: str
    configuration: Plain
    question: Plain
    facts: Plain
    phases: tuple[Phase, ...]
    sessions: tuple[Plain, ...]
    played_on: Plain
    horizon: Steps
    attempts: Attempts
    plan: str | None = None
    asked_afterwards: bool = False


@final
class Attempts(Part, frozen=True, kw_only=True):
    """How many audits the store knew when the receipt was written, this one included.

    Other stores, and audits that were deleted, are not known.

    Arguments:
        same_training: Of the same training: the same code, data and settings.
        same_name: Of a training with the same name, edited versions included.
        unfinished: Those of ``same_name`` that were not finished.
    """

    same_training: int
    same_name: int
    unfinished: int


@final
class Computed(Part, frozen=True, kw_only=True):
    """What follows from the given part, computed by dpaudit.

    Arguments:
        verdict: violation, consistent, inconclusive or no-claim.
        suspected: Whether the scores speak against the claim without proving a violation.
        claim: The claim as a trade-off function, with how it was read; `None` if there is none.
        lower: Lower bounds, as ``dpaudit estimate --json`` prints them; the first one leads.
        upper: Upper bounds of the accountants, or the claimed one.
        test: P-value, level, stage and assumptions of the test; `None` without a claim.
        power: What the test could have found; `None` without a claim.
        tensors: The test of each named canary.
        doubts: Reasons why the verdict cannot be ``consistent``.
        bare_verdict: The verdict on the claimed pair alone, if it was extended to a function.
        tightness: How close the lower bound comes to the upper bound.
        threat_model: What the adversary sees; `None` if only the auditor knows.
        unit: What was inserted or left out.
        adjacency: How neighbouring data sets differ.
        covers: The part of the model that the canaries test, in words.
        looks: When the scores were tested.
        runs: Number of runs that the bounds use, failed ones included.
        asked: Number of runs that was fixed beforehand, or the largest number.
        failed: Number of failed runs.
        fresh_runs: Number of fresh runs that were tested.
        stopped_at: Runs after which a violation was proven, if the audit could stop then.
        risk: Risk terms of the claim and of what was shown; see `dpaudit.claims.risk`.
    """

    verdict: str
    suspected: bool
    claim: Plain | None
    lower: tuple[Plain, ...]
    upper: tuple[Plain, ...]
    test: Plain | None
    power: Plain | None
    tensors: Plain
    doubts: tuple[str, ...]
    bare_verdict: str | None
    tightness: str | None
    threat_model: str | None
    unit: str
    adjacency: str
    covers: str
    looks: str
    runs: int
    asked: int
    failed: int
    fresh_runs: int
    stopped_at: int | None
    risk: tuple[Plain, ...]


@final
class Receipt(Document, frozen=True, kw_only=True):
    """The evidence of one audit, which somebody else can check.

    See also: `receipt_of`, which makes one; `verify`, which checks one.

    Arguments:
        format: Always ``dpaudit-receipt``.
        version: Version of the form.
        given: What the auditor recorded.
        computed: What follows from it.
    """

    format: Literal["dpaudit-receipt"] = "dpaudit-receipt"
    version: Literal[1] = 1
    given: Given
    computed: Computed


@final
class Case(Part, frozen=True, kw_only=True):
    """What was found about one training, step or pipeline, without scores.

    Arguments:
        name: What was checked.
        settings: What it claims, and how it was checked.
        verdict: Verdict of the check, or of the test of a claim.
        evidence: The findings as ``dpaudit check --json`` prints them; of another test its numbers.
    """

    name: str
    settings: Plain
    verdict: str
    evidence: Plain


@final
class CheckReceipt(Document, frozen=True, kw_only=True):
    """What the check of a training found about the rules of private training.

    See also: `dpaudit.receipts.receipt_of_check`, which makes one; `verify`, which checks one.

    Arguments:
        format: Always ``dpaudit-check-receipt``.
        version: Version of the form.
        subject: What was checked.
        code: Digest of its code; empty if the code could not be read.
        call: The command that was called.
        created: When, by the clock of that machine (UTC).
        session: Software and device.
        cases: What was found.
    """

    format: Literal["dpaudit-check-receipt"] = "dpaudit-check-receipt"
    version: Literal[1] = 1
    subject: str
    code: str
    call: str
    created: str
    session: Plain
    cases: tuple[Case, ...]


# ---- text and digests ------------------------------------------------------------------------


def text_digest(plain: Plain) -> str:
    """SHA-256 of plain data in canonical JSON.

    Example:
        >>> text_digest({"steps": 1.0}) == text_digest({"steps": 1})
        True
    """
    return hashlib.sha256(canonical_json(plain).encode()).hexdigest()


def digest_of(scores: Scores) -> str:
    """SHA-256 of scores: of run, canary, label and score of each row, sorted by run and canary.

    Example:
        >>> table = Scores(score=[1.0, 0.5], inserted=[1, 0])
        >>> digest_of(table) == digest_of(table.where(np.array([1, 0], dtype=bool)))
        False
        >>> digest_of(table)[:8]
        '7f3a83e7'
    """
    order = np.lexsort((scores.canary, scores.run))
    columns = np.stack(
        [
            scores.run[order].astype("<i8"),
            scores.canary[order].astype("<i8"),
            scores.inserted[order].astype("<i8"),
            (scores.score[order] + 0.0).astype("<f8").view("<i8"),  # -0.0 is 0.0
        ]
    )
    return hashlib.sha256(columns.tobytes()).hexdigest()


def table_of(scores: Scores) -> Table:
    """Scores as plain data."""
    counted_up = np.array_equal(scores.run, np.arange(len(scores)))
    return Table(
        score=tuple(as_plain(scores.score)),
        inserted="".join("01"[coin] for coin in scores.inserted.tolist()),
        run=None if counted_up else tuple(scores.run.tolist()),
        canary=tuple(scores.canary.tolist()) if scores.canary.any() else None,
    )


def scores_in(table: Table) -> Scores:
    """The scores that `table_of` wrote."""
    if set(table.inserted) - {"0", "1"}:
        raise InvalidReceipt("inserted of a table must consist of the characters 0 and 1")
    rows = len(table.score)
    canary = np.zeros(rows, dtype=np.int64) if table.canary is None else np.array(table.canary)
    return Scores(
        score=np.array(table.score, dtype=np.float64),  # reads "inf", too
        inserted=np.array([mark == "1" for mark in table.inserted], dtype=bool),
        run=np.arange(rows) if table.run is None else np.array(table.run, dtype=np.int64),
        canary=canary.astype(np.int64),
    )


def failures_in(phase: Phase) -> tuple[Failure, ...]:
    """The failed runs of a phase, without their tracebacks."""
    return tuple(
        Failure(**msgspec.structs.asdict(failed), traceback="") for failed in phase.failures
    )


def as_plain(value: Any) -> Any:
    """Any described value as plain JSON data; infinities, which JSON does not have, become text."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- reading ---------------------------------------------------------------------------------

D = TypeVar("D", bound=Document)


class _Head(msgspec.Struct):
    format: str
    version: int


def read_receipt(path: str | Path) -> Receipt:
    """Read the receipt of an audit from a file; `InvalidReceipt` if it is none.

    Arguments:
        path: The file.
    """
    return parse(read_bytes(path), Receipt, name=str(path))


def read_bytes(path: str | Path) -> bytes:
    """The content of a file of a stranger, if it is not too large."""
    file = Path(_validate.path("path", path))
    try:
        with open_input(file, pipes=True) as stream:
            content = stream.read(LARGEST_FILE + 1)
    except InvalidInput as error:
        raise InvalidReceipt(str(error)) from None
    except (OSError, ValueError) as error:
        raise InvalidReceipt(
            f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(content) > LARGEST_FILE:
        raise InvalidReceipt(
            f"{file} must have at most {LARGEST_FILE:,} bytes to be read, and has more; ask for a "
            "receipt without scores, and for the scores as a file"
        )
    return content


def parse(content: bytes, *kinds: type[D], name: str) -> D:
    """A document of one of these kinds; `InvalidReceipt` if it is none, or cannot be read.

    Arguments:
        content: The text.
        kinds: The kinds that are read, each with its own format.
        name: The file, for messages.
    """
    forms = {_only(kind, "format"): kind for kind in kinds}
    try:
        head = msgspec.json.decode(content, type=_Head)
        kind = forms.get(head.format)
        if kind is None:
            allowed = " or ".join(map(str, forms))
            raise InvalidReceipt(f"{name} must have the format {allowed}, got {head.format[:40]!r}")
        version = _only(kind, "version")
        if head.version != version:
            newer = head.version > version
            remedy = (
                "install a newer dpaudit" if newer else "read it with the dpaudit that wrote it"
            )
            raise InvalidReceipt(
                f"{name} must have version {version} of the form, got {head.version}; {remedy}"
            )
        document = msgspec.json.decode(content, type=kind)
        canonical = document.text().encode()
    except InvalidReceipt:
        raise
    except (msgspec.MsgspecError, DpauditError, ValueError, RecursionError) as error:
        problem = " ".join(printable(str(error)).split())[:200]
        raise InvalidReceipt(f"{name} cannot be read: {problem}") from None
    if canonical != content:
        raise InvalidReceipt(
            f"{name} must be as dpaudit wrote it, on one line with sorted keys; ask for the "
            "original file"
        )
    return document


def _only(kind: type[Document], field: str) -> Any:
    """The only value that a field of this kind of document can have."""
    return next(
        declared.default for declared in msgspec.structs.fields(kind) if declared.name == field
    )


# ---- schema ----------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON schema of receipts, from their types: docs/assets/receipt.schema.json."""
    kinds, parts = msgspec.json.schema_components(
        (Receipt, CheckReceipt), ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        part["description"] = inspect.cleandoc(part["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Receipts of dpaudit, version 1 of each form",
        "anyOf": list(kinds),
        "$defs": as_plain(parts),
    }
