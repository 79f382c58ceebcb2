# Thin names for one command each. `make demo` and `make test` do all their own set-up.
PY ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-compose bench soak mutants lint protos clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PY) >/dev/null || { echo "$(PY) was not found: install Python 3.11 or newer, or say PY=/path/to/python3"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Python {sys.version.split()[0]} is too old: install 3.11 or newer, or say PY=/path/to/python3.11")'
	$(PY) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt 'pip>=24' 'setuptools>=77'
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/stateroom demo $(if $(TRACE),--trace '$(TRACE)')

test: setup
	$(BIN)/python -m pytest

# STATEROOM_IMAGE names an image that is there already; without it the image is built first.
COMPOSE = $(shell command -v docker-compose || echo docker compose)
test-compose: setup
	$(if $(STATEROOM_IMAGE),,$(COMPOSE) build)
	$(BIN)/python -m pytest tests/compose -rs

bench: setup
	$(BIN)/python -m benchmarks.step

# Longer than `make test` has time for: more random events, larger worlds.
soak: setup
	STATEROOM_SOAK=1 $(BIN)/python -m pytest tests/scheduler -k 'naive or exhaustive or random' --timeout 3600 -s

mutants: setup
	$(BIN)/mutmut run --max-children $$(nproc) >mutants.log 2>&1 || true
	$(BIN)/mutmut results | sort

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && cd protos && ../$(BIN)/buf lint

protos: setup
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=. --grpc_python_out=. \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --mypy_out=. \
	  --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --mypy_grpc_out=. \
	  protos/stateroom/v1/*.proto

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
