"""The parts of documentation pages that a script writes, between two comments of the page."""

from __future__ import annotations

from pathlib import Path

END = "<!-- End of this part. -->"


def part(command: str, made: str) -> str:
    """What the page contains: the comments, and between them what the command makes."""
    return f"<!-- Made by: {command} -->\n\n{made.strip()}\n\n{END}\n"


def write_part(page: Path, command: str, made: str) -> None:
    """Replace the part of the page that this command makes."""
    text = page.read_text("utf8")
    before, begin, rest = text.partition(f"<!-- Made by: {command} -->\n")
    _, end, after = rest.partition(f"{END}\n")
    assert begin, f"{page} has no part that is made by {command}"
    assert end, f"{page} does not say where the part ends: {END}"
    page.write_text(before + part(command, made) + after, "utf8")
