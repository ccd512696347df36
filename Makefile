# Every target sets up what it needs: a bare clone with Python 3.11 or 3.12 is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest

.PHONY: demo test lint types docs unit lowest format zoo lock clean

demo: $(READY)
	$(BIN)/bne demo

# Checks that use one core each run side by side, then the tests, which use all.
test: $(READY)
	$(MAKE) --no-print-directory --jobs=2 lint types docs
	$(MAKE) --no-print-directory unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Any warning fails; with --quiet none would. The variable silences a notice of the theme.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# One process more than cores, since some tests wait for processes of their own, each with one thread:
# faster than one process with all cores. Neighbors stay together, which share what is slow to make,
# until a process has none left and takes another's.
unit: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $$($(BIN)/python -c 'import os; print(os.cpu_count() + 1)') --dist worksteal

# The tests with the lowest versions that pyproject.toml allows, in an environment of their own.
lowest: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		--group dev --editable '.[all]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n auto --dist worksteal --ignore tests/docs

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The old records stay until it has come to its end; interrupted, it goes on where it was.
zoo: $(READY)
	$(BIN)/python benchmarks/zoo.py --afresh

lock: $(READY)
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal --generate-hashes \
		--python-version 3.11 --no-header --no-annotate --upgrade --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) $(LOWEST)

# uv installs the locked environment in seconds where pip takes minutes.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "BNE needs Python 3.11 or newer; say which with: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(VENV)/uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $(READY)
