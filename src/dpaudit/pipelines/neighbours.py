"""Neighbouring data sets: which records differ, and the number of every record in both.

A data set is anything with records in its first dimension: an array, a tensor, a list, a data
frame, a torch data set, or a tuple or dictionary of these (inputs and labels).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput

Ids = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Two data sets that differ in one record, or in all records of one user.

    Arguments:
        first: The first data set.
        second: The second one.
        ids: The numbers of the records, in the order of each data set. Records that both have the
            same number in both; those that differ have the largest numbers.
        extras: The numbers of the records that differ.
        words: The difference in words.
        unit: What differs: ``"record"``, or what owns several records, such as ``"user"``.
    """

    first: Any
    second: Any
    ids: tuple[Ids, Ids]
    extras: frozenset[int]
    words: str
    unit: str = "record"

    @property
    def replaced(self) -> bool:
        """Whether records are replaced, so that both data sets have the same size."""
        return len(self.ids[0]) == len(self.ids[1])


def neighbours_of(given: Any, *, unit: str = "record", name: str = "neighbours") -> Neighbours:
    """The neighbouring data sets of a pair (D, D1), or of a function that returns one.

    Arguments:
        given: The pair or the function; or neighbours that were made by this function.
        unit: What differs. Any unit but a record may own several records; a claim for this unit
            must say so, `Claim.per`.
        name: The argument, for error messages.

    Example:
        >>> neighbours_of((np.arange(3.0), np.arange(4.0))).words
        'record 4 of 4 is added'
        >>> neighbours_of((np.arange(3.0), np.arange(5.0)), unit="user").words
        '2 of 5 records, those of a user, are added'
    """
    unit = _validate.name_of_unit(unit)
    pair = given() if callable(given) else given
    if isinstance(pair, Neighbours):
        return pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidInput(
            f"{name} must be a pair (D, D1) of data sets, or a function that returns one, got "
            f"{type(pair).__name__}; for the inputs and labels of one data set use "
            "neighbours=dpaudit.pipelines.with_and_without((X, y))"
        )
    first, second = pair
    sizes = records_of(first, name=name), records_of(second, name=name)
    smaller, larger = min(sizes), max(sizes)
    if larger - smaller > 1 and unit == "record":
        raise InvalidInput(
            f"{name} must differ in one record, got data sets of {sizes[0]} and {sizes[1]} "
            "records; for all records of a user use neighbours_of(..., unit='user'), or --unit "
            "user; if inputs and labels were given as a pair, use "
            "dpaudit.pipelines.with_and_without((X, y))"
        )
    if larger == smaller:
        places = [place for place in range(larger) if not _same(first, place, second, place)]
        if len(places) > 1 and unit == "record":
            raise InvalidInput(
                f"{name} of the same size must differ in one record, got {len(places)} that differ"
            )
        if not places:
            raise InvalidInput(f"{name} must differ in a record, got two equal data sets")
        done = "replaced"
        ids = (_ids_with(places, larger),) * 2
    else:
        added = sizes[1] > sizes[0]
        short, long, done = (first, second, "added") if added else (second, first, "removed")
        places = []
        for place in range(larger):
            own = place - len(places)
            if own >= smaller or not _same(short, own, long, place):
                places.append(place)
        if len(places) > larger - smaller:
            raise InvalidInput(
                f"{name} must differ in {'one record' if unit == 'record' else f'one {unit}'}, got "
                f"data sets that differ in more than record {places[0] + 1}"
            )
        both = np.arange(smaller), _ids_with(places, larger)
        ids = both if added else (both[1], both[0])
    return Neighbours(
        first=first,
        second=second,
        ids=ids,
        extras=frozenset(range(larger - len(places), larger)),
        words=f"record {places[0] + 1} of {larger} is {done}"  # people count from 1
        if unit == "record"
        else f"{len(places)} of {larger} records, those of a {unit}, are {done}",
        unit=unit,
    )


def with_and_without(data: Any, record: int | Sequence[int] = -1) -> Callable[[], tuple[Any, Any]]:
    """A function that returns a data set without one of its records, and with it.

    Arguments:
        data: The data set; a tuple or dictionary of arrays is one data set.
        record: The place of the record, the last one by default; or the places of all records of
            one user.

    Example:
        >>> inputs, labels = np.eye(3), np.arange(3)
        >>> without, everything = with_and_without((inputs, labels))()
        >>> len(without[0]), len(everything[0])
        (2, 3)
    """
    count = records_of(data)
    if np.size(record) == 0:
        raise InvalidInput("record must name at least one record, got none")
    for place in np.atleast_1d(record):
        if not -count <= place < count:
            raise InvalidInput(f"record must be in {-count} to {count - 1}, got {place}")
    rest = np.delete(np.arange(count), record)
    return lambda: (taken(data, rest), data)


def with_zeros(data: Any) -> tuple[Any, Any]:
    """A data set without its last record, and with zeros in the place of this record.

    Example:
        >>> without, zeros = with_zeros(np.ones((3, 2)))
        >>> without.shape, zeros[-1]
        ((2, 2), array([0., 0.]))
    """
    return taken(data, np.arange(records_of(data) - 1)), _map(data, _zero_last)


def records_of(data: Any, *, name: str = "data") -> int:
    """The number of records of a data set."""
    sizes = {_length(part, name) for part in _parts(data)}
    if len(sizes) != 1:
        raise InvalidInput(
            f"{name} must have the same number of records in all its parts, got "
            f"{', '.join(map(str, sorted(sizes))) or 'no part'}"
        )
    (count,) = sizes
    if count < 1:
        raise InvalidInput(f"{name} must have at least one record, got none")
    return count


def copied(data: Any) -> Any:
    """A copy of a data set, so that a training that changes it in place changes no other run."""
    try:
        return copy.deepcopy(data)
    except Exception:  # open files and the like cannot be copied, and are not changed either
        return data


def taken(data: Any, places: Ids) -> Any:
    """The records at these places."""
    return _map(data, lambda part: _take(part, places))


def _map(data: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(data, Mapping):
        return {key: function(part) for key, part in data.items()}
    if isinstance(data, tuple):
        return tuple(function(part) for part in data)
    return function(data)


def _parts(data: Any) -> list[Any]:
    if isinstance(data, Mapping):
        return list(data.values())
    return list(data) if isinstance(data, tuple) else [data]


def _length(part: Any, name: str) -> int:
    try:
        return len(part)
    except TypeError:
        raise InvalidInput(
            f"{name} must have a number of records, len(data), got {type(part).__name__}"
        ) from None


def _take(part: Any, places: Ids) -> Any:
    if isinstance(part, list):
        return [part[place] for place in places]
    if hasattr(part, "iloc"):  # a data frame
        return part.iloc[places]
    if hasattr(part, "shape"):
        return part[places]
    return _Chosen(part, [int(place) for place in places])


def _zero_last(part: Any) -> Any:
    if hasattr(part, "iloc") or not hasattr(part, "shape"):
        raise InvalidInput(
            f"a record of zeros cannot be made in a {type(part).__name__}; give neighbours"
        )
    changed = copied(part)
    if hasattr(changed, "at"):  # arrays of JAX cannot be changed in place
        return changed.at[-1].set(0)
    changed[-1] = 0
    return changed


@final
class _Chosen:
    """Some records of a data set that only has ``len`` and ``data[i]``."""

    def __init__(self, data: Any, places: list[int]) -> None:
        self.data, self.places = data, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: int) -> Any:
        return self.data[self.places[place]]


def _ids_with(places: list[int], count: int) -> Ids:
    """Numbers of records where those at ``places`` have the largest."""
    ids = np.empty(count, dtype=np.int64)
    others = np.delete(np.arange(count), places)
    ids[np.concatenate([others, np.array(places, dtype=np.int64)])] = np.arange(count)
    return ids


def _same(a: Any, i: int, b: Any, j: int) -> bool:
    return all(
        _equal(_record(x, i), _record(y, j)) for x, y in zip(_parts(a), _parts(b), strict=True)
    )


def _record(part: Any, place: int) -> Any:
    return part.iloc[place] if hasattr(part, "iloc") else part[place]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    try:
        both = np.asarray(a), np.asarray(b)
        missing = all(array.dtype.kind in "fc" for array in both)  # NaN stands for a missing value
        return bool(np.array_equal(*both, equal_nan=missing))
    except Exception:
        return a is b or bool(a == b)
