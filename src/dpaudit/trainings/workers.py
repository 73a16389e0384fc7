"""Runs played by several processes at a time.

A worker is handed the pickled training, and imports what that names; a training of the script that
was started is found by importing that script, as `multiprocessing` does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import runpy
import sys
import threading
import types
from collections.abc import Iterator, Sequence

from dpaudit._processes import Worker, drain, own_streams, receive, send
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.trainings.playing import Job, Outcome

_IN_WORKER = "DPAUDIT_TRAINING_WORKER"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

Answers = queue.SimpleQueue[Outcome | Exception]


def play_in_processes(job: Job, runs: Sequence[int], workers: int) -> Iterator[Outcome]:
    """Play the runs in ``workers`` processes; give each as soon as it is there."""
    payload = pickled(job)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: Answers = queue.SimpleQueue()
    share = str(max(1, (os.cpu_count() or 1) // workers))
    threads = {name: os.environ.get(name, share) for name in _THREADS}
    for run in runs:
        waiting.put(run)
    with contextlib.ExitStack() as stack:
        for _ in range(min(workers, len(runs))):
            worker = stack.enter_context(Worker(__name__, {**threads, _IN_WORKER: "1"}))
            work = (worker, payload, waiting, answers)
            threading.Thread(target=_work, args=work, daemon=True).start()
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


def _work(
    worker: Worker, payload: bytes, waiting: queue.SimpleQueue[int], answers: Answers
) -> None:
    """Hand out runs to one worker until there are none; runs in a thread of its own."""
    run = -1
    try:
        worker.tell(sys.path, sys.argv, _main_script(), payload)
        for run in drain(waiting):
            worker.tell(run)
            answers.put(worker.hear())
    except (EOFError, OSError, ValueError):
        answers.put(
            DpauditError(
                f"a worker process ended while playing run {run} (exit code {worker.exit_code()}); "
                "-9 usually means out of memory: use fewer workers; what is done is kept, and the "
                "same call goes on from there"
            )
        )


def serve() -> None:
    """What a worker process does: read a job, then numbers of runs, and answer with outcomes."""
    source, sink = own_streams()
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.path[:] = receive(source)
        sys.argv[:] = receive(source)
        script = receive(source)
        payload = receive(source)
        try:
            if script is not None and b"__main__" in payload:
                _import_as_main(script)
            job: Job = pickle.loads(payload)
        except (Exception, SystemExit) as error:  # the user's modules may raise anything
            receive(source)
            send(sink, _portable(error))
            return
        while True:
            send(sink, job.play(receive(source)))


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


def _portable(error: BaseException) -> Exception:
    if isinstance(error, InvalidInput):
        return error
    return InvalidInput(
        f"a worker process could not import the training ({type(error).__name__}: {error}); put it "
        "in a module, or use workers=1"
    )
