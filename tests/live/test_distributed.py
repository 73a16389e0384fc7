"""A live audit of two processes: with DDP only the first adds noise, with FSDP2 both."""

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


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_both_processes_observe_the_noise_of_the_whole_sum(results: list[dict], kind: str) -> None:
    for share, expected in (("whole", 1.0), ("half", 0.5)):
        for result in (own[f"{kind}, {share}"] for own in results):
            assert result["others"] == pytest.approx(expected, rel=0.05)
            assert result["inserted"] == pytest.approx(result["rate"], abs=0.06)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_processes_draw_the_same_canaries_and_see_the_same_scores(
    results: list[dict], kind: str
) -> None:
    first, second = (own[f"{kind}, whole"] for own in results)
    for name in ("scores", "moved"):
        assert first[name] == pytest.approx(second[name], rel=1e-4)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_missing_noise_is_found_and_whole_noise_is_not_suspected(
    results: list[dict], kind: str
) -> None:
    for result in results:
        assert result[f"{kind}, whole"]["e_value"] < 20
        assert result[f"{kind}, half"]["e_value"] > 2000
