# largefolio. `make demo` and `make test` are all a newcomer needs: both install what is missing.

CARGO ?= cargo
FOLIO := target/release/folio

.PHONY: demo test bench build recordings traces setup clean

## Builds, records a real program of this machine, predicts it and prints the table.
demo: build
	scripts/demo.sh $(FOLIO)

## The whole gate: formatting, lints, floors and sizes, every test, benchmarks run small.
test: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) build --workspace --quiet
	$(CARGO) test --workspace
	scripts/python.sh
	python3 -m unittest discover --quiet -s scripts -t scripts
	scripts/docs.py --folio target/debug/folio --python target/python-venv/bin/python
	scripts/arm64.py
	scripts/miri.sh
	scripts/bench.py --smoke --folio target/debug/folio
	scripts/peers.py --smoke --folio target/debug/folio

## Recording and replay speed, trace size, peak memory (BASE=rev compares these); series 001 and 004 on
## this kernel and in the model; replay beside cachegrind, lackey and libCacheSim.
bench: build
	scripts/bench.py $(if $(BASE),--base $(BASE))
	scripts/peers.py

## Boots packaged kernels under QEMU and records what they do; what is recorded already is skipped.
recordings: build
	scripts/recordings/record.py --all

## Records the programs the studies replay; LARGE=1 records more of them into traces/large/.
traces: build
	scripts/traces.py --folio $(FOLIO) $(if $(LARGE),--large)

build: setup
	$(CARGO) build --release --workspace

setup:
	@scripts/setup.sh

clean:
	$(CARGO) clean
