# `make demo` and `make test` are all a newcomer needs; both make their own environment on first use.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin

.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-deploy tools lint ruff format docs docs-site paper bench bench-measured bench-deploy clean

help:
	@echo "make demo       the paper's default federation, with the paper's model and with ours: records, models and reports in demo/"
	@echo "make test       ruff, mypy and the tests, one of everything; at its end it says which tests it left out"
	@echo "make test-slow  the tests that take longer: every item of the paper in small, its default in full, gradients, noise, particles, a stiff cell, killed runs, the larger examples"
	@echo "make test-deploy  every fault of a deployed federation, and a soak; about two hours"
	@echo "make lint       ruff and mypy"
	@echo "make format     let ruff rewrite the sources"
	@echo "make docs       write docs/cli.md and the references in docs/studies.md and docs/own-data.md anew from the program itself"
	@echo "make docs-site  the documentation as a site in build/site, without a network; any warning fails"
	@echo "make paper      reproduce the whole paper (DATA=path of the measured pendulum) and write docs/paper.md"
	@echo "make bench-measured  data that others measured (DATA=folder with kvlcc2, silverbox and double_pendulum), beside other libraries"
	@echo "make bench      estimation, federation, control, accuracy and the whole paper against other libraries, in an environment of their own"
	@echo "make bench-deploy  a deployed federation beside plain Flower, seconds per slot; half an hour, on a machine that does nothing else"
	@echo "make clean      remove environments, caches and demo output"

# A stamp, so that nothing is installed again (and no network is needed) until the requirements change.
.venv/program: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/installed: .venv/program
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

# sysidentpy asks for an older NumPy than it needs; without its dependencies it runs with ours.
.venv-bench/installed: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/requirements.txt -e .
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps sysidentpy==0.9.0
	@touch $@

demo: .venv/program
	@rm -rf demo
	$(BIN)/fedkoopman run --seeds 2 --out demo/paper
	$(BIN)/fedkoopman run --recommended --seeds 2 --out demo/recommended --beside demo/paper

ruff: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# What mypy found is kept outside the checkout, as compiled functions of the tests are: a fresh clone is checked fast.
MYPY = $(BIN)/mypy --cache-dir "$${XDG_CACHE_HOME:-$$HOME/.cache}/fedkoopman-tests/mypy"
lint: ruff
	$(MYPY)

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Federations in the tests stand behind nginx, samples come through a broker, and pages are looked at in a browser; the whole of the tests also needs what follows:
# Debian's packages, where one may install them.
TOOLS = nginx:nginx-light mosquitto:mosquitto chromium:chromium
test-deploy: TOOLS += strace:strace ip:iproute2 cc:build-essential

tools:
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=; for tool in $(TOOLS); do \
	  command -v $${tool%:*} >/dev/null || missing="$$missing $${tool#*:}"; done; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && { \
	  apt-get install -y -qq --no-install-recommends $$missing || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; }; } >/dev/null 2>&1; } || \
	echo "not installed, and cannot be:$$missing; tests that need it are skipped"

# mypy runs beside the tests, and so does the building of the site; their output is shown after that of the tests. The
# tests start many processes, which load bytecode faster; what pytest makes of its files is kept for the next time, also where the environment says otherwise.
test: ruff tools
	@$(BIN)/python -m compileall -q src
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	{ $(MYPY); types=$$?; $(SITE) && exit $$types; } >"$$said" 2>&1 & types=$$!; \
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$types; types=$$?; echo mypy and the site:; cat "$$said"; \
	[ $$tests = 0 ] && [ $$types = 0 ]

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

# The newest Flower but one is in constraints.txt. The newest asks for packages that are not to be had everywhere yet, so it
# comes without them; what is used of it needs none of these.
NEXT_FLOWER = .venv/flower-1.42.0
$(NEXT_FLOWER): .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ flwr==$(@:.venv/flower-%=%)

TRANSPORT = tests/unit/deploy/test_flower_contract.py tests/unit/deploy/test_link.py tests/unit/deploy/test_fleet.py tests/unit/deploy/test_secure.py
test-deploy: .venv/installed tools $(NEXT_FLOWER)
	$(BIN)/python -m pytest -m deploy tests/deploy tests/unit/deploy
	PYTHONPATH=$(CURDIR)/$(NEXT_FLOWER) $(BIN)/python -m pytest $(TRANSPORT)
	PYTHONPATH=$(CURDIR)/$(NEXT_FLOWER) $(BIN)/python -m pytest -m deploy tests/deploy/test_parity.py

# Pages, figures and runs stay in reproduction/; begun anew, it goes on where it was.
paper: .venv/installed
	$(BIN)/fedkoopman reproduce all --out reproduction $(if $(DATA),--data "$(DATA)")
	cp reproduction/paper.md docs/
	rm -rf docs/paper
	cp -r reproduction/paper docs/

docs: .venv/installed
	$(BIN)/python -m fedkoopman.cli.reference > docs/cli.md
	$(BIN)/python -m fedkoopman.config.reference docs/studies.md docs/own-data.md

SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
docs-site: .venv/installed
	$(SITE)

# pykoopman fits nobody's pins and brings 218 packages: it has an environment of its own, and where it cannot be had within
# ten minutes the page says so.
.venv-pykoopman/tried:
	$(PYTHON) -m venv .venv-pykoopman
	-timeout 600 .venv-pykoopman/bin/python -m pip install --quiet --disable-pip-version-check pykoopman==1.2.1 || rm -f .venv-pykoopman/bin/python
	@touch $@

bench: .venv-bench/installed .venv-pykoopman/tried
	.venv-bench/bin/python benchmarks/estimation.py
	.venv-bench/bin/python benchmarks/federation.py
	.venv-bench/bin/python benchmarks/own_data.py
	.venv-bench/bin/python benchmarks/control.py
	.venv-bench/bin/python benchmarks/accuracy.py $(if $(DATA),--data "$(DATA)")
	.venv-bench/bin/python benchmarks/reproduction.py $(if $(DATA),--data "$(DATA)")

bench-measured: .venv-bench/installed .venv-pykoopman/tried
	.venv-bench/bin/python benchmarks/measured.py $(if $(DATA),--data "$(DATA)")

bench-deploy: .venv/installed tools
	$(BIN)/python benchmarks/deployment.py

clean:
	rm -rf .venv .venv-bench .venv-pykoopman demo reproduction reproduction-fast build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
