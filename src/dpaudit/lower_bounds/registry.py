"""The methods by name. Other packages add theirs in the entry points ``dpaudit.lower_bounds``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._registry import Registry

if TYPE_CHECKING:
    from dpaudit.lower_bounds.base import Method

METHODS: Registry[type[Method]] = Registry(
    "method",
    "dpaudit.lower_bounds",
    {
        "clopper-pearson": "dpaudit.lower_bounds.clopper_pearson:ClopperPearson",
        "gaussian-dp": "dpaudit.lower_bounds.gaussian_dp:GaussianDP",
        "jeffreys": "dpaudit.lower_bounds.formulas:Jeffreys",
        "joint-beta": "dpaudit.lower_bounds.formulas:JointBeta",
        "katz-log": "dpaudit.lower_bounds.formulas:KatzLog",
        "adjusted-log": "dpaudit.lower_bounds.formulas:AdjustedLog",
        "bailey": "dpaudit.lower_bounds.formulas:Bailey",
        "inverse-sinh": "dpaudit.lower_bounds.formulas:InverseSinh",
        "gaussian-fit": "dpaudit.lower_bounds.gaussian_fit:GaussianFit",
        "one-run": "dpaudit.lower_bounds.one_run:OneRun",
        "one-run-fdp": "dpaudit.lower_bounds.one_run_fdp:OneRunFDP",
        "one-run-independent": "dpaudit.lower_bounds.one_run_independent:OneRunIndependent",
        "profile": "dpaudit.lower_bounds.profile:Profile",
    },
)
