# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS := 1

.PHONY: setup run test test-slow storm mutants lint results picture docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ocil needs Python 3.11 or later; give one with PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "This Python lacks venv; install the package python3-venv (Debian, Ubuntu)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e ".[data,report,track,cluster,tune,backbones,river,dev]"
	@touch $(STAMP)

run: setup
	@rm -rf runs/first
	$(BIN)/ocil study first --workers 2 --out runs
	$(BIN)/ocil report runs/first --out report

test: setup
	$(BIN)/python -m pytest -n 2

test-slow: setup
	$(BIN)/python -m pytest -n 2 -m slow

# All storms in full (a quarter of an hour); the slow tests run a tenth of each.
storm: setup
	$(BIN)/python bench/storm.py

# Deliberate faults, and which of them the tests notice; takes half an hour, so CI does not run it.
mutants: setup
	nice -n 5 $(BIN)/python bench/mutants.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache

results: setup
	$(BIN)/ocil results results

picture: setup
	$(BIN)/ocil study digits --workers 2
	$(BIN)/python docs/picture.py tasks results/digits docs/first.png
	$(BIN)/python docs/picture.py pairs results/table-mnist docs/mnist.png

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build  # not --quiet: that hides broken links
	@echo "Documentation: site/index.html"

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) runs report dist site
