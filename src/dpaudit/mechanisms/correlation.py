r"""Noise that is correlated over the steps: matrix factorisation, also known as DP-FTRL.

The noise of step :math:`t` is row :math:`t` of :math:`C^{-1} Z`, where :math:`Z` has independent
rows of standard normals and :math:`C`, the *strategy matrix*, is lower triangular and banded.
Everything that is released is a function of :math:`C G + Z`, where row :math:`t` of :math:`G` is
the clipped sum of step :math:`t`. This is one Gaussian mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput


@final
@dataclass(frozen=True, kw_only=True)
class CorrelatedNoise:
    r"""Noise :math:`C^{-1} Z` with a banded Toeplitz strategy matrix :math:`C`.

    Column :math:`t` of :math:`C` has the coefficients :math:`c_0, c_1, \dots` from row :math:`t`
    on. They are scaled to norm 1, so that an example in a single step has the same privacy as with
    independent noise of the same noise multiplier. A coefficient :math:`c_1 > 0` makes the noise of
    successive steps cancel in part.

    Paper: Choquette-Choo et al., *(Amplified) banded matrix factorization* (NeurIPS 2023); Denisov
    et al., *Improved differential privacy for SGD via optimal private linear operators* (NeurIPS
    2022). Convention as in jax-privacy.

    Arguments:
        coefficients: :math:`c_0, \dots, c_{b-1}` for ``b`` bands, the first one not zero.

    Example:
        >>> noise = CorrelatedNoise.square_root(bands=4)
        >>> noise.bands, noise.memory
        (4, 3)
        >>> round(noise.sensitivity([0], steps=10), 6)
        1.0
        >>> round(noise.sensitivity(range(10), steps=10), 3)
        5.201
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        values = np.asarray(self.coefficients, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or values[0] == 0:
            raise InvalidInput(
                "coefficients must be finite numbers, at least one, the first not zero; got "
                f"{self.coefficients!r}. CorrelatedNoise.square_root(bands=...) is a good choice"
            )
        object.__setattr__(self, "coefficients", tuple(float(value) for value in values))

    @classmethod
    def square_root(cls, *, bands: int) -> CorrelatedNoise:
        r"""The first ``bands`` coefficients of :math:`A^{1/2}`, with :math:`A` the prefix sums.

        Paper: Henzinger, Upadhyay (SODA 2025), the square-root factorisation :math:`c_j =
        \binom{2j}{j} 4^{-j}`; Kalinin, Lampert (NeurIPS 2024) for the banded one.
        """
        coefficients = [1.0]
        for place in range(1, _validate.integer("bands", bands, at_least=1)):
            coefficients.append(coefficients[-1] * (2 * place - 1) / (2 * place))
        return cls(coefficients=tuple(coefficients))

    @property
    def bands(self) -> int:
        """Number of coefficients b."""
        return len(self.coefficients)

    @property
    def memory(self) -> int:
        """Number of earlier noise vectors that a step needs."""
        return self.bands - 1

    @property
    def scaled(self) -> tuple[float, ...]:
        """The coefficients, scaled to norm 1."""
        norm = math.hypot(*self.coefficients)
        return tuple(value / norm for value in self.coefficients)

    def next(self, fresh: Any, past: Sequence[Any]) -> Any:
        """The noise of a step, from independent normals of any array type and the last noise.

        Past noise comes latest first, `memory` vectors of it, which are zeros at the start.
        """
        first, *others = self.scaled
        for coefficient, before in zip(others, past, strict=True):
            fresh = fresh - coefficient * before
        return fresh / first

    def matrix(self, steps: int) -> Array:
        """The strategy matrix C, shape (steps, steps)."""
        from scipy.linalg import toeplitz  # slow to import

        column = np.zeros(steps)
        column[: self.bands] = self.scaled[:steps]
        return np.tril(toeplitz(column))

    def sensitivity(self, used: Sequence[int], *, steps: int) -> float:
        r"""The largest change of :math:`C G`, in units of the clip norm.

        For an example in the steps ``used`` it is at most :math:`\sqrt{\sum_{s,t} |C^\top
        C|_{st}}`, which equals :math:`|C 1|` if no entry of :math:`C^\top C` is negative: the
        example then has the same gradient in all these steps.

        ``steps`` is the number of steps that are released.
        """
        columns = self.matrix(steps)[:, list(used)]
        return math.sqrt(np.abs(columns.T @ columns).sum())

    def mu(self, noise_multiplier: float, used: Sequence[int], *, steps: int) -> float:
        """The Gaussian-DP parameter for an example in the steps ``used``."""
        return self.sensitivity(used, steps=steps) / noise_multiplier

    def weights(self, used: Sequence[int], *, steps: int) -> Array:
        r"""The weights :math:`C^\top C 1` of the noisy sums in the best test for an example.

        With these weights the sum of the noisy sums is that of the *whitened* sums :math:`C G + Z`
        along :math:`C 1`.
        """
        matrix, used_steps = self.matrix(steps), np.zeros(steps)
        used_steps[list(used)] = 1.0
        weights: Array = matrix.T @ (matrix @ used_steps)
        return weights

    def spread_of_sum(self, weights: Array) -> float:
        r"""Standard deviation of the noise of all steps with weights, :math:`|C^{-\top} w|`.

        With weights 1 this is the noise of the final model of SGD.
        """
        from scipy.linalg import solve_triangular  # slow to import

        whitening = solve_triangular(self.matrix(len(weights)).T, weights, lower=False)
        return float(np.linalg.norm(whitening))
