"""Other libraries of private training, used as they are: canaries, claims and checks.

To add a library:

1. Write ``integrations/<library>.py``, or a package, with a final subclass of
   `dpaudit.integrations.base.Integration`. It may import the library inside functions only.
2. Add one line to `INTEGRATIONS` below. Another package registers its class with an entry point in
   the group ``dpaudit.integrations`` instead.
3. Run `dpaudit.testing.check_integration` on an optimizer of the library in a test.

`integration_of` finds the integration of an object.
"""

from __future__ import annotations

from typing import Any

from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput
from dpaudit.integrations.base import Integration

INTEGRATIONS: Registry[type[Integration]] = Registry(
    "integration",
    "dpaudit.integrations",
    {
        "opacus": "dpaudit.integrations.opacus:OpacusIntegration",
        "jax-privacy": "dpaudit.integrations.jax_privacy:JaxPrivacyIntegration",
        "optax": "dpaudit.integrations.jax:OptaxIntegration",
    },
)


def integration_of(source: Any) -> Integration:
    """The integration that recognises an optimizer, an accountant or an engine.

    Arguments:
        source: An object of a library of private training.
    """
    for name in INTEGRATIONS:
        try:
            integration = INTEGRATIONS[name]()
        except ImportError:  # its library is not installed, so this is no object of it
            continue
        if integration.recognises(source):
            return integration
    raise InvalidInput(
        f"source must be an object of one of {', '.join(INTEGRATIONS)}, got "
        f"{type(source).__name__}; see dpaudit.integrations for how to add a library"
    )


__all__ = ["INTEGRATIONS", "Integration", "integration_of"]
