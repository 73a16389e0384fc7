"""The catalogue of examples/bugs, put before the checks: torch and Opacus trainings on Housing."""

import importlib
import sys
import warnings
from pathlib import Path

import pytest

import dpaudit
from dpaudit.trainings import GradientCanary

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUNDED = {"bounded contribution"}
SIZE = {"noise size"}
NAN = {"infinite and NaN gradients"}

CORRECT = {
    "accumulation": set(),
    "adam": set(),
    "ghost_clipping": set(),
    "momentum": set(),
    "opacus_flat": set(),
    "opacus_per_layer": set(),
    "over_noised": set(),
    "parameter_groups": set(),
    "plain": set(),
    "poisson": set(),
    "random_start": set(),
    "tiny_batches": set(),
}


WRONG = {
    "batch_mean_clipped": BOUNDED,
    "clipped_per_tensor": {"bounded dense contribution", "bounded total change"},
    "clipping_forgotten": BOUNDED,
    "divided_by_actual_batch_size": {"zero gradient has no effect"},
    "ghost_clipping_ignores_the_norm": BOUNDED,
    "gradients_not_zeroed": {"contribution to its own step only"},
    "half_precision_norm": {"bounded contribution of small entries"} | NAN,
    "microbatch_clipped": {"bounded total change"},
    "nan_survives": NAN,
    "noise_a_fifth_too_small": SIZE,
    "noise_before_clipping": BOUNDED,
    "noise_forgotten": {"noise in every parameter"},
    "noise_repeated_every_step": {"noise differs between steps"},
    "noise_scaled_for_the_mean": SIZE,
    "noise_seed_fixed": {"noise in every parameter"},
    "one_key_for_all_tensors": {"noise differs between parameters"},
    "optimizer_inactive": {"bounded contribution", "noise in every parameter"},
    "raw_gradient_mixed_in": BOUNDED,
    "variance_for_deviation": SIZE,
    "weak_random_generator": {"noise differs between runs"},
}


def broken_rules(name):
    sys.path.insert(0, str(EXAMPLES))
    try:
        common = importlib.import_module("bugs._common")
        module = importlib.import_module(f"bugs.{name}")
    finally:
        sys.path.remove(str(EXAMPLES))
    canary = GradientCanary.draw(
        common.PARAMETERS, clip_norm=getattr(module.canary, "clip_norm", common.CLIP), seed=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dpaudit.check_training(
            module.train,
            canary,
            noise_multiplier=getattr(module, "SIGMA", common.SIGMA),
            steps=common.STEPS,
        )
    return {finding.rule.name for finding in result.broken}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_trainings(name):
    assert broken_rules(f"correct.{name}") == CORRECT[name]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_trainings_break_the_rule_that_is_their_bug(name):
    assert broken_rules(name) == WRONG[name]
