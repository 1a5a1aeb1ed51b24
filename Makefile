# `make demo` and `make test` are all a newcomer needs; both make their own environment on first use.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin

.DELETE_ON_ERROR:
.PHONY: help demo test lint format docs bench clean

help:
	@echo "make demo       estimate a Lorenz63 from noisy partial observations, then the paper's estimator table"
	@echo "make test       lint, then all tests"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff rewrite the sources"
	@echo "make docs       write docs/cli.md anew from the command line itself"
	@echo "make bench      estimation against other libraries, in an environment of its own"
	@echo "make clean      remove environments, caches and demo output"

# A stamp, so that nothing is installed again (and no network is needed) until the requirements change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

.venv-bench/installed: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/requirements.txt -e .
	@touch $@

demo: .venv/installed
	@mkdir -p demo
	$(BIN)/python examples/lorenz63/observe.py demo/observations.csv
	$(BIN)/fedkoopman estimate demo/observations.csv --system lorenz63 --sensor examples/lorenz63/sensor.toml --out demo/states.csv --plot demo/states.png
	$(BIN)/fedkoopman reproduce table-estimators --out demo

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -n $(WORKERS)

docs: .venv/installed
	$(BIN)/python -m fedkoopman.cli.reference > docs/cli.md

bench: .venv-bench/installed
	.venv-bench/bin/python benchmarks/estimation.py

clean:
	rm -rf .venv .venv-bench demo build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
