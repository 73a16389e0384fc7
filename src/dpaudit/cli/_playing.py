"""Running an audit from the command line: progress, interruption, and the printed result."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit._loading import uncollected
from dpaudit.cli._exit import Unwritten
from dpaudit.cli._render import print_json
from dpaudit.cli._user_code import user_code
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult, Progress


@contextlib.contextmanager
def progress_shown(*, store: str, quiet: bool) -> Iterator[Progress]:
    """The progress of an audit on standard error, from loading on; nothing if ``quiet``.

    Arguments:
        store: The store, for the message after an interruption.
        quiet: Whether to show nothing.
    """
    with uncollected():
        from dpaudit.audits import Bar, Silent
    progress = Silent() if quiet else Bar()
    try:
        with progress, user_code():
            progress.stage("loading")
            yield progress
    except KeyboardInterrupt:
        if isinstance(progress, Bar) and progress.runs:
            print(
                f"dpaudit: {progress.done:,} of {progress.runs:,} runs are kept in {store}; the "
                "same command resumes the audit",
                file=sys.stderr,
            )
        raise


def print_audit(
    result: AuditResult, *, store: str, scores_out: str | None, json: bool, all_bounds: bool
) -> None:
    """Print a result as a page of text or as JSON, and write the scores if asked."""
    if json:
        print_json({**result.to_dict(), "store": store})
    else:
        from dpaudit.cli._audit_table import print_result

        print_result(result, where=store, all_bounds=all_bounds)
    if scores_out is not None:
        from dpaudit.scores import write_scores

        try:
            write_scores(result.scores, scores_out)
        except InvalidInput as error:  # the file could be written before the audit
            raise Unwritten(str(error)) from error
