"""Examples in the documentation run, its commands exist, and its tables match the registries."""

import doctest
import importlib
import inspect
import pydoc
import re
import runpy
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import dpaudit
from dpaudit import mechanisms
from dpaudit.adversaries import ADVERSARIES
from dpaudit.cli import COMMANDS, app
from dpaudit.lower_bounds import RULES
from dpaudit.mechanisms import (
    Augmentation,
    Clipping,
    LearningRateSchedule,
    Optimizer,
    WeightAveraging,
)
from dpaudit.presets import PRESETS
from dpaudit_paper import FIGURES

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    failures, _ = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf8"
    )
    assert failures == 0


def commands_in(page: Path) -> list[str]:
    """All lines ``dpaudit …`` in the code blocks and the inline code of a page."""
    text = page.read_text(encoding="utf8")
    code = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    code += re.findall(r"^    .*\n", text, flags=re.MULTILINE)
    line = re.compile(r"^(?:    )?(?:\$ )?(dpaudit [a-z].*)$", flags=re.MULTILINE)
    blocks = [command for block in code for command in line.findall(block)]
    inline = re.findall(r"`(dpaudit [a-z][^`\n]*)`", text)
    return blocks + inline


@cache
def options_of(command: str) -> set[str]:
    group = get_command(app)
    params = group.get_command(None, command).params
    return {option for parameter in params for option in parameter.opts} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_exist_with_their_options(page):
    for line in commands_in(page):
        words = line.split("#")[0].split()
        assert words[1] in COMMANDS, line
        shown = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert shown <= options_of(words[1]), line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example(command):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"dpaudit {command}" in result.output
    assert "--json" in options_of(command)


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose header starts with this cell, without the header."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_on_the_command_line_lists_every_command_once():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf8")
    shown = [names_in(row[0])[0].split()[1] for row in table(page, "command")]
    assert sorted(shown) == sorted(COMMANDS)


def test_the_page_on_bounds_lists_every_lower_bound_threshold_rule_and_accountant():
    made = runpy.run_path(str(ROOT / "docs" / "_site" / "tables.py"))
    page = made["PAGE"].read_text(encoding="utf8")
    assert made["with_tables"](page) == page, "make it again: python docs/_site/tables.py"
    assert all(f"`{rule.partition('=')[0]}" in page for rule in RULES)


def test_the_page_on_trainings_lists_every_preset_and_setting_and_adversaries_that_exist():
    page = (ROOT / "docs" / "your-training.md").read_text(encoding="utf8")
    shown = [name for row in table(page, "preset") for name in names_in(row[0])]
    assert sorted(shown) == sorted(PRESETS)
    kinds = (Optimizer, LearningRateSchedule, WeightAveraging, Clipping, Augmentation)
    settings = [setting.__name__ for kind in kinds for setting in kind.__subclasses__()]
    missing = {name for name in settings if f"`{name}(" not in page}
    assert not {name for name in missing if hasattr(mechanisms, name)} - {"ConstantRate"}
    scored = {name for row in table(page, "adversary") for name in names_in(row[0])}
    assert scored <= set(ADVERSARIES)


def test_the_api_lists_every_public_name_and_what_the_guides_import():
    """Each has a page of its own; guides link the names that they mention."""
    listed = set(
        re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf8"), re.MULTILINE)
    )
    names = {f"dpaudit.{name}" for name in dpaudit.__all__}
    names |= {f"dpaudit.adversaries.{type(made).__name__}" for made in ADVERSARIES.values()}
    for page in PAGES:
        imported = re.findall(r"from (dpaudit[\w.]*) import ([\w, ]+)", page.read_text("utf8"))
        names |= {f"{module}.{name}" for module, line in imported for name in line.split(", ")}
    made = {name: pydoc.locate(name) for name in names}
    documented = {
        name for name, what in made.items() if inspect.isroutine(what) or isinstance(what, type)
    }
    assert documented - listed == set()
    assert {name for name in listed if pydoc.locate(name) is None} == set()


def test_the_readme_counts_the_bugs_of_the_catalogue():
    wrong = list((ROOT / "examples" / "bugs").glob("[a-z]*.py"))
    assert f"[{len(wrong)} bugs]" in README


def test_the_contributing_guide_lists_every_kind_of_plugin():
    """Each row names a registry that exists, and a contract test that exists."""
    rows = table(CONTRIBUTING, "I want to add ...")
    for _, _, registry, group, contract in rows:
        source = (ROOT / "src" / names_in(registry)[0]).read_text(encoding="utf8")
        assert f'"{names_in(group)[0]}"' in source, group
        module, _, name = names_in(contract)[0].rpartition(".")
        if module.endswith("testing"):
            assert callable(getattr(importlib.import_module(module), name))
        else:
            assert (ROOT / names_in(contract)[0]).exists()
    group = re.compile(r'^[A-Z_]+: .* = Registry\(\s*"[^"]+",\s*"(dpaudit\.\w+)"', re.MULTILINE)
    sources = (path.read_text(encoding="utf8") for path in (ROOT / "src").rglob("*.py"))
    groups = [name for source in sources for name in group.findall(source)]
    assert sorted(names_in(row[3])[0] for row in rows) == sorted(groups)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_to_files_of_the_repository_lead_somewhere(page):
    text = page.read_text(encoding="utf8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_gallery_shows_every_figure_with_its_command():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf8")
    again = "make it again: python benchmarks/gallery.py"
    assert all(f"dpaudit reproduce {name} " in page for name in FIGURES), again
    shown = {Path(file).name for file in re.findall(r"\]\(figures/([^)]+)\)", page)}
    drawn = {path.name for path in (ROOT / "docs" / "figures").glob("*.png")}
    assert shown == drawn, again


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_shows_its_default(command):
    for option in get_command(app).get_command(None, command).params:
        if option.required or getattr(option, "is_flag", False) or option.name == "help":
            continue
        assert option.default is not None or isinstance(option.show_default, str), option.name
