"""CIFAR-10: read from a folder in either of its official layouts, or downloaded into one."""

from __future__ import annotations

import codecs
import gzip
import os
import pickle
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._arrays import Integers
from dpaudit.data.examples import Examples
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.errors import DataError, InvalidInput, MissingExtra

Layout = Literal["binary", "python"]

# Mean and standard deviation of each colour over the 50,000 training images, pixels from 0 to 1.
CHANNEL_MEAN, CHANNEL_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

FOLDERS: dict[Layout, str] = {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}
RECORD_BYTES = 1 + 3 * 32 * 32  # a label byte, then red, green and blue planes


def cifar10(data_dir: DataDir = None, *, train: bool = True, normalise: bool = True) -> Examples:
    """CIFAR-10 from a folder: the official binary layout, or the official Python one.

    All training batches in the folder are read; if there are fewer than five the name says so.

    See also: `dpaudit.data.download_cifar10`, `dpaudit.models.convnet`.

    Paper: Krizhevsky, *Learning Multiple Layers of Features from Tiny Images* (2009).

    Arguments:
        data_dir: The folder with ``data_batch_1.bin`` … (or ``data_batch_1`` …), or its parent. By
            default the environment variable ``DPAUDIT_DATA``.
        train: Read the training batches; otherwise the 10,000 test images.
        normalise: Subtract the training mean of each colour and divide by its standard deviation;
            otherwise pixels go from 0 to 1.

    Example:
        >>> cifar10("~/data")  # doctest: +SKIP
        Examples('cifar10-train', 50000 examples of shape (3, 32, 32), 10 classes)
    """
    layout, paths = _find_batches(data_dir, train)
    read = _read_binary if layout == "binary" else _read_python
    labels, pixels = zip(*(read(path) for path in paths), strict=True)
    features = np.empty((sum(map(len, labels)), 3, 32, 32), dtype=np.float32)
    tables, start = _pixel_tables(normalise), 0
    for part in pixels:
        # One image at a time stays in the processor's cache: seven times as fast as a whole batch.
        for image, feature in zip(part, features[start:], strict=False):
            for channel, table in enumerate(tables):
                table.take(image[channel], out=feature[channel], mode="clip")
        start += len(part)
    return Examples(
        features=features, targets=np.concatenate(labels), classes=10, name=_name(train, len(paths))
    )


def _find_batches(data_dir: DataDir, train: bool) -> tuple[Layout, list[Path]]:
    root = data_folder(data_dir)
    if root is None:
        raise DataError(
            "no folder for CIFAR-10: give data_dir, set the environment variable DPAUDIT_DATA, "
            "or call dpaudit.data.download_cifar10 first"
        )
    if not root.is_dir():
        raise DataError(f"no folder {root}; give the one that has CIFAR-10 in it")
    names = [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]
    layouts: tuple[Layout, ...] = ("binary", "python")
    for layout in layouts:
        ending = ".bin" if layout == "binary" else ""
        for folder in (root, root / FOLDERS[layout]):
            paths = [folder / f"{name}{ending}" for name in names]
            if there := [path for path in paths if path.is_file()]:
                return layout, there
    raise DataError(
        f"no {names[0]}.bin and no {names[0]} in {root}, nor in {FOLDERS['binary']} or "
        f"{FOLDERS['python']} below it; call dpaudit.data.download_cifar10 to fetch CIFAR-10"
    )


def _name(train: bool, batches: int) -> str:
    if not train:
        return "cifar10-test"
    return "cifar10-train" if batches == 5 else f"cifar10-train ({batches} of 5 batches)"


def _read_binary(path: Path) -> tuple[Integers, NDArray[np.uint8]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if not content or len(content) % RECORD_BYTES:
        raise DataError(
            f"{path} is truncated: {len(content)} bytes are not a whole number of records of "
            f"{RECORD_BYTES} bytes; fetch it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD_BYTES)
    labels = _checked_labels(records[:, 0].astype(np.int64), path)
    return labels, records[:, 1:].reshape(-1, 3, 32, 32)


def _read_python(path: Path) -> tuple[Integers, NDArray[np.uint8]]:
    content = _unpickled(path)
    pixels, labels = content.get("data"), content.get("labels")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise DataError(f"{path} is not a CIFAR-10 batch: it has no array 'data' or list 'labels'")
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), RECORD_BYTES - 1):
        raise DataError(
            f"{path} is corrupt: {len(labels)} labels beside an array of {pixels.dtype} of shape "
            f"{pixels.shape}; it must be one of bytes with {RECORD_BYTES - 1} columns"
        )
    if not all(isinstance(label, int) and abs(label) < 2**63 for label in labels):
        raise DataError(f"{path} is corrupt: its labels are not all whole numbers from 0 to 9")
    checked = _checked_labels(np.array(labels, dtype=np.int64), path)
    return checked, pixels.reshape(-1, 3, 32, 32)


def _unpickled(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and arrays, which runs no code of the file."""
    try:
        with path.open("rb") as stream:
            content = _ArrayUnpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(f"{path} is not a pickle of plain arrays: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a dictionary")
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): value
        for key, value in content.items()
    }


_RECONSTRUCT = np.empty(0).__reduce__()[0]  # its module differs between versions of numpy

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,  # of bytes in old protocols
}


@final
class _ArrayUnpickler(pickle.Unpickler):
    """An ordinary unpickler would call any function that the file names; this one only numpy's."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _ALLOWED[module, name]


def _checked_labels(labels: Integers, path: Path) -> Integers:
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if len(wrong):
        raise DataError(
            f"{path} is corrupt: image {wrong[0]} has label {labels[wrong[0]]}, and labels go "
            "from 0 to 9; fetch it again"
        )
    return labels


def _pixel_tables(normalise: bool) -> NDArray[np.float32]:
    """The feature for each of the 256 pixel values and each colour; rounded once, at the end."""
    pixels = np.arange(256) / 255
    if not normalise:
        return np.tile(pixels, (3, 1)).astype(np.float32)
    mean, std = np.array(CHANNEL_MEAN)[:, None], np.array(CHANNEL_STD)[:, None]
    tables: NDArray[np.float32] = ((pixels - mean) / std).astype(np.float32)
    return tables


# Download

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

# Of the official archive, 170,052,171 bytes. Its page gives the MD5 sum
# c32a1d4ab5d03f1284b67883e8d87530, which can be forged.
OFFICIAL_CHECKSUM = "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

BytesRead = Callable[[int, int | None], None]

_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


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
        # On the same disk as the target, so that each file is moved at once.
        with tempfile.TemporaryDirectory(prefix=".cifar10-", dir=target.parent) as bench:
            _fetch(url, Path(bench), checksum, progress, timeout)
            _unpack(Path(bench), url)
            target.mkdir(exist_ok=True)
            for name in _BATCHES:
                (Path(bench) / name).replace(target / name)
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


_ARCHIVE = "archive.tar.gz"


def _fetch(
    url: str, bench: Path, checksum: str, progress: BytesRead | None, timeout: float
) -> None:
    try:
        import pooch
        import requests
    except ImportError:
        raise MissingExtra("downloading CIFAR-10", "train") from None
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=False if progress is None else _Bar(progress),
        chunk_size=1 << 20,
        timeout=timeout,
    )
    try:
        pooch.retrieve(url, checksum, fname=_ARCHIVE, path=bench, downloader=downloader)
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


def _unpack(bench: Path, url: str) -> None:
    """Copy the batches by their bare names and check that all are there and whole.

    No member of the archive chooses its place; pooch's Untar lets it before Python 3.12.
    """
    import tarfile

    try:
        with tarfile.open(bench / _ARCHIVE, "r:gz") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                source = members.extractfile(member) if name in _BATCHES else None
                if source is not None and member.isreg():
                    (bench / name).write_bytes(source.read())
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, KeyError) as error:
        raise DataError(f"the archive from {url} cannot be unpacked: {error}") from None
    for name in _BATCHES:
        size = (bench / name).stat().st_size if (bench / name).is_file() else 0
        if size == 0 or size % RECORD_BYTES:
            state = "lacks" if size == 0 else f"has {size} bytes, not whole records, of"
            raise DataError(f"the archive from {url} is not CIFAR-10: it {state} {name}")
