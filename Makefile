# Reprise. `make run` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Everything from Debian, in one list: to build; to test; to measure; to keep the code in
# shape.
APT_BUILD := g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev python3-dev
APT_TEST  := libgtest-dev clang libclang-rt-14-dev python3 python3-venv
APT_BENCH := libbenchmark-dev
APT_TOOLS := clang-format clang-tidy gcovr

PROGRAM := build/bin/reprise
GRAPH  ?= examples/transformer.json
run: BUDGET ?= 40%
plan picture: BUDGET ?= 50%
FUZZ_SECONDS ?= 60

# What needs CUDA, which is not there where code is checked, and what stands for an optional library.
UNLINTED := %/no_highs.cpp %/cuda_graph.cpp %/no_cuda_graph.cpp %/normalize.cpp %/no_normalize.cpp
LINTED  := $(filter-out $(UNLINTED),$(wildcard reprise/*/*.cpp reprise/*/*/*.cpp cli/*.cpp runtime/*.cpp python/src/*.cpp))
HEADERS := $(wildcard reprise/*/*.h reprise/*/*/*.h cli/*.h)
RUNTIME_HEADERS := $(wildcard runtime/*.h)

.PHONY: help run plan build package test test-all test-gpu bench bench-pytorch bench-gpu bench-tables comparison picture format lint tidy coverage fuzz clean setup-build setup-test setup-bench setup-tools

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

run: package  ## Train a ResNet and a GPT at 40 % of their activations, side by side with plain training (BUDGET=…)
	OMP_WAIT_POLICY=passive .venv/bin/python examples/train.py --budget $(BUDGET) --report build/report.html

plan: build  ## Plan a bundled training graph at half its memory and show it (GRAPH=…, BUDGET=…)
	$(PROGRAM) plan $(GRAPH) --budget $(BUDGET)

package: .venv/ready setup-build  ## Build the Python package and the program, and install it into .venv
	@log=$$(.venv/bin/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e . 2>&1) || \
	  { echo "$$log" >&2; exit 1; }
	@echo "built the Python package"

build: setup-build  ## Build the program: build/bin/reprise
	@scripts/build release reprise_program

test: package  ## Run all tests: C++ under the sanitizers, the program, the Python package
	@scripts/build dev all all_verify_interface_header_sets
	ctest --preset dev --parallel $(shell nproc)
	@scripts/build release reprise_runtime_tests
	build/release/tests/runtime/reprise_runtime_tests --gtest_brief=1
	.venv/bin/pytest -q --numprocesses $(shell nproc)
	scripts/fuzz 20000

test-all: test fuzz lint  ## All tests, long ones too, longer fuzzing, and the linters
	@scripts/build long reprise_tests
	ctest --preset long --parallel $(shell nproc)
	.venv/bin/pytest -q --numprocesses $(shell nproc) -m long
	.venv/bin/python benchmarks/pytorch.py --times 1

test-gpu: package  ## Tests that need a GPU; skipped with a notice where there is none
	@if .venv/bin/python -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then \
	  .venv/bin/pytest -q --numprocesses $(shell nproc) -m "gpu and not long" python/tests; \
	else echo "skipped: PyTorch sees no GPU"; fi

bench: .venv/ready setup-build setup-bench  ## Measure steps and bytes a second, then seconds and memory of every solver
	@scripts/build bench all
	build/bench/bin/reprise_bench
	benchmarks/solvers.py build/bench/bin/reprise

bench-pytorch: package  ## What the executor adds to an op; the table of docs/pytorch.md: networks, plain and inside budgets
	.venv/bin/python benchmarks/executor.py
	.venv/bin/python benchmarks/pytorch.py --write docs/pytorch.md

bench-gpu: package  ## Memory and time of 22 networks on a GPU: eager, checkpointing, torch.compile, Reprise; goes on where it ended
	.venv/bin/python -m benchmarks.gpu

bench-tables: build  ## Write the tables of docs/benchmarks.md: the default solver on published graphs
	scripts/bench_tables $(PROGRAM)

comparison: .venv/ready build  ## Write docs/comparison.md: every solver on published graphs
	scripts/compare_solvers $(PROGRAM)

picture: build setup-test  ## Draw docs/timeline.svg: a plan and the plain run (GRAPH=…, BUDGET=…)
	scripts/draw_timeline.py $(GRAPH) $(BUDGET) docs/timeline.svg

fuzz: setup-build setup-test  ## Fuzz every reader and check against simulate (FUZZ_SECONDS=60 each)
	scripts/fuzz $(FUZZ_SECONDS)s

format: setup-tools  ## Format all C++
	git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i

lint: .venv/ready setup-build setup-tools  ## Formatting, and clang-tidy over what changed, warnings as errors
	git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format --dry-run --Werror
	@[[ -f build/dev/compile_commands.json ]] || cmake --preset dev >/dev/null
	@grep -qs python/src build/release/compile_commands.json || \
	  cmake --preset release -DREPRISE_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python >/dev/null
	@$(MAKE) --no-print-directory --jobs 2 tidy

tidy: $(LINTED:%=build/lint/%.ok)
	@:

define clang_tidy
@echo "clang-tidy $<"
@mkdir -p $(@D) && clang-tidy -quiet -p build/$(1) $< 2>$@.log && touch $@ || { cat $@.log; exit 1; }
endef
build/lint/%.ok: % $(HEADERS) .clang-tidy cli/.clang-tidy
	$(call clang_tidy,dev)
build/lint/runtime/%.ok: runtime/% $(RUNTIME_HEADERS) .clang-tidy
	$(call clang_tidy,release)
build/lint/python/%.ok: python/% $(HEADERS) $(RUNTIME_HEADERS) .clang-tidy
	$(call clang_tidy,release)

coverage: setup-build setup-tools .venv/ready  ## Which lines the tests run
	@scripts/build coverage all
	ctest --preset coverage --parallel $(shell nproc)
	REPRISE_PROGRAM=build/coverage/cli/reprise .venv/bin/pytest -q --numprocesses $(shell nproc) tests/cli tests/docs
	gcovr --root . --filter reprise/ --filter cli/ build/coverage

clean:  ## Remove what was built
	rm -rf build

setup-build:
	@scripts/setup $(APT_BUILD)
setup-test:
	@scripts/setup $(APT_TEST)
setup-bench:
	@scripts/setup $(APT_BENCH)
setup-tools:
	@scripts/setup $(APT_TOOLS)

.venv/ready: requirements-dev.txt | setup-test
	@python3 -m venv .venv && .venv/bin/python -m pip install -q --disable-pip-version-check -r $< && touch $@ || \
	  { echo "could not set up .venv: needs python3-venv and PyPI (python3 -m venv .venv && .venv/bin/python -m pip install -r $<)"; exit 1; }
