"""A live audit of a training by ``transformers.Trainer`` with an optimizer of Opacus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from dpaudit.audits.result import AuditResult
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.live.audit import LiveAudit, live_audit

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtra("a live audit in transformers.Trainer", "huggingface") from error


@final
class LiveAuditCallback(TrainerCallback):
    """Audits the training of a ``transformers.Trainer`` while it runs.

    Pass it to ``Trainer(callbacks=[...])``. The optimizer is the ``DPOptimizer`` that was given to
    the trainer, unwrapped from what ``accelerate`` puts around it. The verdict is in `result`. If
    training raises an exception, call `close`; the result then says that it is incomplete.

    See also: `dpaudit.live_audit`, which says what is audited; ``examples/huggingface_lora.py``.

    Arguments:
        state: What ``live.state_dict()`` of this callback was at the checkpoint from which the
            training continues. Keep it as secret as the checkpoint's random state.
        options: Arguments of `dpaudit.live_audit` beside the optimizer.
    """

    def __init__(self, *, state: Mapping[str, Any] | None = None, **options: Any) -> None:
        self._state, self._options = state, options
        self._live: LiveAudit | None = None

    @property
    def live(self) -> LiveAudit:
        """The live audit, from the beginning of training."""
        if self._live is None:
            raise InvalidInput(
                "training has not begun; pass this callback to Trainer(callbacks=[...]) and call "
                "train() first"
            )
        return self._live

    @property
    def result(self) -> AuditResult:
        """The verdict, the claimed and the shown epsilon, and what was not covered."""
        return self.live.result

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, optimizer: Any = None, **_: Any
    ) -> None:
        """Start the audit."""
        self._live = live_audit(private_optimizer(optimizer), **self._options)
        if self._state is not None:
            self._live.load_state_dict(self._state)
        self._live.__enter__()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the audit."""
        self.live.__exit__(None, None, None)

    def close(self) -> None:
        """Restore the optimizer after a training that raised an exception."""
        error = RuntimeError("the trainer raised an exception")
        self.live.__exit__(RuntimeError, error, None)


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
