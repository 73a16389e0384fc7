"""A live audit of a training of two processes, of which only the first adds noise."""

import json
import sys
from pathlib import Path

import pytest
import torch.multiprocessing

sys.path.insert(0, str(Path(__file__).parent))
from distributed_live import process


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("two")
    torch.multiprocessing.start_processes(process, args=(2, str(folder)), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_both_processes_observe_the_noise_of_the_whole_sum(results: list[dict]) -> None:
    for share, expected in (("whole", 1.0), ("half", 0.5)):
        for result in results:
            assert result[share]["others"] == pytest.approx(expected, rel=0.05)
            assert result[share]["inserted"] == pytest.approx(result[share]["rate"], abs=0.06)
    assert results[0]["whole"]["scores"] == pytest.approx(results[1]["whole"]["scores"], rel=1e-4)


def test_missing_noise_is_found_and_whole_noise_is_not_suspected(results: list[dict]) -> None:
    for result in results:
        assert result["whole"]["e_value"] < 20
        assert result["half"]["e_value"] > 2000
