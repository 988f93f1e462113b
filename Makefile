# The habits of this project. Each target sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-slow lint types format bench docs clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/robustvit demo

test: setup
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: setup
	$(BIN)/pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/projection.py
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.autoattack zoo:digits-robust --data digits --eps-linf 0.12 --images 360 --norms linf l2 --alone

docs: setup
	$(BIN)/python docs/make_pictures.py

clean:
	rm -rf .venv build dist  # runs/ stays: it holds your models
