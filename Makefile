# The commands of the project. `make paper` and `make test` set up all they need.
#   VENV=/path make paper   uses (and if need be makes) an environment elsewhere
#   PYTHON=/path/python3.11  makes it with this Python; without it, uv finds a Python 3.11 or fetches one
#   FETCH=1 make cell       downloads what a cell needs without a terminal too; DISCARD=1 removes archives after packing
#   make contribute PLATFORM=cuda HOURS=2, or CELL=...  trains, and writes an archive to send (docs/contribute.md)
# What a user names reaches commands through the environment, quoted: no shell reads it as a program.

# As Snakemake's rules; without it the make of macOS looks programs up in its own PATH, not in the one below.
SHELL := /bin/bash
ifneq ($(filter 3.7% 3.80%,$(MAKE_VERSION)),)
$(error make $(MAKE_VERSION) is too old: install GNU make 3.81 or newer)
endif
VENV ?= .venv
PYTHON ?=
CELL ?=
PLATFORM ?=
HOURS ?= 1
TESTERS ?= logical
# As written, not as make would expand them.
override VENV := $(value VENV)
override PYTHON := $(value PYTHON)
override CELL := $(value CELL)
override PLATFORM := $(value PLATFORM)
override HOURS := $(value HOURS)
override TESTERS := $(value TESTERS)
export VENV PYTHON CELL PLATFORM HOURS TESTERS
# Make cuts a target's name at blanks and gives these characters a meaning in it.
SPECIAL = ; : % * ? [ ~ = $$ \# \ |
ifneq ($(words $(VENV))$(strip $(foreach one,$(SPECIAL),$(findstring $(one),$(VENV)))),1)
$(error VENV='$(VENV)': make can have neither blanks nor any of $(SPECIAL) in this path; name another place)
endif
export PATH := $(abspath $(VENV))/bin:$(PATH):$(abspath $(VENV))/.uv/bin
export PYTHONPATH := $(CURDIR)/src
# A user without an entry in the system's list, as in many containers, may have neither name nor HOME.
ifeq ($(USER)$(LOGNAME),)
export USER := $(firstword $(shell id -un 2>/dev/null || id -u))
endif
ifeq ($(HOME),)
export HOME := $(shell echo ~)
endif
# A user without a home that can be written, as there too: caches go into the checkout.
CACHE = $${XDG_CACHE_HOME:-$${HOME:-/nonexistent}/.cache}
ifneq ($(shell mkdir -p "$(CACHE)" 2>/dev/null && test -w "$(CACHE)" && echo writable),writable)
export XDG_CACHE_HOME := $(CURDIR)/.snakemake/cache
endif
# A build that lives on after its make was killed is waited for.
export CXRBENCH_WAIT := 1
# Set in many containers: each command of a build would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE
SNAKEMAKE = python -m snakemake
FULL = $(VENV)/.cxrbench-full
SMALL = $(VENV)/.cxrbench-paper

.PHONY: help setup latex paper named chosen cell contribute paper-from-evidence report test test-all slurm browser containers \
	smoke bench coverage docs lint format lock clean

.DEFAULT: # a name that is no target
	@echo "make: there is no target '$@'; these are the targets:" >&2; $(MAKE) --no-print-directory help >&2; exit 2

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(FULL) ## install the environment: torch, timm, Snakemake (7.6 GB, minutes)

$(FULL): requirements/base.lock
	@sh requirements/setup.sh "$$PYTHON" "$$VENV" requirements/base.lock "$$VENV/.cxrbench-full"

# The small environment rebuilds the paper from recorded evidence. A full one serves as well.
$(SMALL): requirements/paper.lock
	@test -e "$$VENV/.cxrbench-full" \
		|| sh requirements/setup.sh "$$PYTHON" "$$VENV" requirements/paper.lock "$$VENV/.cxrbench-paper"

latex: ## install LaTeX with apt-get, or print the command for it
	@sh requirements/latex.sh

paper: $(FULL) latex ## train what runs here, adopt the rest, rebuild the paper
	@$(SNAKEMAKE)
	@python workflow/scripts/expected.py

paper-from-evidence: $(SMALL) latex ## rebuild the paper from recorded evidence: no torch, no images
	@$(SNAKEMAKE) --config 'run=[]'
	@python workflow/scripts/expected.py

# What the last build here was to train; where there was none, what is recorded.
RAN = python -c 'import json; print(json.load(open("results/built.json"))["run"])' 2>/dev/null || echo "[]"

report: $(SMALL) ## write the report: one HTML page with conclusions, tables and evidence
	@$(SNAKEMAKE) page --config "run=$$($(RAN))"

# What is named is looked at before anything is installed for it.
EXAMPLE = phantom-32px/convnext_atto/cpu/seed0
named:
	@test -n "$$CELL" || { echo "CELL is missing: make cell CELL=$(EXAMPLE)" >&2; exit 2; }
	@case "$$CELL" in *[!/]/*[!/]/*[!/]/seed[0-9]*) ;; *) echo "'$$CELL' is not a cell:" \
		"write CELL=dataset/architecture/platform/seedN, for example CELL=$(EXAMPLE)" >&2; exit 2;; esac

chosen:
	@test -n "$$CELL$$PLATFORM" || { echo "name what to train: make contribute PLATFORM=cuda HOURS=2," \
		"or make contribute CELL=$(EXAMPLE)" >&2; exit 2; }
	@test -z "$$CELL" || $(MAKE) --no-print-directory named

cell: named $(FULL) ## get, train CELL=dataset/architecture/platform/seedN, compare with its record
	@python -m cxrbench cell get "$$CELL" $(if $(filter 1,$(FETCH)),--fetch) $(if $(filter 1,$(DISCARD)),--discard)
	@python -m cxrbench cell check "$$CELL"
	@$(SNAKEMAKE) "results/runs/$$CELL/record.json" --config "run=[\"$$CELL\"]"
	@python -m cxrbench cell compare "$$CELL"

contribute: chosen $(FULL) ## train CELL, or cells of PLATFORM for HOURS, and write one archive to send
	@python -m cxrbench contribute $${CELL:+"$$CELL"} $${PLATFORM:+--platform "$$PLATFORM" --hours "$$HOURS"} \
		$(if $(filter 1,$(FETCH)),--fetch)

smoke: $(FULL) latex ## run the whole graph on drawn radiographs with two small networks
	@$(SNAKEMAKE) --configfile config/smoke.yaml

# A test process per core, at most four. Threads that wait sleep: spinning ones would take the cores from each other.
PYTEST = OMP_WAIT_POLICY=PASSIVE python -m pytest -n "$$TESTERS" --maxprocesses 4 --dist loadfile \
	--no-loadscope-reorder

test: $(FULL) latex ## run the fast tests, in minutes (TESTERS=0: one at a time)
	@$(PYTEST) -m "not slow" -rs

slurm: ## install Slurm with apt-get, for its tests
	@sh requirements/slurm.sh

browser: ## install Chromium with apt-get, for the tests of the report
	@sh requirements/chromium.sh

containers: ## install buildah with apt-get: `make test-all` then builds an image too
	@sh requirements/buildah.sh

test-all: test slurm browser docs ## run all tests: whole builds, repeated kills, system services
	@$(PYTEST) -m slow -rs

bench: $(FULL) ## measure the speed of training and statistics here, in five minutes
	@python -m cxrbench bench train --batch 16 --steps 2
	@python -m cxrbench bench metrics

coverage: $(FULL) ## simulate the coverage of intervals, record the tables
	@python -m benchmarks.coverage data/recorded

# An environment beside the others, so that theirs does not grow.
$(VENV)-docs/.cxrbench-docs: requirements/docs.lock
	@sh requirements/setup.sh "$$PYTHON" "$$VENV-docs" requirements/docs.lock "$$VENV-docs/.cxrbench-docs"

docs: $(VENV)-docs/.cxrbench-docs ## build the documentation site in results/docs
	@"$$VENV-docs/bin/python" docs/pages.py results/docs-source
	@"$$VENV-docs/bin/python" -m sphinx -W --keep-going -q -c docs results/docs-source results/docs
	@echo "documentation: results/docs/index.html"

lint: $(FULL) ## run ruff, mypy, codespell, zizmor, snakefmt, snakemake --lint, tests/english.py
	@ruff check . && ruff format --check . && mypy && codespell
	@zizmor --offline --quiet .github
	@snakefmt --check Snakefile workflow && python -m snakemake --lint
	@python tests/english.py

format: $(FULL) ## format the source files
	@ruff check --fix . && ruff format . && snakefmt Snakefile workflow

lock: $(SMALL) ## renew the lock files from requirements/*.in
	@sh requirements/lock.sh

clean: ## remove all built files; data, recorded evidence and environment stay
	@rm -rf results paper/generated paper/paper.pdf paper/paper.log figures/*.pdf .snakemake
