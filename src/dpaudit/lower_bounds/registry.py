"""The methods by name.

`dpaudit.comparisons` and other packages add theirs by the entry points ``dpaudit.lower_bounds``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._registry import Registry

if TYPE_CHECKING:
    from dpaudit.lower_bounds.methods import Method

METHODS: Registry[Method] = Registry(
    "method",
    "dpaudit.lower_bounds",
    {
        name: f"dpaudit.lower_bounds.methods:{name.upper().replace('-', '_')}"
        for name in (
            "clopper-pearson", "gaussian-dp", "profile", "gaussian-fit", "one-run", "one-run-fdp",
            "one-run-independent",
        )
    },
)  # fmt: skip

DEFAULT_METHODS = ("clopper-pearson", "gaussian-dp")
"""The assumption-free bound, and the one that takes the trade-off curve to be Gaussian."""
