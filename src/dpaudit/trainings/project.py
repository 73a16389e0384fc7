"""The files of a user's project that a training is made of, and the environment that it reads.

They are found without running anything: by the imports of the code, and by the names of files and
of environment variables in it. Names that are put together while the training runs are not found.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import final

_WRITING = re.compile(r"(save|dump|write|to_|log|imsave|export|mkdir|touch|unlink|remove|store)")
"""Functions that write the file that they are given."""

_WRITTEN = (".sqlite", ".db", ".log", ".lock")
"""Files that change while an audit runs, such as its store."""

_SEARCHED = (".sh", ".bash", ".zsh", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg")
"""Files other than Python whose words may be names of further files."""

_INTERPRETERS = re.compile(
    r"((python|pypy)[\d.]*|(ba|da|z|k)?sh|env|uv|conda|Rscript|julia|node|java)$"
)
"""Programs that run a file; their own files do not belong to the training."""

_PATHS = (
    *("Path", "PurePath", "join", "joinpath", "with_name", "with_suffix", "resolve", "absolute"),
    *("abspath", "expanduser", "fspath", "str"),
)
"""Functions that give the name of a file, and neither read nor write it."""

_MODE = re.compile(r"[rbt]*[wax+][rbt+]*")
_WORDS = re.compile(r"[^\s\"'`;|&<>()=,]+")
_VARIABLES = re.compile(r"\$\{?(\w+)")
_LONGEST_NAME = 255
_LARGEST_TEXT = 1 << 20  # bytes of a program that is searched for names
_LARGEST_FILE = 1 << 28  # bytes that are read; of a larger file, its size and date are used

_NEVER_SETTINGS = {
    *("_", "HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM"),
    *("TMPDIR", "USER", "MKL_NUM_THREADS", "OMP_NUM_THREADS"),
}
"""Environment variables that differ from session to session and do not change a training."""


@final
@dataclass(frozen=True, kw_only=True)
class _Mentions:
    """The names in a file that may belong to other files or to environment variables."""

    modules: tuple[tuple[str, int], ...] = ()
    files: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()


def files_of(starts: Iterable[Path]) -> tuple[Path, ...]:
    """The user's files that these files import or name, in a fixed order, with themselves."""
    waiting = [path for path in starts if is_users(path)]
    found = set(waiting)
    while waiting:
        path = waiting.pop()
        for other in (*_imported(path), *_named(path)):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return tuple(sorted(found, key=lambda path: (path.name, str(path))))


def files_of_command(arguments: Iterable[str]) -> Iterator[Path]:
    """The files that the words of a shell command name, and its program if it is the user's."""
    words = [word for one in arguments for word in _WORDS.findall(one)]
    words = [word for word in words if len(word) <= _LONGEST_NAME]
    program = shutil.which(words[0]) if words and not _INTERPRETERS.match(words[0]) else None
    names = [Path(word) for word in (*words, *([program] if program else []))]
    for before, word in pairwise(words):
        if before == "-m":
            base = Path(*word.split("."))
            names += [base.with_suffix(".py"), base / "__main__.py", base / "__init__.py"]
    yield from (name.resolve() for name in names if _is_file(name))


def variables_of(files: Iterable[Path]) -> dict[str, str]:
    """Digests of the environment variables that the files name, if they are set."""
    texts = {text for path in files for text in _mentions(path).texts}
    names = sorted(texts & set(os.environ) - _NEVER_SETTINGS)
    return {name: text_digest(os.environ[name]) for name in names}


def modules_of(files: Iterable[Path]) -> set[str]:
    """The top-level modules that the files import."""
    return {name.partition(".")[0] for path in files for name, _ in _mentions(path).modules}


def file_digest(path: Path) -> str:
    """A digest of the content of a file; empty if it cannot be read."""
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            return f"{size}-{path.stat().st_mtime_ns}"
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except OSError:
        return ""


def text_digest(*parts: str) -> str:
    """A digest of several texts."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def is_users(path: Path) -> bool:
    """Whether a file belongs to the user, not to Python, an installed package or dpaudit."""
    return not any(folder in path.resolve().parents for folder in _installed_folders())


_SYSTEM = ("/usr/bin", "/usr/sbin", "/usr/lib", "/bin", "/sbin", "/proc", "/sys", "/dev")


@functools.cache
def _installed_folders() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in kinds}
    return frozenset({*installed, *map(Path, _SYSTEM), Path(__file__).resolve().parents[1]})


def _mentions(path: Path) -> _Mentions:
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            return _Mentions()
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            return _mentions_in_python(text)
        searched = path.suffix in _SEARCHED or text.startswith("#!")
        return _mentions_in_words(text) if searched else _Mentions()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return _Mentions()


@functools.lru_cache(maxsize=1024)
def _mentions_in_words(text: str) -> _Mentions:
    """Words of a program or of settings that may be files, and the variables that it expands."""
    words = {word for word in _WORDS.findall(text) if len(word) <= _LONGEST_NAME}
    return _Mentions(files=frozenset(words), texts=frozenset(_VARIABLES.findall(text)))


@functools.lru_cache(maxsize=1024)
def _mentions_in_python(text: str) -> _Mentions:
    tree = ast.parse(text)
    strings = {found for node in ast.walk(tree) if (found := _string(node)) is not None}
    names = {name for node in ast.walk(tree) for name in _paths(node)}
    read = {name for name in strings | names if _may_be_file(name)} - set(_written(tree))
    return _Mentions(modules=tuple(_modules(tree)), files=frozenset(read), texts=frozenset(strings))


def _string(node: ast.AST) -> str | None:
    """The text of a literal; `None` for anything else."""
    found = node.value if isinstance(node, ast.Constant) else None
    return found if isinstance(found, str) else None


def _may_be_file(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and "\0" not in name and not name.endswith(_WRITTEN)


def _paths(node: ast.AST) -> Iterator[str]:
    """Names such as a/b.json in ``folder / "a" / "b.json"`` and ``join(folder, "a", "b.json")``."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        parts = node.args
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts, node = [node.right, *parts], node.left
    joined = "/".join(text for part in parts if (text := _string(part)) is not None)
    if joined:
        yield joined


def _written(tree: ast.Module) -> Iterator[str]:
    """Names of files that the code writes, directly or by the name of a constant."""
    constants: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants.setdefault(node.targets[0].id, set()).update(_in_path(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _writes(node):
            # file.write_text(...) has the file in front, save(file) has it as an argument
            for part in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
                named = _in_path(part)
                yield from named
                yield from (name for one in named for name in constants.get(one, ()))


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _writes(node: ast.Call) -> bool:
    if _called(node) != "open":
        return _WRITING.match(_called(node)) is not None
    parts = (*node.args, *(keyword.value for keyword in node.keywords))
    return any(_MODE.fullmatch(_string(part) or "") for part in parts)


def _in_path(node: ast.AST) -> set[str]:
    """Strings and names of variables in an expression that gives the name of a file."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Call) and _called(node) not in _PATHS:
        return set()
    found = {text for text in (_string(node), *_paths(node)) if text is not None}
    return found.union(*(_in_path(part) for part in ast.iter_child_nodes(node)))


def _modules(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The modules that are imported anywhere, with the level of relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node.level
            yield from ((f"{base}.{alias.name}".strip("."), node.level) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from ((_string(name) or "", 0) for name in node.args[:1])


@functools.lru_cache(maxsize=8)
def _users_folders(path: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders of ``sys.path`` that do not belong to Python or to installed packages."""
    return tuple(folder for folder in map(Path, dict.fromkeys(path)) if is_users(folder / "x"))


def _imported(path: Path) -> Iterator[Path]:
    folders = _users_folders(tuple(sys.path))
    for module, level in _mentions(path).modules:
        if module.partition(".")[0] == "dpaudit":
            continue
        roots = [path.parents[level - 1]] if level else [path.parent, *folders]
        parts = module.split(".") if module else []
        for root in roots:
            base = root.joinpath(*parts)
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if parts and candidate.is_file() and is_users(candidate):
                    yield candidate.resolve()
                    break
            else:
                continue
            break


def _named(path: Path) -> Iterator[Path]:
    """Files that the code names: beside it, in the folder above, or in the working directory."""
    roots = dict.fromkeys((path.parent, path.parent.parent, Path.cwd()))
    for name in _mentions(path).files:
        for root in roots:
            if _is_file(root / name) and is_users(root / name):
                yield (root / name).resolve()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
