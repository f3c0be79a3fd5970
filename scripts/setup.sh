#!/usr/bin/env bash
# Installs what a target of the Makefile needs, or prints the command that does.
#   setup.sh build   a compiler and QEMU: `make build`, `make demo`
#   setup.sh test    also what the gate's tests use: `make test`
#   setup.sh all     also what only `make test-all` uses: a browser, shells, formatters
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin

level=${1:-test}
case $level in build | test | all) ;; *) echo "setup.sh: build, test or all?" >&2 && exit 2 ;; esac

have() { command -v "$1" >/dev/null 2>&1; }
missing=()
need() { # command, Debian package
    have "$1" || missing+=("$2")
}
need cc gcc
need python3 python3
if [ "$level" != build ]; then
    # The Python package's tests make an environment of their own.
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    need g++ g++ # Programs that use the library.
    need pkg-config pkg-config
    need xz xz-utils
    need clang clang # Compiles policies for BPF.
    need llvm-strip llvm # Removes the paths of this machine from them.
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 ] || missing+=(libc6-dev-arm64-cross)
fi
if [ "$level" = all ]; then
    need man man-db
    need groff groff-base
    need mandoc mandoc
    need zsh zsh
    need fish fish
    have chromium-browser || have google-chrome || need chromium chromium
fi

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        echo "installing: ${missing[*]}" >&2
        apt-get update -qq
        # One by one if a distribution lacks one of them; the tests that need it say so.
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "${missing[@]}" >/dev/null ||
            for package in "${missing[@]}"; do
                DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                    "$package" >/dev/null || echo "not installed: $package" >&2
            done
    else
        echo "missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}" >&2
        case " ${missing[*]} " in
            *" gcc "*) exit 1 ;; # Nothing can be built without a linker.
        esac
    fi
fi

# Some distributions package no QEMU with plugins, which recording needs.
if ! scripts/qemu.sh find >/dev/null; then
    scripts/qemu.sh >/dev/null || echo "no QEMU with plugins (above): folio record will not work" >&2
fi

if ! have cargo; then
    echo "missing: cargo. Run: curl --proto '=https' -sSf https://sh.rustup.rs | sh" >&2
    exit 1
fi
