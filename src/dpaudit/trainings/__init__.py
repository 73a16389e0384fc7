"""Users' own trainings: any function, any framework. They are called, scored and shielded here.

- ``canary``: what is inserted: crafted gradients and data points.
- ``scoring``: what a training returns, and the score of each canary.
- ``coins``: coins and seed of a run; ``run``: its scores, or its failure.
- ``probe``: whether the canary is alive, before the other runs.
- ``player``: runs as tiles of an executor.
- ``identity``: the digest of the user's code.
- ``rows``: a model whose per-example gradients are the examples.
- ``shell``: trainings that are programs; ``importing``: trainings by name.

`dpaudit.audits` audits them, with the same steps as the trainings that dpaudit runs itself. The
names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.trainings.canary import DirectionCanary, GradientCanary, hard_example, rare_feature
    from dpaudit.trainings.rows import rows_model
    from dpaudit.trainings.scoring import Predictions, PrivateGradients
    from dpaudit.trainings.shell import command

__all__ = [
    "DirectionCanary",
    "GradientCanary",
    "Predictions",
    "PrivateGradients",
    "command",
    "hard_example",
    "rare_feature",
    "rows_model",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "canary": "DirectionCanary GradientCanary hard_example rare_feature",
            "rows": "rows_model",
            "scoring": "Predictions PrivateGradients",
            "shell": "command",
        },
    )
