"""The game played by somebody else's training: any function, any framework."""

from dpaudit.trainings.auditing import audit_training
from dpaudit.trainings.canaries import GradientCanary
from dpaudit.trainings.predictions import Predictions
from dpaudit.trainings.result import TrainingAudit
from dpaudit.trainings.shell import command

__all__ = ["GradientCanary", "Predictions", "TrainingAudit", "audit_training", "command"]
