"""A stored verdict belongs to the code, the settings and the claim that it was made of."""

import functools
import sys

import numpy as np
import pytest

from dpaudit import Claim, GradientCanary, Store, audit_training
from dpaudit.trainings import command
from dpaudit.trainings.identity import Identity
from dpaudit.trainings.importing import load

CANARY = GradientCanary.draw(12, clip_norm=1.0)
CLAIM = Claim.from_dpsgd(noise_multiplier=1.0, steps=1)

FILES = {
    "my_train.py": "import my_noise\nfrom my_parts import clipping\n\n"
    "def train(canary, inserted, seed):\n"
    "    return -(clipping.total(canary, inserted) + my_noise.draw(seed, canary.parameters))\n",
    "my_noise.py": "import numpy as np\nfrom my_settings import SIGMA\n\n"
    "def draw(seed, size):\n    return np.random.default_rng(seed).normal(0, SIGMA, size)\n",
    "my_settings.py": "SIGMA = 0.2\n",
    "my_parts/__init__.py": "",
    "my_parts/clipping.py": "from .helper import once\n\n"
    "def total(canary, inserted):\n    return once * canary.clipped_sum(inserted)\n",
    "my_parts/helper.py": "once = 1.0\n",
    "unrelated.py": "A = 1\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A training of several modules of the user's, on disk and imported."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("my_", "unrelated"))]:
        del sys.modules[name]


@pytest.mark.parametrize("edited", [name for name in FILES if name != "unrelated.py"])
def test_editing_any_module_of_the_project_is_another_training(project, edited):
    train = load("train", "my_train.py:train")
    before = Identity.of(train)
    (project / edited).write_text(FILES[edited] + "# edited\n")
    assert Identity.of(train).code != before.code


def test_editing_what_is_not_imported_is_the_same_training(project):
    train = load("train", "my_train.py:train")
    before = Identity.of(train)
    (project / "unrelated.py").write_text("A = 2\n")
    assert Identity.of(train) == before


READING = """\
import importlib, json, os
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RATE = 0.5
SAVED = "saved.npy"

class Config:
    sigma = 1.0

class Settings:
    def __init__(self):
        self.clip = 1.0

settings = Settings()
helper = importlib.import_module("my_helper")

def draw(seed):
    sigma = json.loads(Path("my_config.json").read_text())["sigma"] * Config.sigma
    return np.random.default_rng(seed).normal(0, sigma, 12) * float(os.environ.get("MY_NOISE", "1"))

def train(canary, inserted, seed, rate=RATE):
    data = np.load(HERE / "my_data" / "rows.npy") + np.loadtxt(os.path.join(HERE, "more.txt"))
    np.save(SAVED, data)
    with open("losses.csv", "a") as log:
        log.write("0")
    return -(canary.clipped_sum(inserted) + draw(seed)) * settings.clip * RATE * helper.ONE + data

decorated = partial(train, rate=0.5)
short = lambda canary, inserted, seed: train(canary, inserted, seed) * Config.sigma
"""


@pytest.fixture
def reading(project):
    """A module that reads files, settings and an environment variable."""
    (project / "my_data").mkdir()
    np.save(project / "my_data" / "rows.npy", np.zeros(12))
    (project / "my_config.json").write_text('{"sigma": 1.0}')
    (project / "my_helper.py").write_text("ONE = 1.0")
    for name in ("more.txt", "saved.npy", "losses.csv"):
        (project / name).write_text("0")
    (project / "my_reading.py").write_text(READING)
    load("train", "my_reading.py:train")
    return sys.modules["my_reading"]


@pytest.mark.parametrize("name", ["train", "decorated", "short"])
@pytest.mark.parametrize(
    "change",
    [
        lambda module, folder: (folder / "my_config.json").write_text('{"sigma": 2.0}'),
        lambda module, folder: np.save(folder / "my_data" / "rows.npy", np.ones(12)),
        lambda module, folder: (folder / "more.txt").write_text("1"),
        lambda module, folder: (folder / "my_helper.py").write_text("ONE = 2.0"),
        lambda module, folder: setattr(module, "RATE", 0.1),
        lambda module, folder: setattr(module.Config, "sigma", 2.0),
        lambda module, folder: setattr(module.settings, "clip", 2.0),
        lambda module, folder: setattr(module.helper, "ONE", 2.0),
    ],
    ids=["json", "data", "joined", "imported", "global", "class", "object", "module"],
)
def test_what_a_training_reads_belongs_to_it(reading, project, name, change):
    before = Identity.of(getattr(reading, name))
    assert Identity.of(getattr(reading, name)) == before
    change(reading, project)
    assert Identity.of(getattr(reading, name)) != before


def test_an_environment_variable_that_the_code_names_belongs_to_the_training(reading, monkeypatch):
    before = Identity.of(reading.train)
    monkeypatch.setenv("UNRELATED", "2")
    assert Identity.of(reading.train) == before
    monkeypatch.setenv("MY_NOISE", "2")
    changed = Identity.of(reading.train)
    assert changed.code != before.code
    assert "$MY_NOISE" in changed.files


def test_files_that_a_training_writes_do_not_belong_to_it(reading, project):
    before = Identity.of(reading.train)
    (project / "saved.npy").write_text("1")
    (project / "losses.csv").write_text("1")
    assert Identity.of(reading.train) == before


def test_arguments_of_a_partial_and_the_adversary_belong_to_the_training(reading):
    before = Identity.of(reading.decorated)
    assert Identity.of(functools.partial(reading.train, rate=0.4)) != before
    assert Identity.of(reading.decorated, reading.draw) != before


def test_a_shell_script_is_followed_to_its_files_and_variables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "train.sh": 'python my_part.py --config settings.yaml --sigma "$MY_SIGMA" --in $1',
        "my_part.py": "import my_other",
        "my_other.py": "A = 1",
        "settings.yaml": "data: table.csv",
        "table.csv": "1,2",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def identities():
        lines = (["sh", "train.sh", "{inserted}"], ["sh", "-c", "sh train.sh {inserted}"])
        return [Identity.of(command(line)) for line in lines]

    for name, text in files.items():
        before = identities()
        (tmp_path / name).write_text(text + " ")
        assert all(a != b for a, b in zip(before, identities(), strict=True)), name
    before = identities()
    monkeypatch.setenv("MY_SIGMA", "0.1")
    assert all(a != b for a, b in zip(before, identities(), strict=True))
    (tmp_path / "my_other.py").rename(tmp_path / "my_module.py")
    module = command(["python", "-m", "my_module", "{inserted}"])
    assert "my_module.py" in Identity.of(module).files


def test_a_program_is_identified_by_its_file_and_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text("print(0.2)")

    def identity(*more):
        return Identity.of(command(["python", "program.py", "{inserted}", *more]))

    before = identity()
    assert identity("--sigma", "2") != before
    program.write_text("print(0.3)")
    assert identity() != before


def test_settings_in_a_dictionary_belong_to_the_training():
    def made(settings):
        def train(canary, inserted, seed):
            noise = np.random.default_rng(seed).normal(0, settings["sigma"], canary.parameters)
            return -(canary.clipped_sum(inserted) + noise)

        return train

    assert Identity.of(made({"sigma": 0.2})) != Identity.of(made({"sigma": 1.0}))
    cache = {"rows": np.zeros(3)}
    before = Identity.of(made(cache))
    cache["more"] = np.ones(3)
    assert Identity.of(made(cache)) == before


def test_the_verdict_is_that_of_edited_code_and_the_first_one_stays_in_the_store(project):
    settings = {"canary": CANARY, "claim": CLAIM, "runs": 60, "store": project / "audits.sqlite"}
    broken = audit_training(load("train", "my_train.py:train"), **settings)
    assert broken.verdict == "violation"
    (project / "my_settings.py").write_text("SIGMA = 1.0\n")
    sys.modules["my_noise"].SIGMA = 1.0
    repaired = audit_training(load("train", "my_train.py:train"), **settings)
    assert repaired.resumed == 0
    assert repaired.verdict != "violation"
    with Store.open(settings["store"]) as store:
        assert [record.id for record in store.audits()] == [broken.audit, repaired.audit]


def test_another_number_of_claimed_steps_does_not_overwrite_a_violation(tmp_path):
    def train(canary, inserted, seed):
        noise = np.random.default_rng(seed).normal(0, 0.5, canary.parameters)
        return -(canary.clipped_sum(inserted) + noise)

    settings = {"canary": CANARY, "runs": 60, "store": tmp_path / "audits.sqlite"}
    verdicts = {}
    for steps in (1, 100):
        claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=steps)
        found = audit_training(train, claim=claim, **settings)
        verdicts[found.audit] = found.verdict
    assert next(iter(verdicts.values())) == "violation"
    assert len(verdicts) == 2
    with Store.open(settings["store"]) as store:
        kept = {record.id for record in store.audits()}
    assert kept == set(verdicts)


def test_a_class_of_a_notebook_has_no_file(monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    optimizer = type("Optimizer", (), {"__module__": "__main__"})

    def train(canary, inserted, seed):
        return optimizer

    assert Identity.of(train) == Identity.of(train)


def test_a_program_on_the_path_is_followed_unless_it_is_an_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    identities = {}
    for name in ("node-trainer", "python3.11"):
        program = tmp_path / name
        for version in (1, 2):
            program.write_text(f"#!/bin/sh\necho {version}\n")
            program.chmod(0o755)
            identities[name, version] = Identity.of(command([name, "{inserted}"]))
    assert identities["node-trainer", 1] != identities["node-trainer", 2]
    assert identities["python3.11", 1] == identities["python3.11", 2]
