#!/usr/bin/env bash
# Installs the packages for building and testing, or prints the exact command if that is not
# allowed.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need cc gcc
need python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
need xz xz-utils
need valgrind valgrind
# Compiles policies (policies/*.c) for BPF.
need clang clang
need man man-db
need groff groff-base
need mandoc mandoc
need zsh zsh
need fish fish
PATH=$PATH:/usr/sbin:/sbin need mkfs.ext4 e2fsprogs
PATH=$PATH:/usr/sbin:/sbin need mkfs.xfs xfsprogs
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
[ -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 ] || missing+=(libc6-dev-arm64-cross)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing: ${missing[*]}" >&2
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "${missing[@]}" >/dev/null
    else
        echo "missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}" >&2
        case " ${missing[*]} " in
            *" gcc "*) exit 1 ;; # Every build needs a linker.
        esac
    fi
fi

# Only the tests of the HTML page need a browser. They report a missing one, and not every
# distribution packages it.
have() { command -v "$1" >/dev/null 2>&1; }
if ! have chromium && ! have chromium-browser && ! have google-chrome; then
    if [ "$(id -u)" -eq 0 ] && have apt-get && echo "installing: chromium" >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            chromium >/dev/null; then :; else
        echo "no browser: tests of the HTML page will skip. Run: sudo apt-get install chromium" >&2
    fi
fi

# Recording needs a QEMU with plugins, which some distributions do not package.
if ! scripts/qemu.sh find >/dev/null; then
    scripts/qemu.sh >/dev/null ||
        echo "no QEMU with plugins (above): folio record uses valgrind, 30 times slower" >&2
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "missing: cargo. Run: curl --proto '=https' -sSf https://sh.rustup.rs | sh" >&2
    exit 1
fi
