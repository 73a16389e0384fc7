"""pytest plugin: check and audit a training as part of a test suite.

    @pytest.mark.dp_audit(noise_multiplier=1.1, steps=40)
    def test_the_training_keeps_its_claim(dpaudit_training):
        dpaudit_training(train, canary=canary)

Or audit one training while it runs:

    def test_the_training_that_is_shipped(dpaudit_live):
        model, optimizer, loader = make_private()
        with dpaudit_live(optimizer):
            fit(model, optimizer, loader)

The test fails if a rule of private training is broken, if the claim is violated, or if the audit is
inconclusive, which ``allow_inconclusive`` makes a skipped test. The message names the report page.
pytest loads this module in every session, so dpaudit is imported only when a test asks for the
fixture.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult
    from dpaudit.live import LiveAudit

MARK = "dp_audit"
_CLAIM = ("noise_multiplier", "steps", "sampling_rate", "claimed_epsilon", "delta", "claim")
_AUDIT = ("runs", "confidence", "seed", "workers", "until_violation")
_READ = ("delta", "confidence", "seed")
_OTHERS = ("check", "allow_inconclusive")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder of report pages."""
    parser.getgroup("dpaudit").addoption(
        "--dpaudit-reports",
        metavar="DIR",
        default="dpaudit-reports",
        help="Folder for the report pages of trainings that fail (default: dpaudit-reports).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(noise_multiplier, steps, sampling_rate, claimed_epsilon, delta, claim, runs, "
        "confidence, seed, workers, until_violation, check, allow_inconclusive): the claim and the "
        "budget of a test with the fixture dpaudit_training.",
    )


@pytest.fixture
def dpaudit_training(request: pytest.FixtureRequest) -> Callable[..., AuditResult]:
    """A function that checks and audits a training; its settings come from the mark `dp_audit`.

    Call it as ``dpaudit_training(train, canary=..., initial=..., adversary=...)``. It returns the
    result of the audit if the test passes.
    """
    options, page = _options(request), _page(request)

    def run(train: Callable[..., Any], *, canary: Any = None, **given: Any) -> AuditResult:
        __tracebackhide__ = True
        if _checkable(canary, options):
            _check(train, canary, options)
        return _audit(train, canary, options, given, page)

    return run


@pytest.fixture
def dpaudit_live(
    request: pytest.FixtureRequest,
) -> Callable[..., AbstractContextManager[LiveAudit]]:
    """A function that audits one training while it runs; its claim may come from `dp_audit`.

    Call it as ``with dpaudit_live(optimizer): fit(...)``, with the arguments of
    `dpaudit.live_audit`. The test fails at the end of the block, unless the verdict passes.
    """
    options, page = _options(request), _page(request)

    @contextlib.contextmanager
    def watch(training: Any, **given: Any) -> Iterator[LiveAudit]:
        import dpaudit

        __tracebackhide__ = True
        asked: dict[str, Any] = {"on_violation": lambda _: None}  # reported at the end
        asked |= {name: options[name] for name in _READ if name in options}
        if {"noise_multiplier", "claimed_epsilon", "claim"} & set(options):
            asked |= _claim(options)
        with dpaudit.live_audit(training, **{**asked, **given}) as live:
            yield live
        _judge(live.result, options, page)

    return watch


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the mark."""
    mark = request.node.get_closest_marker(MARK)
    options = dict(mark.kwargs) if mark else {}
    unknown = set(options) - {*_CLAIM, *_AUDIT, *_OTHERS}
    if unknown or (mark and mark.args):
        allowed = ", ".join((*_CLAIM, *_AUDIT, *_OTHERS))
        pytest.fail(f"@pytest.mark.{MARK} takes only {allowed}, got {sorted(unknown)}")
    return options


def _page(request: pytest.FixtureRequest) -> Path:
    """Where the page of a failed test is written."""
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid)
    return Path(request.config.getoption("--dpaudit-reports")) / f"{name}.html"


def _checkable(canary: Any, options: dict[str, Any]) -> bool:
    """Rules can be checked for a canary with a clip norm that takes part in every step."""
    described = hasattr(canary, "clip_norm") and hasattr(canary, "parameters")
    default = described and "noise_multiplier" in options and "sampling_rate" not in options
    return bool(options.get("check", default))


def _check(train: Callable[..., Any], canary: Any, options: dict[str, Any]) -> None:
    import dpaudit

    __tracebackhide__ = True
    result = dpaudit.check_training(
        train, canary, noise_multiplier=options["noise_multiplier"], steps=options.get("steps")
    )
    if result.broken:
        broken = [f"  {finding.rule.name}: {finding.explanation}" for finding in result.broken]
        pytest.fail("\n".join(["dpaudit check: a rule is broken", *broken]))


def _audit(
    train: Callable[..., Any],
    canary: Any,
    options: dict[str, Any],
    given: dict[str, Any],
    page: Path,
) -> AuditResult:
    import dpaudit

    __tracebackhide__ = True
    budget = {name: options[name] for name in _AUDIT if name in options}
    result = dpaudit.audit(
        train,
        canary=canary,
        delta=options.get("delta", 1e-5),
        **{"anyway": True, **_claim(options), **budget, **given},
    )
    _judge(result, options, page)
    return result


def _judge(result: AuditResult, options: dict[str, Any], page: Path) -> None:
    """Fail the test unless the claim is consistent, or skip it."""
    __tracebackhide__ = True
    if result.verdict == "inconclusive" and options.get("allow_inconclusive"):
        pytest.skip(f"dpaudit: {result.sentence}")  # never passed, as in every JUnit file
    if result.verdict != "consistent":
        pytest.fail(f"dpaudit: {result.sentence}\n  report: {_report(result, page)}")


def _claim(options: dict[str, Any]) -> dict[str, Any]:
    """The claim of the mark, as an argument of `dpaudit.audit`."""
    from dpaudit.claims import Claim

    if "noise_multiplier" in options and "claim" not in options:
        if "steps" not in options:
            pytest.fail(f"@pytest.mark.{MARK} needs steps beside noise_multiplier")
        sampling = {"sampling_rate": options["sampling_rate"]} if "sampling_rate" in options else {}
        claim = Claim.from_dpsgd(
            noise_multiplier=options["noise_multiplier"], steps=options["steps"], **sampling
        )
        return {"claim": claim}
    named: dict[str, Any] = {
        name: options[name] for name in ("claim", "claimed_epsilon") if name in options
    }
    if not named:
        pytest.fail(
            f"a test with dpaudit_training needs a claim: @pytest.mark.{MARK} with "
            "noise_multiplier and steps, with claimed_epsilon, or with claim"
        )
    return named


def _report(result: AuditResult, page: Path) -> str:
    """Where the page is, or why there is none: the verdict is the failure, and not the page."""
    from dpaudit.errors import DpauditError

    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        return str(result.report(page))
    except (DpauditError, OSError) as error:
        return f"none, {error}"
