#!/usr/bin/env bash
# Interprets the portable path of crates/bulk with Miri, which looks at every pointer it makes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1 \
    && ! rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1; then
    echo "SKIPPED: Miri. Run: rustup toolchain install nightly --component miri,rust-src" >&2
    exit 0
fi
# Vector instructions and guard pages are beyond an interpreter: tests/bulk/extents.rs is not for it.
cargo +nightly miri test --quiet -p largefolio-bulk --lib
cargo +nightly miri test --quiet -p largefolio-bulk --test bulk portable::
