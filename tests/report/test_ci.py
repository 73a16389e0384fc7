"""Verdicts as JUnit XML and SARIF."""

import json
import string
from xml.etree import ElementTree

import pytest

from dpaudit.report.ci import Outcome, to_junit, to_sarif

OUTCOMES = [
    Outcome(
        name="my <training>",
        level="failed",
        verdict="violation",
        message='p = 0.01 & "more"',
        file="src/train.py",
        line=7,
        seconds=1.25,
    ),
    Outcome(name="other", level="skipped", verdict="inconclusive", message="too few runs"),
    Outcome(name="third", level="passed", verdict="consistent", message="fine", seconds=0.5),
]


def test_junit_has_one_case_for_each_outcome():
    suite = ElementTree.fromstring(to_junit(OUTCOMES))
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors", "time")}
    assert counts == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
        "errors": "0",
        "time": "1.750",
    }
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [one.name for one in OUTCOMES]
    assert cases[0].get("file") == "src/train.py"
    assert cases[0].find("failure").get("message") == "violation"
    assert cases[0].find("failure").text == OUTCOMES[0].message
    assert cases[1].find("skipped") is not None
    assert len(cases[2]) == 0


def test_sarif_has_one_result_for_each_outcome_that_did_not_pass():
    log = json.loads(to_sarif(OUTCOMES))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == sorted(
        one.name for one in OUTCOMES
    )
    first, second = run["results"]
    assert (first["ruleId"], first["level"]) == ("my <training>", "error")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/train.py"
    assert place["region"]["startLine"] == 7
    assert (second["level"], "locations" in second) == ("note", False)


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x1b[2J",
        "\ufffe",
        "\udcff",
        "]]>",
        "<&\"'",
        "\n::error::x",
        "##[error]x",
        "a\rb\x85\u2028",
    ],
)
@pytest.mark.parametrize("field", ["name", "verdict", "message", "file"])
def test_no_text_breaks_a_file_or_commands_a_log(text, field):
    fields = {"name": "n", "verdict": "violation", "message": "m", "file": "a b/t.py", field: text}
    outcome = Outcome(level="failed", **fields)
    junit, sarif = to_junit([outcome]), to_sarif([outcome])
    ElementTree.fromstring(junit.encode())
    (result,) = json.loads(sarif)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert set(place) <= set(string.ascii_letters + string.digits + "%/._-~")
    for line in (junit + sarif).split("\n"):
        assert not line.strip().startswith("::")
        assert "##[" not in line
