"""What every adversary is: it crafts before training, and scores after it.

A threat model is a *type*, and each has a view of its own:

- `HiddenStateView` has no field for an iterate, so an adversary of that threat model cannot be
  handed one, by mistake or by politeness;
- `StandardView` has, and only a `StandardAdversary` takes it; an `AdaptiveAdversary` is besides
  shown every iterate while training goes on, and answers with the next canary;
- `BlackBoxView` has no parameters at all, only what the final models answered.
"""

from dpaudit.threat_models.adversary import (
    AdaptiveAdversary,
    Adversary,
    BlackBoxAdversary,
    CanaryKind,
    ChoosesData,
    HiddenStateAdversary,
    StandardAdversary,
    prepared,
)
from dpaudit.threat_models.canaries import (
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
)
from dpaudit.threat_models.views import (
    AdaptedGradients,
    AdaptedPoints,
    BlackBoxView,
    HiddenStateView,
    Moment,
    StandardView,
)

__all__ = [
    "AdaptedGradients",
    "AdaptedPoints",
    "AdaptiveAdversary",
    "Adversary",
    "BlackBoxAdversary",
    "BlackBoxView",
    "Canaries",
    "CanaryKind",
    "CanaryPoints",
    "ChoosesData",
    "CraftedDimensions",
    "CraftedGradients",
    "HiddenStateAdversary",
    "HiddenStateView",
    "Moment",
    "StandardAdversary",
    "StandardView",
    "prepared",
]
