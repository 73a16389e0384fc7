"""Results in MLflow's local store and in an offline run of Weights & Biases."""

import json

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import InvalidInput
from dpaudit.integrations import tracking


def leaky(canary, inserted, seed):
    return float(inserted) + 0.1 * np.random.default_rng(seed).normal()


@pytest.fixture(scope="module")
def result():
    return dpaudit.audit(leaky, claim=dpaudit.Claim.from_mu(1.0), runs=60)


def test_what_is_logged(result):
    logged = tracking.metrics(result)
    assert logged["dpaudit/violation"] == 1.0
    assert logged["dpaudit/epsilon_lower"] == result.leading.epsilon
    settings = tracking.settings(result)
    assert settings["dpaudit.runs"] == "60"
    assert settings["dpaudit.delta"] == "1e-05"
    assert all(len(value) <= 500 for value in settings.values())


@pytest.mark.filterwarnings("default")  # of MLflow
def test_mlflow_keeps_bounds_settings_and_report(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with pytest.raises(InvalidInput, match="start_run"):
        tracking.log_to_mlflow(result)
    with mlflow.start_run() as run:
        tracking.log_to_mlflow(result)
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.metrics["dpaudit/epsilon_lower"] == pytest.approx(result.leading.epsilon)
    assert kept.params["dpaudit.adversary"] == result.adversary
    assert kept.tags["dpaudit.verdict"] == "violation"
    (plain,) = tmp_path.rglob("result.json")
    assert json.loads(plain.read_text())["verdict"] == "violation"
    (page,) = tmp_path.rglob("report.html")
    assert page.read_text(encoding="utf8").startswith("<!doctype")


@pytest.mark.filterwarnings("default")  # of wandb
def test_wandb_keeps_bounds_settings_and_report_offline(result, tmp_path):
    wandb = pytest.importorskip("wandb")
    with pytest.raises(InvalidInput, match=r"wandb\.init"):
        tracking.log_to_wandb(result)
    with wandb.init(project="audits", mode="offline", dir=tmp_path) as run:
        tracking.log_to_wandb(result)
        assert run.summary["dpaudit/verdict"] == "violation"
        assert run.summary["dpaudit/epsilon_lower"] == pytest.approx(result.leading.epsilon)
        assert run.config["dpaudit.runs"] == "60"
    assert list(tmp_path.rglob("*.wandb"))
    assert list(tmp_path.rglob("*.html"))
