# `make test` is the README's test command. `make check` runs all that there is: every bundled capture,
# all examples, trainings with the real libraries, other Pythons, the newest torch; it fails where the
# tests run too little of the package (pyproject.toml says how little). Linter, types and layers are
# tests as well.
PYTHON ?= python

.PHONY: test check coverage lint types layers format snapshots documents docs frozen fuzz

test:
	$(PYTHON) -m pytest -n auto

check:
	.ci/other_pythons
	.ci/newest_torch
	$(PYTHON) -m tests.fuzz --seconds 60 --seed $$(date +%j)
	$(PYTHON) -m pytest -n auto --corpus=all --hypothesis-profile=all -m "" --cov

# What the unit tests alone run of the package, with the lines that they leave out.
coverage:
	$(PYTHON) -m pytest --cov --cov-report=term-missing:skip-covered tests/unit tests/cli

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

layers:
	lint-imports

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# Screens and sentences that tests compare, written as they are today.
snapshots:
	$(PYTHON) -m pytest -n auto --snapshot-update --corpus=all tests/unit tests/cli tests/browser tests/golden

# Every document that holds figures, written with those of today.
documents:
	$(PYTHON) -m tests.documents
	$(PYTHON) tests/golden/test_notebooks.py

# The site of the documents, in build/site.
docs:
	$(PYTHON) -m sphinx -q -W --keep-going tracelab/docs build/site

# Inputs that lie, to all that reads bytes of others: guided by coverage where atheris is installed.
SECONDS ?= 60
fuzz:
	$(PYTHON) -m tests.fuzz --seconds $(SECONDS)

# What differs of all outputs of the bundled captures from tests/frozen.tsv: a change of no figure
# leaves nothing. `write` instead of `check` renews the table.
frozen:
	$(PYTHON) -m tests.frozen check
