#!/usr/bin/env bash
# Checks a change while you work on it: formatting, clippy, and the tests of the crates that differ
# from BASE (default: the last commit, or the one before if nothing has changed since).
#   check.sh [BASE]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

changed() { git diff --name-only "$1" -- crates; git ls-files --others --exclude-standard crates; }
base=${1:-HEAD}
if [ $# -eq 0 ] && [ -z "$(changed HEAD)" ]; then base=HEAD~1; fi

mapfile -t crates < <(changed "$base" | cut -d/ -f2 | sort -u)
selection=()
for crate in "${crates[@]}"; do
    [ ! -e "crates/$crate/Cargo.toml" ] || selection+=("--package=largefolio-$crate")
done

"$cargo" fmt --all --check
"$cargo" clippy --workspace --all-targets --quiet -- -D warnings
if [ ${#selection[@]} -eq 0 ]; then
    echo "check: no crate differs from $base; formatting and clippy passed"
    exit
fi
# The rules of the repository itself are always checked.
env --default-signal "$cargo" test --package largefolio-testkit "${selection[@]}"
echo "check: passed for ${crates[*]} (against $base); the gate is \`make test\`"
