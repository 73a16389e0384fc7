"""The accountants by name; others are found in the entry points ``dpaudit.accountants``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._registry import Registry

if TYPE_CHECKING:
    from dpaudit.upper_bounds.base import Accountant

ACCOUNTANTS: Registry[type[Accountant]] = Registry(
    "accountant",
    "dpaudit.accountants",
    {
        "gaussian": "dpaudit.upper_bounds.gaussian:GaussianAccountant",
        "pld": "dpaudit.upper_bounds.privacy_loss:PldAccountant",
        "prv": "dpaudit.upper_bounds.prv:PrvAccountant",
        "rdp": "dpaudit.upper_bounds.renyi:RdpAccountant",
    },
)
