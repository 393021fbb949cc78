# Everything below works from a fresh clone with Python 3.11 and nothing else installed.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# One folder that shows all packages below `highwater`, for tools that read files instead of importing them.
TYPING := $(VENV)/typing/highwater
# Arguments for the command that a target runs, such as a seed: make test ARGS="-k wire".
ARGS   ?=
# Tests start a thousand Python processes. Where the environment forbids compiled modules, each of them would compile all
# its source again, which takes half of its start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test lint soak bench clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## install the locked dependencies into .venv, once

$(VENV)/.ready: requirements.lock requirements-uv.lock pyproject.toml setup.py
	@command -v $(PYTHON) >/dev/null || { echo "highwater: needs $(PYTHON) on PATH; install Python 3.11 or call make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setup: the locked dependencies go into $(VENV), about a minute with a fast connection (300 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@# The project's former name, which is that of an unrelated distribution in the index.
	$(BIN)/uv pip uninstall --quiet --python $(BIN)/python highwater
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## the main job: model check, simulate, conform, fuzz, break a cluster twice, audit, one page
	@$(BIN)/highwater demo $(ARGS)

test: setup  ## all tests
	@$(BIN)/python -m pytest $(ARGS)

lint: setup  ## format, lint, types, layers
	@rm -rf $(TYPING) && mkdir -p $(TYPING)
	@ln -s $(CURDIR)/spec $(CURDIR)/reference $(CURDIR)/conformance $(CURDIR)/fuzz $(CURDIR)/reports $(CURDIR)/highwater/* $(TYPING)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@cd $(VENV)/typing && ../bin/lint-imports --config ../../pyproject.toml

soak: setup  ## long sweeps, an hour or more
	@$(BIN)/python -m pytest -m '' --hypothesis-profile fresh
	@$(BIN)/highwater spec check --profile deep
	@$(BIN)/highwater spec prove --profile deep
	@$(BIN)/highwater conform reference:3 apache-kafka:3 --clause TXN-15 --clause TXN-38 --clause TXN-39 --clause TXN-40
	@$(BIN)/highwater conform apache-kafka:3 --clause OFF-22 --clause 'GRP-16*' --repeat 10
	@$(BIN)/highwater conform --self-test --long
	@$(BIN)/python -m highwater.soak.rules --small
	@$(BIN)/python -m highwater.power --judge rules --generated 40
	@$(BIN)/python -m highwater.power --generated 120
	@$(BIN)/python -m highwater.power --judge simulator --generated 40
	@$(BIN)/python -m highwater.soak.planted_anomalies --ops 100000
	@$(BIN)/highwater simulate --seeds 0:400 --programs 2
	@$(BIN)/python -m highwater.soak.guards histories
	@$(BIN)/python -m highwater.soak.division --ops 10000000
	@$(BIN)/python -m highwater.soak.spark_cluster
	@$(BIN)/highwater chaos reference:3 --seconds 600
	@$(BIN)/highwater chaos reference:3 --search
	@$(BIN)/highwater chaos apache-kafka:3 --seconds 600
	@$(BIN)/python -m highwater.soak.nightly --minutes 30
	@$(BIN)/python -m highwater.soak.ledger --minutes 30
	@$(BIN)/python -m highwater.soak.ledger --minutes 30 --pace 30
	@$(BIN)/python -m highwater.soak.client_suites franz-go kafka-go sarama librdkafka
	@$(BIN)/python -m highwater.soak.guards times
	@$(BIN)/python -m highwater.soak.mutated_traces
	@$(BIN)/python -m highwater.soak.interruptions
	@$(BIN)/highwater spec mutate
	@$(BIN)/highwater spec mutate --proofs
	@rm -rf results/sweep
	@$(BIN)/python -m highwater.fuzz.wire.decoders --seconds 300
	@$(BIN)/highwater fuzz reference --seconds 600 --lines
	@$(BIN)/highwater fuzz --self-test --seconds 60 --seeds 5
	@$(BIN)/python -m highwater.power --judge fuzzer --set requests --jobs 1
	@$(BIN)/highwater simulate --seeds 0:20000 --out results/sweep $(ARGS)
	@$(BIN)/python -m highwater.soak.seed_recheck results/sweep --every 100 --master 'local-cluster[2,1,1024]'
	@# Last, as it ends with exit code 1: some kinds of impossible histories are not found yet (docs/audit/proofs.md).
	@$(BIN)/python -m highwater.reports.tests.worlds --histories 30000

bench: setup  ## the figures of our documents
	@$(BIN)/python -m highwater.experiments.figures $(ARGS)

clean:  ## removes .venv and results
	rm -rf $(VENV) results build *.egg-info
