# Everything below works from a fresh clone with Python 3.11 and nothing else installed.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# What a command prints goes to people; a seed or a target may be handed through.
ARGS   ?=

.PHONY: setup demo test lint soak bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## installs the locked dependencies into .venv, once

$(VENV)/.ready: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "highwater: needs $(PYTHON) on PATH; install Python 3.11 or call make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## the main job: model check, simulate, conform, fuzz, break a cluster twice, audit, one page
	@$(BIN)/highwater demo $(ARGS)

test: setup  ## all tests
	@$(BIN)/python -m pytest $(ARGS)

lint: setup  ## format, lint, types, layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

soak: setup  ## long sweeps, an hour or more
	@$(BIN)/python -m pytest --hypothesis-profile fresh
	@$(BIN)/highwater spec check --profile deep
	@$(BIN)/highwater spec prove --profile deep
	@$(BIN)/python -m reports.soak --minutes 10
	@$(BIN)/python -m reports.soak_rules
	@$(BIN)/python -m reports.soak_synth --ops 100000
	@$(BIN)/python -m reports.soak_guards
	@$(BIN)/python -m reports.soak_division --ops 10000000
	@$(BIN)/python -m reports.soak_cluster
	@$(BIN)/highwater chaos reference:3 --seconds 600
	@$(BIN)/highwater chaos apache-kafka:3 --seconds 600
	@$(BIN)/python -m fuzz.nightly --minutes 30
	@$(BIN)/python -m fuzz.guard_times
	@$(BIN)/python -m fuzz.spoilt
	@rm -rf results/sweep
	@$(BIN)/python -m fuzz.wire.decoders --seconds 300
	@$(BIN)/highwater fuzz reference --seconds 600 --lines
	@$(BIN)/highwater fuzz --self-test --seconds 60 --seeds 5
	@$(BIN)/highwater simulate --seeds 0:20000 --out results/sweep $(ARGS)
	@$(BIN)/python -m reports.seed_recheck results/sweep --every 100 --master 'local-cluster[2,1,1024]'

bench: setup  ## every figure of the README
	@$(BIN)/python -m reports.bench $(ARGS)

clean:  ## removes .venv and results
	rm -rf $(VENV) results build *.egg-info
