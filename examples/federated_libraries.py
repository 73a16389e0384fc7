"""Check the aggregation of pfl-research, FedML and NVFlare, in about ten lines each.

python examples/federated_libraries.py pfl       # or fedml, nvflare

A step gets the updates of the clients, one in each row, and returns what the server makes of them;
``share`` is how much of the noise is added. ``flower_strategies.py`` does the same with Flower,
over several rounds.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np

from dpaudit.checks import CheckResult, check_step

CLIENTS, PARAMETERS, CLIP, DELTA = 16, 300, 1.0, 1e-5
NOISE = np.sqrt(2 * np.log(1.25 / DELTA))  # FedML takes no noise multiplier: epsilon 1 means this


def pfl(updates, seed, share=1.0):
    """The central Gaussian mechanism of pfl-research."""
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(numpy_ops)
    mechanism = GaussianMechanism(clipping_bound=CLIP, relative_noise_stddev=share * NOISE)
    total = MappedVectorStatistics({"update": np.zeros(PARAMETERS)})
    for update in updates:
        total += mechanism.constrain_sensitivity(MappedVectorStatistics({"update": update}))[0]
    return mechanism.add_noise(total, cohort_size=len(updates), seed=seed)[0]["update"]


def fedml(updates, seed, share=1.0):
    """The frame for central noise of FedML: clip, take the mean, add noise."""
    without_initialisation("fedml", "fedml.core")
    import torch
    from fedml.core.dp.frames.cdp import GlobalDP

    torch.manual_seed(seed)
    sensitivity = share * CLIP / CLIENTS  # of the mean: the user has to say this
    options = {"epsilon": 1.0, "delta": DELTA, "max_grad_norm": CLIP, "sensitivity": sensitivity}
    frame = GlobalDP(SimpleNamespace(mechanism_type="gaussian", **options))
    clients = [(1, OrderedDict(update=torch.tensor(update).float())) for update in updates]
    clipped = [client["update"] for _, client in frame.global_clip(clients)]
    mean = OrderedDict(update=sum(clipped, torch.zeros(PARAMETERS)) / CLIENTS)
    return frame.add_global_noise(mean)["update"]


def nvflare(updates, seed, weights, share=1.0):
    """The weighted mean of NVFlare, between clipping and noise of the user's own."""
    from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

    mean = WeightedAggregationHelper()
    for client, (update, weight) in enumerate(zip(updates, weights, strict=True)):
        clipped = update * min(1.0, CLIP / max(np.linalg.norm(update), 1e-300))
        mean.add({"update": clipped}, weight, f"site-{client}", contribution_round=1)
    noise = np.random.default_rng(seed).normal(0, share * NOISE * CLIP / CLIENTS, PARAMETERS)
    return mean.get_result().get("update", 0.0) + noise


def check(step, share: float = 1.0, **options) -> CheckResult:
    if step is nvflare:
        options = {"weights": np.ones(CLIENTS)} | options
    return check_step(
        functools.partial(step, share=share),
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        parameters=PARAMETERS,
        batch_size=CLIENTS,
        fixed_batch_size=True,
        unit="client",
        **options,
    )


def without_initialisation(*packages):
    """Load packages without their own ``__init__``, which needs dozens of others."""
    for package in packages:
        if package not in sys.modules:
            bare, spec = ModuleType(package), find_spec(package)
            bare.__spec__, bare.__path__ = spec, spec.submodule_search_locations
            sys.modules[package] = bare


def main(library: str) -> None:
    print(check({"pfl": pfl, "fedml": fedml, "nvflare": nvflare}[library]).summary)


if __name__ == "__main__":
    main(sys.argv[1])
