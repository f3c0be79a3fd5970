# largefolio. `make demo` and `make test` install what is missing.
#
# `make check` tests the crates you changed, `make test` is the gate, `make test-all` runs everything:
#
#   only in `make test-all`            because
#   rustdoc, cargo-deny                a tool and a pass over all crates of their own
#   clippy of tests, and for arm64     `make test` lints what is built for users, and the crates of assembly for arm64
#   every recording                    the gate replays one in ten, others for each commit; swapping, and that other
#                                      kernels' rules differ, only here
#   studies' numbers, calibrating      minutes; the gate calibrates once
#   cases of a property past 64        each run tries other ones (largefolio_testkit::cases)
#   long runs of random programs       ten times the programs, twenty times the damaged traces
#   1,000 random scripts               recorded, predicted and run plainly (`crosscheck run`); the gate judges some scripts
#   pages in a browser                 chromium; the gate checks their text
#   manual pages, completions          read by groff, mandoc, zsh and fish
#   wheel in a fresh environment       downloads and builds; `make test` tests the same module as cargo built it
#   notebook                           its numbers are those of `folio predict --json`, which has tests
#   commands of documents but README   minutes; verbs, options and links of all documents are checked
#   workloads, benchmarks              whole recordings of programs and services; speed needs an idle machine
#   Miri                               crates/bulk alone, interpreted
#   fuzzing guided by coverage         builds the parsers once more, instrumented; ten seconds for each
#   arm64: bulk, mm, trace, sim        their tests emulated
#   packages                           built, then installed, used and removed in fresh Debian roots; once from source
#   sweeps on S3 and under Slurm       workers in network namespaces of their own, a server, Slurm in a Debian root
#   arm64 laboratory                   boots kernels with 4K, 16K and 64K pages; builds folio and one of the kernels
#   dashboard of `folio maps`          runs Prometheus and node_exporter, which are packages of their own
#   remedies of `folio maps`           starts some thirty programs and changes the machine's settings;
#                                      of 500 random processes, the gate tries 12
#   mutants                            judge the tests: one in ten, others for each commit; `make test` checks that each has
#                                      its place in the code
#   Debian 13                          `make demo` and the tests of recordings in a root made for them

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
FOLIO := $(TARGET_DIR)/release/folio
PREFIX ?= /usr/local
BUILD ?= $(TARGET_DIR)/release
INSTALL = BUILD='$(BUILD)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh
TOOLS := target/tools
# What `make book` installs if it is missing.
MDBOOK := 0.5.4

.PHONY: demo check test test-model test-machine lints environment test-all arm64 miri lab bench build install uninstall deb wheels book recordings kernel kernel-try kernel-mutants traces policies setup qemu clean

## Builds folio quickly, records a real program of this machine, predicts it and prints the table.
demo:
	@scripts/setup.sh build
	$(CARGO) build --quiet --package largefolio-cli --package largefolio-recorder
	scripts/demo.sh $(TARGET_DIR)/debug/folio

## Formatting, clippy, and the tests of the crates that you changed since BASE (the last commit).
check:
	@scripts/check.sh $(BASE)

## The gate: formatting, clippy, every test, the Python package, the README's commands.
test: setup
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory lints environment
	$(CARGO) build --workspace --lib --bins --tests --quiet
	$(MAKE) --jobs=2 --output-sync=line --keep-going --no-print-directory test-model test-machine

# Tests interrupt what they start; a shell's background ignores that.
RUN_TESTS = env --default-signal $(CARGO) test --workspace --no-fail-fast
# Tests that start programs and change this machine's settings mostly wait. The others compute, so
# they run at the same time.
ON_MACHINE := cli files lab live record
TESTS := $(sort $(notdir $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs))))
test-model:
	$(RUN_TESTS) --lib --bins $(addprefix --test ,$(filter-out $(ON_MACHINE),$(TESTS)))
	$(CARGO) test --workspace --doc --quiet --no-fail-fast
	python3 -m unittest discover --quiet -s scripts -t scripts
test-machine:
	$(RUN_TESTS) $(addprefix --test ,$(ON_MACHINE))
	scripts/python.sh built
	scripts/docs.py README.md --folio target/debug/folio --python target/python-built/bin/python
	scripts/promises.py --random 12 --seed 1 --folio target/debug/folio

lints:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --quiet -- -D warnings
	scripts/arm64.py lint
# Mostly a download, so it happens beside the lints.
environment:
	@scripts/python.sh environment

## `make test` with every recording and case, and all that it leaves out (the list above).
test-all: export LARGEFOLIO_LANE = all
test-all:
	@scripts/setup.sh all
	$(MAKE) --no-print-directory test
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	scripts/deny.sh
	LARGEFOLIO_STEPS=600000 $(CARGO) test --workspace --test mm anon::random
	LARGEFOLIO_STEPS=30000 $(CARGO) test --workspace --test mm collapse::random
	LARGEFOLIO_FUZZ_ROUNDS=400000 $(CARGO) test --workspace --test trace hostile
	scripts/fuzz.py
	scripts/python.sh wheel
	scripts/docs.py --folio target/debug/folio --python target/python-wheel/bin/python
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory arm64 miri
	scripts/bench.py --smoke --folio target/debug/folio
	scripts/peers.py --smoke --folio target/debug/folio
	scripts/prometheus.py --folio target/debug/folio
	scripts/remedies.py --folio target/debug/folio
	scripts/promises.py --random 500 --seed 2 --folio target/debug/folio
	scripts/tasks.py --folio target/debug/folio
	scripts/workloads.py --folio target/debug/folio
	scripts/mutants.py --sample
	scripts/debian.sh trixie
	scripts/fresh.py --profile lab
	scripts/fresh.py bookworm-amd64 --source --profile lab
	scripts/cluster.py s3 --python $(TARGET_DIR)/python-wheel/bin/python
	scripts/cluster.py slurm --wheel "$$(ls -t $(TARGET_DIR)/wheels/largefolio-*_$$(uname -m).whl | head -1)"
	scripts/lab/lab.py --folio target/debug/folio

# Each runs on one CPU, so `make test-all` runs them side by side.
arm64:
	scripts/arm64.py all
miri:
	scripts/miri.sh

## Checks folio in emulated arm64 machines with base pages of 4K, 16K and 64K (docs/guide/arm64.md).
lab: build
	scripts/lab/lab.py --folio $(FOLIO)

## Recording and replay speed, trace size, peak memory (BASE=rev compares these); series 001 and 004 on
## this kernel and in the model; replay beside cachegrind, lackey and libCacheSim.
bench: build
	$(CARGO) build --release --package largefolio-lab
	scripts/bench.py $(if $(BASE),--base $(BASE))
	scripts/peers.py

## Boots packaged kernels under QEMU and records what they do; what is recorded already is skipped.
## KERNEL=NAME: builds a kernel of scripts/recordings/built/kernels.toml, boots it with its settings and
## records that one.
recordings: build
	$(CARGO) build --release --package largefolio-lab
	scripts/recordings/record.py $(or $(KERNEL),--all)
	$(if $(KERNEL),scripts/recordings/programs.py $(KERNEL))

## Debian packages of a kernel with the features of kernel/, in target/kernel (docs/guide/kernel.md).
## KERNEL=6.12; CONFIG=cloud, full, running, or a file; MODULES=all, loaded, or a file with the output of lsmod.
kernel:
	@scripts/kernel/debs.py $(or $(KERNEL),6.12) $(addprefix --config=,$(CONFIG)) $(addprefix --modules=,$(MODULES))

## Installs that package in a Debian root, boots it under QEMU, and runs programs with the settings off and on.
kernel-try: build
	$(CARGO) build --release --package largefolio-lab
	scripts/kernel/trial.py $(or $(KERNEL),6.12) --folio $(FOLIO)

## Builds kernels with small mistakes in kernel/ and records them: each must be noticed. Each takes minutes.
kernel-mutants: build
	$(CARGO) build --release --package largefolio-lab
	scripts/recordings/kernel_mutants.py

## Records the programs the studies replay; LARGE=1 records more of them into traces/large/.
traces: build
	scripts/traces.py --folio $(FOLIO) $(if $(LARGE),--large)

## Compiles policies/*.c and policies/posted/*.bpf.c again. llvm-strip leaves out what depends on the folder.
policies:
	for source in policies/*.c; do clang -O2 -target bpf -c $$source -o $${source%.c}.o || exit; done
	for source in policies/posted/*.bpf.c; do \
		clang -O2 -g -fdebug-compilation-dir=. -target bpf -I policies/posted -c $$source -o $${source%.c}.o && \
		llvm-strip --strip-debug --remove-section=.BTF.ext $${source%.c}.o || exit; done

## Programs, libraries, manual pages and completions, in target/release.
build:
	@scripts/setup.sh build
# The same selections as in python/build_backend, so that a wheel reuses this build.
	$(CARGO) build --release --package largefolio-cli --package largefolio-python --bin folio
	$(CARGO) build --release --package largefolio-recorder --package largefolio-preload --package largefolio-regions \
		--package largefolio-c
	@$(INSTALL) pages

## Copies what `make build` made below PREFIX (and DESTDIR); uninstall removes exactly that.
install uninstall:
	@$(INSTALL) $@

## Debian packages with the same files, for amd64 and arm64; wheels for both. ARCH=arm64: one of them.
deb: build
	scripts/package.py deb $(addprefix --arch=,$(ARCH))
wheels: setup
	scripts/package.py wheel $(addprefix --arch=,$(ARCH))

## The documentation as a site: target/book/index.html.
book:
	@PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH"; command -v mdbook >/dev/null || \
		$(CARGO) install --locked --root $(TOOLS) mdbook --version $(MDBOOK) \
			--no-default-features --features search
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" mdbook build docs

setup:
	@scripts/setup.sh test

## A QEMU that loads plugins, for `folio record`: the distribution's, else built from its source.
qemu:
	@scripts/qemu.sh

clean:
	$(CARGO) clean
