"""What one run of a pipeline did: every quantity that should not depend on a single record.

Observers of libraries (`dpaudit.pipelines.libraries`) fill a `Recording`. A training that none of
them understands says itself what it does, with three functions that do nothing outside of a check:

| call | says |
|---|---|
| ``noisy = release(noisy)`` | this value has its noise: what follows is post-processing |
| ``public(divisor=64, rate=0.1)`` | these values are used without noise |
| ``batch(indices)`` | these records are in the next batch |
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.pipelines.coupling import Draws
from dpaudit.trainings.scoring import as_array, flat_parameters

_LARGEST_FILE = 1 << 26


@final
class Recording:
    """What one run did.

    The noise is frozen in the strongest sense: a second run gets the *private releases* of the
    first one, its noisy gradients, in place of its own. Everything after a release is then the same
    in both runs unless it reads the data once more, which no noise covers.

    Arguments:
        draws: The coupled random draws of the run.
        replayed: An earlier run, whose releases this one gets.
        amplify: Factor on normal noise as large as a released tensor: with a large factor, the
            result is that of the noise alone.
        sizes: Numbers of entries of the released tensors.
    """

    def __init__(
        self,
        draws: Draws,
        *,
        replayed: Recording | None = None,
        amplify: float = 1.0,
        sizes: frozenset[int] = frozenset(),
    ) -> None:
        self.draws, self.replayed = draws, replayed
        self.amplify, self.sizes = amplify, sizes
        self.series: defaultdict[str, list[Any]] = defaultdict(list)
        self.batches: list[tuple[int, ...]] = []
        self.contents: dict[tuple[int, int], str] = {}
        self.by_place = False  # contents are those of places, because records are not known
        self._visits: Counter[int] = Counter()
        self.releases: list[Any] = []
        self.noise: list[tuple[int, float]] = []  # entries and scale of every normal draw
        self.lines: list[str] = []
        self.files: dict[str, str] = {}
        self.libraries: set[str] = set()
        self.returned: Any = None

    def add(self, quantity: str, value: Any) -> None:
        """Record the next value of a quantity."""
        self.series[quantity].append(_plain(value))

    def add_batch(self, ids: Iterable[int]) -> None:
        """Record the records of a batch."""
        self.batches.append(tuple(map(int, ids)))

    def add_content(self, record: int, content: Any) -> None:
        """Record what a training gets for a record."""
        visit = self._visits[record]
        self._visits[record] += 1
        self.contents[record, visit] = digest_of(content)

    @property
    def steps(self) -> int:
        """Number of private releases so far."""
        return len(self.releases)

    @property
    def complete(self) -> bool:
        """Whether this run got a release of the other run for each of its own."""
        return (
            self.replayed is not None
            and bool(self.releases)
            and self.steps == self.replayed.steps
            and "shape of a release" not in self.series
        )

    def release(self, value: Any) -> Any:
        """A private release: that of the replayed run, if there is one of the same shape."""
        place = self.steps
        self.releases.append(_copied(value))
        if self.replayed is None or place >= self.replayed.steps:
            return value
        recorded = self.replayed.releases[place]
        if _shape(recorded) != _shape(value):
            self.add("shape of a release", _shape(value))
            return value
        self.releases[place] = recorded
        return _copied(recorded)

    def scaled(self, entries: int, scale: float) -> float:
        """Record normal noise of so many entries; the factor by which to multiply it."""
        self.noise.append((entries, float(scale)))
        return self.amplify if entries in self.sizes else 1.0

    def noise_of(self, sizes: frozenset[int]) -> list[tuple[int, float]]:
        """The draws of noise as large as a released tensor."""
        return [draw for draw in self.noise if draw[0] in sizes]

    def keep(self, returned: Any) -> None:
        """Keep a copy of what the run returned, which a later run may change."""
        try:
            self.returned = copy.deepcopy(returned)
        except Exception:
            self.returned = _copied(returned)

    def read_files(self) -> None:
        """Digest the files that the run wrote."""
        for name in self.files:
            path = Path(name)
            if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
                self.files[name] = hashlib.sha256(path.read_bytes()).hexdigest()


_current: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recorded_by(recording: Recording) -> Iterator[None]:
    """Make this recording the one that `release`, `public` and `batch` fill."""
    token = _current.set(recording)
    try:
        yield
    finally:
        _current.reset(token)


def release(value: Any) -> Any:
    """Mark a noisy value, such as a noisy gradient: what follows is post-processing.

    Outside of `dpaudit.check_pipeline` the value is returned as it is. In a check the second run
    gets the value of the first one.

    Arguments:
        value: A number, an array of any framework, or a list, tuple or dictionary of these.

    Example:
        >>> release(3.0)
        3.0
    """
    recording = _current.get()
    return value if recording is None else recording.release(value)


def public(**quantities: Any) -> None:
    """Say what a training uses without noise, such as its divisor or its number of steps.

    Arguments:
        quantities: Values by name; a check compares each with that of the other data set.

    Example:
        >>> public(divisor=64, steps=100)
    """
    recording = _current.get()
    if recording is not None:
        for name, value in quantities.items():
            recording.add(name.replace("_", " "), value)


def batch(records: Sequence[int] | Any) -> None:
    """Say which records are in the next batch.

    Arguments:
        records: Their places in the data set.

    Example:
        >>> batch([0, 5, 7])
    """
    recording = _current.get()
    if recording is not None:
        ids = recording.draws.ids
        recording.add_batch(ids[np.asarray(records, dtype=np.int64)])


def returned_as_arrays(returned: Any) -> Array:
    """All numbers that a training returned, as one vector; empty if there are none."""
    try:
        return flat_parameters(returned)
    except ValueError:
        return np.zeros(0)


def digest_of(value: Any) -> str:
    """A digest of numbers, text and nested values."""
    digest = hashlib.blake2b(digest_size=12)
    for part in _bytes_of(value):
        digest.update(part)
    return digest.hexdigest()


def _bytes_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _bytes_of(value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _bytes_of(part)
    elif isinstance(value, str | bytes | int | bool | type(None)):
        yield repr(value).encode()
    else:
        try:
            yield as_array(value).tobytes()
        except ValueError:
            yield type(value).__name__.encode()


def _plain(value: Any) -> Any:
    """A number, a text, or a tuple of numbers."""
    if isinstance(value, str | bool | int | float | tuple | type(None)):
        return value
    try:
        numbers = as_array(value)
    except ValueError:
        return type(value).__name__
    return float(numbers) if numbers.ndim == 0 else tuple(numbers.ravel().tolist())


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_shape(part) for part in value)
    return tuple(getattr(value, "shape", ()))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(part) for part in value)
    if callable(getattr(value, "detach", None)):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value
