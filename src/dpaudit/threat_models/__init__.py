"""Threat models: what an adversary may see, and the base class of each kind of adversary.

Every threat model is a type with a view of its own:

- `HiddenStateView` has no field for intermediate iterates, so a hidden-state adversary cannot
  receive one by mistake.
- `StandardView` has all iterates, and only a `StandardAdversary` takes it. An `AdaptiveAdversary`
  also sees each iterate during training and chooses the next canary from it.
- `BlackBoxView` has no parameters, only the answers of the final models to queries.
"""

from dpaudit.threat_models.adversary import (
    AdaptiveAdversary,
    Adversary,
    BlackBoxAdversary,
    CanaryKind,
    ChoosesData,
    HiddenStateAdversary,
    StandardAdversary,
    audited_mechanism,
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
    "audited_mechanism",
]
