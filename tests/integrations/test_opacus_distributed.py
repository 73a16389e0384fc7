"""Two processes that train together: one canary, whatever the way of working together."""

import json
import math

import pytest
import torch

pytest.importorskip("opacus")

from distributed_trainings import CASES, process


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the two processes found; starting them takes several seconds."""
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(process, args=(2, str(folder)), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_one_canary_moves_the_model_by_one_clip_norm(found, name):
    for of_rank in found:
        assert of_rank[name]["along"] == pytest.approx(1.0, abs=1e-3)
        assert of_rank[name]["length"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_every_process_records_it_in_units_of_the_noise(found, name):
    clip_norms = CASES[name].get("max_grad_norm", [1.0])
    for of_rank in found:
        assert of_rank[name]["seen"] == pytest.approx(1 / math.sqrt(len(clip_norms)), abs=1e-3)


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_processes_agree_on_every_score_of_an_audit(found, name):
    first, second = (of_rank[name] for of_rank in found)
    assert first["scores"] == second["scores"]
    assert len(set(first["scores"])) == 4
    assert "noise multiplier 2, 4 steps" in first["claim"]
