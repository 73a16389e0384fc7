"""What a worker process of `LocalProcesses` does. Only this module runs in it at first.

A worker is started with ``python -P``, so that no file of the working directory can take the
place of a module of the standard library. It talks to the audit over a socket of its own: the
user's code has ``/dev/null`` as standard input, and what it prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import runpy
import signal
import sys
import sysconfig
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, final

from dpaudit._loading import uncollected
from dpaudit._validate import said
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.executors._ending import adopt_orphans, kill_descendants
from dpaudit.executors.base import IN_WORKER


@final
@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a worker needs before its first tile; ``path`` and ``argv`` as in the audit's ``sys``.

    The modules of the standard library that the audit's process has loaded are imported before
    ``path`` is set, so that the worker has the same ones.
    """

    path: list[str]
    argv: list[str]
    standard: list[str]
    script: tuple[str | None, str | None]  # module name and file, where the script has them
    player: bytes  # pickled

    @classmethod
    def of(cls, player: bytes) -> Setup:
        """The setup of workers that this process starts."""
        main = sys.modules.get("__main__")
        file = getattr(main, "__file__", None)
        spec = getattr(main, "__spec__", None)
        return cls(
            path=sys.path,
            argv=sys.argv,
            standard=_loaded_standard_modules(),
            script=(
                None if spec is None else spec.name,
                None if file is None else os.path.abspath(file),  # noqa: PTH100 - a str
            ),
            player=player,
        )


def serve(descriptor: int) -> None:
    """Receive a `Setup`, then tile numbers or another one; send results until the audit ends."""
    IN_WORKER.set()
    os.set_inheritable(descriptor, False)
    adopt_orphans()
    connection = Connection(descriptor)
    # A forked child with an open socket would hide the end of this process from the audit.
    os.register_at_fork(after_in_child=connection.close)
    with contextlib.suppress(OSError):  # standard error may be closed
        os.dup2(2, 1)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()

    def send(kind: str, content: object) -> None:
        connection.send_bytes(pickle.dumps((kind, content)))

    try:
        while True:
            received = pickle.loads(inbox.get())
            if isinstance(received, Setup):
                with uncollected():
                    play_tile = _load(received).open()
                send("ready", None)
            else:
                send("result", play_tile(received, lambda notice: send("notice", notice)))
    except Exception as error:
        send("error", portable(error))
    except (KeyboardInterrupt, GeneratorExit) as error:  # raised by the user's code: no key is read
        send("error", DpauditError(f"in a worker process: {said(error)}"))


def _listen(connection: Connection, inbox: SimpleQueue[bytes]) -> None:
    """Receive while tiles are played, so that the end of the audit's process is noticed at once."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv_bytes())
    kill_descendants(os.getpid())
    os.killpg(os.getpgrp(), signal.SIGKILL)  # this process and all that the user's code started


def _load(setup: Setup) -> Any:
    for name in setup.standard:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    sys.path[:] = setup.path
    sys.argv[:] = setup.argv
    try:
        if b"__main__" in setup.player and sys.modules["__main__"].__name__ == "__main__":
            _import_as_main(*setup.script)
        return pickle.loads(setup.player)
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:  # the user's modules may raise anything
        raise InvalidInput(
            f"a worker process could not import what it should play ({said(error)}); "
            "define it in a module that can be imported, or use workers=1"
        ) from error


def _import_as_main(name: str | None, file: str | None) -> None:
    """Define the script's functions in ``__main__`` without running its guarded part."""
    run: Callable[..., dict[str, Any]]
    run, where = (runpy.run_path, file) if name is None else (runpy.run_module, name)
    if where is None:
        return
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(run(where, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _loaded_standard_modules() -> list[str]:
    folder = sysconfig.get_path("stdlib")
    return [
        name
        for name, module in list(sys.modules.items())
        if name in sys.stdlib_module_names
        and str(getattr(module, "__file__", None) or folder).startswith(folder)
    ]


def portable(error: Exception) -> Exception:
    """The error, or its text where it cannot be pickled; with the worker's traceback as a note."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickle raises whatever the object's own code raises
        error = DpauditError(f"in a worker process: {said(error)}")
    error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
    return error
