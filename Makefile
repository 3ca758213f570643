# make install   create .venv with everything the tests and the demo need
# make demo      train a small model privately; writes out/demo.ledger, out/plan.toml and out/report.html
# make quick     linters and the unit tests that are fast and start no process (under two minutes)
# make test      linters, types, import contracts, all tests (about 20 minutes on 2 cores); gets Chromium where there is none (scripts/chromium)
# make test-full the same with the slow suites
# make bench     benchmarks, printed as tables (with torch, opacus, OpenDP, dp-accounting and prv-accountant as peers; about an hour)
# make bench-utility  accuracy of every recipe at its certified epsilon, three runs each, and docs/utility.md (fetches public data; one to two hours)
# make mutations put every deliberate bug into the code, see the test that catches it fail, write docs/mutations.md (minutes)
# make format    rewrite the code in the house format

PYTHON ?= python3
BIN := .venv/bin
WRITTEN := docs/models.md docs/mutations.md docs/utility.md
PAGES = $(filter-out $(WRITTEN),$(wildcard *.md docs/*.md docs/*/*.md))
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install demo check browser quick test test-full bench bench-utility mutations format clean

install: .venv/.installed
demo: install
check quick test test-full bench-utility mutations format: .venv/.installed
bench: .venv/.installed-bench

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.installed-bench: .venv/.installed
	$(PIP) install --constraint constraints.txt --editable '.[bench]'
	touch $@

demo:
	$(BIN)/discreet demo

check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/wrap_markdown.py --check $(PAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py

browser:
	@scripts/chromium > /dev/null

quick:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest --numprocesses auto -m 'not full and not slow' tests/unit tests/architecture

test: check browser
	$(BIN)/python -m pytest --numprocesses auto

test-full: check browser
	$(BIN)/python -m pytest --numprocesses auto -m 'full or not full'

bench:
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/attacks.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/sums.py
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/convolution.py
	$(BIN)/python -m benchmarks.agreement
	$(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.copies
	$(BIN)/python benchmarks/features.py
	$(BIN)/python -m benchmarks.ledger
	$(BIN)/python -m benchmarks.crashes --kills 1000
	$(BIN)/python -m benchmarks.damage --edits 10000
	$(BIN)/python benchmarks/interop.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python -m benchmarks.audits

bench-utility:
	$(BIN)/python -m benchmarks.utility fetch
	$(BIN)/python -m benchmarks.utility all --runs 3 --replace
	$(BIN)/python -m benchmarks.utility page

mutations:
	$(BIN)/python scripts/mutations.py --write

format:
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/python scripts/wrap_markdown.py $(PAGES)

clean:
	rm -rf .venv out
