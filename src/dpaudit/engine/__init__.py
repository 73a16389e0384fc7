"""Many DP-SGD trainings at once: per-example clipping, noise, compilation, simulation."""

from dpaudit._torch import require_torch

try:
    from dpaudit.engine.checking import Checked, check_mechanism
    from dpaudit.engine.simulation import Simulated, simulate
    from dpaudit.engine.speed import Precision, Speed
except ModuleNotFoundError:
    require_torch()  # raises an error that names the extra to install
    raise

__all__ = ["Checked", "Precision", "Simulated", "Speed", "check_mechanism", "simulate"]
