"""The catalogue of examples/bugs, put before the checks: torch and Opacus trainings on Housing."""

import functools
import importlib
import sys
import warnings
from pathlib import Path

import pytest

import dpaudit
from dpaudit.trainings import GradientCanary

EXAMPLES = Path(__file__).parents[2] / "examples"
CORRECT = (
    "accumulation",
    "adam",
    "adaptive_clip_norm",
    "automatic_clipping",
    "averaged_iterates",
    "clip_norm_with_its_noise",
    "ghost_clipping",
    "l1_clipping",
    "momentum",
    "opacus_flat",
    "opacus_per_layer",
    "over_noised",
    "parameter_groups",
    "plain",
    "poisson",
    "public_subspace",
    "random_start",
    "sign_of_the_noisy_gradient",
    "tiny_batches",
    "top_k_after_noise",
)

WRONG = {
    ("bounded contribution",): (
        "accumulated_gradient_clipped",
        "batch_mean_clipped",
        "clip_at_the_batch_median",
        "clipped_per_coordinate",
        "clipped_per_tensor",
        "clipping_forgotten",
        "first_layer_left_out_of_the_norm",
        "ghost_clipping_ignores_the_norm",
        "half_precision_norm",
        "microbatch_clipped",
        "noise_before_clipping",
        "raw_gradient_in_the_momentum",
        "raw_gradient_mixed_in",
    ),
    ("noise in every parameter",): (
        "average_fed_without_noise",
        "biases_without_noise",
        "noise_forgotten",
        "noise_seed_fixed",
    ),
    ("effect against noise",): ("checkpoint_chosen_on_training_data",),
    ("noise in every step",): (
        "clip_norm_grows",
        "noise_cached",
        "noise_decays",
        "noise_missing_in_the_last_step",
        "noise_negated",
        "noise_repeated_every_step",
    ),
    ("noise differs between runs", "noise in every step"): ("empty_batches_skipped",),
    ("noise size",): (
        "fork_with_a_wrong_scale",
        "noise_a_fifth_too_small",
        "noise_scaled_for_the_mean",
        "noise_times_the_rate_twice",
        "record_counted_twice",
        "sigma_times_root_of_clip",
        "variance_for_deviation",
        "workers_divide_the_noise",
    ),
    ("bounded contribution", "noise size"): ("noise_after_adam",),
    ("bounded contribution", "noise size", "Gaussian noise"): ("noise_of_an_updated_clip_norm",),
    ("noise differs between parameters",): (
        "noise_broadcast_over_rows",
        "one_key_for_all_tensors",
    ),
    ("Gaussian noise",): (
        "noise_in_half_precision",
        "truncated_noise",
        "uniform_noise",
    ),
    (): ("rare_class_oversampled",),
    ("noise independent of the data",): ("divided_by_actual_batch_size",),
    ("contribution to its own step only",): ("gradients_not_zeroed",),
    ("bounded contribution", "noise in every parameter"): ("optimizer_inactive",),
    ("noise differs between runs",): ("weak_random_generator",),
}
"""The rules that each of the wrong trainings breaks."""


@functools.cache
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
    assert not broken_rules(f"correct.{name}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"), [(name, rules) for rules, names in WRONG.items() for name in names]
)
def test_wrong_trainings_break_the_rule_that_is_their_bug(name, rules):
    assert broken_rules(name) == set(rules)


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
