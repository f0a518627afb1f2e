# The commands of this house. `make help` lists them. Everything is set up by itself, in .venv; PYTHON=... names an interpreter.

VENV := .venv
BIN := $(VENV)/bin
OUT := demo-out
BENCHES := spawn startup chain replay memory core partition quality holding mixed scale fleet
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean

help:   ## this list
	@awk -F ' *## ' '/^[a-z]+:.* ## / { sub(/:.*/, "", $$1); printf "  make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/ready-run   ## run a study with real work, in parallel, and show its result
	@rm -rf $(OUT)
	$(BIN)/cantle run examples/lulesh-like/study.yaml -o $(OUT)
	@echo && cat $(OUT)/report/report.txt
	@echo && echo "All of it lies in $(OUT). Look around: $(BIN)/cantle status $(OUT)"
	@$(BIN)/cantle report $(OUT)

test: check   ## check, then all tests (PYTEST_ARGS="-k map" for some; CANTLE_NO_SKIP=1: a skipped test fails)
	@$(BIN)/python tests/real/cluster install || true   # it has said why, and so will the tests that need it
	@.ci/tests $(PYTEST_ARGS)

check: $(VENV)/ready-dev   ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

bench: $(VENV)/ready-dev   ## all benches, a table each (BENCH_ARGS=--quick for a short run)
	@for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python bench/$$bench.py $(BENCH_ARGS) || exit 1; done

clean:   ## remove what demo, tests and benches left (.venv stays)
	rm -rf $(OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +

# Made once, and again when what is to be installed has changed.
$(VENV)/ready-run: pyproject.toml constraints.txt .ci/setup
	@.ci/setup run

$(VENV)/ready-dev: pyproject.toml constraints.txt .ci/setup
	@.ci/setup dev
