"""Insert canaries into a training by ``transformers.Trainer`` with an Opacus optimizer."""

from __future__ import annotations

import contextlib
from typing import Any, final

from numpy.typing import ArrayLike

from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.integrations.opacus.canaries import insert_canary
from dpaudit.integrations.opacus.optimizer import Canary
from dpaudit.trainings.scoring import PrivateGradients

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtra("a canary in transformers.Trainer", "huggingface") from error


@final
class CanaryCallback(TrainerCallback):
    """Inserts canaries from the beginning to the end of a training by ``transformers.Trainer``.

    The optimizer is the ``DPOptimizer`` that was given to the trainer, unwrapped from what
    ``accelerate`` puts around it. If training raises an exception, call `close`.

    See also: ``examples/huggingface_lora.py``, a complete training.

    Arguments:
        canary: The crafted gradients, from `dpaudit.integrations.opacus.canary_for`.
        inserted: One boolean for each canary: whether this training contains it.
        seed: Seed of the run; it decides in which steps a canary takes part.
        options: Further arguments of `insert_canary`.
    """

    def __init__(self, canary: Canary, inserted: ArrayLike, *, seed: int, **options: Any) -> None:
        self._canary, self._inserted = canary, inserted
        self._options = {"seed": seed, **options}
        self._open = contextlib.ExitStack()
        self._gradients: PrivateGradients | None = None

    @property
    def gradients(self) -> PrivateGradients:
        """The noisy gradients of the training, which may be returned in place of the model."""
        if self._gradients is None:
            raise InvalidInput(
                "gradients are recorded during training, which has not begun; pass this callback "
                "to Trainer(callbacks=[...]) and call train() first"
            )
        return self._gradients

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, optimizer: Any = None, **_: Any
    ) -> None:
        """Start inserting."""
        context = insert_canary(
            private_optimizer(optimizer), self._canary, self._inserted, **self._options
        )
        self._gradients = self._open.enter_context(context)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop inserting."""
        self.close()

    def close(self) -> None:
        """Restore the optimizer."""
        self._open.close()


def private_optimizer(optimizer: Any) -> Any:
    """The optimizer of Opacus inside the wrappers of ``accelerate``."""
    inner = optimizer
    while not hasattr(inner, "original_optimizer"):
        if not hasattr(inner, "optimizer"):
            raise InvalidInput(
                f"the trainer must train with a DPOptimizer of Opacus, got "
                f"{type(optimizer).__name__}; pass Trainer(optimizers=(optimizer, None)) with the "
                "optimizer that make_private returned"
            )
        inner = inner.optimizer
    return inner
