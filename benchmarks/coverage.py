"""False claims, and the power of the claim test; writes the appendix of docs/choosing-a-bound.md.

    OMP_NUM_THREADS=1 python benchmarks/coverage.py --audits 2000 --processes 2

Every number comes from the public functions on simulated audits whose exact epsilon is known. Seeds
are fixed: the same command gives the same table. ``--only claims`` measures the tests of a claim
anew and keeps the rest; ``--page-only`` renders the stored results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coverage_alarms import AlarmRow, AlarmTask, AnytimeTask, AuditTask, add_up_alarms, alarm_tasks
from coverage_bounds import BoundsTask, Row, add_up, bounds_tasks
from coverage_cells import CellRow, CellTask, add_up_cells, cell_tasks
from coverage_claims import BoundaryTask, ClaimRow, PowerTask, claim_tasks
from coverage_page import Results, appendix
from generated import write_part

ROOT = Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "coverage.json"
PAGE = ROOT / "docs" / "choosing-a-bound.md"
COMMAND = "python benchmarks/coverage.py --page-only"

Task = BoundsTask | BoundaryTask | PowerTask | CellTask | AlarmTask | AnytimeTask | AuditTask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--audits", type=int, default=2000, help="simulated audits a cell")
    parser.add_argument("--power-audits", type=int, default=200, help="audits a cell of power")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--only", choices=("bounds", "claims", "cells", "alarms"), help="keep the other results"
    )
    parser.add_argument(
        "--test", default="", help="with --only cells or alarms: only those of this test or family"
    )
    parser.add_argument("--page-only", action="store_true", help="render the stored results")
    parser.add_argument("--stored", type=Path, default=STORED, help="where the results are kept")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    if not arguments.page_only:
        results = measure(
            arguments.audits,
            arguments.power_audits,
            arguments.processes,
            only=arguments.only,
            test=arguments.test,
        )
        if arguments.only:
            stored = _load(arguments.stored)
            names = {
                "bounds": ("rows", "audits"),
                "claims": ("claims", "power_audits"),
                "cells": ("cells",),
                "alarms": ("alarms",),
            }[arguments.only]
            spent = stored.core_seconds + results.core_seconds
            new = {name: getattr(results, name) for name in names}
            if arguments.test and arguments.only == "alarms":
                rest = [row for row in stored.alarms if row.scores != arguments.test]
                new = {"alarms": [*rest, *results.alarms]}
            elif arguments.test:
                measured = {(row.table, row.test, row.scores) for row in results.cells}
                rest = [r for r in stored.cells if (r.table, r.test, r.scores) not in measured]
                new = {"cells": add_up_cells([*rest, *results.cells])}
            results = replace(stored, **new, core_seconds=spent)
        arguments.stored.parent.mkdir(parents=True, exist_ok=True)
        arguments.stored.write_text(json.dumps(asdict(results)) + "\n")
    write_part(arguments.page, COMMAND, appendix(_load(arguments.stored)))


def measure(
    audits: int, power_audits: int, processes: int, *, only: str | None, test: str = ""
) -> Results:
    """Run the tasks, in a pool where more than one process is allowed."""
    started = time.perf_counter()
    tasks: list[Task] = []
    if only in (None, "bounds"):
        tasks += bounds_tasks(audits)
    if only in (None, "claims"):
        tasks += claim_tasks(audits, power_audits)
    if only in (None, "cells"):
        tasks += cell_tasks(test=test)
    if only in (None, "alarms"):
        tasks += alarm_tasks(test=test)
    rows: list[Row] = []
    claims: list[ClaimRow] = []
    cells: list[CellRow] = []
    alarms: list[AlarmRow] = []
    spent = 0.0
    with multiprocessing.Pool(processes) as pool:
        for done, (result, seconds) in enumerate(pool.imap_unordered(_timed, tasks), start=1):
            spent += seconds
            rows += [row for row in result if isinstance(row, Row)]
            claims += [row for row in result if isinstance(row, ClaimRow)]
            cells += [row for row in result if isinstance(row, CellRow)]
            alarms += [row for row in result if isinstance(row, AlarmRow)]
            if done % 20 == 0 or done == len(tasks):
                elapsed = time.perf_counter() - started
                print(f"{done} of {len(tasks)} tasks, {elapsed:.0f} s", file=sys.stderr)
    return Results(
        audits=audits,
        power_audits=power_audits,
        core_seconds=spent,
        rows=add_up(rows),
        claims=claims,
        cells=add_up_cells(cells),
        alarms=add_up_alarms(alarms),
    )


def _timed(task: Task) -> tuple[list[Any], float]:
    started = time.process_time()
    result: list[Any] = list(task.run())
    return result, time.process_time() - started


def _load(stored: Path) -> Results:
    plain = json.loads(stored.read_text())
    plain["rows"] = [Row(**row) for row in plain["rows"]]
    plain["claims"] = [ClaimRow(**row) for row in plain["claims"]]
    plain["cells"] = [CellRow(**row) for row in plain.get("cells", [])]
    plain["alarms"] = [AlarmRow(**row) for row in plain.get("alarms", [])]
    return Results(**plain)


if __name__ == "__main__":
    main()
