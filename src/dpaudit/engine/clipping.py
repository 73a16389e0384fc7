r"""Clipped sums of per-example gradients, for many parameter sets at once.

.. math::
    S_r = \sum_b w_{rb} \, \min\Big(1, \frac{C}{\|g_{rb}\|}\Big) \, g_{rb},
    \qquad g_{rb} = \nabla_\theta \ell(\theta_r; x_b)

One forward and one backward pass give both norms and sums (see `dpaudit.engine.gradients`). The
slow twin is `dpaudit.engine.reference.clipped_sum`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from dpaudit.engine import products
from dpaudit.engine.gradients import ParameterGradients
from dpaudit.engine.rules.base import Notes
from dpaudit.engine.tapping import Call, Recording, TappedModel
from dpaudit.mechanisms.clipping import Clipping, FlatClipping

Loss = Callable[[Tensor, Tensor], Tensor]
_Taps = tuple[list[Tensor], dict[int, Tensor]]


@final
class ClippedSums:
    """Clips and sums the per-example gradients of a tapped model, all runs at once.

    Arguments:
        model: The tapped model.
        loss: One loss per example.
        calls: From `TappedModel.measure` on a batch of the size that will be used.
        clipping: The kind of clipping; flat by default.
        views: Number of consecutive features that are views of one example; their gradients are
            averaged before clipping.
        plain: Whether a single run on a CPU is computed by `torch.autograd` alone. `torch.func`
            imports torch's compiler at its first use, which takes a second.
        dtype: Type of the products and of the returned sums; by default that of the parameters.
    """

    def __init__(
        self,
        model: TappedModel,
        loss: Loss,
        calls: Sequence[Call],
        clipping: Clipping | None = None,
        views: int = 1,
        *,
        plain: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._loss, self._calls = model, loss, tuple(calls)
        self._clipping = FlatClipping() if clipping is None else clipping
        self._views, self._plain, self._dtype = views, plain, dtype

    def __call__(
        self, flat: Tensor, features: Tensor, targets: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> Tensor:
        """The clipped sums, shape (runs, parameters).

        Arguments:
            flat: The parameters of every run, shape (runs, parameters).
            features: The examples or all their views, shared by all runs, shape (examples, …).
            targets: Their targets, shape (examples, …).
            weights: :math:`w`, shape (runs, examples): 0 for padding and for absent canaries,
                otherwise 1.
            clip_norm: :math:`C`, a scalar tensor; infinity clips nothing in flat clipping.
        """

        alone = self._alone(flat)

        def one_run(own: Tensor, own_weights: Tensor) -> Tensor:
            gradients = self._gradients(own, features, targets, alone)
            norms = self._norms(gradients, features)
            factors = own_weights * self._clipping.factor(norms, clip_norm)
            return self._flat_sum(gradients, factors, own)

        return _for_each_run(one_run, flat, weights, alone=alone)

    def norms(self, flat: Tensor, features: Tensor, targets: Tensor) -> Tensor:
        """The gradient norm of every example before clipping, shape (runs, examples)."""

        alone = self._alone(flat)

        def one_run(own: Tensor) -> Tensor:
            return self._norms(self._gradients(own, features, targets, alone), features)

        return _for_each_run(one_run, flat, alone=alone)

    def _alone(self, flat: Tensor) -> bool:
        whole = not self._model.taps.per_example and not self._model.loose
        return self._plain and whole and len(flat) == 1 and flat.device.type == "cpu"

    def _gradients(
        self, own: Tensor, features: Tensor, targets: Tensor, alone: bool
    ) -> dict[int, ParameterGradients]:
        model = self._model
        pieces = torch.split(own, list(model.sizes))
        # Copies, so that each parameter is aligned in memory; slices of a row are not. They are
        # converted one by one, so that the slices can be arguments of the compiled graph.
        dtype = self._dtype or own.dtype
        parameters = [
            (piece.clone() if dtype == own.dtype else piece.to(dtype)).view(shape)
            for piece, shape in zip(pieces, model.shapes, strict=True)
        ]
        # Zeros that take no memory and are shared by all runs.
        zero = torch.zeros((), dtype=dtype, device=own.device)
        batch = (len(features),) if model.taps.per_example else ()
        outputs = [zero.expand(*batch, *call.shape) for call in self._calls]
        taps = (outputs, model.loose_taps(len(features), zero))
        run = self._each_example if model.taps.per_example else self._whole_batch
        if self._views > 1:
            targets = targets.repeat_interleave(self._views, dim=0)

        def total_loss(taps: _Taps) -> tuple[Tensor, list[Notes]]:
            losses, notes = run(parameters, features, targets, *taps)
            total = losses.sum() if self._views == 1 else losses.sum() / self._views
            return total, notes

        if alone:
            derivatives, notes = _derivatives(total_loss, outputs)
        else:
            derivatives, notes = torch.func.grad(total_loss, has_aux=True)(taps)
        gradients = model.gradients(self._calls, notes, *derivatives)
        if self._views == 1:
            return gradients
        return {place: part.grouped(self._views) for place, part in gradients.items()}

    def _whole_batch(
        self,
        parameters: Sequence[Tensor],
        features: Tensor,
        targets: Tensor,
        outputs: Sequence[Tensor],
        loose: dict[int, Tensor],
    ) -> tuple[Tensor, list[Notes]]:
        recording = Recording(outputs, contiguous=False)
        return self._loss(
            self._model.run(parameters, features, recording), targets
        ), recording.notes

    def _each_example(
        self,
        parameters: Sequence[Tensor],
        features: Tensor,
        targets: Tensor,
        outputs: Sequence[Tensor],
        loose: dict[int, Tensor],
    ) -> tuple[Tensor, list[Notes]]:
        """The model on every example separately, each with its own loose parameters."""

        def one(
            point: Tensor, target: Tensor, taps: Sequence[Tensor], own: dict[int, Tensor]
        ) -> tuple[Tensor, list[Notes]]:
            given = [
                value + own[place] if place in own else value
                for place, value in enumerate(parameters)
            ]
            recording = Recording(taps, contiguous=True)
            found = self._model.run(given, point.unsqueeze(0), recording)
            return self._loss(found, target.unsqueeze(0)).sum(), recording.notes

        losses, notes = torch.func.vmap(one)(features, targets, list(outputs), loose)
        return losses, notes

    def _norms(self, gradients: dict[int, ParameterGradients], features: Tensor) -> Tensor:
        if products.on_gpu(features):
            return torch.cat([part.squares() for part in gradients.values()], dim=1).sum(1).sqrt()
        squares = [part.squared_norms() for part in gradients.values()]
        return torch.stack(squares).sum(0).sqrt()

    def _flat_sum(
        self, gradients: dict[int, ParameterGradients], factors: Tensor, own: Tensor
    ) -> Tensor:
        return torch.cat(
            [
                gradients[place].weighted_sum(factors).flatten()
                if place in gradients
                else own.new_zeros(size, dtype=self._dtype)
                for place, size in enumerate(self._model.sizes)
            ]
        )


def _derivatives(
    total_loss: Callable[[_Taps], tuple[Tensor, list[Notes]]], outputs: Sequence[Tensor]
) -> tuple[_Taps, list[Notes]]:
    """What `torch.func.grad` computes if there are no loose parameters, by `torch.autograd`."""
    with torch.enable_grad():
        variables = [output.detach().requires_grad_() for output in outputs]
        total, notes = total_loss((variables, {}))
        found = torch.autograd.grad(total, variables)
    return (list(found), {}), [tuple(note.detach() for note in one) for one in notes]


def _for_each_run(
    one_run: Callable[..., Tensor], flat: Tensor, *others: Tensor, alone: bool
) -> Tensor:
    """``one_run`` for every row; a single row on a GPU without `vmap`, which makes a longer graph.

    On a CPU a single row without `vmap` would be rounded differently.
    """
    with _quietly_looping():
        if alone or (len(flat) == 1 and products.on_gpu(flat)):
            return one_run(flat[0], *(other[0] for other in others)).unsqueeze(0)
        return torch.func.vmap(one_run)(flat, *others)


@contextlib.contextmanager
def _quietly_looping() -> Iterator[None]:
    """Hide torch's warning about operations without a batched form: a notice reports them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield
