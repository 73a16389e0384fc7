"""The limits on noise hold at the level that is stated, and are not so wide as to be useless."""

import numpy as np
import private_steps as steps
import pytest
from scipy import stats

from dpaudit.checks import limits
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, smallest_ratio, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules import noise_independence, noise_size, seeds
from dpaudit.checks.rules.noise_directions import noise_directions
from dpaudit.checks.subject import StepSubject

TRIALS = 2000


def measured(seed, parameters=60, runs=8):
    """A correct step with noise of its own; few parameters, where tails are at their worst."""
    subject = StepSubject(
        lambda gradients, run: steps.correct(gradients, [seed, run]),
        batch_size=4,
        parameters=parameters,
        clip_norm=steps.CLIP,
        noise_multiplier=steps.SIGMA,
    )
    return Measurements(subject, runs=runs, seed=0, axis=3)


def all_three(one):
    found = {"batch size stays private": noise_size.check_there(one, {})}
    found[noise_size.THERE.name] = noise_size.check_there(one, found)
    found[noise_independence.RULE.name] = noise_independence.check(one, found)
    found[seeds.RULE.name] = seeds.check(one, found)
    found[noise_size.SIZE.name] = noise_size.check_size(one, found)
    return found


@pytest.fixture(scope="module")
def trials():
    return [measured(seed) for seed in range(TRIALS)]


def test_no_correct_step_is_called_broken_in_two_thousand(trials):
    """At one in a million for each rule, an alarm in 2,000 has probability below one per cent."""
    verdicts = {finding.verdict for one in trials for finding in all_three(one).values()}
    assert verdicts == {"passed"}


LEVEL = 0.02


@pytest.fixture
def loose(monkeypatch):
    """The same rules at a level where false alarms can be counted."""
    for module in (limits, noise_size, noise_independence, seeds):
        monkeypatch.setattr(module, "FALSE_ALARM", LEVEL)
    monkeypatch.setattr(noise_size, "_TOLERATED", 0.0)


def test_alarms_come_at_no_more_than_the_stated_rate(trials, loose):
    """Each rule alarms at most at its level, as far as 2,000 trials can tell."""
    counts = dict.fromkeys((noise_size.SIZE.name, noise_independence.RULE.name, seeds.RULE.name), 0)
    for one in trials:
        found = all_three(one)
        for name in counts:
            counts[name] += found[name].verdict == "broken"
    allowed = stats.binom.isf(1e-4, TRIALS, LEVEL)
    assert max(counts.values()) <= allowed, counts
    # Chi-square limits are exact, apart from the two that share the level: not far below it.
    assert counts[noise_size.SIZE.name] >= stats.binom.ppf(1e-4, TRIALS, LEVEL / 2)


def test_limits_are_those_of_the_distributions():
    for degrees in (7, 420, 15_000):
        assert smallest_ratio(degrees, FALSE_ALARM) == pytest.approx(
            stats.chi2.ppf(FALSE_ALARM, degrees) / degrees, rel=1e-9
        )
        assert largest_ratio(degrees, FALSE_ALARM) == pytest.approx(
            stats.chi2.isf(FALSE_ALARM, degrees) / degrees, rel=1e-9
        )
    assert standard_deviations(FALSE_ALARM) == pytest.approx(stats.norm.isf(FALSE_ALARM / 2))


def test_directions_of_independent_noise_have_the_variance_that_limits_assume():
    directions = noise_directions(measured(1, parameters=20_000, runs=9)).rows
    products = np.einsum("ij,ij->i", directions[:-1], directions[1:])
    assert products.mean() == pytest.approx(0, abs=5 / np.sqrt(8 * 20_000))
    assert products.var() == pytest.approx(1 / 8, rel=0.05)
