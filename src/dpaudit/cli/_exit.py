"""Exit codes of the command line. No two outcomes share one.

| code | meaning |
|---|---|
| 0 | The command succeeded; with a verdict: consistent, no rule broken, or nothing claimed. |
| 1 | A violation is proven, or a rule is broken, even if an output could not be written. |
| 2 | A mistake in the call that the user can correct: an argument, a file, a training that fails. |
| 3 | Inconclusive, or unfinished; `check`: a core rule was not tested. |
| 4 | A defect of dpaudit; ``DPAUDIT_TRACEBACK=1`` shows where. |
| 5 | An output could not be written. |
| 130, 143 | Interrupted by Ctrl-C, or by SIGTERM or SIGHUP. |

A command calls `decided` with its verdict before it prints or writes anything, so that the code of
a violation is kept if an output then fails.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import typer

from dpaudit._validate import printable, said
from dpaudit.errors import DpauditError

VERDICT_CODES = {
    "consistent": 0,
    "no-claim": 0,
    "violation": 1,
    "inconclusive": 3,
    "unfinished": 3,
}
MISTAKE, UNEXPECTED, UNWRITTEN, INTERRUPTED, TERMINATED = 2, 4, 5, 130, 143

_LONGEST_LINE = 4_000
_UNWRITABLE = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)

# The base of typer's usage errors: no such option, value missing, not a number. New versions of
# typer have a click of their own, so this is not always `click.UsageError`.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


_DECIDED: ContextVar[int] = ContextVar("decided", default=0)
"""The code of the verdict, once there is one."""


_leave = os._exit

_DELETED = "the working directory was deleted; change to another one"


class Unwritten(Exception):
    """An output other than standard output could not be written; the message names it."""


def decided(verdict: str) -> int:
    """The exit code of a verdict, which is kept in case an output cannot be written."""
    _DECIDED.set(VERDICT_CODES[verdict])
    return VERDICT_CODES[verdict]


def run_and_exit(command: Callable[[], Any]) -> NoReturn:
    """Run a command and exit. Nothing else ends this process with a code of its own.

    A module of the user's that is imported here, such as that of an adversary, may call `os._exit`
    in a thread, in a signal handler or at the interpreter's end. Its code would be that of a
    verdict, without one.
    """
    process = os.getpid()
    codes: list[int] = []  # that of the command, once it has ended

    def refuse(code: int) -> NoReturn:
        if os.getpid() == process:
            if not codes:
                message = f"a module ended the process with exit code {code}, without a result"
                codes.append(_say(message, MISTAKE))
            code = codes[0]
        _leave(code)

    os._exit = refuse  # type: ignore[assignment]
    codes.append(exit_code_of(command))
    sys.exit(codes[0])


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end a command as Ctrl-C does."""


def exit_code_of(command: Callable[[], Any]) -> int:
    """Run a command and give its exit code; every error becomes one line on standard error."""
    _DECIDED.set(0)
    if sys.stdout is None:  # closed by the shell: a result could not be shown
        return _say("standard output is closed", UNWRITTEN)
    if not _has_working_directory():  # without one, torch ends the process
        return _say(_DELETED, MISTAKE)
    _write_any_text()
    try:
        with _termination_as_interrupt():
            code = command()
            sys.stdout.flush()  # now, and not when the interpreter ends: it may fail
    except DpauditError as error:
        return _say(str(error), MISTAKE)
    except Unwritten as error:
        return _say(str(error), _code_if_unwritten())
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "dpaudit"
        message = getattr(error, "format_message", error.__str__)().rstrip(".")
        message = re.sub(r" \(Possible options: (.+)\)$", r"; did you mean \1?", message)
        see = " See" if message.endswith("?") else "; see"
        return _say(f"{message}{see} '{where} --help'", MISTAKE)
    except _Terminated:
        return _say("terminated", TERMINATED)
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except SystemExit as error:
        if _is_of_output(error.__context__):  # typer exits with 1 where a pipe is closed
            return _unwritten(error.__context__)
        return _say(f"unexpected exit with {error.code!r}", UNEXPECTED)
    except Exception as error:
        if _is_of_output(error):
            return _unwritten(error)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return _say(f"cannot use {error.filename}: {error.strerror}", MISTAKE)
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return _say(_DELETED, MISTAKE)
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return _say(
                "too many files are open; raise the limit with ulimit -n, or use fewer --workers",
                MISTAKE,
            )
        if os.environ.get("DPAUDIT_TRACEBACK"):
            traceback.print_exc()
        return _say(
            f"unexpected {said(error)} (a bug in dpaudit; set DPAUDIT_TRACEBACK=1 to see where)",
            UNEXPECTED,
        )
    return code if isinstance(code, int) else 0


_IN_ASCII = {"≤": "<=", "≥": ">=", "∞": "inf", "…": "...", "—": "-", "–": "-", "·": "-", "×": "x"}


def _write_any_text() -> None:
    """Let standard output show every text: where its encoding has no sign, in ASCII."""

    def in_ascii(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        missing = error.object[error.start : error.end]
        return "".join(_IN_ASCII.get(sign, "?") for sign in missing), error.end

    codecs.register_error("dpaudit", in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="dpaudit")


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _say(message: str, code: int) -> int:
    """Print one bounded line on standard error."""
    line = printable(" ".join(message.split("\n")))
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, too
        print(f"dpaudit: {line}", file=sys.stderr)
    return code


def _is_of_output(error: BaseException | None) -> bool:
    """Whether an error comes from writing a stream; errors of other files have their name."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE


def _unwritten(error: BaseException | None) -> int:
    """Forget what standard output still holds, or the interpreter would try to write it."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return _code_if_unwritten()  # the reader has what it wanted, as in `dpaudit list | head`
    return _say(f"the output could not be written: {error}", _code_if_unwritten())


def _code_if_unwritten() -> int:
    """A violation is more important than an output that could not be written."""
    violation = VERDICT_CODES["violation"]
    return violation if _DECIDED.get() == violation else UNWRITTEN


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does: what is done is stored."""

    def interrupt(number: int, frame: Any) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, old in before.items():
        if old is signal.SIG_DFL:  # nohup ignores SIGHUP: keep that
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
