"""Import a function that is named on the command line."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, final

from dpaudit._validate import said
from dpaudit.errors import InvalidInput


@final
@dataclass(frozen=True)
class Named:
    """An object at ``module:object`` or ``path/to/file.py:object``, not imported yet.

    The folder of the file, or the working directory, is put first in ``sys.path`` when the object
    is imported, in whatever process that is.
    """

    name: str
    where: str
    folder: str = field(default_factory=os.getcwd)

    def load(self) -> Any:
        """Import the object."""
        place, colon, attribute = self.where.rpartition(":")
        if not (place and colon and attribute):
            raise InvalidInput(
                f"{self.name} must look like my_module:train or path/to/file.py:train, got "
                f"{self.where!r}"
            )
        with _no_exit(self.name, self.where):
            if place.endswith(".py"):
                module = _file(self.name, Path(self.folder), place)
            else:
                module = _import(self.name, place, self.folder)
        for part in attribute.split("."):
            if not hasattr(module, part):
                raise InvalidInput(f"{self.name}: {place} has no {part!r}")
            module = getattr(module, part)
        return module


def load(name: str, where: str) -> Any:
    """The object at ``module:object`` or ``path/to/file.py:object``; see `Named`.

    Example:
        >>> load("MODULE:FUNCTION", "math:sqrt")(9.0)
        3.0
    """
    return Named(name, where).load()


def loaded(value: Any) -> Any:
    """The value, imported if it is a `Named` one."""
    return value.load() if isinstance(value, Named) else value


@contextlib.contextmanager
def _no_exit(name: str, where: str) -> Iterator[None]:
    """Raise an error where a module ends this process while it is imported.

    The exit code would be that of a verdict, without one.
    """
    importing, leave = (os.getpid(), threading.get_ident()), os._exit

    def refuse(code: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != importing:  # a child or a thread
            leave(code)
        raise InvalidInput(f"{name}: importing {where} ended the process with exit code {code}")

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit, importing = leave, (0, 0)


def canary_beside(train: Any) -> Any:
    """The canary of a training: the attribute ``canary`` of the function or its module, or none."""
    module = sys.modules.get(getattr(train, "__module__", ""))
    return getattr(train, "canary", getattr(module, "canary", None))


def _file(name: str, folder: Path, file: str) -> Any:
    path = Path(os.path.realpath(folder / file))  # resolve() raises where links form a loop
    if not path.is_file():
        raise InvalidInput(f"{name}: there is no file {file} in {folder}")
    module = _import(name, path.stem, str(path.parent))
    if Path(getattr(module, "__file__", None) or "").resolve() != path:
        raise InvalidInput(
            f"{name}: another module is called {path.stem!r} already; rename {path.name}"
        )
    return module


def _import(name: str, module: str, where: str) -> Any:
    if where not in sys.path:
        sys.path.insert(0, where)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"{name}: cannot import {module!r} from {where}: {error}; run the command in the "
            "module's folder, or give path/to/file.py:train"
        ) from error
    except SyntaxError as error:
        raise InvalidInput(f"{name}: {module!r} is not Python: {error}") from error
    except InvalidInput:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidInput(
            f"{name}: importing {module!r} raised {said(error)} "
            f"(line {last.lineno} of {last.filename})"
        ) from error
