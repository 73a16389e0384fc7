"""``dpaudit estimate`` as a user meets it."""

import json

import numpy as np
import pytest
from helpers import dpaudit

from dpaudit import Scores, write_scores
from dpaudit.lower_bounds import METHODS

COUNTS = [
    "--true-positives", "490", "--false-negatives", "10",
    "--false-positives", "20", "--true-negatives", "480",
]  # fmt: skip


@pytest.fixture
def scores_file(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "scores.csv"
    write_scores(Scores.from_samples(random.normal(3, 1, 500), random.normal(0, 1, 507)), path)
    return str(path)


def test_json_is_one_object_and_nothing_else(run, scores_file):
    code, out, err = run("estimate", scores_file, "--delta", "1e-5", "--json")
    assert (code, err) == (0, "")
    bounds = json.loads(out)["bounds"]
    assert [bound["method"] for bound in bounds] == ["clopper-pearson", "gaussian-dp"]
    for bound in bounds:
        assert {"method", "side", "epsilon", "delta", "confidence", "assumptions"} <= set(bound)
    assert bounds[1]["mu"] > 2


def test_every_method_at_once(run, scores_file):
    code, out, _ = run("estimate", scores_file, "--delta", "1e-5", "--method", "all", "--json")
    assert code == 0
    assert len(json.loads(out)["bounds"]) == len(METHODS)
    code, out, _ = run("estimate", scores_file, "--epsilon", "1", "--method", "all", "--json")
    answer = json.loads(out)
    assert {bound["quantity"] for bound in answer["bounds"]} == {"delta"}
    assert {entry["method"] for entry in answer["unavailable"]} == {
        "katz-log", "adjusted-log", "bailey", "inverse-sinh",
    }  # fmt: skip


DPSGD = ["--noise-multiplier", "4", "--steps", "100"]


@pytest.mark.parametrize(
    ("arguments", "methods"),
    [
        (["--method", "dpsgd", "--sampling-rate", "0.5", "--steps", "20"], ["dpsgd"]),
        (["--sampling-rate", "0.5", "--steps", "20"], ["dpsgd", "clopper-pearson"]),
        ([*DPSGD, "--sampling-rate", "0.1"], ["dpsgd", "clopper-pearson"]),
        ([*DPSGD, "--sampling-rate", "0.1", "--method", "dpsgd"], ["dpsgd"]),
        (DPSGD, ["gaussian-dp", "clopper-pearson"]),
        (["--claimed-epsilon", "8"], ["clopper-pearson", "gaussian-dp"]),
    ],
)
def test_the_family_that_the_claim_names_comes_first(run, scores_file, arguments, methods):
    _, out, err = run("estimate", scores_file, "--delta", "1e-5", *arguments, "--json")
    assert err == ""
    assert [bound["method"] for bound in json.loads(out)["bounds"]] == methods


def test_counts(run):
    code, out, _ = run(
        "estimate", *COUNTS, "--delta", "1e-5", "--method", "clopper-pearson", "--json"
    )
    assert code == 0
    assert json.loads(out)["bounds"][0]["epsilon"] == pytest.approx(3.285813, rel=1e-4)


def test_a_table_for_people(run, scores_file):
    code, out, _ = run("estimate", scores_file, "--delta", "1e-5", "--claimed-mu", "1")
    assert code == 1
    for words in ("Lower bounds: 1,007 scores", "gaussian-dp", "≥", "assumes", "VIOLATION"):
        assert words in out


def test_the_table_fits_80_columns_and_verdicts_are_coloured(run, scores_file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    question = ("estimate", scores_file, "--delta", "1e-5", "--claimed-mu")
    assert "…" not in run(*question, "1")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31mVIOLATION" in run(*question, "1")[1]
    assert "\x1b[1;32mCONSISTENT" in run(*question, "4")[1]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (["--claimed-mu", "1"], "violation"),
        (["--claimed-mu", "4"], "consistent"),
        (["--claimed-epsilon", "1"], "violation"),
        (["--noise-multiplier", "4", "--steps", "250"], "consistent"),
        (["--noise-multiplier", "1", "--steps", "10",
          "--sampling-rate", "0.01"], "violation"),
    ],
)  # fmt: skip
def test_claims(run, scores_file, claim, verdict):
    code, out, _ = run("estimate", scores_file, "--delta", "1e-5", *claim, "--json")
    answer = json.loads(out)
    assert code == {"consistent": 0, "violation": 1}[verdict]
    assert answer["verdict"] == verdict
    assert 0 <= answer["p_value"] <= 1


def test_a_claimed_epsilon_is_read_as_audit_reads_it(run, scores_file):
    question = ["estimate", scores_file, "--delta", "1e-5", "--json"]
    claim = ["--claimed-epsilon", "4"]
    as_curve, as_pair = (
        json.loads(run(*question, *claim, *more)[1])["claim"] for more in ([], ["--pair-only"])
    )
    assert "read as" in as_curve["claim"]
    assert "read as" not in as_pair["claim"]
    assert as_curve["p_value"] < as_pair["p_value"]


def test_a_claim_is_consistent_only_if_the_scores_could_have_refuted_it(run, scores_file):
    question = ("estimate", scores_file, "--delta", "1e-5", "--claimed-mu")
    code, out, _ = run(*question, "4", "--json")
    power = json.loads(out)["power"]
    assert code == 0
    assert power["found_noise_factor"] < 2
    assert "Would have found" in power["sentence"]
    code, out, _ = run(*question, "20", "--json")
    answer = json.loads(out)
    assert (code, answer["verdict"], answer["claim"]["verdict"]) == (3, *["inconclusive"] * 2)
    assert answer["power"]["probability"] < 0.8
    code, out, _ = run("estimate", *COUNTS, "--delta", "1e-5", "--claimed-mu", "4", "--json")
    answer = json.loads(out)
    assert (code, answer["verdict"]) == (0, "consistent")
    assert answer["power"]["probability"] > 0.8
    chance = ["--true-positives", "250", "--false-negatives", "250"]
    chance += ["--false-positives", "250", "--true-negatives", "250"]
    code, out, _ = run("estimate", *chance, "--delta", "1e-5", "--claimed-mu", "4", "--json")
    assert (code, json.loads(out)["verdict"]) == (3, "inconclusive")


def test_the_power_counts_the_scores_that_the_pilot_leaves(run, scores_file):
    question = ("estimate", scores_file, "--delta", "1e-5", "--claimed-mu", "4", "--json")
    rules = ("fixed=1", "pilot=0.1", "pilot=0.7")
    answers = [json.loads(run(*question, "--threshold", rule)[1]) for rule in rules]
    found = [answer["power"]["found_noise_factor"] for answer in answers]
    assert found == sorted(found)
    assert found[0] < found[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a file of scores, or the four counts"),
        (["missing.csv", "--delta", "1e-5"], "missing.csv"),
        ([*COUNTS[:4], "--delta", "1e-5"], "missing --false-positives, --true-negatives"),
        ([*COUNTS], "either delta or epsilon"),
        ([*COUNTS, "--delta", "2"], r"delta must be in [0, 1), got 2.0"),
        ([*COUNTS, "--delta", "x"], "--delta"),
        ([*COUNTS, "--delta", "1e-5", "--method", "magic"], "got 'magic'"),
        *(
            ([*COUNTS, "--delta", "1e-5", "--threshold", rule], f"needs scores, got '{rule}'")
            for rule in ("pilot", "best", "simultaneous", "fixed=1")
        ),
        (["--true-positives", "9" * 20, *COUNTS[2:], "--delta", "1e-5"],
         f"true_positives must be at most 1,000,000,000,000,000, got {'9' * 20}"),
        ([*COUNTS, "--epsilon", "1", "--claimed-epsilon", "1"], "needs --delta"),
        ([*COUNTS, "--delta", "1e-5", "--noise-multiplier", "1"], "--steps is needed too"),
        ([*COUNTS, "--delta", "1e-5", "--claimed-mu", "1", "--noise-multiplier", "1"], "one claim"),
        ([*COUNTS, "--delta", "1e-5", "--claimed-mu", "1", "--pair-only"], "one claim"),
        ([*COUNTS, "--delta", "1e-5", "--pair-only"], "a claim is needed"),
        ([*COUNTS, "--delta", "1e-5", "--claimed-epsilon", "1", "--noise-multiplier", "1"],
         "not both"),
        (["scores.csv", *COUNTS, "--delta", "1e-5"], "not both"),
        ([*COUNTS, "--delta", "1e-5", "--method", "dpsgd"], "needs sampling_rate"),
        ([*COUNTS, "--delta", "1e-5", "--method", "bailey", "--steps", "9"], "steps is for method"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run("estimate", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_claim_needs_a_threshold_chosen_without_its_scores(run, scores_file):
    asked = ("estimate", scores_file, "--delta", "1e-5", "--claimed-mu", "1", "--threshold", "best")
    code, _, err = run(*asked)
    assert code == 2
    assert "must be pilot or fixed=VALUE" in err


def test_an_unknown_threshold_rule(run, scores_file):
    code, out, err = run("estimate", scores_file, "--delta", "1e-5", "--threshold", "magic")
    assert (code, out) == (2, "")
    assert "got 'magic'" in err


def test_no_number_at_all_is_exit_code_2_with_every_reason(run, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("score,inserted\n1,1\n0,0\n")
    code, out, err = run("estimate", str(path), "--delta", "1e-5")
    assert code == 2
    assert "clopper-pearson, gaussian-dp: no number" in out  # the same reason, once
    assert err.startswith("dpaudit: no method")
    assert err.count("\n") == 1
    code, out, err = run("estimate", str(path), "--delta", "1e-5", "--json")
    assert (code, err.count("\n")) == (2, 1)
    answer = json.loads(out)
    assert answer["bounds"] == []
    assert [entry["method"] for entry in answer["unavailable"]] == [
        "clopper-pearson", "gaussian-dp",
    ]  # fmt: skip
    # One number is an answer: the others say why they have none.
    assert run("estimate", str(path), "--delta", "1e-5", "--method", "all")[0] == 0


def test_standard_input(scores_file):
    with open(scores_file, "rb") as stream:  # noqa: PTH123
        done = dpaudit("estimate", "-", "--delta", "1e-5", "--json", stdin=stream)
    assert len(json.loads(done.stdout)["bounds"]) == 2
