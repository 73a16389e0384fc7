"""The software and the machine of a session, as the store and receipts keep them."""

from __future__ import annotations

import contextlib
import platform
import sys
from importlib import metadata

from dpaudit._version import __version__

LIBRARIES = (
    "numpy", "scipy", "torch", "opacus", "transformers", "accelerate", "peft", "jax", "jaxlib",
    "optax", "jax_privacy", "tensorflow", "keras",
)  # fmt: skip
"""Libraries that may decide scores: the versions of those that are loaded are recorded."""


def session(device: str) -> dict[str, str]:
    """Versions of what is loaded, operating system and device.

    Example:
        >>> session("cpu")["device"], "numpy" in session("cpu")
        ('cpu', True)
    """
    versions = {"dpaudit": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        if library in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):  # loaded from a folder
                versions[library] = metadata.version(library)
    return {**versions, "system": platform.platform(), "device": device}
