"""``dpaudit account``: what it prints, what it imports, how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

PLAIN = ["--noise-multiplier", "4", "--steps", "250"]
AT_DELTA = [*PLAIN, "--delta", "1e-5"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "account")


def _bounds(output: str) -> dict[str, dict[str, Any]]:
    return {bound["method"]: bound for bound in json.loads(output)["bounds"]}


def test_json_is_one_object_with_the_bound(run: Run) -> None:
    code, out, err = run(*AT_DELTA, "--accountant", "gaussian", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert list(printed) == ["bounds"]
    (bound,) = printed["bounds"]
    assert bound["epsilon"] == pytest.approx(23.995359, abs=1e-6)
    assert {"method", "side", "epsilon", "delta", "confidence", "assumptions"} <= set(bound)
    assert (bound["side"], bound["delta"], bound["confidence"]) == ("upper", 1e-5, None)


def test_json_of_all_accountants(run: Run) -> None:
    code, out, err = run(*AT_DELTA, "--accountant", "all", "--json")
    assert (code, err) == (0, "")
    bounds = _bounds(out)
    assert list(bounds) == ["gaussian", "pld", "rdp", "prv"]
    assert bounds["pld"]["epsilon"] == pytest.approx(23.995359, abs=1e-4)
    assert bounds["prv"]["epsilon_lower"] == pytest.approx(23.98535, abs=1e-4)
    assert json.loads(out)["unavailable"] == []


def test_json_lists_accountants_without_a_number(run: Run) -> None:
    _, out, _ = run(
        *("--noise-multiplier", "1", "--steps", "10", "--sampling-rate", "0.1"),
        *("--epsilon", "1", "--accountant", "all", "--json"),
    )
    assert list(_bounds(out)) == ["pld", "rdp", "prv"]
    (missing,) = json.loads(out)["unavailable"]
    assert missing["method"] == "gaussian"
    assert "sampling" in missing["reason"]


def test_infinity_is_a_word_in_json(run: Run) -> None:
    _, out, _ = run("--noise-multiplier", "0", "--steps", "1", "--delta", "1e-5", "--json")
    assert _bounds(out)["gaussian"]["epsilon"] == "inf"


def test_calibration(run: Run) -> None:
    arguments = ["--target-epsilon", "23.995359", "--steps", "250", "--delta", "1e-5"]
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert json.loads(out)["noise_multiplier"] == pytest.approx(4.0, rel=1e-6)
    assert _bounds(out)["gaussian"]["epsilon"] <= 23.995359
    _, table, _ = run(*arguments)
    assert "noise multiplier 4 over 250 steps" in table


def test_table_for_people(run: Run) -> None:
    code, out, err = run(*AT_DELTA, "--accountant", "all")
    assert (code, err) == (0, "")
    for text in ("≤ 23.9954", "≤ 24.0054", "≤ 25.5184", "error", "250 steps"):
        assert text in out
    told = " ".join(out.split())
    assert "added or removed" in told
    assert "every step" in told


def test_a_long_title_is_not_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(
        *("--target-epsilon", "8", "--steps", "1000", "--delta", "1e-5"),
        *("--sampling-rate", "0.01", "--accountant", "rdp"),
    )
    assert "over 1,000 steps, sampling rate 0.01 method" in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80


def test_the_table_lists_accountants_without_a_number(run: Run) -> None:
    _, out, _ = run(
        *("--noise-multiplier", "1", "--steps", "10", "--sampling-rate", "0.1"),
        *("--delta", "1e-5", "--accountant", "all"),
    )
    told = " ".join(out.split())
    assert "gaussian: no number. accountant gaussian" in told
    assert "Poisson sampling" in told
    assert "assumes: removing the record" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (PLAIN, "give either delta or epsilon"),
        ([*AT_DELTA, "--epsilon", "1"], "give either delta or epsilon"),
        (["--steps", "250", "--delta", "1e-5"], "--noise-multiplier"),
        ([*AT_DELTA, "--target-epsilon", "1"], "either --noise-multiplier or --target-epsilon"),
        (["--steps", "250", "--target-epsilon", "1"], "--target-epsilon needs --delta"),
        (["--steps", "9", "--target-epsilon", "1", "--delta", "0.1", "--accountant", "all"], "one"),
        (["--noise-multiplier", "4", "--delta", "1e-5"], "give --steps"),
        ([*AT_DELTA, "--steps", "many"], "--steps"),
        ([*AT_DELTA, "--noise-multiplier", "-1"], "noise_multiplier must be at least 0, got -1"),
        ([*AT_DELTA, "--noise-multiplier", "nan"], "noise_multiplier must be finite, got nan"),
        ([*AT_DELTA, "--delta", "1"], "delta must be in [0, 1), got 1"),
        ([*AT_DELTA, "--sampling-rate", "0"], "sampling_rate must be in (0, 1], got 0"),
        ([*AT_DELTA, "--accountant", "moments"], "must be one of gaussian, pld, rdp, prv"),
        ([*AT_DELTA, "--accountant", "gaussian", "--sampling-rate", "0.5"], "use pld, prv or rdp"),
        ([*AT_DELTA, "--frobnicate"], "No such option"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_bad_input_is_one_line_and_exit_code_2(
    run: Run, arguments: list[str], message: str, form: list[str]
) -> None:
    code, out, err = run(*arguments, *form)
    assert (code, out) == (2, "")
    assert err.startswith("dpaudit: ")
    assert err.count("\n") == 1
    assert message in err


def test_help_names_every_option(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for option in ("--noise-multiplier", "--target-epsilon", "--sampling-rate", "--json"):
        assert option in out


def test_the_closed_form_imports_nothing_heavy() -> None:
    """No timing test: what costs the time is named."""
    program = (
        "import sys; from dpaudit.cli import main\n"
        f"sys.argv = {['dpaudit', 'account', *AT_DELTA, '--accountant', 'gaussian']!r}\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'dp_accounting', 'prv_accountant',\n"
        "         'scipy.stats', 'scipy.optimize'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "23.9954" in finished.stdout
    assert "HEAVY []" in finished.stdout


def test_one_gaussian_release_is_bounded_exactly(run: Run) -> None:
    """The classical formula's noise at epsilon 10 gives 10.39."""
    code, out, _ = run("--gaussian-mechanism", "0.48448", "--delta", "1e-5", "--json")
    assert code == 0
    assert json.loads(out)["bounds"][0]["epsilon"] == pytest.approx(10.39, abs=0.01)
    _, out, _ = run("--gaussian-mechanism", "0.48448", "--delta", "1e-5")
    assert "The classical formula, proven up to epsilon 1, would claim 10.0000." in out
    _, out, _ = run("--gaussian-mechanism", "5", "--delta", "1e-5")
    assert "classical" not in out


def test_a_sensitivity_needs_a_mechanism(run: Run) -> None:
    code, _, err = run("--sensitivity", "2", *AT_DELTA)
    assert code == 2
    assert "--sensitivity needs --gaussian-mechanism" in err
