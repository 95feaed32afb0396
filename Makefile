# Everything runs from a virtual environment in .venv; `make demo` and `make test` need nothing else.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,$(shell $(p) -c \
  'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= results/demo
JOBS ?= 2

.PHONY: setup demo test check slow bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "tightrope needs Python 3.11 or newer; none was found (try: make PYTHON=/path/to/python3.11)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $(STAMP)

demo: setup
	$(BIN)/tightrope run mars-rover --out $(OUT) --jobs $(JOBS) --resume

test: check
	$(BIN)/python -m pytest -n $(JOBS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: setup
	$(BIN)/python -m pytest -n $(JOBS) -m slow

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) results build src/*.egg-info
