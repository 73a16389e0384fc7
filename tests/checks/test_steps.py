"""Each of the field's bugs is caught by the right rule and by no other; correct steps pass."""

import numpy as np
import private_steps as steps
import pytest
from helpers import rule_names

from dpaudit.checks import RULES, check_step
from dpaudit.errors import InvalidInput


def checked(step, **changed):
    settings = {
        "clip_norm": steps.CLIP,
        "noise_multiplier": steps.SIGMA,
        "parameters": 1000,
        "batch_size": steps.BATCH,
    }
    return check_step(step, **settings | changed)


@pytest.mark.parametrize("step", steps.CORRECT, ids=lambda step: step.__name__)
@pytest.mark.parametrize("parameters", [68, 1000, 5000])
def test_correct_steps_pass_every_rule(step, parameters):
    result = checked(step, parameters=parameters)
    verdicts = {finding.rule.name: finding.verdict for finding in result}
    assert set(verdicts) <= {rule.name for rule in RULES}
    assert set(verdicts.values()) == {"passed"}, result


@pytest.mark.parametrize(
    ("step", "expected"), steps.BUGS, ids=[step.__name__ for step, _ in steps.BUGS]
)
def test_a_bug_breaks_its_own_rule_and_no_other(step, expected):
    result = checked(step)
    assert rule_names(result.broken) == expected, result
    for finding in result.broken:
        assert finding.explanation
        assert finding.rule.remedy
        assert finding.seen_in


def test_a_public_batch_size_is_no_leak_and_its_noise_is_still_checked():
    result = checked(steps.divided_by_the_actual_batch, fixed_batch_size=True)
    assert result.passed
    assert result["noise independent of the data"].verdict == "passed"
    assert result["noise size"].verdict == "passed"
    short = checked(steps.divided_by_the_actual_batch, noise_multiplier=1.3, batch_size=3)
    assert rule_names(short.broken) == {"noise independent of the data", "noise size"}


def test_nan_that_survives_is_a_warning():
    result = checked(steps.nan_survives)
    assert result.passed
    assert rule_names(result.warnings) == {"infinite and NaN gradients"}


def test_an_empty_batch_that_fails_is_not_tested():
    """A step that cannot take an empty batch may never get one."""
    finding = checked(steps.empty_batch_fails)["noise independent of the data"]
    assert finding.verdict == "passed"
    assert finding.untested[0].startswith("an empty batch: The code that is checked raised")


def test_a_batch_may_be_one_row():
    """Local DP: the step is never called without a row, or with several ones."""
    lengths = set()

    def local(gradients, seed):
        lengths.add(len(gradients))
        return steps.correct(gradients, seed)

    result = checked(local, batch_size=1)
    assert result.passed
    assert lengths == {1}
    assert "One row is a whole batch" in result["noise independent of the data"].explanation


@pytest.mark.parametrize("heavy", [0, 7, -1])
def test_an_example_that_weighs_more_by_its_place_is_found(heavy):
    """Clients of unequal weight, as in Flower: version 0.2 saw the last one only."""

    def weighted(gradients, seed):
        clipped = steps.clipped(gradients)
        if len(clipped):
            clipped[heavy] *= 3
        return clipped.sum(axis=0) + steps.noise(gradients.shape[1], seed)

    result = checked(weighted)
    expected = "noise size" if heavy == -1 else "bounded contribution"
    assert expected in rule_names(result.broken)
    if heavy == -1:  # one more row takes the weight from another one, and no divisor changes
        text = result["noise independent of the data"].explanation
        assert "changes what others contribute" in text


def test_microbatches_that_shift_are_found():
    """Each sum of three examples is clipped, which a record that is inserted moves (PyVacy)."""

    def shifting(gradients, seed):
        gradients = np.where(np.isfinite(gradients), gradients, 0.0)
        sums = [gradients[i : i + 3].sum(axis=0) for i in range(0, len(gradients), 3)]
        total = steps.clipped(np.array(sums)).sum(axis=0) if sums else 0.0
        return total + steps.noise(gradients.shape[1], seed)

    assert rule_names(checked(shifting).broken) == {"bounded contribution"}


def test_too_much_noise_is_wasteful_and_not_broken():
    result = checked(steps.over_noised)
    assert result.passed
    assert result["noise size"].verdict == "warning"
    assert "sigma C^2" in result["noise size"].explanation


def half_precision(gradients, seed):
    """Norms in float16, where the squares of small entries are zero."""
    gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    with np.errstate(over="ignore"):
        short = gradients.astype(np.float16)
        lengths = np.sqrt((short * short).sum(axis=1, keepdims=True)).astype(np.float64)
    factor = np.minimum(1, 0.005 / np.maximum(lengths, 1e-300))
    factor = np.where(np.isfinite(lengths), factor, 0.0)
    return (gradients * factor).sum(axis=0) + steps.noise(gradients.shape[1], seed, 0.005 * 1.1)


def test_norms_in_half_precision_are_detected_if_entries_underflow():
    result = check_step(half_precision, clip_norm=0.005, noise_multiplier=1.1, parameters=4000)
    assert rule_names(result.broken) == {"bounded contribution"}
    assert "small" in result["bounded contribution"].explanation


def test_without_a_seed_large_faults_are_still_found():
    def unseeded(step):
        entropy = np.random.default_rng(3)
        return lambda gradients, seed: step(gradients, int(entropy.integers(2**31)))

    right = checked(unseeded(steps.correct))
    assert not right.broken
    assert right["noise size"].verdict == "not tested"
    assert "torch.manual_seed" in right["noise size"].explanation
    assert right.verdict == "not tested"
    wrong = checked(unseeded(steps.clip_norm_ignored))
    assert rule_names(wrong.broken) == {"bounded contribution"}


def test_a_few_per_cent_too_little_noise_is_detected():
    def with_noise(factor):
        return lambda gradients, seed: (
            steps.clipped(gradients).sum(axis=0) + factor * steps.noise(gradients.shape[1], seed)
        )

    assert rule_names(checked(with_noise(0.94), runs=24).broken) == {"noise size"}
    assert checked(with_noise(0.995), runs=24).passed
    assert checked(with_noise(1.3), runs=24)["noise size"].verdict == "warning"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clip_norm": 0}, "clip_norm must be above 0"),
        ({"noise_multiplier": 0}, "noise_multiplier must be above 0"),
        ({"parameters": 0}, "parameters must be at least 1"),
        ({"runs": 2}, "runs must be at least 8"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_bad_input(changed, message):
    with pytest.raises(InvalidInput, match=message):
        checked(steps.correct, **changed)


def test_the_users_own_mistakes_are_named():
    with pytest.raises(InvalidInput, match="must return 1000 numbers"):
        checked(lambda gradients, seed: 3.0)
    with pytest.raises(InvalidInput, match="ZeroDivisionError"):
        checked(lambda gradients, seed: 1 / 0)
    with pytest.raises(InvalidInput, match="not finite without any canary"):
        checked(lambda gradients, seed: gradients[0] * np.nan)
    with pytest.raises(InvalidInput, match="private_step must be a function"):
        checked("no function")


def test_a_rule_depends_only_on_rules_before_it():
    before = set()
    for rule in RULES:
        assert set(rule.after) <= before
        before.add(rule.name)
