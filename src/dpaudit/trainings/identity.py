"""What identifies a user's training: its code, the modules of its project, and its packages.

A stored audit is bound to this identity. Editing the training, a helper that it imports, a
constant in one of its modules or the shell program that it starts makes it another training.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, final

from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import flat_parameters
from dpaudit.trainings.shell import CommandTraining


@final
@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a training function.

    Arguments:
        name: Module and name of the function.
        source: Digest of the function's source and of the values that it holds.
        code: Digest of the project's files that it imports.
        files: Names of these files.
        packages: Versions of the third-party packages that these files import.
    """

    name: str
    source: str
    code: str
    files: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def of(cls, train: Any) -> Identity:
        """The identity of a training function, a callable object or a shell command."""
        files = _project_files(train)
        digests = [f"{path.name}:{_file_digest(path)}" for path in files]
        return cls(
            name=name_of(train),
            source=_source(train),
            code=_hash(*digests),
            files=tuple(path.name for path in files),
            packages=_packages(files),
        )


def name_of(function: Any) -> str:
    """Module and name of a function, a partial or a callable object."""
    if isinstance(function, functools.partial):
        return f"partial of {name_of(function.func)}"
    if isinstance(function, CommandTraining):
        return " ".join(function.arguments)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}:{name}"


def digest(value: Any) -> str:
    """A few digits that change when the value does; its type alone if it cannot be read."""
    if isinstance(value, list | tuple):
        return _hash(*(digest(inner) for inner in value))
    if isinstance(value, dict):
        return _hash(*(f"{key!r}{digest(inner)}" for key, inner in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return _hash(name_of(type(value)), *(digest(getattr(value, name)) for name in fields))
    if hasattr(value, "shape") and not isinstance(value, type):
        try:
            return _hash(str(tuple(value.shape)), flat_parameters(value).tobytes().hex())
        except InvalidInput:
            return _hash(name_of(type(value)))
    # Text with an address in it would differ from process to process.
    return _hash(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


def _source(function: Any, seen: frozenset[int] = frozenset()) -> str:
    """A digest of the code, and of the values that a partial, a closure or an object holds."""
    if id(function) in seen:
        return ""
    seen |= {id(function)}
    if isinstance(function, functools.partial):
        given = digest(list(function.args)), digest(dict(function.keywords))
        return _hash(_source(function.func, seen), *given)
    code = function if hasattr(function, "__code__") else type(function)
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        text = ""
    if code is not function:
        return _hash(text, digest(getattr(function, "__dict__", {})))
    return _hash(text, _held(function, seen))


def _held(function: Any, seen: frozenset[int]) -> str:
    """The values that a function carries: defaults, closure, and the globals that it names.

    Two functions of one source may differ in nothing else. Lists, sets, and dictionaries of
    anything but plain settings are left out: a training that collects its calls in one is the same
    training at the next call.
    """
    values = [function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items())]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name that is bound later
            continue
    # Files cover the globals of a module; a notebook or an interactive session has no file.
    if _file_of(function) is None:
        names = function.__code__.co_names
        values += [function.__globals__[name] for name in names if name in function.__globals__]
    fixed = [v for v in values if not isinstance(v, list | set | ModuleType) and not _collects(v)]
    return _hash(*(_source(v, seen) if inspect.isfunction(v) else digest(v) for v in fixed))


def _collects(value: Any) -> bool:
    """Whether a value is a dictionary of more than settings, such as a cache."""
    plain = (bool, int, float, str, tuple, type(None))
    return isinstance(value, dict) and not all(isinstance(one, plain) for one in value.values())


def _project_files(train: Any) -> tuple[Path, ...]:
    """The files of the user's project that the training is made of, in a fixed order."""
    while isinstance(train, functools.partial):
        train = train.func
    if isinstance(train, CommandTraining):
        words = [Path(word) for word in train.arguments if len(word) < 4096]
        starts = [word.resolve() for word in words if word.is_file()]
    else:
        file = _file_of(train if hasattr(train, "__code__") else type(train))
        starts = [] if file is None else [file]
    waiting = [path for path in starts if _is_users(path)]
    found = set(waiting)
    while waiting:
        for path in _imported_files(waiting.pop()):
            if path not in found:
                found.add(path)
                waiting.append(path)
    return tuple(sorted(found, key=lambda path: (path.name, str(path))))


def _file_of(code: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        return None
    path = None if file is None else Path(file)
    return path.resolve() if path is not None and path.is_file() else None


def _is_users(path: Path) -> bool:
    """Whether a file belongs to the user, not to Python, an installed package or dpaudit."""
    return not any(folder in path.resolve().parents for folder in _installed_folders())


@functools.cache
def _installed_folders() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in kinds}
    return frozenset({*installed, Path(__file__).resolve().parents[1]})


def _imports(path: Path) -> tuple[tuple[str, int], ...]:
    """The modules that a file imports anywhere, with the level of relative imports."""
    try:
        return _imports_of(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return ()


@functools.lru_cache(maxsize=1024)
def _imports_of(text: str) -> tuple[tuple[str, int], ...]:
    return tuple(_walk_imports(ast.parse(text)))


def _walk_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level
            yield from ((f"{base}.{alias.name}".strip("."), node.level) for alias in node.names)


@functools.lru_cache(maxsize=8)
def _users_folders(path: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders of ``sys.path`` that do not belong to Python or to installed packages."""
    return tuple(folder for folder in map(Path, dict.fromkeys(path)) if _is_users(folder / "x"))


def _imported_files(path: Path) -> Iterator[Path]:
    folders = _users_folders(tuple(sys.path))
    for module, level in _imports(path):
        if module.partition(".")[0] == "dpaudit":
            continue
        roots = [path.parents[level - 1]] if level else [path.parent, *folders]
        parts = module.split(".") if module else []
        for root in roots:
            base = root.joinpath(*parts)
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if parts and candidate.is_file() and _is_users(candidate):
                    yield candidate.resolve()
                    break
            else:
                continue
            break


def _packages(files: tuple[Path, ...]) -> dict[str, str]:
    """Versions of the installed packages that the files import."""
    tops = {module.partition(".")[0] for path in files for module, level in _imports(path)}
    found = {}
    for top in sorted(tops - set(sys.stdlib_module_names) - {"", "dpaudit"}):
        try:
            found[top] = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _file_digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return ""


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
