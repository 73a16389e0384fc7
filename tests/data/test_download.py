"""The download against a local server: whole or not at all, whatever the server does."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dpaudit.data import cifar10, download_cifar10
from dpaudit.data.cifar10 import OFFICIAL_CHECKSUM, OFFICIAL_URL
from dpaudit.errors import DataError, InvalidInput

pytest.importorskip("pooch")
pytest.importorskip("requests")

BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def records(count: int) -> bytes:
    pixels = np.random.default_rng(count).integers(0, 256, (count, 3073), np.uint8)
    pixels[:, 0] = np.arange(count) % 10
    return pixels.tobytes()


def archive(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    # gzip writes the time of day into its header; with mtime=0 every process that collects
    # these tests builds the same bytes.
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return out.getvalue()


FILES = {f"cifar-10-batches-bin/{name}": records(3) for name in BATCHES}
GOOD = archive(FILES | {"cifar-10-batches-bin/batches.meta.txt": b"airplane\n"})


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Server:
    """Serves ``body``; may announce more than it sends, refuse, or hang up."""

    def __init__(self) -> None:
        self.body, self.status, self.requests = GOOD, 200, 0
        self.announced: int | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                if outer.status == 0:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(outer.status)
                self.send_header("Content-Length", str(outer.announced or len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/cifar-10-binary.tar.gz"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_a_good_archive_becomes_a_data_set(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    folder = download_cifar10(
        tmp_path / "new" / "place",
        url=server.url,
        checksum=sha256(GOOD),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert folder == tmp_path / "new" / "place" / "cifar-10-batches-bin"
    assert seen[-1] == (len(GOOD), len(GOOD))
    assert len(cifar10(tmp_path / "new" / "place")) == 15
    assert [path.name for path in folder.parent.iterdir()] == ["cifar-10-batches-bin"]


def test_nothing_is_fetched_twice(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        download_cifar10(tmp_path, url=server.url, checksum=sha256(GOOD))
    assert server.requests == 1


def test_a_partial_folder_is_completed(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(records(3))
    (folder / "notes.txt").write_text("mine")
    md5 = f"md5:{hashlib.md5(GOOD).hexdigest().upper()}"
    download_cifar10(tmp_path, url=server.url, checksum=md5)
    assert len(cifar10(tmp_path)) == 15
    assert (folder / "notes.txt").read_text() == "mine"


def damaged_gzip() -> bytes:
    return GOOD[: len(GOOD) // 2] + b"\0" * 64 + GOOD[len(GOOD) // 2 + 64 :]


@pytest.mark.parametrize(
    ("body", "checksum", "message"),
    [
        (GOOD[:-100], sha256(GOOD), "corrupt.*sha256:"),
        (b"<html>Not here</html>", sha256(GOOD), "corrupt.*sha256:"),
        # With a matching checksum the archive itself must be found out.
        (GOOD[:-100], None, "cannot be unpacked"),
        (damaged_gzip(), None, "cannot be unpacked"),
        (b"not a tar file at all", None, "cannot be unpacked"),
        (b"", None, "cannot be unpacked"),
        (archive({"readme.html": b"hello"}), None, r"lacks data_batch_1\.bin"),
        (
            archive(FILES | {"x/test_batch.bin": records(1)[:-5]}),
            None,
            r"3068 bytes, not whole records, of test_batch\.bin",
        ),
    ],
    ids=[
        "cut short",
        "a web page",
        "cut short, sum right",
        "damaged, sum right",
        "no archive",
        "empty",
        "other files",
        "half a record",
    ],
)
def test_what_is_wrong_with_an_archive_leaves_no_trace(
    server: Server, tmp_path: Path, body: bytes, checksum: str | None, message: str
) -> None:
    server.body = body
    old = tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin"
    old.parent.mkdir()
    old.write_bytes(b"old")
    with pytest.raises(DataError, match=message):
        download_cifar10(tmp_path, url=server.url, checksum=checksum or sha256(body))
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-bin"]
    assert old.read_bytes() == b"old"
    assert [path.name for path in old.parent.iterdir()] == ["data_batch_1.bin"]


def test_a_connection_that_breaks_off(server: Server, tmp_path: Path) -> None:
    server.announced = len(GOOD) + 1000
    with pytest.raises(DataError, match=f"{len(GOOD)} bytes read, 1000 more expected"):
        download_cifar10(tmp_path, url=server.url, checksum=sha256(GOOD))
    server.status = 0
    with pytest.raises(DataError, match="cannot download"):
        download_cifar10(tmp_path, url=server.url, checksum=sha256(GOOD))
    assert list(tmp_path.iterdir()) == []


def test_not_found_and_refused(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match="404"):
        download_cifar10(tmp_path, url=server.url)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(DataError, match=r"cannot download .*refused"):
        download_cifar10(tmp_path, url=f"http://127.0.0.1:{port}/x.tar.gz")


def test_no_member_chooses_where_it_lands(server: Server, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    server.body = archive(
        {"../outside": b"bad", "/etc/outside": b"bad", "../../data_batch_1.bin": records(3)}
        | FILES,
        links={"cifar-10-batches-bin/readme.html": str(outside)},
    )
    place = tmp_path / "place"
    download_cifar10(place, url=server.url, checksum=sha256(server.body))
    assert sorted(path.name for path in (place / "cifar-10-batches-bin").iterdir()) == BATCHES
    assert outside.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "place"]


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write to"):
        download_cifar10(tmp_path / "file", url=server.url, checksum=sha256(GOOD))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "file:///etc/passwd"}, "must start with https"),
        ({"checksum": "sha256:abc"}, "hexadecimal digits, got 'sha256:abc'"),
        ({"checksum": "crc32:" + "0" * 8}, "'sha256:' or 'md5:'"),
        ({"timeout": 0}, "timeout must be above 0"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        download_cifar10(tmp_path, **arguments)  # type: ignore[arg-type]


def test_the_official_place_is_the_universitys() -> None:
    assert OFFICIAL_URL == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert OFFICIAL_CHECKSUM.startswith("sha256:c4a38c50")
