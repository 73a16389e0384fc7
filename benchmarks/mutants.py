"""Mutation testing: plant random faults in packages and see whether their tests notice.

    python benchmarks/mutants.py lower_bounds upper_bounds claims --count 60 --seed 0

A mutant flips a comparison, exchanges operators, changes a number or negates a condition. The
tests of its package, and the examples in its own docstrings, run on a copy of ``src`` until the
first failure; they must pass without a mutation, or every mutant would count as killed. Each
mutant's fate is a line of ``--log``, so that an interrupted run resumes. A survivor is a missing
test or an equivalent mutant.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "src" / "dpaudit"
UNCHANGED = "no mutation"
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip


def mutations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each possible mutation: the place of its node in `ast.walk`, and what it does."""
    skipped = {  # annotations are never run
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
                yield place, "flip the comparison"
            case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPPED:
                yield place, "exchange the operator"
            case ast.Constant(value=bool()):
                yield place, "negate"
            case ast.Constant(value=int()):
                yield place, "add one"
            case ast.Constant(value=float(value)) if value != 0:
                yield place, "times 1.1"
            case ast.If() | ast.While() | ast.IfExp():
                yield place, "negate the condition"
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                yield place, "drop the sign or not"


def mutated(tree: ast.Module, place: int) -> tuple[str, int]:
    """The source with one mutation, and the line of the mutated node."""
    node = list(ast.walk(tree))[place]
    match node:
        case ast.Compare():
            node.ops = [SWAPPED[type(node.ops[0])]()]
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPPED[type(node.op)]()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Constant(value=value):
            node.value = value * 1.1
        case ast.UnaryOp():
            node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
            if isinstance(node.op, ast.Not):  # not (not x)
                node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
    return ast.unparse(ast.fix_missing_locations(tree)), getattr(node, "lineno", 0)


def tests_of(inside: Path) -> list[str]:
    """The tests of a module's package, those that name the module first."""
    files = sorted((ROOT / "tests" / inside.parts[0]).glob("test_*.py"))
    return sorted(map(str, files), key=lambda file: inside.stem not in Path(file).read_text())


def outcome(inside: Path, source: str, limit: float) -> str:
    """What the tests of a module's package say if the module has this source."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "dpaudit" / inside).write_text(source, encoding="utf8")
        tests = [str(copy / "dpaudit" / inside), *tests_of(inside)]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        paths = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            pytest = subprocess.run(
                [*command, *tests], cwd=ROOT, env=environment, capture_output=True,
                timeout=limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "timeout"
    return {0: "survived", 5: "no tests"}.get(pytest.returncode, "killed")


def fate(path: Path, place: int | None, limit: float) -> dict[str, object]:
    """The mutant, and ``killed``, ``survived`` or ``timeout`` (which counts as killed).

    Without a place the module is unchanged, and its tests must pass: "survived".
    """
    source, line = path.read_text(encoding="utf8"), 0
    if place is not None:
        source, line = mutated(ast.parse(source), place)
    said = outcome(path.relative_to(PACKAGES), source, limit)
    return {"file": str(path.relative_to(ROOT)), "place": place, "line": line, "fate": said}


def main() -> None:
    """Plant mutants as the options say, and print the survivors."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("packages", nargs="+", help="such as lower_bounds")
    options.add_argument("--count", type=int, default=60)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--limit", type=float, default=600.0, help="seconds for each mutant")
    options.add_argument("--log", type=Path, default=Path("mutants.jsonl"))
    given = options.parse_args()
    log: Path = given.log
    files = [file for name in given.packages for file in sorted((PACKAGES / name).rglob("*.py"))]
    every = [
        (path, *each)
        for path in files
        for each in mutations(ast.parse(path.read_text(encoding="utf8")))
    ]
    random.Random(given.seed).shuffle(every)
    earlier = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    tried = {(entry["file"], entry["place"]) for entry in earlier}
    unchanged = [(PACKAGES / name / "__init__.py", None, UNCHANGED) for name in given.packages]
    with ThreadPoolExecutor(given.processes) as pool:
        for plants in (unchanged, every[: given.count]):
            planted = {
                pool.submit(fate, path, place, given.limit): what
                for path, place, what in plants
                if (str(path.relative_to(ROOT)), place) not in tried
            }
            for done in as_completed(planted):
                entry = {**done.result(), "mutation": planted[done]}
                if entry["mutation"] == UNCHANGED and entry["fate"] != "survived":
                    pool.shutdown(cancel_futures=True)
                    raise SystemExit(f"the tests of {entry['file']} fail without a mutation")
                earlier.append(entry)
                with log.open("a", encoding="utf8") as lines:
                    lines.write(json.dumps(entry) + "\n")
                print("{fate:9} {file}:{line} {mutation}".format(**entry), flush=True)
    earlier = [entry for entry in earlier if entry["mutation"] != UNCHANGED]
    survivors = [entry for entry in earlier if entry["fate"] == "survived"]
    print(f"{len(earlier)} mutants, {len(survivors)} survived")
    for entry in survivors:
        text = (ROOT / entry["file"]).read_text(encoding="utf8").splitlines()[entry["line"] - 1]
        print("  {file}:{line} {mutation}: ".format(**entry) + text.strip())


if __name__ == "__main__":
    main()
