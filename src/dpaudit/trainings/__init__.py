"""Users' own trainings: any function, any framework. They are called, scored and shielded here.

`dpaudit.audits` audits them, with the same steps as the trainings that dpaudit runs itself.
"""

from dpaudit.trainings.canaries import GradientCanary
from dpaudit.trainings.data_canaries import hard_example, rare_feature
from dpaudit.trainings.directions import DirectionCanary
from dpaudit.trainings.predictions import Predictions
from dpaudit.trainings.shell import command

__all__ = [
    "DirectionCanary",
    "GradientCanary",
    "Predictions",
    "command",
    "hard_example",
    "rare_feature",
]
