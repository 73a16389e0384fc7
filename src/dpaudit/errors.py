"""The errors of dpaudit.

    DpauditError
    ├── InvalidInput          an argument, file or option to be corrected (also a ValueError)
    │   ├── InvalidScores     scores or counts that no bound can be computed from
    │   ├── UnsupportedModel  a model that cannot be clipped per example, with the layer's name
    │   ├── UnscorableReturn  what the user's training returned cannot be scored
    │   └── CodeChanged       runs would be mixed with those of other code
    ├── MissingExtra          an optional dependency is not installed (also an ImportError)
    ├── DataError             a data set that is absent, truncated or corrupt
    ├── StoreError            an audit store that cannot be opened, read or written
    ├── NumericalError        a computation that could not reach its stated accuracy
    ├── TrainingFailed        the user's training failed, and the audit could not continue
    └── DeadCanary            the canary has no effect, or not where the score looks

Command-line tools turn these into one line on standard error and exit code 2; anything else that
escapes is a bug in dpaudit and keeps its traceback.
"""

from __future__ import annotations


class DpauditError(Exception):
    """Base class of all errors of dpaudit."""


class InvalidInput(DpauditError, ValueError):
    """An argument has a value outside its allowed range."""


class InvalidScores(InvalidInput):
    """Scores or counts that no bound can be computed from."""


class UnsupportedModel(InvalidInput):
    """A model that cannot be trained with per-example clipping."""


class UnscorableReturn(InvalidInput):
    """The returned value cannot be scored, and would not be in any other run."""


class CodeChanged(InvalidInput):
    """Runs would be mixed with those of other code."""


class MissingExtra(DpauditError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'dpaudit[{extra}]'")


class DataError(DpauditError):
    """A data set that is absent, truncated or corrupt."""


class StoreError(DpauditError):
    """An audit store that cannot be opened, read or written."""


class NumericalError(DpauditError):
    """A computation could not reach its stated accuracy."""


class TrainingFailed(DpauditError):
    """The user's training failed, and the audit could not continue."""


class DeadCanary(DpauditError):
    """The canary has no effect on the result, or not where the score looks."""
