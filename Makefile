# Every target sets up what it needs: a virtual environment with the locked versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
STAMP := $(VENV)/.installed-$(shell cat requirements.lock pyproject.toml | cksum | cut -d' ' -f1)
ARGS ?=
# uv brings its own list of certificate authorities; a company's own stands in the system's, which pip uses already.
export UV_SYSTEM_CERTS ?= true
# The tests start some hundred processes: each would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE
# Three at a time, file by file: a file's tests share what they start, and most start processes. Six were no
# faster on two cores: each test then had a sixth of a machine, and waited for longer than it was ready to.
WORKERS ?= 3

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# Folders whose tests need no cluster of processes; what in them does is marked `outside` (tests/checked.py). Three parts
# of as much time each.
CHECKED_ENGINE := tests/unit/engine tests/unit/protocol tests/conformance
CHECKED_PROPERTIES := tests/simulation tests/properties tests/migrations
CHECKED_REST := tests/unit --ignore tests/unit/engine --ignore tests/unit/protocol

.PHONY: help up check checked-engine checked-properties checked-rest test tests test-slow lint bench soak incidents screenshots docs lock clean

help: ## These targets
	@grep -E '^[a-z-]+:.* ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.* ## (.*)/\1\t\2/' | expand -t 14

up: $(STAMP) ## Run everything; ARGS="--no-demo" passes options to `ebbline up`
	$(BIN)/ebbline up $(ARGS)

check: $(STAMP) ## Lint, types, and all tests that need no process, browser, JVM or real clock: a minute
	@$(MAKE) --no-print-directory --jobs 4 --output-sync=target checked-properties checked-rest checked-engine lint

# Processes of their folders, not workers: each worker would collect all tests for itself, which takes half as long as
# its share of them. A third one fills the moments in which tests wait. None asks for schemathesis, which loads long.
CHECKED_PYTEST = EBBLINE_CHECK=1 $(BIN)/python -m pytest --quiet -p no:schemathesis -p no:xdist -p no:cacheprovider

checked-engine: $(STAMP)
	$(CHECKED_PYTEST) $(CHECKED_ENGINE)

checked-properties: $(STAMP)
	$(CHECKED_PYTEST) $(CHECKED_PROPERTIES)

checked-rest: $(STAMP)
	$(CHECKED_PYTEST) $(CHECKED_REST)

test: $(STAMP) ## Tests of every tier that this machine can run, and lint beside them
	@$(MAKE) --no-print-directory --jobs 2 lint tests

tests: $(STAMP) | .pytest_cache
	$(PYTEST) $(or $(ARGS),-m "not slow")

test-slow: $(STAMP) | .pytest_cache ## The files that take longest, which `make test` leaves out: tests/slow.py; HALF=1
	$(PYTEST) -m slow$(if $(HALF),_half_$(HALF))

# Of a fresh clone one process rewrites the assertions of all tests, instead of every worker for itself.
.pytest_cache: $(STAMP)
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	nice $(BIN)/mypy

bench: $(STAMP) ## Side by side with Apache Kafka; ONLY="produce idle", QUICK=1
	$(BIN)/python -m tests.benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

soak: $(STAMP) ## The long evidence; results go to tests/soak/results
	$(BIN)/python -m tests.soak

incidents: $(STAMP) ## Incidents on both clusters, and docs/incidents.md; ONLY="broker-killed store", ON=embedded
	$(BIN)/python -m tests.incidents $(if $(ON),--on $(ON)) $(if $(ONLY),--only $(ONLY))

screenshots: $(STAMP) ## Refresh the pictures in docs/
	$(BIN)/python -m tests.screenshots

docs: $(STAMP) ## The documentation as a site: site/index.html, to be opened as a file; a dead link ends it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "Open site/index.html"

lock: $(STAMP) ## Resolve pyproject.toml again into requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --group dev pyproject.toml --upgrade \
	  --no-emit-index-url --no-annotate --no-header --generate-hashes --quiet -o requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ebbline needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@# The package immutables has no wheel for 3.14, and is then compiled.
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || command -v cc >/dev/null || \
	  { echo "Python 3.14 needs a C compiler and Python's headers here; on Debian: apt install gcc python3-dev"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@# Spark then starts in half the time; without it, all works.
	-@$(BIN)/ebbline pipeline prepare
	@rm -f $(VENV)/.installed-*
	@touch $@

clean: ## Remove the environment and caches; data folders stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache site
