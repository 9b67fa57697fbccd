# Two commands are all you need: `make demo` and `make test`. Both set up what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per process: torch's threads spin at barriers when another process has the core.
export OMP_NUM_THREADS := 1
# Tests start many processes, each of which would compile all of gapsl.
unexport PYTHONDONTWRITEBYTECODE
# Three processes on two cores: many tests wait, for other processes and for time to pass. Tests that stand
# together stay together, so that what they share is made once.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal

.PHONY: demo demo-network test test-all soak lint types docs benchmark proto clean help

help:             ## Show what can be made.
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/.ready: pyproject.toml reproduction/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gapsl needs Python 3.11 or newer; run: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ./reproduction
	touch $@

demo: $(VENV)/.ready  ## Train five methods on real digits and compare them (a minute on 2 cores).
	@echo 'Ten devices, each with a few of the ten digits, train one model that is cut in'
	@echo 'two: five methods, 200 rounds each, one per core at a time. About a minute on two'
	@echo 'cores.'
	@rm -rf runs/demo
	$(BIN)/gapsl compare --methods psl,sfl,gapsl,frozen,papsl --dataset digits --devices 10 --partition dirichlet:0.1 \
	  --rounds 200 --evaluate-every 10 --lr 0.05 --out runs/demo --plots
	@echo
	@echo 'What you see: with PSL and GAPSL the client-side models drift apart, and devices'
	@echo 'fail on classes they do not have (mean), although they know their own (local). SFL'
	@echo 'averages them, which takes a parameter server. papsl gets there without: its'
	@echo 'devices agree on common probe images. Pictures: runs/demo; what to try next:'
	@echo 'docs/tutorial.md.'

demo-network: $(VENV)/.ready  ## The same digits over the network: a server and ten device processes.
	rm -rf runs/demo-network
	$(BIN)/gapsl fleet up --devices 10 --set method=gapsl --set dataset=digits --set partition=dirichlet:0.1 \
	  --set rounds=100 --set evaluate_every=25 --set server_optimizer.lr=0.05 --set device_optimizer.lr=0.05 \
	  --out runs/demo-network --wait
	$(BIN)/gapsl replay runs/demo-network/run --quiet

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.ready
	$(BIN)/mypy

test: lint types  ## Lint, types and the tests (about 8 minutes on 2 idle cores).
	$(PYTEST) -m 'not slow'

test-all: lint types  ## The same with the slow tests.
	$(PYTEST)

soak: $(VENV)/.ready  ## A fleet of processes under kills, cuts, stalls, bad frames, 100 devices (an hour).
	$(BIN)/pytest tests/integration/test_network_*.py tests/integration/test_parameter_server.py \
	  tests/integration/test_mutual_tls.py tests/integration/test_fuzz.py -rs

docs: $(VENV)/.ready  ## Build the documentation as a site: docs/_build/index.html.
	$(BIN)/sphinx-build -W --keep-going -q -j auto docs docs/_build

benchmark: $(VENV)/.ready  ## Measure a round, cores and a thousand devices against bare torch; run it alone.
	$(BIN)/python benchmarks/round.py
	$(BIN)/python benchmarks/round.py --batch-size 16 --repeat 25
	$(BIN)/python benchmarks/scale.py --ray
	$(BIN)/python benchmarks/growth.py

# Messages of this protoc load on protobuf 6.33 and 7; newer ones refuse 6.
proto:            ## Generate the messages of src/gapsl/network/protocol/wire.proto again.
	$(PYTHON) -m venv $(VENV)/proto
	$(VENV)/proto/bin/pip install --quiet grpcio-tools==1.81.1
	$(VENV)/proto/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src gapsl/network/protocol/wire.proto

clean:            ## Remove what was built; runs/ stays.
	rm -rf $(VENV) build dist docs/_build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
