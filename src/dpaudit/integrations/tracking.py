"""Log results to MLflow and to Weights & Biases, which are optional extras."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult

_LONGEST_VALUE = 500  # characters: the smallest limit among the versions of MLflow


def metrics(result: AuditResult) -> dict[str, float]:
    """The numbers of a result that are logged; infinite ones are left out.

    Arguments:
        result: The result of an audit.
    """
    test = result.test
    metrics = {
        "epsilon_lower": result.leading.epsilon,
        "epsilon_upper": result.least_upper.epsilon,
        "delta": result.delta,
        "p_value": math.nan if test is None else test.p_value,
        "violation": float(result.verdict == "violation"),
        "runs": float(result.runs),
        "failed_runs": float(len(result.failures)),
        "seconds": result.seconds,
    }
    return {f"dpaudit/{name}": value for name, value in metrics.items() if math.isfinite(value)}


def settings(result: AuditResult) -> dict[str, str]:
    """The settings of an audit as text, nested ones with dots.

    Arguments:
        result: The result of an audit.
    """
    own = {"audit": result.audit, "adversary": result.adversary, "training": result.training}
    asked = {"delta": result.delta, "confidence": result.question.confidence}
    pairs = [*own.items(), *asked.items(), *_flat(result.configuration)]
    return {f"dpaudit.{name}": str(value)[:_LONGEST_VALUE] for name, value in pairs}


def log_to_mlflow(result: AuditResult, *, report: bool = True) -> None:
    """Log a result to the active run of MLflow: settings, bounds, verdict and report page.

    See also: `log_to_wandb`; `dpaudit.AuditResult.report`, the page that is attached.

    Arguments:
        result: The result of an audit.
        report: Whether to attach the report page, which needs ``dpaudit[report]``.
    """
    try:
        import mlflow
    except ImportError:
        raise MissingExtra("logging to MLflow", "mlflow") from None
    if mlflow.active_run() is None:
        raise InvalidInput("MLflow has no active run; call log_to_mlflow in mlflow.start_run()")
    mlflow.log_params(settings(result))
    mlflow.log_metrics(metrics(result))
    mlflow.set_tag("dpaudit.verdict", result.verdict)
    mlflow.set_tag("dpaudit.sentence", result.sentence)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "result.json"
        plain.write_text(json.dumps(result.to_dict(), default=str), encoding="utf8")
        mlflow.log_artifact(str(plain), "dpaudit")
        if report:
            mlflow.log_artifact(str(result.report(Path(folder) / "report.html")), "dpaudit")


def log_to_wandb(result: AuditResult, *, run: Any = None, report: bool = True) -> None:
    """Log a result to a run of Weights & Biases: settings, bounds, verdict and report page.

    See also: `log_to_mlflow`; `dpaudit.AuditResult.report`, the page that is attached.

    Arguments:
        result: The result of an audit.
        run: The run; by default the one that ``wandb.init`` started last.
        report: Whether to attach the report page, which needs ``dpaudit[report]``.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtra("logging to Weights & Biases", "wandb") from None
    run = wandb.run if run is None else run
    if run is None:
        raise InvalidInput("Weights & Biases has no run; call wandb.init() first, or give run")
    run.config.update(settings(result))
    logged: dict[str, Any] = dict(metrics(result))
    if report:
        with tempfile.TemporaryDirectory() as folder:
            page = result.report(Path(folder) / "report.html").read_text(encoding="utf8")
        logged["dpaudit/report"] = wandb.Html(page, inject=False)
    run.log(logged)
    run.summary["dpaudit/verdict"] = result.verdict
    run.summary["dpaudit/sentence"] = result.sentence


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
