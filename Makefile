# Reprise. `make run` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Everything from Debian, in one list: to build; to test; to keep the code in shape.
APT_BUILD := g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libbenchmark-dev
APT_TEST  := libgtest-dev clang libclang-rt-14-dev python3 python3-venv
APT_TOOLS := clang-format clang-tidy gcovr

PROGRAM := build/bin/reprise
GRAPH  ?= examples/transformer.json
BUDGET ?= 50%
FUZZ_SECONDS ?= 60

.PHONY: help run build test test-all bench picture format lint coverage fuzz clean setup-%

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|'

run: build  ## Plan a bundled training graph at half its memory and show it (GRAPH=…, BUDGET=…)
	$(PROGRAM) plan $(GRAPH) --budget $(BUDGET)

build: setup-build  ## Build the program: build/bin/reprise
	@scripts/build release reprise_program

test: setup-build setup-test .venv/ready build  ## Run all tests, under the sanitizers
	@scripts/build dev all all_verify_interface_header_sets
	ctest --preset dev --parallel 2
	.venv/bin/pytest -q
	scripts/fuzz 20000

test-all: test fuzz lint  ## All tests, longer fuzzing, and the linters

bench: setup-build  ## Measure: steps simulated and bytes parsed a second, and more
	@scripts/build release all
	build/bin/reprise_bench

picture: build setup-test  ## Draw docs/timeline.svg: a plan and the plain run (GRAPH=…, BUDGET=…)
	scripts/draw_timeline.py $(GRAPH) $(BUDGET) docs/timeline.svg

fuzz: setup-build setup-test  ## Fuzz every reader and check against simulate (FUZZ_SECONDS=60 each)
	scripts/fuzz $(FUZZ_SECONDS)s

format: setup-tools  ## Format all C++
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

lint: setup-build setup-test setup-tools  ## Formatting and clang-tidy, warnings as errors
	git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run --Werror
	@scripts/build dev all
	git ls-files '*.cpp' | grep -vE '^(examples|tests/fuzz|benchmarks)/' | xargs -P 2 -n 4 clang-tidy -quiet -p build/dev

coverage: setup-build setup-test setup-tools  ## Which lines the tests run
	@scripts/build coverage all
	ctest --preset coverage --parallel 2
	gcovr --root . --filter reprise/ --filter cli/ build/coverage

clean:  ## Remove what was built
	rm -rf build

setup-build:
	@scripts/setup $(APT_BUILD)
setup-test:
	@scripts/setup $(APT_TEST)
setup-tools:
	@scripts/setup $(APT_TOOLS)

.venv/ready: requirements-dev.txt | setup-test
	@python3 -m venv .venv && .venv/bin/python -m pip install -q --disable-pip-version-check -r $< && touch $@ || \
	  { echo "could not set up .venv: needs python3-venv and PyPI (python3 -m venv .venv && .venv/bin/python -m pip install -r $<)"; exit 1; }
