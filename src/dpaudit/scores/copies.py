r"""Whether a table of scores holds copies of its own rows, which would make bounds too large.

Without canary numbers a copied row looks like another run. Equal rows alone are no copies: binary
and rounded scores repeat, and so do numbers of 32 bits. Two signs are beyond chance:

- **Too many rows occur equally often.** Let independent rows take a value with rate
  :math:`\lambda`. It then occurs :math:`k-1`, :math:`k` or :math:`k+1` times with probabilities
  proportional to :math:`k/\lambda`, 1 and :math:`\lambda/(k+1)`, so that the share of :math:`k`
  among the three is at most :math:`1 / (1 + 2\sqrt{k/(k+1)}) < 0.38`, whatever the distribution of
  the scores. Of n values that occur :math:`k-1` to :math:`k+1` times, a number at :math:`k` that
  has a smaller probability than `_CHANCE` at this share is refused (for k = 2, from 20 of 20 on).
- **Many consecutive rows, at least half of them different, occur again in the same order.**
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidScores

_MANY_ROWS = 20
_CHANCE = 1e-8
_REMEDY = "remove the copies, or number the canaries (canary) if the scores are right"


def refuse_copies(score: Array, inserted: NDArray[np.bool_]) -> None:
    """Raise `InvalidScores` if rows without canary numbers are copies of each other."""
    from scipy.special import bdtrc  # slow to import, and few tables need it

    code = np.unique(score, return_inverse=True)[1]
    rows, times = np.unique(2 * code + inserted, return_inverse=True, return_counts=True)[1:]
    occurring = np.bincount(times, minlength=times.max() + 2)  # values that occur so often
    often = np.arange(2, len(occurring) - 1)
    near = occurring[often - 1] + occurring[often] + occurring[often + 1]
    chance = bdtrc(occurring[often] - 1, near, 1 / (1 + 2 * np.sqrt(often / (often + 1))))
    for copies in often[(occurring[often] > 0) & (chance < _CHANCE)][:1]:
        raise InvalidScores(
            f"{occurring[copies]} different scores occur exactly {copies} times each, as in "
            f"{copies} copies of them; {_REMEDY}"
        )
    again = _first_that_occurs_again(rows, times[rows] > 1)
    if again is not None:
        raise InvalidScores(
            f"{_MANY_ROWS} scores from place {again} on occur again in the same order, as if a "
            f"part of them had been copied; {_REMEDY}"
        )


def _first_that_occurs_again(rows: Integers, repeated: NDArray[np.bool_]) -> int | None:
    """The first place from which `_MANY_ROWS` rows, half of them different, occur again.

    Arguments:
        rows: One number for each row, from 0; equal rows have equal numbers.
        repeated: Whether there are other rows with the same number.
    """
    if len(rows) <= _MANY_ROWS or 2 * (int(rows.max()) + 1) < _MANY_ROWS:
        return None
    places = np.flatnonzero(sliding_window_view(repeated, _MANY_ROWS).all(axis=1))
    windows = sliding_window_view(rows, _MANY_ROWS)
    weights = np.random.default_rng(0).integers(1, 2**63, _MANY_ROWS, dtype=np.uint64) * 2 + 1
    hashes = np.zeros(len(places), dtype=np.uint64)
    for offset, weight in enumerate(weights):
        hashes += rows[places + offset].astype(np.uint64) * weight  # modulo 2**64
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    later = np.flatnonzero(first[inverse] != np.arange(len(places)))
    earlier, later = places[first[inverse[later]]], places[later]
    different = 1 + (np.diff(np.sort(windows[earlier], axis=1), axis=1) > 0).sum(axis=1)
    same = (windows[earlier] == windows[later]).all(axis=1) & (2 * different >= _MANY_ROWS)
    return int(earlier[same][0]) if same.any() else None
