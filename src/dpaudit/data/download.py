"""Fetching CIFAR-10 from its official place: checked before it is unpacked, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dpaudit import _validate
from dpaudit.data.cifar10 import FOLDERS, RECORD_BYTES
from dpaudit.errors import DataError, InvalidInput

if TYPE_CHECKING:
    import http.client

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

# Of the official archive, 170,052,171 bytes; its page gives the MD5 sum
# c32a1d4ab5d03f1284b67883e8d87530, and SHA-256 is the one that nobody can forge.
OFFICIAL_CHECKSUM = "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

Progress = Callable[[int, int | None], None]

_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_WANTED = (*_BATCHES, "batches.meta.txt", "readme.html")
_BLOCK = 1 << 20


def download_cifar10(
    folder: str | os.PathLike[str],
    *,
    url: str = OFFICIAL_URL,
    checksum: str = OFFICIAL_CHECKSUM,
    progress: Progress | None = None,
    timeout: float = 60.0,
) -> Path:
    """Fetch CIFAR-10 (170 MB) into ``folder/cifar-10-batches-bin`` and return that folder.

    Nothing is fetched if all six batches are there already. The archive is checked before it is
    unpacked; when anything fails, what was in the folder stays as it was.

    See also: `dpaudit.data.cifar10`, which reads the result.

    Arguments:
        folder: Where to put it; made if need be.
        url: Where to get the archive, http or https.
        checksum: ``"sha256:…"`` or ``"md5:…"`` of the archive.
        progress: Called with the bytes done and the bytes in all (`None` if the server does not
            say).
        timeout: Seconds without an answer after which to give up.

    Example:
        >>> download_cifar10("~/data")  # doctest: +SKIP
        PosixPath('/home/me/data/cifar-10-batches-bin')
    """
    _validate.positive("timeout", timeout)
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(f"url must start with https:// or http://, got {url!r}")
    algorithm, digest = _parse_checksum(checksum)
    target = Path(folder).expanduser() / FOLDERS["binary"]
    if all((target / name).is_file() for name in _BATCHES):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _workbench(target.parent) as bench:
            archive = bench / "archive.tar.gz"
            _fetch(url, archive, algorithm, digest, progress, timeout)
            _unpack(archive, bench / "unpacked", url)
            _move(bench / "unpacked", target)
    except OSError as error:
        raise DataError(f"cannot write to {target.parent}: {error.strerror or error}") from None
    return target


def _parse_checksum(checksum: str) -> tuple[str, str]:
    algorithm, _, digest = checksum.partition(":")
    lengths = {"sha256": 64, "md5": 32}
    if len(digest) != lengths.get(algorithm) or not set(digest.lower()) <= set("0123456789abcdef"):
        raise InvalidInput(
            f"checksum must be 'sha256:' or 'md5:' and the hexadecimal digits, got {checksum!r}"
        )
    return algorithm, digest.lower()


@contextmanager
def _workbench(folder: Path) -> Iterator[Path]:
    """A place for half-finished things, on the same disk as the target so that moves are atomic."""
    bench = folder / f".cifar10-{os.getpid()}.part"
    shutil.rmtree(bench, ignore_errors=True)
    bench.mkdir()
    try:
        yield bench
    finally:
        shutil.rmtree(bench, ignore_errors=True)


def _fetch(
    url: str,
    archive: Path,
    algorithm: str,
    digest: str,
    progress: Progress | None,
    timeout: float,
) -> None:
    seen, done = hashlib.new(algorithm), 0
    with _ask(url, timeout) as answer, archive.open("wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        for block in _blocks(answer, url):
            out.write(block)
            seen.update(block)
            done += len(block)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise DataError(f"the download of {url} is truncated: {done} of {total} bytes; try again")
    found = seen.hexdigest()
    if found != digest:
        raise DataError(
            f"the download of {url} is corrupt: its {algorithm} sum is {found}, not {digest}; "
            "try again, and if it stays so do not trust that place"
        )


def _ask(url: str, timeout: float) -> http.client.HTTPResponse:
    # Imported here, because they take longer than all the rest of dpaudit.data.
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "dpaudit"})
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise DataError(f"cannot reach {url}: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url} gives no proper answer: {error!r}") from None
    return answer


def _blocks(answer: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """The body in pieces, with errors of the network told apart from errors of the disk."""
    import http.client

    while True:
        try:
            block = answer.read(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"the download of {url} broke off: {error!r}; try again") from None
        if not block:
            return
        yield block


def _unpack(archive: Path, folder: Path, url: str) -> None:
    """Copy the files we want, by their bare names, so that no member can choose where it lands."""
    import gzip
    import tarfile
    import zlib

    folder.mkdir()
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                source = members.extractfile(member) if member.isreg() else None
                if source is not None and name in _WANTED:
                    with source, (folder / name).open("wb") as out:
                        shutil.copyfileobj(source, out, _BLOCK)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"the archive from {url} cannot be unpacked: {error}") from None
    for name in _BATCHES:
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size == 0 or size % RECORD_BYTES:
            state = "lacks" if size == 0 else f"has {size} bytes, not whole records, of"
            raise DataError(f"the archive from {url} is not CIFAR-10: it {state} {name}")


def _move(unpacked: Path, target: Path) -> None:
    if not target.exists():
        unpacked.rename(target)
        return
    for path in unpacked.iterdir():  # a folder with some batches: each file changes at once
        path.replace(target / path.name)
