"""Download of CIFAR-10 from its official address, checked before it is unpacked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dpaudit import _validate
from dpaudit.data.cifar10 import FOLDERS, RECORD_BYTES
from dpaudit.errors import DataError, InvalidInput, MissingExtra

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

# Of the official archive, 170,052,171 bytes. Its page gives the MD5 sum
# c32a1d4ab5d03f1284b67883e8d87530, which can be forged.
OFFICIAL_CHECKSUM = "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

BytesRead = Callable[[int, int | None], None]

_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_WANTED = (*_BATCHES, "batches.meta.txt", "readme.html")
_BLOCK = 1 << 20


def download_cifar10(
    folder: str | os.PathLike[str],
    *,
    url: str = OFFICIAL_URL,
    checksum: str = OFFICIAL_CHECKSUM,
    progress: BytesRead | None = None,
    timeout: float = 60.0,
) -> Path:
    """Download CIFAR-10 (170 MB) into ``folder/cifar-10-batches-bin`` and return that folder.

    Nothing is downloaded if all six batches are there already. If anything fails, the folder stays
    as it was.

    See also: `dpaudit.data.cifar10`, which reads the result.

    Arguments:
        folder: The folder to write to; created if it does not exist.
        url: Address of the archive, http or https.
        checksum: ``"sha256:…"`` or ``"md5:…"`` of the archive.
        progress: Called with the number of bytes received and the total (`None` if unknown).
        timeout: Seconds without an answer after which the download fails.

    Example:
        >>> download_cifar10("~/data")  # doctest: +SKIP
        PosixPath('/home/me/data/cifar-10-batches-bin')
    """
    _validate.positive("timeout", timeout)
    if not url.startswith(("https://", "http://")):
        raise InvalidInput(f"url must start with https:// or http://, got {url!r}")
    checksum = _checked(checksum)
    target = Path(folder).expanduser() / FOLDERS["binary"]
    if all((target / name).is_file() for name in _BATCHES):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _workbench(target.parent) as bench:
            archive = bench / "archive.tar.gz"
            _fetch(url, archive, checksum, progress, timeout)
            _unpack(archive, bench / "unpacked", url)
            _move(bench / "unpacked", target)
    except OSError as error:
        raise DataError(f"cannot write to {target.parent}: {error.strerror or error}") from None
    return target


def _checked(checksum: str) -> str:
    algorithm, _, digest = checksum.lower().partition(":")
    length = {"sha256": 64, "md5": 32}.get(algorithm)
    if len(digest) != length or not set(digest) <= set("0123456789abcdef"):
        raise InvalidInput(
            f"checksum must be 'sha256:' or 'md5:' and the hexadecimal digits, got {checksum!r}"
        )
    return f"{algorithm}:{digest}"


@contextmanager
def _workbench(folder: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as the target, so that moves are atomic."""
    bench = folder / f".cifar10-{os.getpid()}.part"
    shutil.rmtree(bench, ignore_errors=True)
    bench.mkdir()
    try:
        yield bench
    finally:
        shutil.rmtree(bench, ignore_errors=True)


def _fetch(
    url: str, archive: Path, checksum: str, progress: BytesRead | None, timeout: float
) -> None:
    try:
        import pooch
        import requests
    except ImportError:
        raise MissingExtra("downloading CIFAR-10", "train") from None
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=False if progress is None else _Bar(progress),
        chunk_size=_BLOCK,
        timeout=timeout,
    )
    try:
        pooch.retrieve(
            url, checksum, fname=archive.name, path=archive.parent, downloader=downloader
        )
    except requests.RequestException as error:
        raise DataError(
            f"cannot download {url}: {error}; check the network and try again"
        ) from None
    except ValueError:  # pooch's only one: the checksum
        raise DataError(
            f"the download of {url} is corrupt: it does not have the checksum {checksum}; try "
            "again, and if the error stays do not trust this address"
        ) from None


class _Bar:
    """What pooch calls a progress bar."""

    total: int | None = None

    def __init__(self, progress: BytesRead) -> None:
        self._progress, self._done = progress, 0

    def update(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self.total or None)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _unpack(archive: Path, folder: Path, url: str) -> None:
    """Copy the wanted files by their bare names: no member of the archive chooses its place."""
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
    for path in unpacked.iterdir():  # the folder has some batches: replace each file at once
        path.replace(target / path.name)
