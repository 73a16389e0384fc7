"""Runs played by several processes at a time.

Processes of our own rather than `multiprocessing`: a worker ends when the audit that started it
does, even by ``kill -9``, because its standard input ends. It is handed the pickled training, and
imports what that names; a training of the script that was started is found by importing that
script, as `multiprocessing` does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import runpy
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import IO, Any, final

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.your_training.playing import Job, Outcome

_COMMAND = "from dpaudit.your_training.workers import serve; serve()"
_IN_WORKER = "DPAUDIT_TRAINING_WORKER"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def play_in_processes(job: Job, runs: Sequence[int], workers: int) -> Iterator[Outcome]:
    """Play the runs in ``workers`` processes; give each as soon as it is there."""
    payload = pickled(job)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Outcome | Exception] = queue.SimpleQueue()
    for run in runs:
        waiting.put(run)
    with contextlib.ExitStack() as stack:
        for _ in range(min(workers, len(runs))):
            worker = stack.enter_context(_Worker(payload, workers))
            threading.Thread(target=worker.work, args=(waiting, answers), daemon=True).start()
        for _ in runs:
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer


def pickled(job: Job) -> bytes:
    """The job as another process can read it; a clear error if it cannot."""
    try:
        return pickle.dumps(job)
    except Exception as error:  # pickle raises whatever the object's own code raises
        raise InvalidInput(
            "several workers need a training, a canary and an adversary that can be pickled: "
            f"functions of a module rather than lambdas or functions within functions ({error}); "
            "or use workers=1"
        ) from None


def refuse_in_worker() -> None:
    """Raise where a worker, importing the user's script, is about to start the audit again."""
    if os.environ.get(_IN_WORKER):
        raise InvalidInput(
            "the script audits as soon as it is imported, and workers import it: put the call "
            "under if __name__ == '__main__':"
        )


@final
class _Worker:
    """A process that plays the runs it is told to."""

    def __init__(self, payload: bytes, workers: int) -> None:
        share = str(max(1, (os.cpu_count() or 1) // workers))
        threads = {name: os.environ.get(name, share) for name in _THREADS}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, _IN_WORKER: "1"},
        )
        self._payload = payload

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def work(
        self, waiting: queue.SimpleQueue[int], answers: queue.SimpleQueue[Outcome | Exception]
    ) -> None:
        """Hand out runs until there are none; runs in a thread of its own."""
        run = -1
        try:
            process = self._process
            if process.stdin is None or process.stdout is None:  # pragma: no cover - for mypy
                raise OSError("no pipes")
            for part in (sys.path, sys.argv, _main_script(), self._payload):
                _send(process.stdin, part)
            while True:
                try:
                    run = waiting.get_nowait()
                except queue.Empty:
                    return
                _send(process.stdin, run)
                answers.put(_receive(process.stdout))
        except (EOFError, OSError, ValueError):
            answers.put(
                DpauditError(
                    f"a worker process ended while playing run {run} (exit code {self._ended()}); "
                    "-9 usually means out of memory: use fewer workers; what is done is kept, and "
                    "the same call goes on from there"
                )
            )

    def _ended(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=5)  # its pipe ends a moment before it does
        return None


def serve() -> None:
    """What a worker process does: read a job, then numbers of runs, and answer with outcomes."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the user's training prints must not end up among the answers
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.path[:] = _receive(source)
        sys.argv[:] = _receive(source)
        script = _receive(source)
        payload = _receive(source)
        try:
            if script is not None and b"__main__" in payload:
                _import_as_main(script)
            job: Job = pickle.loads(payload)
        except Exception as error:  # the user's modules may raise anything
            _receive(source)
            _send(sink, _portable(error))
            return
        while True:
            _send(sink, job.play(_receive(source)))


def _main_script() -> str | None:
    """The script that was started, if it is a file."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if path else None  # noqa: PTH100 - it must stay a str


def _import_as_main(script: str) -> None:
    """Make the script's functions known as those of ``__main__``, without running its main part."""
    module = types.ModuleType("__mp_main__")
    module.__file__ = script
    module.__dict__.update(runpy.run_path(script, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _portable(error: Exception) -> Exception:
    if isinstance(error, InvalidInput):
        return error
    return InvalidInput(
        f"a worker process could not import the training ({type(error).__name__}: {error}); put it "
        "in a module, or use workers=1"
    )


def _send(pipe: IO[bytes], content: object) -> None:
    data = pickle.dumps(content)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(size, "little")))
