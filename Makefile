# Two commands set up everything on a fresh machine:
#   make audit   create .venv, then audit a DP-SGD training on California Housing
#   make test    create .venv, then run all tests
# .venv has the pinned versions of constraints.txt. PYTHON names another interpreter.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --constraint constraints.txt
OPTIONS ?=

.PHONY: audit bench campaign field test quick lint types docs picture browser release-check clean

audit: $(VENV)/.audit
	$(VENV)/bin/dpaudit audit $(OPTIONS)

# The tests start many processes, which are faster if they find compiled bytecode. Two workers with
# several threads each would wait for each other.
test quick: export PYTHONDONTWRITEBYTECODE :=
test quick: export OMP_NUM_THREADS := 1

test: $(VENV)/.dev
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile --durations=15 $(OPTIONS)

quick: $(VENV)/.dev
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile -m "not slow" $(OPTIONS)

# A few minutes. OPTIONS=--strict fails if a ratio got worse, OPTIONS=--save keeps the new numbers.
bench: $(VENV)/.dev
	$(VENV)/bin/python benchmarks/bench.py $(OPTIONS)

# What the field's libraries keep: docs/field.md. FIELD_SOURCES names the folder of your clones.
field: $(VENV)/.dev
	$(VENV)/bin/python field/run.py $(OPTIONS)

# About an hour on one core: bad inputs, damaged stores and kills. OPTIONS names some of its parts.
campaign: $(VENV)/.dev
	$(VENV)/bin/python benchmarks/campaign.py $(OPTIONS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.dev
	$(VENV)/bin/mypy

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

# The pictures of the default audit on the home page and in the gallery; `make browser` before it.
picture: $(VENV)/.dev
	$(VENV)/bin/python benchmarks/report_page.py

# For the tests of pages in a browser. Without Chromium they are skipped with a message.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
		|| { apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium chromium-driver >/dev/null; }

# Wheel and sdist in empty environments. PYTHONS and EXTRAS choose which.
release-check:
	.ci/release-check

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpaudit needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

# torch first and by its exact version, so that no other package's range picks another build.
$(VENV)/.torch: $(VENV)/bin/pip constraints.txt
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.audit: $(VENV)/.torch pyproject.toml
	$(PIP) --editable '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.audit
	$(PIP) --editable '.[dev]'
	@touch $@
