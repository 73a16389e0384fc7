"""The game played by somebody else's training: any function, any framework."""

from dpaudit.your_training.auditing import audit_training
from dpaudit.your_training.canaries import GradientCanary
from dpaudit.your_training.predictions import Predictions
from dpaudit.your_training.result import TrainingAudit
from dpaudit.your_training.shell import command

__all__ = ["GradientCanary", "Predictions", "TrainingAudit", "audit_training", "command"]
