# The commands people run. Each installs what it needs, so that a bare Debian machine will do.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test lint format bench kills soak mutants venv tools clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(STAMP) tools ## Run the whole loop on this machine: simulated GPUs, real Prometheus and Alertmanager
	$(BIN)/gpu-responder demo $(DEMO)

# Two at a time; then, one by one, those that run whole services and watch what they do with their time.
test: $(STAMP) tools browser ## Run every test
	$(PYTEST) -n 2 --dist loadfile tests --ignore tests/e2e
	$(PYTEST) tests/e2e

lint: $(STAMP) ## Check style, types and the direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) tools webhook ## Measure intake, latency and the price of durability, as ratios in one run
	$(BIN)/python -m bench

kills: $(STAMP) tools ## The long kill test: 200 whole-service kills
	GPU_RESPONDER_KILLS=200 GPU_RESPONDER_SEED=$${GPU_RESPONDER_SEED:-$$RANDOM} $(PYTEST) --timeout 0 tests/e2e/test_kills.py -s

soak: $(STAMP) ## The long state-machine run
	HYPOTHESIS_PROFILE=soak $(PYTEST) --timeout 0 tests/test_one_effect_state_machine.py

mutants: $(STAMP) tools ## Put faults into the rules, one at a time, and see which the tests notice
	$(BIN)/python tests/rules/mutate.py --sample 220

chart: $(STAMP) ## Make the parts of the Helm chart that have their source elsewhere
	$(BIN)/python helm/generate.py

venv: $(STAMP) ## Make .venv with all that the tests need

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory apt PACKAGES=python3-venv
	$(PYTHON) -m venv $(VENV)
	@told=$$($(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]' 2>&1) \
	|| { echo "$$told"; exit 1; }
	@touch $@

# Debian's packages are installed only when the program is not there already, and start no service.
.PHONY: apt browser webhook
tools:
	@command -v promtool >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=prometheus
	@command -v amtool >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=prometheus-alertmanager
browser:
	@command -v chromium >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=chromium
webhook:
	@command -v webhook >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=webhook
	@command -v wrk >/dev/null || $(MAKE) --no-print-directory apt PACKAGES=wrk

apt:
	@command -v apt-get >/dev/null || { echo "Install $(PACKAGES) with your system's package manager, then run this again."; exit 1; }
	@[ "$$(id -u)" = 0 ] || { echo "Run as root, or first: sudo apt-get install --no-install-recommends $(PACKAGES)"; exit 1; }
	@policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then printf '#!/bin/sh\nexit 101\n' > $$policy; chmod +x $$policy; trap "rm -f $$policy" EXIT; fi; \
	apt-get update -qq; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES) >/dev/null

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: constraints
constraints: ## Write down the exact versions that are installed now
	@{ echo "# Exact versions that the tests were last run with. Made by: make constraints"; \
	$(BIN)/python -m pip freeze --exclude-editable | grep -viE '^(pip|setuptools|wheel|gpu-responder)\b|file:|@' | sort -f; } > constraints.txt
