"""CIFAR-10 in both official layouts; corrupt files are named, and a pickle cannot run code."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpaudit.data import cifar10
from dpaudit.data.cifar10 import CHANNEL_MEAN, CHANNEL_STD
from dpaudit.errors import DataError

SHARED = Path(os.environ.get("DPAUDIT_DATA", Path(__file__).parents[3] / "shared" / "data"))

needs_cifar10 = pytest.mark.skipif(
    not (SHARED / "cifar-10-batches-bin").is_dir(), reason="CIFAR-10 is not at hand"
)


def images(seed: int, count: int = 4) -> tuple[list[int], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 10, count).tolist(), draw.integers(0, 256, (count, 3072), np.uint8)


def write_binary(path: Path, seed: int) -> None:
    labels, pixels = images(seed)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(np.column_stack([np.array(labels, np.uint8), pixels]).tobytes())


def write_python(path: Path, seed: int, protocol: int = 2) -> None:
    labels, pixels = images(seed)
    path.parent.mkdir(exist_ok=True)
    content = {"data": pixels, "labels": labels, "batch_label": "some batch", "filenames": ["a"]}
    path.write_bytes(pickle.dumps(content, protocol=protocol))


def test_binary_layout_and_the_count_of_batches(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        write_binary(tmp_path / "cifar-10-batches-bin" / f"data_batch_{number}.bin", number)
    write_binary(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", 9)
    train = cifar10(tmp_path)
    assert (train.name, len(train)) == ("cifar10-train (3 of 5 batches)", 12)
    assert train.targets.tolist() == images(1)[0] + images(2)[0] + images(4)[0]
    test = cifar10(tmp_path / "cifar-10-batches-bin", train=False, normalise=False)
    assert test.name == "cifar10-test"
    expected = images(9)[1].reshape(4, 3, 32, 32) / 255
    np.testing.assert_array_equal(test.features, expected.astype(np.float32))


def test_normalised_pixels_follow_the_official_mean_and_deviation(tmp_path: Path) -> None:
    write_binary(tmp_path / "test_batch.bin", 3)
    pixels = images(3)[1].reshape(4, 3, 32, 32) / 255
    expected = (pixels - np.reshape(CHANNEL_MEAN, (3, 1, 1))) / np.reshape(CHANNEL_STD, (3, 1, 1))
    np.testing.assert_allclose(cifar10(tmp_path, train=False).features, expected, rtol=1e-6)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_python_layout_equals_the_binary_one(tmp_path: Path, protocol: int) -> None:
    for number in range(1, 6):
        write_binary(tmp_path / "cifar-10-batches-bin" / f"data_batch_{number}.bin", number)
        write_python(tmp_path / "py" / f"data_batch_{number}", number, protocol)
    binary, python = cifar10(tmp_path), cifar10(tmp_path / "py")
    assert binary.name == python.name == "cifar10-train"
    assert binary.fingerprint == python.fingerprint


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """The official files were written by Python 2: text is bytes there, arrays use old names."""
    labels, pixels = images(5)
    state = b"(I1\n(I4\nI3072\nt" + _py2_dtype() + b"I00\n" + _py2_bytes(pixels.tobytes()) + b"tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt"
        + _py2_bytes(b"b")
        + b"tR"
        + state
    )
    listed = b"(" + b"".join(b"I%d\n" % label for label in labels) + b"l"
    content = b"(" + _py2_bytes(b"data") + array + _py2_bytes(b"labels") + listed + b"d."
    (tmp_path / "test_batch").write_bytes(content)
    data = cifar10(tmp_path, train=False, normalise=False)
    assert data.targets.tolist() == labels
    np.testing.assert_allclose(data.features.reshape(4, -1) * 255, pixels, rtol=1e-6)


def _py2_bytes(content: bytes) -> bytes:
    return b"T" + len(content).to_bytes(4, "little") + content


def _py2_dtype() -> bytes:
    state = b"(I3\n" + _py2_bytes(b"|") + b"NNNI-1\nI-1\nI0\ntb"
    return b"cnumpy\ndtype\n(" + _py2_bytes(b"u1") + b"I0\nI1\ntR" + state


class Mischief:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    evil = {"data": Mischief(tmp_path / "touched"), "labels": [1]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(evil))
    with pytest.raises(DataError, match="pathlib"):
        cifar10(tmp_path, train=False)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [10**30]}, "from 0 to 9"),
        ({"data": np.zeros((2, 3072)), "labels": [0, 1]}, "float64 .* must be one of bytes"),
        ({"data": np.zeros((2, 7), np.uint8), "labels": [0, 1]}, r"2 labels .* shape \(2, 7\)"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [11]}, "image 0 has label 11"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["1"]}, "whole numbers"),
        ({"data": [1], "labels": [1]}, "no array 'data'"),
        ([1, 2], "holds a list"),
    ],
)
def test_corrupt_pickles(tmp_path: Path, content: object, message: str) -> None:
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match=message):
        cifar10(tmp_path, train=False)


def test_truncated_and_corrupt_files(tmp_path: Path) -> None:
    write_python(tmp_path / "test_batch", 0)
    whole = (tmp_path / "test_batch").read_bytes()
    (tmp_path / "test_batch").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a pickle of plain arrays"):
        cifar10(tmp_path, train=False)
    write_binary(tmp_path / "data_batch_1.bin", 0)
    whole = (tmp_path / "data_batch_1.bin").read_bytes()
    for content, message in [
        (whole[:-1], "12291 bytes are not a whole number of records"),
        (b"", "truncated: 0 bytes"),
        (b"\x0a" + whole[1:], "image 0 has label 10"),
    ]:
        (tmp_path / "data_batch_1.bin").write_bytes(content)
        with pytest.raises(DataError, match=message):
            cifar10(tmp_path)


def test_where_the_folder_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_binary(tmp_path / "test_batch.bin", 0)
    monkeypatch.setenv("DPAUDIT_DATA", str(tmp_path))
    assert len(cifar10(train=False)) == 4
    with pytest.raises(DataError, match=r"no folder .*elsewhere"):
        cifar10(tmp_path / "elsewhere")  # an argument wins over the environment
    with pytest.raises(DataError, match=r"no data_batch_1\.bin and no data_batch_1 in"):
        cifar10()
    monkeypatch.delenv("DPAUDIT_DATA")
    with pytest.raises(DataError, match="set the environment variable DPAUDIT_DATA"):
        cifar10()


@needs_cifar10
def test_the_real_thing() -> None:
    data = cifar10(SHARED)
    assert len(data) % 10_000 == 0
    assert data.targets[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    # Batches are random subsets, so even two of five are close to mean 0 and deviation 1.
    np.testing.assert_allclose(data.features.mean(axis=(0, 2, 3)), 0, atol=0.02)
    np.testing.assert_allclose(data.features.std(axis=(0, 2, 3)), 1, atol=0.02)


def test_data_never_imports_torch() -> None:
    code = "import sys, dpaudit.data; sys.exit('torch' in sys.modules or 'http' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
