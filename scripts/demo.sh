#!/usr/bin/env bash
# Records a real program of this machine and predicts it under several kernels and machines. Without
# a QEMU with plugins, predicts the trace in traces/ instead.
set -euo pipefail
folio=$(realpath "${1:-target/release/folio}")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if "$root/scripts/qemu.sh" find >/dev/null; then
    trace=$work/demo.folio
    compiler=$(cc -print-prog-name=cc1 2>/dev/null || true)
    if [ -x "$compiler" ]; then
        printf '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts("hello"); }\n' |
            cc -E -x c - -o "$work/demo.i"
        program=("$compiler" -quiet -O2 "$work/demo.i" -o /dev/null)
    else
        program=(python3 -c 'import json, re, argparse, collections; print(json.dumps({}))')
    fi
    "$folio" record --runs 3 -o "$trace" -- "${program[@]}"
else
    echo "no QEMU with plugins (get one: make qemu): using the shipped trace" >&2
    trace=$root/traces/demo.folio
fi

mkdir -p "$root/target"
"$folio" predict "$trace" --kernel 6.12,6.18,7.2 --machine altra,cascadelake --fs xfs \
    --report "$root/target/demo.html"
echo "the same with charts: $root/target/demo.html" >&2
