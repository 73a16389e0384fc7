"""Run the adapters of the field, each library in an environment of its own.

    python field/run.py [LIBRARY ...] [--fresh]

A library is installed into a folder of its own under field/.environments, in front of the packages
of this interpreter, so that versions that exclude each other can be compared and torch is installed
once. Results are in field/results, and their receipts, which `dpaudit verify` checks, in
field/receipts. A library whose adapter, requirements and dpaudit are unchanged is not run again.
Libraries that are on no package index are read from clones that you make yourself: FIELD_SOURCES
names their folder, field/libraries.toml the commits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVIRONMENTS = HERE / ".environments"
MINUTES = 10  # for one library, besides its installation


def libraries() -> dict[str, dict[str, Any]]:
    """Name -> requirements and remarks, from libraries.toml."""
    found: dict[str, dict[str, Any]] = tomllib.loads((HERE / "libraries.toml").read_text())
    return found


def digest(name: str, library: dict[str, Any]) -> str:
    """Changes whenever a result may change: adapter, requirements, this folder and dpaudit."""
    hashed = hashlib.sha256(json.dumps(library, sort_keys=True).encode())
    sources = [HERE / "adapters" / f"{name}.py", HERE / "kit.py", HERE / "parts.py"]
    sources += sorted((ROOT / "src" / "dpaudit").rglob("*.py"))
    for source in filter(Path.is_file, sources):
        hashed.update(source.read_bytes())
    return hashed.hexdigest()[:16]


def install(name: str, library: dict[str, Any]) -> str:
    """Install the library; a sentence says why where this is not possible."""
    folder = ENVIRONMENTS / name
    wanted = json.dumps([library.get("requires"), library.get("alone"), library.get("commit")])
    stamp = folder / ".installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    for requirements, options in (
        (library.get("requires", []), []),
        (library.get("alone", []), ["--no-deps"]),
    ):
        if requirements:
            done = subprocess.run(
                [*pip, *options, *requirements], capture_output=True, text=True, check=False
            )
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                return (lines or ["pip failed"])[-1].removeprefix("ERROR: ")[:200]
    if "commit" in library:
        clone = Path(os.environ.get("FIELD_SOURCES", "")) / library["clone"].replace("/", "+")
        if "FIELD_SOURCES" not in os.environ or not clone.is_dir():
            return (
                f"it is on no package index: clone {library['clone']} at {library['commit'][:10]} "
                f"and name the folder of your clones in FIELD_SOURCES"
            )
        archive = subprocess.run(
            ["git", "-C", str(clone), "archive", library["commit"], library["package"]],
            capture_output=True,
            check=False,
        )
        if archive.returncode:
            return f"{clone} has no commit {library['commit'][:10]}"
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    stamp.write_text(wanted)
    return ""


def version_of(name: str, library: dict[str, Any]) -> str:
    """The version that ran: of the package in its own folder, else of this interpreter's."""
    if "commit" in library:
        return f"commit {library['commit'][:10]}"
    wanted = library.get("distribution", name).lower().replace("_", "-")
    for path in ([str(ENVIRONMENTS / name)], None):
        for installed in distributions(path=path) if path else distributions():
            if installed.metadata["Name"].lower().replace("_", "-") == wanted:
                return installed.version
    return "unknown"


def run(name: str, library: dict[str, Any], *, fresh: bool) -> dict[str, Any]:
    """The result of one library, stored unless nothing changed."""
    out = HERE / "results" / f"{name}.json"
    current = digest(name, library)
    if not fresh and out.is_file():
        stored: dict[str, Any] = json.loads(out.read_text())
        if stored.get("digest") == current and stored["cases"]:
            print(f"{library['title']}: unchanged")
            return stored
    print(f"{library['title']}:", flush=True)
    result = {"library": library["title"], "digest": current, "cases": []}
    if reason := library.get("not_here") or install(name, library):
        result["does_not_run"] = reason
        print(f"  does not run here: {reason}")
    else:
        result["version"] = version_of(name, library)
        draft = ENVIRONMENTS / name / "cases.json"
        draft.unlink(missing_ok=True)
        paths = [str(ENVIRONMENTS / name), str(ROOT), str(ROOT / "src"), str(ROOT / "examples")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-m", "field.kit"]
        command += [str(HERE / "adapters" / f"{name}.py"), str(draft)]
        command += [f"{library['title']} {result['version']}", current]
        try:
            subprocess.run(
                command, env=environment, timeout=60 * MINUTES, check=True, cwd=ENVIRONMENTS / name
            )
            result["cases"] = json.loads(draft.read_text())
            (HERE / "receipts").mkdir(exist_ok=True)
            receipt = HERE / "receipts" / f"{name}.receipt.json"
            shutil.move(draft.with_suffix(".receipt.json"), receipt)
        except (subprocess.SubprocessError, OSError) as error:
            result["does_not_run"] = f"its adapter ended with {type(error).__name__}"
    out.parent.mkdir(exist_ok=True)
    draft = out.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.replace(out)
    return result


def main() -> None:
    listed = libraries()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("library", nargs="*", help=f"one of {', '.join(listed)}; all by default")
    parser.add_argument("--fresh", action="store_true", help="run also what has not changed")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.library) - set(listed))
    if unknown:
        parser.error(f"no library {', '.join(unknown)}; there are {', '.join(listed)}")
    for name in arguments.library or listed:
        run(name, listed[name], fresh=arguments.fresh)
    from field.page import write

    write()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
