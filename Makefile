# meshrt: `make` alone lists the targets.
#
# Each target makes the virtual environment it needs and reuses it the next time.
#   PYTHON=python3.12   the interpreter to make it with; another one than last time makes it anew
#   VENV=.venv-3.12     where it is kept, so that several can stand side by side
#   ARGS='-k wire -x'   further arguments for pytest, the demo or the benchmarks

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

PY := $(VENV)/bin/python
RUFF := $(PY) -m ruff
TREES := meshrt tests examples bench

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_USER := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
.PHONY: demo test duration slow smoke hosts check format bench docs nightly soak fuzz house clean help FORCE

demo: $(VENV)/.run  ## play the debugging session of the README, without a person
	@$(PY) examples/demo.py $(ARGS)

# Four workers, also where there are two processors: the tests wait as long as they compute.
test: duration $(VENV)/.test  ## run the tests (ARGS goes to pytest; -n 0 runs them in one process)
	@$(PY) -m pytest -n 4 --dist worksteal $(ARGS)

# Before the environment is made, which takes a while, too.
duration:
	@echo "all tests take about 8 minutes on two processors, those that ARGS selects may take less; make smoke takes one" >&2

slow: $(VENV)/.test  ## run the tests that `make test` leaves to `.ci/run`: each takes seconds of processor time
	@$(PY) -m pytest -n 4 --dist worksteal -m "slow and not nightly" $(ARGS)

# Calls, meshes, the debugger at a prompt and in a shell, what travels, and the demo.
SMOKE := $(patsubst %,tests/%.py,test_examples $(patsubst %,functional/test_%,endpoints meshes views future handles) \
	debug/test_story debug/test_prompt)
smoke: $(VENV)/.test  ## run a part of the tests that takes a minute
	@$(PY) -m pytest -n 4 --dist worksteal -m "not nightly and not slow" $(SMOKE) tests/unit/wire tests/unit/mesh tests/unit/commandline $(ARGS)

hosts: $(VENV)/.test  ## run the functional and fault tests, as `make test`, with their ranks on two hosts made of namespaces
	@$(PY) -m tests.hosts -n 4 --dist worksteal $(ARGS)

check: $(VENV)/.dev  ## lint, formatting, types
	$(RUFF) check $(TREES)
	$(RUFF) format --check $(TREES)
	$(PY) -m mypy

format: $(VENV)/.dev  ## rewrite the sources the way `make check` wants them
	$(RUFF) check --fix-only $(TREES)
	$(RUFF) format $(TREES)

bench:  ## measure meshrt and its peers into one table (an environment of its own: the peers are large)
	@$(MAKE) --no-print-directory VENV=$(VENV)-bench $(VENV)-bench/.bench
	@$(VENV)-bench/bin/python -m bench $(ARGS)

# Not with --quiet: a warning that is not shown is none.
docs:  ## build the documentation as a site, site/index.html (an environment of its own; every warning is an error)
	@$(MAKE) --no-print-directory --silent VENV=$(VENV)-docs $(VENV)-docs/.docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/python -m mkdocs build --strict $(ARGS)

nightly: $(VENV)/.test $(VENV)/.fuzz  ## run all tests, the long ones and the long property searches too
	@$(PY) -m pytest -m 'nightly or not nightly' --hypothesis-profile=nightly --timeout=3600 -o faulthandler_timeout=3660 $(ARGS)

soak: $(VENV)/.test  ## run a mesh under random faults for ten minutes (ARGS='--minutes 60 --seed 7') and print what grew
	@$(PY) -m tests.soak $(ARGS)

fuzz: $(VENV)/.test $(VENV)/.fuzz  ## try changed input everywhere for an hour (ARGS='store --minutes 5 --seed 7'); `make nightly` does, too
	@$(PY) -m tests.fuzz $(ARGS)

house: $(VENV)/.run  ## print the figures of the structure of the code beside their aims, and where they come from (ARGS=--json)
	@$(PY) -m tests.house $(ARGS)

clean:  ## remove environments, caches and build output
	rm -rf .venv .venv-* build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis tests/dap/*/node_modules
	find $(wildcard $(TREES)) -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

# ---- environments ----------------------------------------------------------------------------------------------------
#
# One stamp per stage: .made (an empty environment), .run (meshrt and what it imports), .test, .dev, .fuzz, .bench, .docs.
# A stage is stamped when it is complete; `.busy` exists while one is under way, so that an environment killed half-way
# is found out.

# An environment is used as it stands only if it is complete, its interpreter still exists, and it was made with this
# PYTHON in this folder (one copied with its tree would still import meshrt from where it was copied from).
MADE_BY := $(PYTHON) in $(CURDIR)
STALE := $(shell test -x '$(PY)' && test ! -e '$(VENV)/.busy' && \
	test "$$(cat '$(VENV)/.made' 2>/dev/null)" = '$(MADE_BY)' || echo FORCE)

# Written so that every Python can read it.
OLD_PYTHON := import sys; v = sys.version_info; \
	v >= (3, 11) or sys.exit("meshrt needs Python 3.11 or newer, $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % v[:2])

# $(call pip,ARGUMENTS) prints errors only. pip itself leaves the environment usable when it fails; a killed pip does not.
pip = touch '$(VENV)/.busy'; $(PY) -m pip install -qq $(1); status=$$?; rm -f '$(VENV)/.busy'; exit $$status

$(VENV)/.made: $(STALE)
	@test "$$(uname -s)" = Linux || { echo "meshrt runs on Linux only (it needs pidfd, memfd and prctl)" >&2; exit 1; }
	@$(PYTHON) -c '' || { echo "cannot run '$(PYTHON)'; name a Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c '$(OLD_PYTHON)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) lacks venv or ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test ! -e '$(VENV)' || test -e '$(VENV)/pyvenv.cfg' || test -e '$(VENV)/.busy' || rmdir '$(VENV)' 2>/dev/null || \
		{ echo "$(VENV) is there and is no virtual environment; remove it, or name another place: make VENV=..." >&2; exit 1; }
	@echo "$(VENV): making it with $$($(PYTHON) --version 2>&1)" >&2
	@rm -rf '$(VENV)' && mkdir -p '$(VENV)' && touch '$(VENV)/.busy'
	@$(PYTHON) -m venv '$(VENV)'
	@echo '$(MADE_BY)' >$@ && rm '$(VENV)/.busy'

$(VENV)/.run: $(VENV)/.made pyproject.toml
	@echo "$(VENV): installing meshrt and what it imports" >&2
	@$(call pip,--editable .)
	@touch $@

# pip reads dependency groups since 25.1, and a fresh environment of Python 3.11 starts with an older one.
$(VENV)/.test: $(VENV)/.run
	@echo "$(VENV): installing the test tools" >&2
	@$(call pip,'pip>=25.1')
	@$(call pip,--group test)
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@echo "$(VENV): installing the development tools" >&2
	@$(call pip,--group dev)
	@touch $@

# There is no atheris for every Python: the lines of code that are reached lead the search then.
$(VENV)/.fuzz: $(VENV)/.test
	@echo "$(VENV): installing atheris, which leads the search of make fuzz" >&2
	@if ($(call pip,--group fuzz)); then touch $@; else echo "$(VENV): going on without atheris" >&2; fi

# A machine that cannot install a peer can still measure meshrt and the baselines; the next run tries again.
$(VENV)/.bench: $(VENV)/.run
	@echo "$(VENV): installing the peers to measure beside meshrt" >&2
	@if ($(call pip,--editable '.[bench]')); then touch $@; else echo "$(VENV): going on without the peers" >&2; fi

$(VENV)/.docs: $(VENV)/.run
	@echo "$(VENV): installing what makes the site" >&2
	@$(call pip,'pip>=25.1')
	@$(call pip,--group docs)
	@touch $@

FORCE:
