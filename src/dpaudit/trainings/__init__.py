"""Users' own trainings: any function, any framework. They are called, scored and shielded here.

- ``canary``: what is inserted: crafted gradients and data points.
- ``scoring``: what a training returns, and the score of each canary.
- ``run``: one run: coins, seed, scores or failure.
- ``probe``: whether the canary is alive, before the other runs.
- ``player``: runs as tiles of an executor.
- ``identity``: the digest of the user's code.
- ``rows_model``: a model whose per-example gradients are the examples.
- ``shell``: trainings that are programs; ``importing``: trainings by name.

`dpaudit.audits` audits them, with the same steps as the trainings that dpaudit runs itself.
"""

from dpaudit.trainings.canary import DirectionCanary, GradientCanary, hard_example, rare_feature
from dpaudit.trainings.rows_model import rows_model
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
