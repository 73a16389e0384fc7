"""Many DP-SGD trainings at once: per-example clipping, noise, compilation, simulation."""

from dpaudit.engine.mechanism_check import Checked, check_mechanism
from dpaudit.engine.simulation import Simulated, simulate
from dpaudit.engine.speed import Precision, Speed

__all__ = ["Checked", "Precision", "Simulated", "Speed", "check_mechanism", "simulate"]
