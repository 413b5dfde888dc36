# Every target sets up what it needs; nothing has to be installed by hand but Python 3.11, make and a C compiler.
PYTHON ?= python3.11
BIN := .venv/bin
DEMO_OUTPUT ?= demo_output

.PHONY: setup demo test lock clean

setup: .venv/ready

.venv/ready: requirements.lock setup.py pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on the path: install it, or run make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[^ ]+' requirements.lock)"
	$(BIN)/uv pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	mkdir -p .venv/types/labeldp
	for room in mechanisms transforms pipelines; do ln -s ../../../$$room .venv/types/labeldp/$$room; done
	@touch $@

demo: setup
	rm -rf $(DEMO_OUTPUT)
	$(BIN)/labeldp demo --output $(DEMO_OUTPUT)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Renews requirements.lock from setup.py, with hashes, for Python 3.11.
lock: setup
	$(BIN)/uv pip compile -q --upgrade setup.py --extra tfx --extra evaluation --extra yaml --extra dev --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements.lock

clean:
	rm -rf .venv $(DEMO_OUTPUT)
