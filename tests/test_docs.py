"""The documentation keeps its word: examples run, commands exist, links lead somewhere."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpaudit.adversaries import ADVERSARIES
from dpaudit.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    failures, _ = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf8"
    )
    assert failures == 0


def commands_in(page: Path) -> list[str]:
    """Every ``dpaudit …`` line of a page's code blocks and inline code."""
    text = page.read_text(encoding="utf8")
    blocks = re.findall(r"^(?:    )?(?:\$ )?(dpaudit [a-z].*)$", text, flags=re.MULTILINE)
    inline = re.findall(r"`(dpaudit [a-z][^`\n]*)`", text)
    return blocks + inline


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_exist_with_their_options(page):
    for line in commands_in(page):
        words = line.split("#")[0].split()
        assert words[1] in COMMANDS, line
        shown = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert shown <= options_of(words[1]), line


_options: dict[str, set[str]] = {}


def options_of(command: str) -> set[str]:
    if command not in _options:
        told = subprocess.run(
            [sys.executable, "-m", "dpaudit", command, "--help"],
            capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": ""},
        ).stdout  # fmt: skip
        _options[command] = set(re.findall(r"--[a-z][a-z-]*", told))
    return _options[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example(command):
    told = subprocess.run(
        [sys.executable, "-m", "dpaudit", command, "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": ""},
    ).stdout  # fmt: skip
    assert f"dpaudit {command}" in told
    assert "--json" in told


def test_the_readme_lists_every_adversary_and_counts_the_bugs():
    """Its table is the registry's, and the catalogue has as many wrong trainings as it says."""
    text = (ROOT / "README.md").read_text(encoding="utf8")
    sees = {
        "hidden state": "the final model",
        "black box": "the final model's answers",
        "standard": "every iterate",
    }
    for name, adversary in ADVERSARIES.items():
        seen = sees[adversary.threat_model.value]
        assert f"| `{name}` | {adversary.paper} | {seen} | a {adversary.canary} |" in text
    wrong = list((ROOT / "examples" / "bugs").glob("[a-z]*.py"))
    assert f"[{len(wrong)} bugs]" in text
