"""Shell completion, and the closest name for a mistyped command."""

import os
import subprocess
import sys

import pytest


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "dpaudit", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("words", "expected"), [("dpaudit au", "audit"), ("dpaudit account --no", "--noise-")]
)
def test_a_shell_completes_commands_and_options(words, expected):
    done = run(
        _DPAUDIT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
    )
    assert done.returncode == 0
    assert expected in done.stdout


def test_the_completion_script_is_printed():
    done = run("--show-completion", "bash")
    assert done.returncode == 0
    assert "_DPAUDIT_COMPLETE" in done.stdout


def test_a_mistyped_command_gets_the_closest_name():
    done = run("audti")
    assert done.returncode == 2
    assert "'audti'" in done.stderr
    assert "'audit'" in done.stderr


def test_a_mistyped_option_gets_the_closest_name():
    done = run("account", "--noise-multiplyer", "1")
    assert done.returncode == 2
    assert "'--noise-multiplyer'" in done.stderr or "--noise-multiplyer;" in done.stderr
    assert "did you mean --noise-multiplier?" in done.stderr
