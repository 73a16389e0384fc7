"""Canaries in random directions, and canaries with one axis in every parameter tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.claims import Claim, ClaimTest, test_claim
from dpaudit.errors import InvalidInput
from dpaudit.scores import Scores
from dpaudit.trainings.canaries import AS_LARGE_AS, GradientCanary

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DirectionCanary:
    """Crafted gradients in random directions, with a share in every parameter.

    Clipping by another norm than the Euclidean one (per coordinate, by the largest entry, per
    tensor) treats an axis correctly and such a gradient not.

    See also: `GradientCanary`, along axes, which has the same methods.

    Arguments:
        directions: One direction of norm 1 for each canary, orthogonal to each other.
        clip_norm: C, the norm that the training claims to clip to.
        norm: Norm of a canary's gradient before clipping.

    Example:
        >>> canary = DirectionCanary.draw(400, clip_norm=1.0, count=2)
        >>> canary.score(-canary.clipped_sum([True, False])).round(6)
        array([1., 0.])
    """

    directions: Array
    clip_norm: float
    norm: float

    @classmethod
    def draw(
        cls,
        parameters: int,
        *,
        clip_norm: float,
        count: int = 1,
        seed: int = 0,
        norm: float | None = None,
    ) -> DirectionCanary:
        """Draw ``count`` orthogonal directions; ``norm`` is ten times the clip norm by default."""
        parameters = _validate.integer("parameters", parameters, at_least=1)
        count = _validate.integer("count", count, at_least=1)
        clip_norm = _validate.positive("clip_norm", clip_norm)
        if count > parameters:
            raise InvalidInput(
                f"count must be at most the number of parameters ({parameters}), since directions "
                f"are orthogonal; got {count}"
            )
        random = np.random.default_rng(_validate.integer("seed", seed))
        drawn = np.linalg.qr(random.standard_normal((parameters, count)))[0].T
        return cls(
            directions=np.ascontiguousarray(drawn),
            clip_norm=clip_norm,
            norm=AS_LARGE_AS * clip_norm if norm is None else _validate.positive("norm", norm),
        )

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""
        return int(self.directions.shape[1])

    @property
    def count(self) -> int:
        """Number of canaries."""
        return len(self.directions)

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradients before clipping of the inserted canaries, one row each."""
        return self.norm * self.directions[self._coins(inserted)]

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The sum of the inserted canaries after correct clipping, flat."""
        total: Array = self.directions[self._coins(inserted)].sum(axis=0)
        return min(self.norm, self.clip_norm) * total

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against each canary's gradient, one score per canary."""
        moved = np.asarray(final, dtype=np.float64)
        if moved.shape != (self.parameters,):
            raise InvalidInput(
                f"final must be flat with one number for each of the {self.parameters} parameters, "
                f"got shape {moved.shape}"
            )
        if initial is not None:
            moved = moved - np.asarray(initial, dtype=np.float64)
        return -(self.directions @ moved)

    def _coins(self, inserted: ArrayLike) -> NDArray[np.bool_]:
        coins = np.atleast_1d(np.asarray(inserted, dtype=bool))
        if coins.shape != (self.count,):
            raise InvalidInput(
                f"inserted must be one boolean for each of the {self.count} canaries, got shape "
                f"{coins.shape}"
            )
        return coins


def one_per_tensor(
    tensors: Mapping[str, int], *, clip_norm: float, seed: int = 0
) -> tuple[GradientCanary, tuple[str, ...]]:
    """One canary along a random axis of every parameter tensor, and the names of the tensors.

    `by_tensor` tests their scores one tensor at a time: noise that is missing in one tensor, or a
    tensor left out of the clip norm, is found and named.

    Arguments:
        tensors: Names and sizes of the tensors, in the order of the flat parameter vector, for
            instance ``{name: p.numel() for name, p in model.named_parameters()}``.
        clip_norm: C, the norm that the training claims to clip to.
        seed: Random seed of the axes.

    Example:
        >>> canary, names = one_per_tensor({"weight": 12, "bias": 3}, clip_norm=1.0)
        >>> names, canary.count, canary.parameters
        (('weight', 'bias'), 2, 15)
    """
    if not tensors:
        raise InvalidInput("tensors must name at least one tensor with its size, got none")
    random = np.random.default_rng(_validate.integer("seed", seed))
    sizes = [_validate.integer(f"size of {name}", n, at_least=1) for name, n in tensors.items()]
    clip_norm = _validate.positive("clip_norm", clip_norm)
    starts = np.cumsum(sizes) - sizes
    axes = [start + random.integers(size) for start, size in zip(starts, sizes, strict=True)]
    canary = GradientCanary(
        parameters=sum(sizes),
        dimensions=np.array(axes, dtype=np.int64),
        clip_norm=clip_norm,
        norm=AS_LARGE_AS * clip_norm,
    )
    return canary, tuple(tensors)


def by_tensor(
    scores: Scores, names: Sequence[str], claim: Claim, *, confidence: float = 0.95
) -> dict[str, ClaimTest]:
    """Test a claim with the scores of one canary at a time, at a corrected level.

    With K canaries each test has confidence ``1 - (1 - confidence) / K``, so that a correct
    training has any violation with probability at most ``1 - confidence`` (Bonferroni).

    Arguments:
        scores: Scores of many runs, such as ``audit_training(...).scores``.
        names: The name of each canary, as `one_per_tensor` returns them.
        claim: The claim.
        confidence: Confidence of all tests together.
    """
    confidence = _validate.between("confidence", confidence, 0, 1)
    corrected = 1 - (1 - confidence) / max(1, len(names))
    tests = {}
    for place, name in enumerate(names):
        own = scores.canary == place
        if not own.any():
            raise InvalidInput(
                f"scores must have rows of canary {place} ({name}); there are {len(names)} names "
                f"and canaries {sorted(set(scores.canary.tolist()))[:10]}"
            )
        one = Scores(score=scores.score[own], inserted=scores.inserted[own], run=scores.run[own])
        tests[name] = test_claim(one, claim, confidence=corrected)
    return tests
