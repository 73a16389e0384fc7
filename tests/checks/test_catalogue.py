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

CORRECT = {
    "automatic_clipping": set(),
    "averaged_iterates": set(),
    "clip_norm_with_its_noise": set(),
    "l1_clipping": set(),
    "public_subspace": set(),
    "sign_of_the_noisy_gradient": set(),
    "top_k_after_noise": set(),
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


STEPS = {"noise in every step"}
SHAPE = {"Gaussian noise"}

WRONG = {
    "accumulated_gradient_clipped": BOUNDED,
    "average_fed_without_noise": {"noise in every parameter"},
    "biases_without_noise": {"noise in every parameter"},
    "checkpoint_chosen_on_training_data": {"effect against noise"},
    "clip_at_the_batch_median": BOUNDED,
    "clip_norm_grows": STEPS,
    "clipped_per_coordinate": BOUNDED,
    "empty_batches_skipped": {"noise differs between runs"} | STEPS,
    "first_layer_left_out_of_the_norm": BOUNDED,
    "fork_with_a_wrong_scale": SIZE,
    "noise_after_adam": BOUNDED | SIZE,
    "noise_broadcast_over_rows": {"noise differs between parameters"},
    "noise_cached": STEPS,
    "noise_decays": STEPS,
    "noise_in_half_precision": SHAPE,
    "noise_missing_in_the_last_step": STEPS,
    "noise_negated": STEPS,
    "noise_times_the_rate_twice": SIZE,
    "rare_class_oversampled": set(),
    "raw_gradient_in_the_momentum": BOUNDED,
    "record_counted_twice": SIZE,
    "sigma_times_root_of_clip": SIZE,
    "truncated_noise": SHAPE,
    "uniform_noise": SHAPE,
    "workers_divide_the_noise": SIZE,
    "batch_mean_clipped": BOUNDED,
    "clipped_per_tensor": BOUNDED,
    "clipping_forgotten": BOUNDED,
    "divided_by_actual_batch_size": {"noise independent of the data"},
    "ghost_clipping_ignores_the_norm": BOUNDED,
    "gradients_not_zeroed": {"contribution to its own step only"},
    "half_precision_norm": BOUNDED,
    "microbatch_clipped": BOUNDED,
    "noise_a_fifth_too_small": SIZE,
    "noise_before_clipping": BOUNDED,
    "noise_forgotten": {"noise in every parameter"},
    "noise_repeated_every_step": STEPS,
    "noise_scaled_for_the_mean": SIZE,
    "noise_seed_fixed": {"noise in every parameter"},
    "one_key_for_all_tensors": {"noise differs between parameters"},
    "optimizer_inactive": {"bounded contribution", "noise in every parameter"},
    "raw_gradient_mixed_in": BOUNDED,
    "variance_for_deviation": SIZE,
    "weak_random_generator": {"noise differs between runs"},
}


def checked(name):
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
        return dpaudit.check_training(
            module.train,
            canary,
            noise_multiplier=getattr(module, "SIGMA", common.SIGMA),
        )


def broken_rules(name):
    return {finding.rule.name for finding in checked(name).broken}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRECT)
def test_correct_trainings(name):
    assert broken_rules(f"correct.{name}") == CORRECT[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_trainings_break_the_rule_that_is_their_bug(name):
    assert broken_rules(name) == WRONG[name]


@pytest.mark.slow
def test_nan_that_survives_is_a_warning_whatever_library_clips():
    """Whether a gradient can be NaN depends on the loss, which a check does not see."""
    for name in ("nan_survives", "half_precision_norm", "correct.opacus_flat"):
        result = checked(name)
        reported = {finding.rule.name for finding in (*result.broken, *result.warnings)}
        assert reported & {"infinite and NaN gradients", "bounded contribution"}, name
    assert (
        checked("nan_survives").warnings[0].rule == checked("correct.opacus_flat").warnings[0].rule
    )
