#!/usr/bin/env bash
# Follows README's instructions for newcomers in a fresh Debian, and runs the recording tests there.
#   debian.sh [SUITE] [WORD]...   SUITE: default trixie; WORD: demo, record, test (all of them);
#                                 default: demo and record
# Clones the committed state into a root made by mmdebstrap, with this machine's toolchain and
# downloaded crates, and removes the root at the end. Mounts and processes are in separate
# namespaces and end with the script. Needs root, mmdebstrap, 12 GB below TMPDIR, and 10 to 30
# minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
words=("${@:2}")
[ ${#words[@]} -gt 0 ] || words=(demo record)
for word in "${words[@]}"; do
    case $word in
        demo | record | test) ;;
        *) echo "debian.sh: $word: demo, record or test?" >&2 && exit 2 ;;
    esac
done

skip() {
    echo "SKIPPED: Debian $suite: $*" >&2
    exit 0
}

[ "$(id -u)" -eq 0 ] || skip "making its root needs root. Run: sudo scripts/debian.sh $suite"
for tool in mmdebstrap unshare chroot git rustc cargo; do
    command -v "$tool" >/dev/null || skip "$tool is missing. Run: apt-get install mmdebstrap git"
done
[ -z "$(git status --porcelain)" ] || echo "debian.sh: uncommitted changes are not tested" >&2

work=$(mktemp -d "${TMPDIR:-/var/tmp}/largefolio-debian.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root

echo "debian.sh: making a root of $suite" >&2
mmdebstrap --quiet --variant=essential --include=apt,ca-certificates,make,git "$suite" "$work/root.tar"
mkdir "$root"
tar -C "$root" -xf "$work/root.tar"
rm "$work/root.tar"
cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
# The network may use its own certificates.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

mkdir -p "$root/root/toolchain" "$root/root/.cargo/registry"
registry=${CARGO_HOME:-$HOME/.cargo}
for part in config.toml registry/cache registry/index; do
    [ ! -e "$registry/$part" ] || cp -r "$registry/$part" "$root/root/.cargo/$part"
done
git clone --quiet "file://$PWD" "$root/opt/largefolio"

cat >"$root/root/steps" <<'STEPS'
set -euo pipefail
cd /opt/largefolio
apt-get update -qq
for word in "$@"; do
    echo "debian.sh: $word" >&2
    began=$SECONDS
    case $word in
        demo) make demo ;;
        record)
            make setup
            cargo build --workspace --all-targets --quiet
            cargo test --workspace --test record
            ;;
        test) make test ;;
    esac
    echo "debian.sh: $word took $((SECONDS - began)) s" >&2
done
echo "debian.sh: recorded with $(scripts/qemu.sh find)" >&2
STEPS

# The toolchain is shared read-only. setsid, because a process group from outside has no number
# inside the namespace.
export root toolchain
toolchain=$(rustc --print sysroot)
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount --bind "$toolchain" "$root/root/toolchain"
    mount -o remount,bind,ro "$root/root/toolchain"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec setsid --wait chroot "$root" env -i HOME=/root LANG=C.UTF-8 TERM=dumb CARGO_INCREMENTAL=0 \
        PATH=/root/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash /root/steps "$@"' steps "${words[@]}"
