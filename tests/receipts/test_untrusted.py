"""Receipts of strangers: forged, damaged, huge, or made to do harm."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from small_audits import noisy, play

import dpaudit.receipts.form
from dpaudit.errors import InvalidInput
from dpaudit.receipts import InvalidReceipt, Receipt, read_receipt, verify
from dpaudit.receipts.form import as_plain, schema
from dpaudit.receipts.signing import NAMESPACE, check_signature

Written = Callable[..., Path]
SCHEMA = Path(__file__).parents[2] / "docs" / "assets" / "receipt.schema.json"

needs_openssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="signatures need ssh-keygen of OpenSSH"
)


def keygen(*arguments: str | Path) -> None:
    subprocess.run(
        ["ssh-keygen", *map(str, arguments)], check=True, capture_output=True, timeout=60
    )


@pytest.fixture
def key(tmp_path: Path) -> Path:
    keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "auditor")
    return tmp_path / "auditor"


def sign(receipt: Path, key: Path, namespace: str = NAMESPACE) -> Path:
    keygen("-Y", "sign", "-n", namespace, "-f", key, receipt)
    return Path(f"{receipt}.sig")


@needs_openssh
def test_a_signature_says_who_vouches(violated: Receipt, written: Written, key: Path) -> None:
    path = written(violated)
    sign(path, key)
    unknown = verify(path)
    assert unknown.outcome == "consistent"
    assert unknown.signature is not None
    assert "whose owner was not checked" in unknown.sentence
    known = verify(path, signer=Path(f"{key}.pub"))
    assert known.sentence.startswith("internally consistent, signed by")
    public = Path(f"{key}.pub").read_text("utf8")
    allowed = path.parent / "allowed"
    allowed.write_text(f"privacy@example.org {public}", "utf8")
    assert "signed by privacy@example.org" in verify(path, signer=allowed).sentence


@needs_openssh
def test_another_key_another_purpose_and_a_missing_signature_are_refused(
    violated: Receipt, written: Written, key: Path
) -> None:
    path = written(violated)
    assert verify(path, signer=Path(f"{key}.pub")).outcome == "inconsistent"
    sign(path, key)
    other = key.parent / "other"
    keygen("-q", "-t", "ed25519", "-N", "", "-f", other)
    assert verify(path, signer=Path(f"{other}.pub")).outcome == "inconsistent"
    Path(f"{path}.sig").unlink()
    sign(path, key, namespace="git")
    assert verify(path, signer=Path(f"{key}.pub")).outcome == "inconsistent"
    with pytest.raises(InvalidInput, match="signature must be a file"):
        verify(path, signature=path.parent / "none.sig")


@needs_openssh
def test_200_random_edits_of_a_signed_receipt_are_all_found(
    violated: Receipt, written: Written, key: Path
) -> None:
    path, chance = written(violated), random.Random(0)
    signature, original = sign(path, key), path.read_bytes()
    signer = Path(f"{key}.pub")
    assert check_signature(path, original, signature, signer)[0] is True
    edits = set()
    while len(edits) < 200:
        content, place = bytearray(original), chance.randrange(len(original))
        how = chance.choice(["change", "remove", "insert", "swap"])
        if how == "change":
            content[place] = chance.choice(
                [one for one in b"0123456789abcxyz" if one != content[place]]
            )
        elif how == "remove":
            del content[place]
        elif how == "insert":
            content.insert(place, chance.choice(b" 019a"))
        else:
            other = chance.randrange(len(original))
            content[place], content[other] = content[other], content[place]
        if bytes(content) != original:
            edits.add(bytes(content))
    assert [edit for edit in edits if check_signature(path, edit, signature, signer)[0]] == []
    # What a valid signature is worth is seen by the whole check, too.
    for edit in sorted(edits)[:10]:
        path.write_bytes(edit)
        try:
            assert verify(path, signer=signer).outcome == "inconsistent"
        except InvalidReceipt:
            continue


def test_files_that_are_no_receipts_are_refused_in_one_line(
    violated: Receipt, tmp_path: Path
) -> None:
    text, path = violated.text(), tmp_path / "a.json"
    deep = '{"given":' + "[" * 100_000 + "]" * 100_000 + "}"
    wrong: list[str | bytes] = [
        "", "[]", "1", "nonsense", deep, b"\xff\xfe", '{"format":"dpaudit-receipt"}',
        text[:-20], text.replace('"version":1', '"version":2'),
        text.replace('"version":1', '"version":true'), text.replace('"version":1', '"version":0'),
        text.replace('"format":', '"format":"x","format":'),
        text.replace('"suspected":false', '"suspected":NaN'),
        text.replace('"suspected":false', '"suspected":0'),
        text.replace('"horizon":0', '"horizon":1e999'),
        text.replace('"horizon":0', '"horizon":' + "9" * 5000),
        text.replace('"name":null', '"name":"\\ud800"'),
        text.replace('"digest":', '"surprise":1,"digest":', 1),
        text.replace('"unit":', '"unity":'),
    ]  # fmt: skip
    for content in wrong:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InvalidReceipt) as caught:
            read_receipt(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
    with pytest.raises(InvalidReceipt, match="cannot read"):
        read_receipt(tmp_path / "missing.json")
    with pytest.raises(InvalidReceipt, match="must be a file, got a folder"):
        read_receipt(tmp_path)


def test_a_newer_form_asks_for_a_newer_dpaudit(violated: Receipt, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(violated.text().replace('"version":1', '"version":7'), "utf8")
    with pytest.raises(InvalidReceipt, match="newer dpaudit"):
        read_receipt(path)


def test_a_file_beyond_the_limit_is_not_read(
    violated: Receipt, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(violated)
    monkeypatch.setattr(dpaudit.receipts.form, "LARGEST_FILE", path.stat().st_size - 1)
    with pytest.raises(InvalidReceipt, match="at most"):
        read_receipt(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("given", "configuration", "runs"), 10**12),
        (("given", "configuration", "canaries"), 10**12),
        (("given", "configuration", "horizons"), [10**12]),
        (("given", "configuration", "seed"), -1),
        (("given", "configuration", "mechanism"), "__import__('os').system('true')"),
        (("given", "question", "claim"), {"epsilons": [1.0] * 20_000, "deltas": [0.1] * 20_000}),
        (("given", "question", "claim"), {"__class__": "os.system"}),
        (("given", "question"), {"detect": "0.5"}),
        (("given", "facts"), {"doubts": 7}),
        (("given", "name"), " "),
        (("given", "phases"), []),
        (("given", "phases", 0, "table", "run"), [2**70] * 120),
        (("given", "phases", 0, "table", "canary"), [-1] * 120),
        (("given", "phases", 0, "table", "inserted"), "2" * 120),
        (("given", "phases", 0, "table", "score"), ["nan"] * 120),
        (("given", "phases", 0, "phase"), 5),
    ],
)
def test_settings_that_would_do_harm_or_make_no_sense_are_refused(
    place: tuple[Any, ...], value: Any, violated: Receipt, written: Written
) -> None:
    plain = as_plain(violated)
    inner = plain
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        result = verify(written(plain))
    except InvalidReceipt:  # of a type that no receipt has
        return
    assert result.outcome == "inconsistent"
    assert all(len(check.detail) < 1000 for check in result.checks)


def test_no_file_that_a_receipt_names_is_opened(violated: Receipt, written: Written) -> None:
    plain = as_plain(violated)
    plain["given"]["call"] = "../../etc/passwd"
    plain["given"]["name"] = "/etc/passwd"
    plain["given"]["configuration"]["mechanism"]["files"] = ["../secret"]
    path, opened = written(plain), []
    verify(path)  # imports what it needs
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    assert verify(path).outcome == "consistent"
    assert [name for name in opened if "passwd" in name or "secret" in name] == []
    assert str(path) in opened


def test_the_published_schema_is_that_of_the_types_and_fits_receipts(
    violated: Receipt, kept: Receipt, tmp_path: Path
) -> None:
    published = json.loads(SCHEMA.read_text("utf8"))
    assert published == schema(), "make it again: python docs/_site/schema.py"
    apart = play(tmp_path / "s.sqlite", noisy(1.0), include_scores=False)
    for receipt in (violated, kept, apart):
        jsonschema.validate(json.loads(receipt.text()), published)
    assert apart.given.phases[0].table is None
