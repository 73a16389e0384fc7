"""A stored verdict belongs to the code, the settings and the claim that it was made of."""

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


def test_a_verdict_is_not_returned_for_edited_code_and_stays_in_the_store(project):
    settings = {"canary": CANARY, "claim": CLAIM, "runs": 60, "store": project / "audits.sqlite"}
    broken = audit_training(load("train", "my_train.py:train"), **settings)
    assert broken.verdict == "violation"
    (project / "my_settings.py").write_text("SIGMA = 1.0\n")
    sys.modules["my_noise"].SIGMA = 1.0
    repaired = audit_training(load("train", "my_train.py:train"), **settings)
    assert repaired.resumed == 0
    assert repaired.verdict != "violation"
    with Store.open(settings["store"]) as store:
        assert len(store.audits()) == 2
    again = audit_training(load("train", "my_train.py:train"), **settings)
    assert (again.audit, again.resumed) == (repaired.audit, 60)
    assert any("stored runs" in one and "--fresh" in one for one in again.notices)
    assert audit_training(load("train", "my_train.py:train"), **settings, fresh=True).resumed == 0


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
