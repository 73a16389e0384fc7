"""What a training returns, and the score that it gives each canary.

| a training returns | the adversary sees | score of a canary |
|---|---|---|
| a number, or one per canary | what the user chose | this number |
| the final parameters, in any framework | the model (hidden state) | `CraftedCanary.score` |
| `Predictions` | predictions on the canary (black box) | log-likelihood of its label |
| `PrivateGradients` | every noisy gradient (standard) | log-likelihood ratio over all steps |
| anything, with ``adversary=`` a function | what the user chose | what the function returns |

No framework is imported: the training has loaded the one that it uses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._validate import said
from dpaudit.errors import InvalidInput, UnscorableReturn
from dpaudit.trainings.canary import CraftedCanary

Kind = Literal["score", "parameters", "predictions", "private gradients", "own"]
AdversaryLike = Callable[[Any, Any], Any] | str | None

NAMES = ("score", "parameters", "predictions", "private gradients")


class NotFinite(ValueError):
    """A score is not finite, so the run counts as failed."""


@final
@dataclass(frozen=True, kw_only=True)
class Scorer:
    """Scores what one training returned."""

    canary: Any
    adversary: AdversaryLike = None
    initial: Any = None
    canaries: int = field(init=False)

    def __post_init__(self) -> None:
        if self.adversary is not None and not callable(self.adversary):
            _validate.one_of(
                "adversary",
                self.adversary,
                NAMES,
                remedy="or give a function of (canary, returned) that returns the score",
            )
        if self.initial is not None:
            start = flat_parameters(self.initial)
            _check_initial(start, self.canary)
            object.__setattr__(self, "initial", start)  # a copy: training may change a model
        count = getattr(self.canary, "count", 1)
        several = isinstance(count, int) and not isinstance(count, bool)
        object.__setattr__(self, "canaries", int(count) if several else 1)

    def kind(self, returned: Any) -> Kind:
        """The adversary for a returned value."""
        if returned is None and not callable(self.adversary):
            raise UnscorableReturn(
                "the training returned None, and nothing can be scored: does it end without "
                "'return'? A training returns a number (higher for 'inserted'), the final "
                "parameters, or dpaudit.Predictions"
            )
        if callable(self.adversary):
            return "own"
        if self.adversary is not None:
            return self.adversary  # type: ignore[return-value]  # checked above
        if isinstance(returned, Predictions):
            return "predictions"
        if isinstance(returned, PrivateGradients):
            return "private gradients"
        parameters = parameters_of(returned)
        size = None if parameters is None else len(parameters)
        if isinstance(self.canary, CraftedCanary):
            if size == self.canary.parameters or size not in (None, self.canaries):
                return "parameters"
        elif size not in (None, self.canaries):
            raise UnscorableReturn(
                f"the training returned {_words(returned)}, which looks like parameters; they can "
                f"be scored for a GradientCanary, and canary is {_words(self.canary)}; give "
                "adversary=, a function of (canary, returned), or return a score"
            )
        return "score"

    def score(self, returned: Any) -> tuple[Kind, Array]:
        """One finite score per canary, and the adversary that gave it."""
        kind = self.kind(returned)
        try:
            if kind == "own":
                scores = np.atleast_1d(as_array(self._own(returned)))
            elif kind in ("score", "private gradients"):
                scores = np.atleast_1d(as_array(returned))
            elif kind == "predictions":
                if not isinstance(returned, Predictions):
                    raise InvalidInput("Predictions(probabilities=…, target=…) are expected")
                scores = returned.log_likelihood()
            elif not isinstance(self.canary, CraftedCanary):
                raise InvalidInput(
                    f"parameters are scored for a GradientCanary, and canary is "
                    f"{_words(self.canary)}; give adversary=, a function of (canary, returned)"
                )
            else:
                scores = self.canary.score(flat_parameters(returned), self.initial)
        except InvalidInput as error:
            raise UnscorableReturn(
                f"the training returned {_words(returned)}, which the {_ADVERSARIES[kind]} cannot "
                f"score: {error}; a training returns a number (higher for 'inserted'), the final "
                "parameters, or dpaudit.Predictions"
            ) from error
        if scores.shape != (self.canaries,):
            raise UnscorableReturn(
                f"one score for each of {self.canaries} canaries is needed, got shape "
                f"{scores.shape} from {_words(returned)}"
            )
        if not np.isfinite(scores).all():
            wrong = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise NotFinite(
                f"the score of canary {wrong} is {scores[wrong]}, and must be finite: the training "
                "diverged, or it returned values that are not finite"
            )
        return kind, scores

    def _own(self, returned: Any) -> Any:
        try:
            return self.adversary(self.canary, returned)  # type: ignore[operator,misc]
        except Exception as error:
            raise InvalidInput(f"it raised {said(error)}") from error


_ADVERSARIES: dict[Kind, str] = {
    "score": "adversary 'score'",
    "parameters": "adversary 'parameters'",
    "predictions": "adversary 'predictions'",
    "private gradients": "adversary 'private gradients'",
    "own": "function given as adversary",
}


def coverage_of(canary: Any) -> str:
    """What the canaries test, in words."""
    if not isinstance(canary, CraftedCanary):
        return "what the score shows of this canary; other records and other scores may show more"
    if canary.names:
        return f"every tensor that has a canary ({len(canary.names)})"
    dimensions = getattr(canary, "dimensions", None)
    if dimensions is None:
        return f"{canary.count} random direction(s) in all {canary.parameters:,} parameters"
    which = f"parameter {int(dimensions[0])}" if canary.count == 1 else f"{canary.count:,}"
    remedy = "GradientCanary.per_tensor covers all tensors"
    return f"{which} of {canary.parameters:,} parameters; {remedy}"


def _check_initial(initial: Array, canary: object) -> None:
    if isinstance(canary, CraftedCanary) and len(initial) != canary.parameters:
        raise InvalidInput(
            f"initial must have one number for each of the {canary.parameters} parameters that "
            f"the canary was drawn for, got {len(initial)}"
        )
    wrong = int((~np.isfinite(initial)).sum())
    if wrong:
        raise InvalidInput(f"initial must be finite, got {wrong} numbers that are not")


def _words(value: Any) -> str:
    """The type and shape of a value, which may be too large to print."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    of = f" of shape {tuple(shape)}" if shape is not None else ""
    if isinstance(value, str | bool | int | float):
        of = f" ({value!r:.60})"
    return f"a {type(value).__name__}{of}"


# Predictions (black box).

_SMALLEST = float(np.finfo(np.float64).tiny)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    r"""The predictions of the final model on the canary (black-box threat model).

    The score is :math:`\log p(y \mid x)`, the log-likelihood of the canary's label, which is higher
    for a model that was trained on the canary.

    See also: `dpaudit.audit`.

    Arguments:
        target: The label of each canary.
        probabilities: Predicted probabilities, shape (classes,) for one canary or (canaries,
            classes).
        logits: Instead of ``probabilities``: the inputs of the softmax.

    Example:
        >>> Predictions(probabilities=[0.1, 0.9], target=1).log_likelihood().round(4)
        array([-0.1054])
        >>> Predictions(logits=[[0.0, 0.0], [3.0, 3.0]], target=[0, 1]).log_likelihood().round(4)
        array([-0.6931, -0.6931])
    """

    target: ArrayLike
    probabilities: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        if (self.probabilities is None) == (self.logits is None):
            raise InvalidInput(
                "Predictions need exactly one of probabilities and logits, got "
                f"{'neither' if self.logits is None else 'both'}"
            )

    def log_likelihood(self) -> Array:
        """The log-likelihood of each canary's label."""
        given = self.logits if self.probabilities is None else self.probabilities
        table = np.atleast_2d(as_array(given))
        target = np.atleast_1d(as_array(self.target)).astype(np.int64)
        if table.ndim != 2 or len(table) != len(target):
            raise InvalidInput(
                "predictions must have one row of classes for each target, got shape "
                f"{table.shape} for {len(target)} targets"
            )
        classes = table.shape[1]
        if ((target < 0) | (target >= classes)).any():
            raise InvalidInput(f"target must be in 0 to {classes - 1}, got {self.target!r}")
        chosen: Array = table[np.arange(len(target)), target]
        if self.probabilities is None:
            from scipy.special import log_softmax  # slow to import, and few trainings need it

            chosen = log_softmax(table, axis=1)[np.arange(len(target)), target]
            return np.asarray(chosen)
        if (table < 0).any() or (np.abs(table.sum(axis=1) - 1) > 1e-3).any():
            raise InvalidInput(
                "probabilities must be at least 0 and sum to 1 in each row; for anything else give "
                "logits"
            )
        # A probability that underflowed to 0 has a very low score, not none.
        return np.asarray(np.log(np.maximum(chosen, _SMALLEST)))


# Noisy gradients (standard threat model).


@final
class PrivateGradients:
    r"""Projections of every noisy gradient on every canary, inserted or not.

    A training returns this object in place of its parameters. The threat model is the standard one:
    the adversary sees every step. The score of a canary is the log-likelihood ratio of its
    projections :math:`x_t` (in units of C): for a canary in every step :math:`\sum_t x_t` up to
    constants, for one that is sampled with rate :math:`q` :math:`\sum_t \log(1 - q + q
    e^{(x_t - 1/2) / \sigma^2})`. If every canary has a step of its own, its score is the projection
    in that step: each is then one trial of a single Gaussian mechanism, and one training of T steps
    gives T of them.

    See also: `dpaudit.integrations.opacus.insert_canary`, which records one;
    `GradientCanary.score`, for the final parameters.

    Paper: Nasr et al. (USENIX Security 2023), Algorithm 1, scores the gradient of every step.

    Arguments:
        count: Number of canaries.
        noise_multiplier: The claimed sigma; only used if canaries are sampled.
        sampling_rate: Probability that a canary takes part in a step.
        own_step: Whether canary ``i`` takes part in step ``i`` only, counted from 0.

    Example:
        >>> gradients = PrivateGradients(count=2)
        >>> gradients.record([1.0, 0.1])
        >>> gradients.record([0.9, -0.2])
        >>> gradients.scores().round(3)
        array([ 1.344, -0.071])
    """

    def __init__(
        self,
        *,
        count: int = 1,
        noise_multiplier: float | None = None,
        sampling_rate: float = 1.0,
        own_step: bool = False,
    ) -> None:
        self.count = _validate.integer("count", count, at_least=1)
        self._sigma = noise_multiplier
        self._rate = _validate.between("sampling_rate", sampling_rate, 0, 1, closed_high=True)
        self._own_step = own_step
        self._projections: list[Array] = []

    def record(self, projections: Any) -> None:
        """Add the projections of one noisy gradient, one for each canary, in units of C."""
        row = np.asarray(projections, dtype=np.float64)
        if row.shape != (self.count,):
            raise InvalidInput(
                f"projections must be one number for each of the {self.count} canaries, got shape "
                f"{row.shape}"
            )
        self._projections.append(row)

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return len(self._projections)

    @property
    def projections(self) -> Array:
        """All projections: one row per step, one column per canary."""
        return np.stack(self._projections) if self.steps else np.zeros((0, self.count))

    def scores(self) -> Array:
        """One score per canary; higher for a canary that was inserted."""
        if not self.steps:
            raise InvalidInput(
                "no noisy gradient was recorded: the training made no step of the private optimizer"
            )
        projections = self.projections
        if self._own_step:
            if self.steps < self.count:
                raise InvalidInput(
                    f"the training made {self.steps} steps, too few for {self.count} canaries with "
                    f"a step each; draw at most {self.steps} canaries"
                )
            return np.diagonal(projections).copy()
        if self._rate >= 1 or not self._sigma:
            total: Array = projections.sum(axis=0) / np.sqrt(self.steps)
            return total
        ratios = (projections - 0.5) / self._sigma**2
        likelihood: Array = np.logaddexp(np.log1p(-self._rate), np.log(self._rate) + ratios).sum(
            axis=0
        )
        return likelihood

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.scores() if dtype is None else self.scores().astype(dtype)

    def __repr__(self) -> str:
        return f"PrivateGradients({self.steps} steps, {self.count} canaries)"


# Parameters of any framework, as one flat vector.


def flat_parameters(returned: Any) -> Array:
    """All parameters as one vector, in the order of their framework.

    | returned | order |
    |---|---|
    | an array or tensor | flattened row by row |
    | a torch module | its trainable parameters, in the order of ``parameters()`` |
    | a Keras model | its ``trainable_variables`` |
    | a nested dictionary, list or tuple of arrays, a ``state_dict`` | its own order |
    | the same with JAX arrays (a pytree) | ``jax.tree.leaves``: keys sorted |

    Example:
        >>> flat_parameters({"weight": np.eye(2), "bias": [np.array(3.0)]})
        array([1., 0., 0., 1., 3.])
    """
    leaves = [as_array(leaf).ravel() for _, leaf in named_leaves(returned)]
    if not leaves:
        raise InvalidInput(f"there are no parameters in the {type(returned).__name__} returned")
    return np.concatenate(leaves)


def parameters_of(returned: Any) -> Array | None:
    """The same, or `None` if there are no parameters in what was returned."""
    try:
        return flat_parameters(returned)
    except InvalidInput:
        return None


def as_array(value: Any) -> Array:
    """Numbers as a numpy array of float64, from any framework and device."""
    given = value
    if callable(getattr(value, "full_tensor", None)):  # sharded over processes (FSDP2)
        value = value.full_tensor()
    # A tensor on a GPU, with gradients or in bfloat16 has no numpy view.
    if callable(getattr(value, "detach", None)) and callable(getattr(value, "cpu", None)):
        value = value.detach().cpu().double()
    if callable(getattr(value, "numpy", None)):
        value = value.numpy()
    try:
        array = np.asarray(value)
        if array.dtype.kind in "OUSmMV" and not _custom_float(array):
            raise TypeError(f"{array.dtype} is not numeric")
        if array.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        return array.astype(np.float64)
    except Exception as error:  # objects may raise anything where they are converted
        raise InvalidInput(
            f"a {type(given).__name__} is no array of numbers: {said(error)}"
        ) from None


def _custom_float(array: NDArray[Any]) -> bool:
    """Whether this is JAX's bfloat16 or float8, which numpy sees as kind V with their own name."""
    return array.dtype.kind == "V" and "float" in array.dtype.name


def named_leaves(returned: Any) -> Iterator[tuple[str, Any]]:
    """The arrays in what a training returned, with their names, in the order of their framework."""
    if callable(getattr(returned, "named_parameters", None)):
        for name, parameter in returned.named_parameters():
            if getattr(parameter, "requires_grad", True):
                yield name, parameter
    elif hasattr(returned, "trainable_variables"):
        variables = enumerate(returned.trainable_variables)
        yield from (
            (getattr(variable, "name", f"variable {place}"), variable)
            for place, variable in variables
        )
    else:
        leaves = list(_nested("", returned))
        jax = sys.modules.get("jax")
        if jax is not None and any(isinstance(leaf, jax.Array) for _, leaf in leaves):
            paths = jax.tree_util.tree_leaves_with_path(returned)
            leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in paths]
        yield from leaves


def _nested(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        inner = enumerate(value)
    else:
        yield prefix or "parameters", value
        return
    for key, leaf in inner:
        yield from _nested(f"{prefix}.{key}" if prefix else str(key), leaf)
