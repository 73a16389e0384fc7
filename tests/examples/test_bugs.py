"""The catalogue of examples/bugs: every file does what its docstring says."""

import importlib
import importlib.util
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit import GradientCanary, upper_bound

pytest.importorskip("torch")
# Torch says so of Opacus' hooks in every step.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "bugs"
WRONG = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
CORRECT = sorted(f"correct.{path.stem}" for path in (FOLDER / "correct").glob("[a-z]*.py"))
GROSS = ("batch_mean_clipped", "clipping_forgotten", "noise_forgotten", "noise_scaled_for_the_mean")
NOT_IN_THE_OUTPUT = (
    "clip_at_the_batch_median",
    "epsilon_for_another_delta",
    "noise_cached",
    "noise_in_half_precision",
    "noise_missing_in_the_last_step",
    "truncated_noise",
    "uniform_noise",
    "weak_random_generator",
)
ROWS = {row["name"]: row for row in json.loads((ROOT / "benchmarks" / "bugs.json").read_text())}


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def training(name):
    if "opacus" in (FOLDER / f"{name.replace('.', '/')}.py").read_text():
        pytest.importorskip("opacus")
    return importlib.import_module(f"bugs.{name}")


def page_module():
    path = ROOT / "benchmarks" / "bugs_page.py"
    spec = importlib.util.spec_from_file_location("bugs_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def audit(module, **options):
    common = importlib.import_module("bugs._common")
    adversary = common.adversary_of(module.canary, getattr(module, "score", None))
    settings = {"canary": module.canary, "claim": module.claim, "adversary": adversary}
    return dpaudit.audit(module.train, **(settings | options))


def test_the_catalogue_is_large_enough():
    assert len(WRONG) >= 50
    assert len(CORRECT) >= 20


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_training_says_what_is_wrong(name):
    page = page_module()
    assert set(page.parts(name)) == set(page.PARTS)
    planted = "planted by a reviewer" in page.parts(name)["Source"]
    assert page.references(name) or planted, "no source is cited"
    text = (FOLDER / f"{name}.py").read_text()
    assert "# wrong" in text, "the wrong line is not marked"
    assert len(text.splitlines()) <= 80


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_training_says_why_it_is_right(name):
    assert page_module().parts(name)["Right because"]


@pytest.mark.parametrize("name", WRONG + CORRECT)
def test_a_training_is_a_function_of_its_seed_and_its_canary(name):
    module = training(name)
    one, again, other, without = (
        np.asarray(module.train(module.canary, inserted, seed))
        for inserted, seed in ((True, 8), (True, 8), (True, 9), (False, 8))
    )
    assert one.shape[-1] == importlib.import_module("bugs._common").PARAMETERS
    np.testing.assert_array_equal(one, again)
    noiseless = name in ("noise_forgotten", "optimizer_inactive")
    assert np.array_equal(one, other, equal_nan=True) == (noiseless or name == "nan_survives")
    assert not np.array_equal(one, without)


@pytest.mark.parametrize("examples", [0, 1, 7])
def test_the_gradients_of_examples_equal_those_of_autograd(examples):
    torch, common = pytest.importorskip("torch"), importlib.import_module("bugs._common")
    theta, (features, classes) = common.start(), common.batch(2, size=examples)
    copies = theta.expand(examples, -1).clone().requires_grad_()
    outputs = [common.logits(copy, row[None]) for copy, row in zip(copies, features, strict=True)]
    found = common.example_gradients(theta, features, classes)
    assert found.shape == (examples, common.PARAMETERS)
    if examples:
        loss = torch.nn.functional.cross_entropy(torch.cat(outputs), classes, reduction="sum")
        torch.testing.assert_close(found, torch.autograd.grad(loss, copies)[0])


# How far one example can move the sum of a step, in units of what the noise was made for.
LOUDNESS = {
    "correct.plain": 1,
    "correct.accumulation": 1,
    "correct.ghost_clipping": 1,
    "correct.opacus_flat": 1,
    "correct.opacus_per_layer": 1,
    "correct.over_noised": 1,
    "clipped_per_tensor": math.sqrt(6),
    "clipping_forgotten": 10,
    "ghost_clipping_ignores_the_norm": 10,
    "half_precision_norm": 0.00016 * math.sqrt(2882) / 0.001,
    "microbatch_clipped": 2,
    "optimizer_inactive": 10,
    "raw_gradient_mixed_in": 11,
    "views_clipped_apart": 4,
}


@pytest.mark.parametrize("name", LOUDNESS)
def test_one_example_contributes_exactly_as_much_as_the_docstring_says(name):
    module = training(name)
    common = importlib.import_module("bugs._common")
    moved = module.train(module.canary, True, 3, steps=1)
    moved = moved - module.train(module.canary, False, 3, steps=1)  # the noise cancels
    divisor = {"microbatch_clipped": 8, "views_clipped_apart": 4 * common.BATCH}
    unit = common.RATE / divisor.get(name, common.BATCH) * module.canary.clip_norm
    assert np.linalg.norm(moved) / unit == pytest.approx(LOUDNESS[name], rel=1e-3)


def test_claimed_epsilons():
    """The claims are those of the accountant: nine steps of noise multiplier 3 and 1.8."""
    plain = upper_bound(noise_multiplier=3.0, steps=9, delta=1e-5, accountant="gaussian")
    assert training("noise_forgotten").claim.epsilon(1e-5) == pytest.approx(plain.epsilon, rel=1e-6)
    assert training("noise_a_fifth_too_small").claim.epsilon(1e-5) == pytest.approx(8.0, abs=0.05)


@pytest.mark.parametrize("name", GROSS)
def test_gross_bugs_are_proven_in_200_trainings_and_in_one(name):
    module = training(name)
    found = audit(module, runs=200, until_violation=True, seed=11)
    assert found.verdict == "violation"
    assert found.stopped_at <= 200
    canary = GradientCanary.draw(module.canary.parameters, clip_norm=1.0, count=1000, seed=4)
    assert audit(module, canary=canary, runs=1, seed=11, anyway=True).verdict == "violation"


@pytest.mark.parametrize("name", ["correct.plain", "correct.opacus_per_layer"])
def test_correct_trainings_are_left_alone(name):
    assert audit(training(name), runs=120, seed=12).verdict != "violation"


def test_every_visible_bug_was_proven_and_gross_ones_in_200_runs():
    assert set(ROWS) == {*WRONG, *CORRECT}
    for name in WRONG:
        if name in NOT_IN_THE_OUTPUT:
            assert ROWS[name]["fixed"]["p_value"] > 0.005  # one in twenty is below 0.05 by chance
            assert ROWS[name]["check"]["broken"] or name == "epsilon_for_another_delta"
            continue
        assert all(one["runs"] is not None for one in ROWS[name]["until"]), name
    for name in GROSS:
        assert max(one["runs"] for one in ROWS[name]["until"]) <= 200
        assert ROWS[name]["fixed"]["verdict"] == ROWS[name]["many"]["verdict"] == "violation"


def test_every_new_bug_is_found_by_check_or_by_an_audit_of_300_trainings():
    for name in WRONG:
        runs = [one["runs"] for one in ROWS[name].get("until", [])]
        found_by_audit = bool(runs) and sorted(runs)[len(runs) // 2] <= 300
        found_by_check = bool(ROWS[name].get("check", {}).get("broken"))
        explained = name in ("epsilon_for_another_delta", "poisson_claimed_batches_shuffled")
        assert found_by_audit or found_by_check or explained, name


def test_check_reports_no_correct_training():
    assert [name for name in CORRECT if ROWS[name].get("check", {}).get("broken")] == []


def test_correct_trainings_were_not_flagged_beyond_the_nominal_rate():
    """At most 3 of 20 for each: more has probability 1.6 %. Of all together: three deviations."""
    alarms = audits = 0
    for name in CORRECT:
        for key in ("p_values", "many_p_values"):
            p_values = ROWS[name].get(key, [])
            flagged = sum(p_value <= 0.05 for p_value in p_values)
            assert flagged <= 3, (name, key)
            alarms, audits = alarms + flagged, audits + len(p_values)
    assert alarms <= 0.05 * audits + 3 * math.sqrt(0.05 * 0.95 * audits)


@pytest.mark.parametrize("name", WRONG)
def test_docstrings_name_the_rules_that_dpaudit_check_reports(name):
    told = re.findall(r'`dpaudit check` \("([^":]+)"', page_module().parts(name)["Found by"])
    if "check" in ROWS[name]:
        reported = {*ROWS[name]["check"]["broken"], *ROWS[name]["check"]["warnings"]}
        assert set(told) <= reported
        assert bool(told) == bool(reported)


def test_the_catalogue_is_what_the_results_say():
    made = page_module().catalogue(list(ROWS.values())).strip()
    assert made in (ROOT / "docs" / "rules-of-check.md").read_text()
