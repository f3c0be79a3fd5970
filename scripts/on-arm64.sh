#!/usr/bin/env bash
# Runs the checks of the arm64 laboratory on this machine and writes the results to one file:
# largefolio-arm64-HOST.tar.gz in the current directory. docs/guide/arm64.md describes it.
#   on-arm64.sh [WORD]...   words for scripts/lab/checks.py, such as --only maps,warm
# In a checkout, builds folio and its tests first as the current user; the checks run as root. In a
# folder made by scripts/lab/bundle.py, runs that folder's programs. Changed settings are restored.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

die() {
    echo "on-arm64.sh: $*" >&2
    exit 2
}

[ "$(uname -m)" = aarch64 ] || die "this machine is $(uname -m); on x86-64 use: make lab"
command -v python3 >/dev/null || die "python3 is missing. Run: sudo apt-get install python3"
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "only root can read folio sizes, and sudo is missing"
    root=(sudo)
fi
bundle=$here
if [ ! -e "$here/checks.py" ]; then
    command -v cargo >/dev/null || die "cargo is missing. Install rustup, or copy a bundle here" \
        "(docs/guide/arm64.md)"
    command -v cc >/dev/null || die "a C compiler is missing. Run: sudo apt-get install gcc"
    bundle=$here/../target/arm64/bundle
    "$here/lab/bundle.py" "$bundle"
fi

host=$(uname -n)
host=${host//[^A-Za-z0-9._-]/_}
out=$(mktemp -d "${TMPDIR:-/var/tmp}/largefolio-arm64.XXXXXX")
trap '"${root[@]}" rm -rf --one-file-system "$out"' EXIT
trap 'exit 130' INT TERM
status=0
"${root[@]}" python3 "$bundle/checks.py" --bundle "$bundle" --out "$out/$host" "$@" || status=$?
[ -e "$out/$host/summary.json" ] || exit "$status"
"${root[@]}" tar -cz -C "$out" "$host" >"largefolio-arm64-$host.tar.gz"
echo "results: $PWD/largefolio-arm64-$host.tar.gz" >&2
exit "$status"
