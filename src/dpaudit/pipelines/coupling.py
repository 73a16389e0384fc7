"""Random draws that are coupled by record: a record gets the same draws with and without another.

The same seed does not couple two runs on N and N + 1 records, because generators then give every
record other numbers. Here each draw about records is computed from a key of its own:

| draw | how it is coupled |
|---|---|
| a uniform number per record (Poisson sampling) | record i gets number i of a stream |
| a permutation | the added record takes a random place, the record from there the last place |
| a subset of fixed size | the records with the smallest uniform numbers |
| the size of a Poisson batch, then a subset of that size | the records below the rate |
| indices with replacement | an added record replaces an index with probability 1 / (N + 1) |

Each of these has the distribution of the draw that it replaces. Normal draws have a stream for each
shape, so that a draw as large as a batch does not shift those as large as the model.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.pipelines.neighbours import Ids


def seed_of(*key: object) -> int:
    """A seed for this key, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")


@final
class Draws:
    """The draws of one run. Runs on neighbouring data sets with equal seeds are coupled.

    Arguments:
        ids: The numbers of the records, in the order of the data set.
        extras: The numbers of the records that only one data set has.
        seed: The seed of the run.
        variant: Another number gives other draws about records, and leaves all other draws equal.

    Example:
        >>> first, second = (Draws(ids=np.arange(n), extras={4}, seed=0) for n in (4, 5))
        >>> bool((first.uniform("a", 4) == second.uniform("a", 5)[:4]).all())
        True
        >>> sorted(int(i) for i in second.permutation("b", 5))
        [0, 1, 2, 3, 4]
    """

    def __init__(self, *, ids: Ids, extras: Collection[int], seed: int, variant: int = 0) -> None:
        self.ids, self.extras, self.seed = ids, np.array(sorted(extras)), seed
        self.variant = variant
        self._calls: Counter[object] = Counter()

    @property
    def count(self) -> int:
        """Number of records in this run."""
        return len(self.ids)

    def key(self, *stream: object) -> int:
        """The seed of the next draw of a stream."""
        self._calls[stream] += 1
        return seed_of(self.seed, stream, self._calls[stream])

    def key_of_records(self, *stream: object) -> int:
        """The seed of the next draw about records."""
        return self.key(self.variant, *stream)

    def numbers(self, size: int) -> Ids:
        """The numbers of the records, if so many are drawn for; otherwise their places."""
        return self.ids if size == self.count else np.arange(size)

    def uniform(self, stream: object, size: int, rest: tuple[int, ...] = ()) -> Array:
        """One uniform number (or an array of the shape ``rest``) for each record."""
        return self.uniform_of(self.key_of_records("uniform", stream), self.numbers(size), rest)

    @staticmethod
    def uniform_of(key: int, numbers: Ids, rest: tuple[int, ...] = ()) -> Array:
        """The uniform numbers of these records under a key."""
        most = int(numbers.max(initial=-1)) + 1
        drawn: Array = np.random.Generator(np.random.Philox(key)).random((most, *rest))
        return drawn[numbers]

    def permutation(self, stream: object, size: int) -> Ids:
        """A permutation of the places of ``size`` records."""
        numbers = self.numbers(size)
        uniform = self.uniform_of(self.key_of_records("permutation", stream), np.arange(size))
        order: list[int] = []
        for number, place in enumerate((uniform * np.arange(1, size + 1)).astype(int).tolist()):
            order.append(number)
            order[number], order[place] = order[place], order[number]
        places = np.empty(size, dtype=np.int64)
        places[numbers] = np.arange(size)
        return places[np.array(order, dtype=np.int64)]

    def subset(self, stream: object, size: int, chosen: int) -> Ids:
        """The places of ``chosen`` records out of ``size``, without replacement."""
        uniform = self.uniform(("subset", stream), size)
        return np.sort(np.argsort(uniform, kind="stable")[:chosen])

    def indices(self, stream: object, size: int, chosen: int) -> Ids:
        """The places of ``chosen`` records out of ``size``, with replacement."""
        random = np.random.Generator(np.random.Philox(self.key_of_records("indices", stream)))
        among, uniform = random.random(chosen), random.random(chosen)
        numbers = self.numbers(size)
        extras = np.intersect1d(numbers, self.extras) if size == self.count else np.empty(0)
        picked = np.floor(among * (size - len(extras))).astype(np.int64)
        instead = np.floor(uniform * size).astype(np.int64)  # an added record, if there is one
        picked[instead < len(extras)] = extras[instead[instead < len(extras)]]
        places = np.empty(size, dtype=np.int64)
        places[numbers] = np.arange(size)
        return places[picked]
