"""pfl-research: its Gaussian mechanism, as the server applies it to a cohort."""

import numpy as np
import torch
from field.kit import case
from field.parts import CLIP, SHAPES, SIGMA, check_step, flat, seed_everything, split
from pfl.internal.ops import pytorch_ops  # registers the framework
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.stats import MappedVectorStatistics

set_framework_module(pytorch_ops)


@case("Gaussian mechanism on a cohort", claims="noise multiplier 1, clip norm 1")
def gaussian_mechanism():
    def step(updates, seed):
        seed_everything(seed)
        mechanism = GaussianMechanism(CLIP, SIGMA)
        total = None
        for update in updates:
            tensors = [torch.as_tensor(piece) for piece in split(update)]
            statistics = MappedVectorStatistics(dict(zip(SHAPES, tensors, strict=True)))
            clipped, _ = mechanism.constrain_sensitivity(statistics)
            total = clipped if total is None else total + clipped
        noisy, _ = mechanism.add_noise(total, cohort_size=len(updates), seed=seed % 2**31)
        return flat(np.asarray(noisy[name]) for name in SHAPES)

    return check_step(step)
