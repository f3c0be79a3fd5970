#!/usr/bin/env bash
# Checks a change while you work on it: formatting, clippy, and the tests of the crates that differ
# from BASE (default: the last commit, or the one before if nothing has changed since).
#   check.sh [BASE]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# Files outside the crates are tested by the crates that read them.
data=(kernels machines policies schemas studies tunings)
changed() {
    git diff --name-only "$1" -- crates "${data[@]}"
    git ls-files --others --exclude-standard crates "${data[@]}"
}
base=${1:-HEAD}
if [ $# -eq 0 ] && [ -z "$(changed HEAD)" ]; then base=HEAD~1; fi

readers() {
    sed -E -e 's,^crates/([^/]*)/.*,\1,' -e 's,^(kernels|machines|policies)/.*,sim,' \
        -e 's,^schemas/.*,cli,' -e 's,^studies/.*,lab,' -e 's,^tunings/.*,linux,'
}
mapfile -t crates < <(changed "$base" | readers | sort -u)
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
