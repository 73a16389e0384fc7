"""Signatures of receipts, by OpenSSH: nothing home-made.

    ssh-keygen -Y sign -n dpaudit-receipt -f ~/.ssh/id_ed25519 audit.receipt.json

writes ``audit.receipt.json.sig`` beside the receipt. The signature covers every byte of the file.
It says who vouches for the receipt, not that the audit was played.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpaudit.errors import InvalidInput
from dpaudit.receipts.form import InvalidReceipt, read_bytes

NAMESPACE = "dpaudit-receipt"
"""What OpenSSH calls the purpose of a signature: one made for another purpose is refused."""

_SECONDS = 30
_KEY_TYPES = ("ssh-", "sk-ssh-", "ecdsa-", "sk-ecdsa-")


@final
@dataclass(frozen=True, kw_only=True)
class Signature:
    """A valid signature.

    Arguments:
        key: Fingerprint of the key.
        signer: Who is known to own the key; empty if nobody said whose key it is.
    """

    key: str
    signer: str = ""

    @property
    def sentence(self) -> str:
        """Who signed, as far as it is known."""
        if self.signer:
            return f"signed by {self.signer} ({self.key})"
        return f"signed with the key {self.key}, whose owner was not checked"


def check_signature(
    receipt: Path, content: bytes, signature: str | Path | None, signer: str | Path | None
) -> tuple[bool | None, str, Signature | None]:
    """Whether a signature is valid, in words, and who made it.

    Arguments:
        receipt: The file of the receipt.
        content: Its content.
        signature: The file of the signature; by default the receipt's with ``.sig`` appended.
        signer: A public key, or a file of allowed signers.
    """
    file = Path(f"{receipt}.sig") if signature is None else Path(signature)
    if not file.is_file():
        if signature is not None:
            raise InvalidInput(f"signature must be a file that is there, got {str(file)!r}")
        if signer is not None:
            return False, f"there is no signature {file}, although a signer was named", None
        return None, "there is none: anybody can write a receipt that agrees with itself", None
    if shutil.which("ssh-keygen") is None:
        return None, f"{file} was not checked: ssh-keygen (OpenSSH) is not installed", None
    read_bytes(file)  # not too large
    if signer is None:
        run = _keygen(["check-novalidate", "-s", str(file)], content)
        names = ""
    else:
        text = read_bytes(signer).decode("utf-8", "replace").strip()
        with tempfile.TemporaryDirectory() as folder:
            allowed = Path(folder) / "signers"
            owner = f"the key in {signer}"
            if text.startswith(_KEY_TYPES):
                kind_and_key = " ".join(text.split()[:2])
                text, name = f"signer {kind_and_key}\n", "signer"
                allowed.write_text(text, encoding="utf-8")
            else:
                allowed.write_text(text + "\n", encoding="utf-8")
                search = ["find-principals", "-s", str(file), "-f", str(allowed)]
                lines = _keygen(search, content).stdout.decode("utf-8", "replace").split("\n")
                name = lines[0].split(",")[0]
                owner = name
            if not name:
                return False, f"the signature {file} is by no signer in {signer}", None
            run = _keygen(["verify", "-f", str(allowed), "-I", name, "-s", str(file)], content)
        names = owner
    if run.returncode:
        whom = "" if signer is None else f" by {names}"
        return False, f"{file} is no signature of this receipt{whom}", None
    key = re.search(rb"key (SHA256:[A-Za-z0-9+/=]+)", run.stdout + run.stderr)
    if key is None:
        raise InvalidReceipt(f"ssh-keygen accepted {file} without naming its key; upgrade OpenSSH")
    made = Signature(key=key.group(1).decode(), signer=names)
    return True, made.sentence, made


def _keygen(arguments: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run ``ssh-keygen -Y`` on the content."""
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", *arguments, "-n", NAMESPACE],
            input=content,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidReceipt(f"ssh-keygen could not check the signature: {error}") from None
