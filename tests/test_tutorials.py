"""The tutorials run from start to end, and their outputs in the site are those of today's code."""

import json
from pathlib import Path

import pytest

# The test only asks that every cell runs: shorter trainings and fewer runs are enough.
SMALLER = {
    "main-figure": {"[50, 150]": "[10, 30]", "250": "50", "runs=500": "runs=40", "200": "40"},
    "live-audit": {"[:2048]": "[:1024]"},
    "lora": {"max_steps=100": "max_steps=50"},
    "own-adversary": {"runs=1000": "runs=100"},
}
TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.ipynb"))


def test_there_are_four_tutorials_with_outputs():
    assert [path.stem for path in TUTORIALS] == sorted(SMALLER)
    for path in TUTORIALS:
        code = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
        assert all(cell["execution_count"] for cell in code), f"{path.name} was not executed"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the notebook machinery
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for needed in {"live-audit": ["opacus"], "lora": ["opacus", "transformers", "peft"]}.get(
        path.stem, []
    ):
        pytest.importorskip(needed)
    notebook = nbformat.read(path, as_version=4)
    shown = [printed(cell) for cell in notebook.cells]
    for long, short in SMALLER[path.stem].items():
        assert any(long in cell.source for cell in notebook.cells), f"{long} is not in {path.name}"
        for cell in notebook.cells:
            cell.source = cell.source.replace(long, short)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()  # raises if a cell does
    verdicts = {"violation", "consistent", "VIOLATION", "CONSISTENT", "INCONCLUSIVE"}
    for before, cell in zip(shown, notebook.cells, strict=True):
        assert verdicts & set(printed(cell).split()) == verdicts & set(before.split())
    if path.stem == "live-audit":
        assert (tmp_path / "audit.html").exists()


def printed(cell) -> str:
    """What a cell prints."""
    return "".join(
        output["text"] for output in cell.get("outputs", []) if output["output_type"] == "stream"
    )
