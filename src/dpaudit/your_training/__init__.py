"""The game played by somebody else's training: any function, any framework."""

from dpaudit.your_training.canaries import GradientCanary

__all__ = ["GradientCanary"]
