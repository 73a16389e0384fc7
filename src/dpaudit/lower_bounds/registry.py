"""The methods by name. Other packages add theirs in the entry points ``dpaudit.lower_bounds``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._registry import Registry

if TYPE_CHECKING:
    from dpaudit.lower_bounds.methods import Method

# Module -> the methods that it defines; nothing is imported before one of them is used.
_SHIPPED = {
    "methods": "clopper-pearson gaussian-dp profile gaussian-fit one-run one-run-fdp "
    "one-run-independent",
    "compared": "jeffreys joint-beta katz-log adjusted-log bailey inverse-sinh",
}

METHODS: Registry[Method] = Registry(
    "method",
    "dpaudit.lower_bounds",
    {
        name: f"dpaudit.lower_bounds.{module}:{name.upper().replace('-', '_')}"
        for module, names in _SHIPPED.items()
        for name in names.split()
    },
)

DEFAULT_METHODS = ("clopper-pearson", "gaussian-dp")
"""The assumption-free bound, and the one that takes the trade-off curve to be Gaussian."""
