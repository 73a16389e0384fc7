"""Mutation testing: plant random faults in a package and see whether its tests notice.

    python benchmarks/mutants.py --package lower_bounds --count 20 --seed 0

A mutant flips a comparison, exchanges operators, changes a number or negates a condition. The
tests run on a copy of ``src`` until the first failure. Each mutant's fate is a line of ``--log``,
so that an interrupted run resumes. A survivor is a missing test or an equivalent mutant.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def fate(path: Path, source: str, tests: list[str], limit: float) -> str:
    """``killed``, ``survived`` or ``timeout`` (which counts as killed)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / path.relative_to(ROOT / "src")).write_text(source, encoding="utf8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return "timeout"
    return {0: "survived", 5: "no tests"}.get(run.returncode, "killed")


def main() -> None:
    """Plant mutants as the options say, and print the survivors."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--package", required=True, help="such as lower_bounds")
    options.add_argument("--tests", nargs="+", help="default: tests/PACKAGE")
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--limit", type=float, default=600.0, help="seconds for each mutant")
    options.add_argument("--log", type=Path, help="default: mutants-PACKAGE-SEED.jsonl")
    given = options.parse_args()
    tests = given.tests or [f"tests/{given.package}"]
    log = given.log or Path(f"mutants-{given.package}-{given.seed}.jsonl")
    where = ROOT / "src" / "dpaudit" / given.package
    files = sorted(where.rglob("*.py")) if where.is_dir() else [where.with_suffix(".py")]
    trees = {path: ast.parse(path.read_text(encoding="utf8")) for path in files}
    every = [(path, *each) for path in files for each in mutations(trees[path])]
    random.Random(given.seed).shuffle(every)
    earlier = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    tried = {(entry["file"], entry["place"]) for entry in earlier}
    for path, place, what in every[: given.count]:
        name = str(path.relative_to(ROOT))
        if (name, place) in tried:
            continue
        source, line = mutated(ast.parse(path.read_text(encoding="utf8")), place)
        entry = {"file": name, "place": place, "line": line, "mutation": what}
        entry["fate"] = fate(path, source, tests, given.limit)
        earlier.append(entry)
        with log.open("a", encoding="utf8") as lines:
            lines.write(json.dumps(entry) + "\n")
        print(f"{entry['fate']:9} {name}:{line} {what}", flush=True)
    survivors = [entry for entry in earlier if entry["fate"] == "survived"]
    print(f"{len(earlier)} mutants, {len(survivors)} survived")
    for entry in survivors:
        text = (ROOT / entry["file"]).read_text(encoding="utf8").splitlines()[entry["line"] - 1]
        print(f"  {entry['file']}:{entry['line']} {entry['mutation']}: {text.strip()}")


if __name__ == "__main__":
    main()
