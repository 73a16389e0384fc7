"""``dpaudit collect``: bring the results of SLURM jobs into the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit.cli._audit_options import StoreToRead
from dpaudit.cli._option import Json
from dpaudit.cli._render import console, print_json
from dpaudit.configuration import store_path
from dpaudit.errors import InvalidInput
from dpaudit.executors.slurm_array import collect_tiles, folders_of_tiles
from dpaudit.scores import Store


def collect(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The --slurm-folder of the audit, or one audit's folder in it."
        ),
    ],
    store: StoreToRead = None,
    json: Json = False,
) -> None:
    """Bring the results of SLURM jobs into the store, without waiting for missing ones.

    The audit was started with --executor slurm. If that command still runs,
    this one is not needed. When no tile is missing, the same audit command
    computes the bounds.

    [bold]dpaudit collect /shared/me/dpaudit-slurm --store audits.sqlite[/]
    """
    from dpaudit.audits import Description  # slow to import
    from dpaudit.audits.games import check_tile

    where = store_path(store)
    rows: list[dict[str, Any]] = []
    with Store.open(where, create=False) as opened:
        for place in folders_of_tiles(folder):
            audit, _, phase = place.name.partition("-")
            record = opened.audit(audit)
            description = Description.of(record)
            tiles = [(tile, result) for tile, result in collect_tiles(place) if tile >= 0]
            for tile, result in tiles:
                check_tile(description, int(phase or 0), tile, result)
            added = record.add_tiles(tiles, int(phase or 0))
            rows.append(
                {"audit": record.id, "name": record.name, "tiles": len(tiles), "new": added}
            )
    if not rows:
        raise InvalidInput(f"{folder} has no results of SLURM jobs; give the --slurm-folder")
    if json:
        print_json({"store": where, "audits": rows})
        return
    for row in rows:
        label = row["name"] or row["audit"][:8]
        console().print(f"{label}: {row['tiles']:,} tiles, {row['new']:,} of them new in {where}.")
