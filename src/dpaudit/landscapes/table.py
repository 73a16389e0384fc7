r"""Any landscape, as a table: linear between grid points, with jumps where a point is repeated."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._files import write_text
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.landscapes import inside
from dpaudit.mechanisms.landscape import Landscape


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Landscape):
    r"""Any landscape, on a grid: linear between grid points, constant beyond the ends.

    A position may be repeated in the grid; the push jumps there.

    Arguments:
        positions: Grid points, in ascending order, in units of the clipping norm.
        push: The drift at each of them as a fraction of the reach, in [-1, 1]. In terms of the
            gradient sum of the paper it is :math:`-g / (BC)`.

    Example:
        >>> ramp = Table(positions=[0.0, 1.0], push=[0.0, 1.0])
        >>> ramp.drift(np.array([-1.0, 0.25, 7.0]), reach=4.0)
        array([0., 1., 4.])
    """

    positions: ArrayLike
    push: ArrayLike

    def __post_init__(self) -> None:
        positions = np.array(self.positions, dtype=float).ravel()
        push = np.array(self.push, dtype=float).ravel()
        if positions.size < 2 or positions.size != push.size:
            raise InvalidInput(
                "positions and push must have the same length of at least 2, "
                f"got {positions.size} and {push.size}"
            )
        if not (np.isfinite(positions).all() and np.isfinite(push).all()):
            raise InvalidInput("positions and push must be finite; remove NaN and infinity")
        if (np.diff(positions) < 0).any():
            where = int(np.argmax(np.diff(positions) < 0))
            raise InvalidInput(
                f"positions must be in ascending order, got {positions[where]:g} before "
                f"{positions[where + 1]:g}; sort the rows"
            )
        if np.abs(push).max() > 1 + 1e-12:
            worst = int(np.argmax(np.abs(push)))
            raise InvalidInput(
                f"push must be in [-1, 1], got {push[worst]:g} at position {positions[worst]:g}; "
                "a landscape is a sum of B gradients clipped to norm C, so it stays in [-BC, BC]"
            )
        for array in (positions, push):
            array.setflags(write=False)
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "push", push)

    @classmethod
    def from_gradients(
        cls, positions: ArrayLike, gradients: ArrayLike, *, batch_size: int
    ) -> Table:
        r"""From the paper's :math:`g`: gradient sums in units of C, checked to lie in [-B, B].

        The drift is :math:`-g`, as in gradient descent.
        """
        _validate.integer("batch_size", batch_size, at_least=1)
        gradients = np.asarray(gradients, dtype=float)
        outside = np.abs(gradients) > batch_size * (1 + 1e-12)
        if outside.any():
            worst = int(np.argmax(np.abs(gradients)))
            raise InvalidInput(
                f"gradients must be in [-{batch_size}, {batch_size}] (that is [-BC, BC]), got "
                f"{gradients.ravel()[worst]:g}; raise the batch size or clip the table"
            )
        return cls(positions=positions, push=-gradients / batch_size)

    @classmethod
    def from_function(
        cls,
        gradient: Callable[[Array], Array],
        *,
        batch_size: int,
        low: float,
        high: float,
        points: int = 1001,
    ) -> Table:
        r"""Sample a gradient function :math:`g` evenly on [low, high]."""
        if not low < high:
            raise InvalidInput(f"low must be below high, got {low!r} and {high!r}")
        grid = np.linspace(low, high, _validate.integer("points", points, at_least=2))
        return cls.from_gradients(grid, gradient(grid), batch_size=batch_size)

    @classmethod
    def from_file(cls, path: str | Path, *, batch_size: int) -> Table:
        """Read a CSV file of two columns, ``position,gradient``, with or without a header."""
        path = Path(path)
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                rows = [row for row in csv.reader(stream) if row and not row[0].startswith("#")]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(
                f"landscape file {str(path)!r} cannot be read ({error}); give a CSV file with "
                "columns position,gradient or one of the named shapes"
            ) from None
        if rows and not _is_number(rows[0][0]):
            rows = rows[1:]
        for number, row in enumerate(rows, start=1):
            if len(row) != 2 or not all(_is_number(cell) for cell in row):
                raise InvalidInput(
                    f"row {number} of {str(path)!r} must be two numbers, position,gradient, "
                    f"got {','.join(row)[:80]!r}"
                )
        if len(rows) < 2:
            raise InvalidInput(f"{str(path)!r} must hold at least 2 rows, got {len(rows)}")
        table = np.array(rows, dtype=float)
        return cls.from_gradients(table[:, 0], table[:, 1], batch_size=batch_size)

    def to_gradients(self, *, batch_size: int) -> tuple[Array, Array]:
        r"""Positions and the paper's :math:`g` there, in units of C."""
        return self._grid, -np.asarray(self.push, dtype=float) * batch_size

    def to_file(self, path: str | Path, *, batch_size: int) -> None:
        """Write the CSV file that `from_file` reads."""
        rows = np.stack(self.to_gradients(batch_size=batch_size), axis=-1).tolist()
        lines = [f"{position!r},{gradient!r}" for position, gradient in rows]
        write_text(Path(path), "position,gradient\n" + "\n".join(lines) + "\n")

    @property
    def _grid(self) -> Array:
        return np.asarray(self.positions, dtype=float)

    def drift(self, position: Array, reach: float) -> Array:
        grid, push = self._grid, np.asarray(self.push, dtype=float)
        position = np.asarray(position, dtype=float)
        # Not np.interp: at a repeated position the interval to the right is used.
        right = np.clip(np.searchsorted(grid, position, side="right"), 1, grid.size - 1)
        width = grid[right] - grid[right - 1]
        share = np.clip((position - grid[right - 1]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
        share = np.where(position >= grid[-1], 1.0, share)
        return np.asarray(reach * (push[right - 1] + share * (push[right] - push[right - 1])))

    def edges(self, low: float, high: float, reach: float) -> Array:
        return inside(self._grid, low, high)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
