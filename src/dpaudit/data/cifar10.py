"""CIFAR-10, read from a folder in either of its official layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Integers
from dpaudit.data.examples import Examples
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.data.pickles import load_arrays
from dpaudit.errors import DataError

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
    for part in pixels:  # one batch at a time, without a second copy of all images
        for channel in range(3):
            features[start : start + len(part), channel] = tables[channel][part[:, channel]]
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
    content = load_arrays(path)
    pixels, labels = content.get("data"), content.get("labels")
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise DataError(f"{path} is not a CIFAR-10 batch: it has no array 'data' or list 'labels'")
    if pixels.shape != (len(labels), RECORD_BYTES - 1):
        raise DataError(
            f"{path} is corrupt: {len(labels)} labels beside an array of shape {pixels.shape}"
        )
    if not all(isinstance(label, int) and abs(label) < 2**63 for label in labels):
        raise DataError(f"{path} is corrupt: its labels are not all whole numbers from 0 to 9")
    checked = _checked_labels(np.array(labels, dtype=np.int64), path)
    return checked, pixels.reshape(-1, 3, 32, 32)


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
