#!/usr/bin/env bash
# Runs the portable path of crates/bulk under Miri, which checks every pointer.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1 \
    && ! rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1; then
    echo "SKIPPED: Miri. Run: rustup toolchain install nightly --component miri,rust-src" >&2
    exit 0
fi
# Miri supports neither vector instructions nor guard pages, so skip tests/bulk/extents.rs.
cargo +nightly miri test --quiet -p largefolio-bulk --lib
cargo +nightly miri test --quiet -p largefolio-bulk --test bulk portable::
