"""Runs of different code are never one audit: in its processes, while it runs, and later."""

import functools
import importlib
import itertools
import subprocess
import sys
import types

import numpy as np
import pytest

import dpaudit
from dpaudit import Claim, GradientCanary, Store, audit
from dpaudit.errors import CodeChanged
from dpaudit.trainings import command
from dpaudit.trainings.identity import code_digest, is_users
from dpaudit.trainings.importing import load
from dpaudit.trainings.run import Job

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
    "def total(canary, inserted):\n    import my_late\n"
    "    return my_late.ONE * once * canary.clipped_sum(inserted)\n",
    "my_parts/helper.py": "once = 1.0\n",
    "my_late.py": "ONE = 1.0\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A training of several modules of the user's, on disk and imported."""
    for name, text in {**FILES, "unrelated.py": "A = 1\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("my_", "unrelated"))]:
        del sys.modules[name]


@pytest.mark.parametrize("edited", FILES)
def test_editing_a_module_is_another_training_and_a_comment_is_not(project, edited):
    train = load("train", "my_train.py:train")
    before = code_digest(train)
    assert "my_late" not in sys.modules
    (project / edited).write_text(FILES[edited] + "# a comment\n")
    (project / "unrelated.py").write_text("A = 2\n")
    assert code_digest(train).value == before.value
    before.require_unedited()
    (project / edited).write_text(FILES[edited] + "NEW = 1\n")
    assert code_digest(train).value != before.value
    with pytest.raises(CodeChanged, match=edited):
        before.require_unedited()


def test_a_module_without_source_is_read_from_its_bytecode(project):
    import py_compile

    digests = []
    for sigma in (0.2, 0.3, 0.2):
        (project / "my_settings.py").write_text(f"SIGMA = {sigma}\n")
        py_compile.compile("my_settings.py", "my_settings.pyc", doraise=True)
        (project / "my_settings.py").unlink()
        sys.modules.pop("my_settings", None)
        digests.append(code_digest(load("train", "my_train.py:train")))
        assert "my_settings" in digests[-1].modules
    assert digests[0].value == digests[2].value != digests[1].value


HOLDING = """
import enum, functools, math
import my_settings
import numpy as np

class Base:
    rate = 0.5
    def scaled(self): return self.rate

class Trainer(Base):
    __slots__ = ("clip",)
    def __init__(self): self.clip, self.tags = 1.0, {"a", "b", "c"}
    def train(self, canary, inserted, seed): return self.clip * self.scaled()
    def __call__(self, canary, inserted, seed): return self.clip
    @property
    def half(self): return LEVEL / 2

trainer, LEVEL, TABLE, ARRAY = Trainer(), 1, {"sigma": [1.0]}, np.zeros(3)

@functools.cache
def cached(x): return x * LEVEL

def train(canary, inserted, seed, extra=2.0):
    return cached(seed) * TABLE["sigma"][0] * ARRAY.sum() * trainer.half * my_settings.SIGMA

bound, callable_object, partial = trainer.train, trainer, functools.partial(train, extra=3.0)
short = lambda canary, inserted, seed: train(canary, inserted, seed)
"""


@pytest.fixture
def holding(project):
    (project / "my_holding.py").write_text(HOLDING)
    return importlib.import_module("my_holding")


CHANGES = {
    "global": lambda m: setattr(m, "LEVEL", 2),
    "dictionary": lambda m: m.TABLE["sigma"].append(2.0),
    "array": lambda m: m.ARRAY.__setitem__(1, 1e-9),
    "attribute": lambda m: setattr(m.trainer, "clip", 2.0),
    "set": lambda m: m.trainer.tags.add("d"),
    "class": lambda m: setattr(m.Base, "rate", 0.25),
    "method": lambda m: setattr(m.Base, "scaled", lambda self: 0.0),
    "module": lambda m: setattr(m.my_settings, "SIGMA", 2.0),
    "default": lambda m: setattr(m.train, "__defaults__", (1.0,)),
}
OF_TRAINER = ("attribute", "set", "class", "method")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, change) for name in ("train", "partial", "short") for change in CHANGES),
        *((name, change) for name in ("bound", "callable_object") for change in OF_TRAINER),
    ],
)
def test_what_a_training_holds_belongs_to_it(holding, name, change):
    before = code_digest(getattr(holding, name))
    assert before.unread == ()
    assert code_digest(getattr(holding, name)).differences(before) == ()
    CHANGES[change](holding)
    assert before.differences(code_digest(getattr(holding, name))) != ()


def test_closures_arguments_and_what_is_given_beside_belong_to_it():
    def made(sigma):
        def train(canary, inserted, seed):
            return sigma

        return train

    one, other = code_digest(made(1.0)), code_digest(made(2.0))
    assert one.value == code_digest(made(1.0)).value
    assert [name.partition(" in ")[0] for name in one.differences(other)] == ["sigma"]
    partials = [code_digest(functools.partial(made(1.0), rate)) for rate in (0.1, 0.2)]
    assert partials[0].differences(partials[1]) == ("train",)
    canaries = [code_digest(made(1.0), canary=GradientCanary.draw(9, clip_norm=c)) for c in (1, 2)]
    assert canaries[0].differences(canaries[1]) == ("canary",)


def test_a_decorator_of_a_library_hides_nothing():
    torch = pytest.importorskip("torch")

    def made(sigma):
        return torch.no_grad()(lambda canary, inserted, seed: sigma)

    assert code_digest(made(1.0)).differences(code_digest(made(2.0))) != ()


def test_what_a_function_made_by_a_library_holds_belongs_to_it():
    optax = pytest.importorskip("optax")

    def made(rate):
        optimizer = optax.chain(optax.clip(1.0), optax.adam(rate))
        return lambda canary, inserted, seed: optimizer

    assert code_digest(made(0.1)).value == code_digest(made(0.1)).value
    assert code_digest(made(0.1)).differences(code_digest(made(0.2))) != ()


class Generator:
    """Of a generative model: it is no random generator."""

    def __init__(self, width):
        self.width = width


@pytest.mark.parametrize("source", ["notebook", "stdin"])
def test_a_function_without_a_file_is_read_from_its_bytecode(source):
    """A cell of a notebook, or a script from standard input."""

    def defined(text):
        names = {"__name__": "__main__"}
        exec(compile(text, "<stdin>" if source == "stdin" else "<ipython-input-1>", "exec"), names)
        return names["train"]

    text = "S = 1\ndef helper(): return S\ndef train(canary, inserted, seed): return helper()"
    before = code_digest(defined(text))
    assert before.unread == ()
    assert before.value == code_digest(defined(text)).value
    for edited in (text.replace("S = 1", "S = 2"), text.replace("return S", "return 2 * S")):
        assert code_digest(defined(edited)).value != before.value


class Raises:
    def __reduce_ex__(self, protocol):
        raise RuntimeError("no")

    def __getattr__(self, name):
        raise RuntimeError("no")

    __repr__ = __str__ = __reduce_ex__


def unreadable():
    yield Raises()
    yield (number for number in range(3))
    inside: list = []
    inside.append(inside)
    yield inside
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    yield deep


class Loud:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class LoudModule(types.ModuleType):
    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_module_whose_attributes_raise_is_passed_over():
    module = LoudModule("loud")

    def train(canary, inserted, seed):
        return module

    assert code_digest(train).parts


def test_an_object_that_raises_for_every_attribute_cannot_be_read():
    loud = Loud()  # pytest itself could not show it

    def train(canary, inserted, seed):
        return loud

    assert len(code_digest(train).unread) == 1


@pytest.mark.parametrize("value", list(unreadable()), ids=["raises", "generator", "itself", "deep"])
def test_what_cannot_be_read_is_never_the_same_training(value):
    def train(canary, inserted, seed):
        return value

    digests = [code_digest(train) for _ in range(2)]
    assert len(digests[0].unread) == 1
    assert "value" in digests[0].unread[0]
    assert digests[0].value != digests[1].value
    assert digests[0].differences(digests[1]) == ()


def test_random_generators_and_the_environment_are_not_settings(monkeypatch):
    from os import environ

    random = np.random.default_rng()

    def train(canary, inserted, seed):
        return random.normal() + float(environ.get("HOME", "0"))

    before = code_digest(train)
    random.normal()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert code_digest(train).value == before.value
    models = [code_digest(functools.partial(train, Generator(width))) for width in (1, 2)]
    assert models[0].differences(models[1]) == ("train",)


def test_files_that_a_program_names_must_not_change_and_it_is_never_resumed(project):
    (project / "program.py").write_text("print(0.2)")
    for line in (["python", "program.py", "{inserted}"], ["sh", "-c", "python program.py {seed}"]):
        digest = code_digest(command([*line, "{inserted}"]))
        assert digest.unread
        assert digest.value != code_digest(command([*line, "{inserted}"])).value
        digest.require_unedited()
        (project / "program.py").write_text("print(0.3)")
        with pytest.raises(CodeChanged, match=r"program\.py"):
            digest.require_unedited()
        (project / "program.py").write_text("print(0.2)")


# Installed packages are not the user's, wherever they are.


def test_only_code_of_the_user_is_read(tmp_path, monkeypatch):
    """User site, a second site-packages, ``pip install --target``; an editable project is."""
    second = tmp_path / "env" / "lib" / "site-packages"
    target, own = tmp_path / "target", tmp_path / "own"
    for folder, name in ((second, "far"), (target, "near"), (own, "mine"), (target, "beside")):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("def f(canary, inserted, seed): return 1\n")
    (target / "near-1.0.dist-info").mkdir()
    (target / "near-1.0.dist-info" / "RECORD").write_text("near/__init__.py,,\n")
    (own / "mine.egg-info").mkdir()  # of an editable installation
    monkeypatch.setattr(sys, "path", [str(second), str(target), str(own), *sys.path])
    importlib.invalidate_caches()
    (tmp_path / "my_site.py").write_text("import far, near, mine, beside\ndef train(a, b, c): 0\n")
    try:
        digest = code_digest(load("train", f"{tmp_path}/my_site.py:train"))
        assert set(digest.modules) == {"my_site", "mine", "beside"}
        assert code_digest(sys.modules["near"].f).modules == ()
    finally:
        for name in ("far", "near", "mine", "beside", "my_site"):
            sys.modules.pop(name, None)
    for module in (np, dpaudit, functools, pytest):
        assert not is_users(module.__file__)


def test_large_libraries_are_not_crawled():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)

    def train(canary, inserted, seed):
        return torch.nn.functional.relu(model(torch.zeros(3)))

    calls = itertools.count()
    sys.setprofile(lambda frame, event, argument: next(calls) if event == "call" else None)
    try:
        digest = code_digest(train)
    finally:
        sys.setprofile(None)
    assert next(calls) < 30_000  # 2,770 when this was written
    assert digest.unread == ()
    with torch.no_grad():
        model.weight[0, 0] += 1
    assert digest.differences(code_digest(train)) != ()


# In an audit.

SCRIPT = """
import sys
import numpy as np
import dpaudit

SIGMA = 1.0

def train(canary, inserted, seed):
    return -(canary.clipped_sum(inserted) + np.random.default_rng(seed).normal(0, SIGMA, 12))

if __name__ == "__main__":
    SIGMA = 0.3
    result = dpaudit.audit(
        train, canary=dpaudit.GradientCanary.draw(12, clip_norm=1.0),
        claim=dpaudit.Claim.from_mu(1.0), runs=60, workers=int(sys.argv[1]),
    )
    print(result.verdict)
"""


def test_a_global_set_under_the_main_guard_is_refused_by_workers(tmp_path):
    """Before, it was ``violation`` with one worker and ``consistent`` with two."""
    (tmp_path / "script.py").write_text(SCRIPT)
    one, two = (
        subprocess.run(
            [sys.executable, str(tmp_path / "script.py"), workers],
            capture_output=True, text=True, check=False, timeout=120,
        )
        for workers in "12"
    )  # fmt: skip
    assert one.stdout.split() == ["violation"], one.stderr
    assert two.returncode == 1
    assert two.stdout == ""
    assert "__main__.SIGMA" in two.stderr
    assert "if __name__ == '__main__'" in two.stderr


EDITING = """
import pathlib
def train(canary, inserted, seed):
    if seed % 5 == 0:
        pathlib.Path("my_settings.py").write_text("SIGMA = 9.0\\n")
    import my_noise
    return -(canary.clipped_sum(inserted) + my_noise.draw(seed, canary.parameters))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_code_edited_while_an_audit_runs_is_refused(project, workers):
    (project / "my_editing.py").write_text(EDITING)
    train = load("train", "my_editing.py:train")
    with pytest.raises(CodeChanged, match=r"my_settings\.py"):
        audit(train, canary=CANARY, claim=CLAIM, runs=60, workers=workers)


def test_an_interrupted_audit_is_resumed_by_the_same_code_only(project, monkeypatch):
    settings = {"canary": CANARY, "claim": CLAIM, "runs": 40, "store": project / "audits.sqlite"}
    play = Job.play

    def interrupted():
        def until_run_20(job, run):
            if run == 20:
                raise KeyboardInterrupt
            return play(job, run)

        monkeypatch.setattr(Job, "play", until_run_20)
        with pytest.raises(KeyboardInterrupt):
            audit(load("train", "my_train.py:train"), **settings)
        monkeypatch.setattr(Job, "play", play)

    interrupted()
    assert audit(load("train", "my_train.py:train"), **settings).resumed > 0
    interrupted()
    (project / "my_settings.py").write_text("SIGMA = 1.0\n")
    sys.modules["my_noise"].SIGMA = 1.0
    repaired = audit(load("train", "my_train.py:train"), **settings)
    assert repaired.resumed == 0
    assert repaired.verdict != "violation"
    with Store.open(settings["store"]) as store:
        assert len(store.audits()) == 3
