"""Shell completion, and the closest name for a mistyped command."""

import os

import pytest
from helpers import dpaudit


@pytest.mark.parametrize(
    ("words", "expected"), [("dpaudit au", "audit"), ("dpaudit account --no", "--noise-")]
)
def test_a_shell_completes_commands_and_options(words, expected):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = dpaudit(env={**os.environ, "_DPAUDIT_COMPLETE": "complete_bash", **asked})
    assert done.returncode == 0
    assert expected in done.stdout


def test_the_completion_script_is_printed():
    done = dpaudit("--show-completion", "bash")
    assert done.returncode == 0
    assert "_DPAUDIT_COMPLETE" in done.stdout


def test_a_mistyped_command_gets_the_closest_name(run):
    code, _, errors = run("audti")
    assert code == 2
    assert "'audti'" in errors
    assert "'audit'" in errors


def test_a_mistyped_option_gets_the_closest_name(run):
    code, _, errors = run("account", "--noise-multiplyer", "1")
    assert code == 2
    assert "'--noise-multiplyer'" in errors or "--noise-multiplyer;" in errors
    assert "did you mean --noise-multiplier?" in errors
