# Everything a person does with a checkout. `make help` lists it.
#
#   DEVICE=cpu|cuda   what torch is to run on, where the guess is wrong
#   PYTHON=python3.x  the Python (3.11 or newer) that .venv is made with
#   ARGS="..."        handed on to the command, e.g. make run ARGS="--context 8192"

PYTHON ?= python3
DEVICE ?=
ARGS ?=
OUT ?= contact-sheet

BIN := .venv/bin
BOOTSTRAP = $(PYTHON) packaging/bootstrap.py --device "$(DEVICE)"
DEVICE_OPTION = $(if $(DEVICE),--device $(DEVICE))
OFFSCREEN := QT_QPA_PLATFORM=offscreen

.DEFAULT_GOAL := help
.PHONY: help run test lint fix bench bench-transformers bench-peers bench-kernels contact-sheet clean setup setup-dev

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## set up what is missing, then open the window
	@$(BIN)/phasescope $(DEVICE_OPTION) $(ARGS)

test: lint ## every check and every test, as on each change
	$(OFFSCREEN) $(BIN)/pytest $(ARGS)

lint: setup-dev ## style, types, the arrows between packages, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy packaging
	$(BIN)/lint-imports
	$(BIN)/codespell

fix: setup-dev ## let the tools mend what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure this machine: prefill, decode, memory
	@$(BIN)/phasescope bench $(DEVICE_OPTION) $(ARGS)

bench-transformers: setup ## compare with Hugging Face transformers, in an environment of its own
	$(BIN)/python -m tests.benchmarks.bench_transformers $(ARGS)

bench-peers: setup ## compare with llama.cpp and transformers, in environments of their own
	$(BIN)/python -m tests.benchmarks.bench_peers $(ARGS)

bench-kernels: setup ## time each CPU kernel beside what the machine can do
	@$(BIN)/python -m tests.benchmarks.kernel_speed $(ARGS)

contact-sheet: setup-dev ## draw every state of the window into OUT=contact-sheet
	$(OFFSCREEN) $(BIN)/python -m tests.contact_sheet $(OUT)

clean: ## remove the environments and everything that was built
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache \
	  .pytest_cache .hypothesis .import_linter_cache contact-sheet out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@$(BOOTSTRAP)

setup-dev:
	@$(BOOTSTRAP) --extras test,dev
