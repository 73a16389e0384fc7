"""The form of a receipt: typed data, one canonical JSON text, and its published schema.

A receipt has two parts. ``given`` is what the auditor recorded: settings, question, scores and
where they were played. ``computed`` follows from it, and `dpaudit.receipts.verifying` computes it
again. The digest at the end finds accidents; anybody can compute it, so that only a signature
finds forgery.

Receipts come from strangers. Reading one runs no code, opens no other file, and refuses what is
too large, too deep, repeated, unknown or of another type.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, final

import numpy as np

from dpaudit import _validate
from dpaudit._inputs import open_input
from dpaudit._outputs import write_output
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.scores import Failure, Scores
from dpaudit.scores.store import canonical_json

FORMAT, VERSION = "dpaudit-receipt", 1
"""The name and the version of the form; a change of meaning raises the version."""

LARGEST_FILE = 64 * 2**20
"""Bytes of the largest receipt or plan that is read."""

DEEPEST = 40
"""Lists and objects inside each other, at most."""

MOST_SCORES_INSIDE = 1_000_000
"""A receipt of more scores holds their digest only."""

Plain = Mapping[str, Any]
"""Named plain values: text, numbers, truth values, lists and further mappings."""


class InvalidReceipt(InvalidInput):
    """A file that is not a receipt, or not one that this version of dpaudit can read."""


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Scores in the order of the store; ``run`` and ``canary`` are left out where they count up.

    Arguments:
        score: The scores; infinities are the texts "inf" and "-inf".
        inserted: One character for each score: 1 with the canary, 0 without it.
        run: Number of the run of each score.
        canary: Number of the canary of each score.
    """

    score: tuple[float | str, ...]
    inserted: str
    run: tuple[int, ...] | None = None
    canary: tuple[int, ...] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """One training that failed. Its traceback stays in the store: it may name files."""

    run: int
    inserted: int
    canaries: int
    error: str


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """The scores of one phase of an audit, at the end of training.

    Arguments:
        phase: 0 for the runs that were asked for, 1 for the fresh runs that confirm a suspicion.
        runs: Number of runs with scores.
        scores: Number of scores.
        digest: SHA-256 of the scores; see `digest_of`.
        table: The scores; `None` if they are kept elsewhere.
        failures: The runs that failed.
    """

    phase: int
    runs: int
    scores: int
    digest: str
    table: Table | None = None
    failures: tuple[FailedRun, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Given:
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
    horizon: int
    attempts: Attempts
    plan: str | None = None
    asked_afterwards: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Attempts:
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
@dataclass(frozen=True, kw_only=True)
class Computed:
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
@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The evidence of one audit, which somebody else can check.

    See also: `receipt_of`, which makes one; `verify`, which checks one.

    Arguments:
        format: Always ``dpaudit-receipt``.
        version: Version of the form.
        dpaudit: Version of dpaudit that computed it.
        given: What the auditor recorded.
        computed: What follows from it.
        digest: SHA-256 of the canonical text of everything else.
    """

    format: Literal["dpaudit-receipt"] = "dpaudit-receipt"
    version: int = VERSION
    dpaudit: str
    given: Given
    computed: Computed
    digest: str = ""

    @property
    def correct_digest(self) -> str:
        """The digest that the content has."""
        plain = as_plain(self)
        del plain["digest"]
        return text_digest(plain)

    def sealed(self) -> Receipt:
        """The receipt with the digest of its content."""
        return dataclasses.replace(self, digest=self.correct_digest)

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
        score=tuple(plain_number(one) for one in scores.score.tolist()),
        inserted="".join("01"[one] for one in scores.inserted.tolist()),
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
        score=np.array([read_number(one) for one in table.score], dtype=np.float64),
        inserted=np.array([one == "1" for one in table.inserted], dtype=bool),
        run=np.arange(rows) if table.run is None else np.array(table.run, dtype=np.int64),
        canary=canary.astype(np.int64),
    )


def failures_in(phase: Phase) -> tuple[Failure, ...]:
    """The failed runs of a phase, without their tracebacks."""
    return tuple(Failure(**vars(failed), traceback="") for failed in phase.failures)


def plain_number(value: float) -> float | str:
    """JSON has no infinity."""
    return value if math.isfinite(value) else str(value)


def read_number(value: float | str) -> float:
    """What `plain_number` wrote."""
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise InvalidReceipt(f"a score must be a number, inf or -inf, got {value[:40]!r}")
    return float(value)


def as_plain(value: Any) -> Any:
    """Any described value as plain JSON data; infinities become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: as_plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return plain_number(value) if isinstance(value, float) else value


# ---- reading ---------------------------------------------------------------------------------


def read_receipt(path: str | Path) -> Receipt:
    """Read a receipt from a file; `InvalidReceipt` if it is none, or cannot be trusted to be read.

    Arguments:
        path: The file.
    """
    return parse_receipt(read_bytes(path), name=str(path))


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


def parse_receipt(content: bytes, *, name: str = "the receipt") -> Receipt:
    """The receipt in a text; `InvalidReceipt` if it is none."""
    plain = parse_object(content, name=name)
    check_version(plain, FORMAT, VERSION, name)
    receipt = typed(Receipt, plain, name)
    assert isinstance(receipt, Receipt)
    return receipt


def parse_object(content: bytes, *, name: str) -> dict[str, Any]:
    """A JSON object from a stranger: no key twice, no NaN, and not too deep."""
    try:
        text = content.decode("utf-8")
        plain = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        _check_depth(plain, name)
        if isinstance(plain, dict):
            canonical_json(plain).encode()  # refuses 1e999, and text that is no Unicode
    except (ValueError, RecursionError, DpauditError) as error:
        problem = "too deep" if isinstance(error, RecursionError) else str(error)[:200]
        raise InvalidReceipt(f"{name} is not a JSON file that can be read: {problem}") from None
    if not isinstance(plain, dict):
        raise InvalidReceipt(f"{name} must hold one JSON object, got {type(plain).__name__}")
    return plain


def check_version(plain: Plain, form: str, version: int, name: str) -> None:
    """Refuse another form, and versions that this dpaudit does not know."""
    if plain.get("format") != form:
        raise InvalidReceipt(
            f"{name} must have the format {form}, got {str(plain.get('format'))[:40]!r}"
        )
    stated = plain.get("version")
    if stated != version or isinstance(stated, bool):
        newer = isinstance(stated, int) and stated > version
        remedy = "install a newer dpaudit" if newer else "read it with the dpaudit that wrote it"
        raise InvalidReceipt(
            f"{name} must have version {version} of the form, got {str(stated)[:40]}; {remedy}"
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise InvalidReceipt("an object has the same key twice")
    return made


def _no_constant(word: str) -> float:
    raise InvalidReceipt(f"{word} is not a number")


def _check_depth(value: Any, name: str) -> None:
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            raise InvalidReceipt(f"{name} has more than {DEEPEST} levels")
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        waiting += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]


T = TypeVar("T")


def typed(hint: Any, value: Any, where: str) -> Any:
    """A plain value as the type that it must have; `InvalidReceipt` names what does not fit."""
    if isinstance(hint, types.UnionType):
        arms = typing.get_args(hint)
        if value is None and types.NoneType in arms:
            return None
        arms = tuple(arm for arm in arms if arm is not types.NoneType)
        if len(arms) == 1:
            return typed(arms[0], value, where)
        return typed(str if isinstance(value, str) else arms[0], value, where)
    if dataclasses.is_dataclass(hint):
        return _typed_fields(typing.cast(type[Any], hint), value, where)
    origin = typing.get_origin(hint)
    if origin is tuple and isinstance(value, list):
        inner = typing.get_args(hint)[0]
        return tuple(typed(inner, one, f"{where}[{place}]") for place, one in enumerate(value))
    if origin is Literal and value in typing.get_args(hint):
        return value
    if origin is not None and typing.get_args(hint)[:1] == (str,) and isinstance(value, dict):
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    raise InvalidReceipt(f"{where} must be {_words(hint)}, got {_shortened(value)}")


def _typed_fields(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, dict):
        raise InvalidReceipt(f"{where} must be an object, got {_shortened(value)}")
    hints = typing.get_type_hints(kind)
    fields = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise InvalidReceipt(f"{where} has an unknown entry {unknown[0][:40]!r}")
    missing = [name for name in fields if name not in value]
    if missing:
        raise InvalidReceipt(f"{where} has no entry {missing[0]!r}")
    return kind(**{name: typed(hints[name], value[name], f"{where}: {name}") for name in fields})


def _words(hint: Any) -> str:
    names = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    return names.get(hint, "a list" if typing.get_origin(hint) is tuple else "an object")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---- schema ----------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON schema of a receipt, from its types: docs/assets/receipt.schema.json."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": f"{FORMAT}-{VERSION}",
        "title": f"Receipt of a dpaudit audit, version {VERSION}",
        **_schema_of(Receipt),
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    if isinstance(hint, types.UnionType):
        return {"anyOf": [_schema_of(arm) for arm in typing.get_args(hint)]}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        described = _described(typing.cast(type[Any], hint))
        names = [one.name for one in dataclasses.fields(hint)]
        return {
            "type": "object",
            "description": (hint.__doc__ or "").partition("\n")[0],
            "additionalProperties": False,
            "required": names,
            "properties": {
                name: _schema_of(hints[name])
                | ({"description": described[name]} if name in described else {})
                for name in names
            },
        }
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema_of(typing.get_args(hint)[0])}
    if typing.get_origin(hint) is Literal:
        return {"enum": list(typing.get_args(hint))}
    words = {float: "number", int: "integer", bool: "boolean", str: "string"}
    return {"type": words.get(hint, "null" if hint is types.NoneType else "object")}


def _described(kind: type[Any]) -> dict[str, str]:
    """The lines of a docstring's section ``Arguments``, by name."""
    described: dict[str, str] = {}
    name = ""
    for line in (kind.__doc__ or "").partition("Arguments:")[2].splitlines():
        text = line.strip()
        first, colon, rest = text.partition(": ")
        if colon and first.isidentifier() and line.startswith(" " * 8) and line[8:9] != " ":
            name, text = first, rest
            described[name] = text
        elif name and text:
            described[name] += f" {text}"
    return described
