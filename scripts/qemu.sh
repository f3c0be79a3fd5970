#!/usr/bin/env bash
# Gets QEMUs with plugins, which `folio record` needs, for this machine's programs and for arm64
# programs: the distribution's package if it supports plugins, otherwise built from the
# distribution's source package.
#   qemu.sh        prints the first one's path; gets both if one is missing
#   qemu.sh find   prints the first one's path; exit status 1 if one is missing
# Built QEMUs are placed next to folio's libraries: target/lib/largefolio in a checkout, otherwise
# the script's own directory. Building needs 500 MB for a few minutes; only packages need root.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
if [ -e "$here/../Cargo.toml" ]; then
    place=$(cd "$here/.." && realpath -m "${CARGO_TARGET_DIR:-target}")/lib/largefolio
    again="make qemu"
else
    place=$here
    again=$here/qemu.sh
fi
names=("qemu-$(uname -m)")
[ "${names[0]}" = qemu-aarch64 ] || names+=(qemu-aarch64)
home=$(getent passwd "$(id -u)" | cut -d: -f6)
[ -z "${XDG_CACHE_HOME:-}" ] || [ ! -O "${XDG_CACHE_HOME}" ] || cache=$XDG_CACHE_HOME
work=${cache:-$home/.cache}/largefolio/qemu
# Options for configure, if it knows them. Recording needs nothing that they disable.
targets=${names[*]/#qemu-/}
options=(--target-list="${targets// /-linux-user,}-linux-user" --enable-plugins --without-default-features
    --enable-linux-user --disable-system --disable-tools --disable-docs --disable-guest-agent
    --disable-werror --disable-debug-info --disable-install-blobs --disable-download)
# Build dependencies, by their Debian and Ubuntu names.
packages=(dpkg-dev gcc libc6-dev libglib2.0-dev meson ninja-build pkg-config python3 python3-venv)

fail() {
    echo "qemu.sh: $*" >&2
    exit 2
}

say() {
    echo "qemu.sh: $*" >&2
}

# Returns whether a QEMU loads plugins: one with plugins fails to open this file, others refuse the
# option.
has_plugins() {
    local said
    said=$("$1" -plugin /nonexistent/largefolio-probe.so /nonexistent/program 2>&1 >/dev/null) || true
    case $said in
        *"plugin interface not enabled"* | *"unknown option 'plugin'"* | *Usage:* | "") return 1 ;;
    esac
}

# Finds a QEMU in the same places as `folio record`.
find_one() {
    local path named=${LARGEFOLIO_QEMU:-}
    [ "$1" != qemu-aarch64 ] || named=${LARGEFOLIO_QEMU_AARCH64:-}
    if [ -n "$named" ]; then
        [ -x "$named" ] && has_plugins "$named" && echo "$named"
        return
    fi
    for path in "$(command -v "$1" || true)" "$place/$1"; do
        if [ -x "$path" ] && has_plugins "$path"; then
            echo "$path"
            return
        fi
    done
    return 1
}

find_qemu() {
    local name
    for name in "${names[@]:1}"; do
        find_one "$name" >/dev/null || return
    done
    find_one "${names[0]}"
}

is_root() {
    [ "$(id -u)" -eq 0 ]
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
            installed) ;;
            *) missing+=("$package") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    is_root || fail "packages are missing. Run: sudo apt-get install ${missing[*]}; then again: $again"
    say "installing: ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null
}

# Writes an apt configuration with this distribution's sources, whatever the system's has; lists and
# downloads are below $work.
write_configuration() {
    local id keyring targets
    # shellcheck disable=SC1091
    id=$(. /etc/os-release && echo "$ID")
    keyring=/usr/share/keyrings/$id-archive-keyring.gpg
    # shellcheck disable=SC2016
    targets=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' | grep -i "^$id " | sort -u) ||
        fail "apt-get knows no packages of $id. Run: sudo apt-get update; then again: $again"
    rm -f "$work/deb.sources"
    while read -r _ uri release component; do
        printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: %s\n' "$uri" "$release" "$component"
        [ ! -e "$keyring" ] || echo "Signed-By: $keyring"
        echo
    done <<<"$targets" >"$work/deb.sources"
    cat >"$work/apt.conf" <<CONFIGURATION
Dir::Etc::SourceList "$work/deb.sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONFIGURATION
}

# Downloads and unpacks the source. apt checks signature and checksums; existing files are kept.
get_source() {
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    write_configuration
    say "1 of 3: downloading the source of QEMU, about 40 MB"
    (
        cd "$work"
        apt-get -c="$work/apt.conf" update -qq
        apt-get -c="$work/apt.conf" source --only-source --download-only qemu >&2
    ) || fail "the source of QEMU cannot be downloaded. Check the network, then again: $again"
    local description
    description=$(ls -t "$work"/qemu_*.dsc | head -1)
    if [ "$(cat "$work/unpacked" 2>/dev/null)" != "$description" ]; then
        rm -rf "$work/source" "$work/build" "$work/unpacked"
        # Drop the warning about a missing key: apt has checked the signature of the checksums.
        dpkg-source -q -x "$description" "$work/source" >/dev/null
        echo "$description" >"$work/unpacked"
    fi
}

known_options() {
    local help option
    help=$("$work/source/configure" --help 2>&1) || true
    for option in "${options[@]}"; do
        local name=${option%%=*}
        case $help in
            *"${name#--*able-}"* | *"$name"*) printf '%s\n' "$option" ;;
        esac
    done
}

build() {
    local configured
    mkdir -p "$work/build"
    cd "$work/build"
    if [ ! -e build.ninja ]; then
        say "2 of 3: configuring"
        mapfile -t configured < <(known_options)
        ../source/configure "${configured[@]}" >configure.log 2>&1 || {
            tail -20 configure.log >&2
            fail "QEMU cannot be configured: $work/build/configure.log"
        }
    fi
    say "3 of 3: compiling, one to five minutes"
    ninja "${names[@]}" >&2 || fail "QEMU does not compile; the compiled files stay in $work"
    local name
    for name in "${names[@]}"; do
        has_plugins "./$name" || fail "$work/build/$name was built without plugins"
    done
}

# Moves it into place atomically, and adds it to the list for `make uninstall`.
install_built() {
    local name own
    for name in "${names[@]}"; do
        own=$place/$name
        strip -o "$own.new" "$work/build/$name"
        mv -f "$own.new" "$own"
        if [ -e "$place/installed" ] && ! grep -qxF "f $own" "$place/installed"; then
            echo "f $own" >>"$place/installed"
        fi
    done
    rm -rf "$work"
}

interrupted() {
    trap - INT TERM
    local name
    for name in "${names[@]}"; do rm -f "$place/$name.new"; done
    [ ! -d "$work" ] || say "interrupted; to continue: $again; to discard it: rm -r $work"
    exit 130
}

get_qemu() {
    command -v apt-get >/dev/null || fail "this script builds only Debian's and Ubuntu's QEMU." \
        "Build QEMU with: ${options[*]:0:2}, and name its qemu-x86_64 in LARGEFOLIO_QEMU, qemu-aarch64 in LARGEFOLIO_QEMU_AARCH64"
    mkdir -p "$place" 2>/dev/null && [ -w "$place" ] || fail "cannot write to $place. Run: sudo $again"
    trap interrupted INT TERM
    ! is_root || apt-get update -qq
    # In all of these distributions, a dynamically linked QEMU has plugins; a static one cannot.
    local depends
    depends=$(apt-cache depends qemu-user 2>/dev/null) || depends=
    if [[ $depends == *"Depends: libglib"* ]]; then
        install_packages qemu-user
        ! find_qemu || return 0
    fi
    mkdir -p "$(dirname "$work")"
    (umask 077 && mkdir -p "$work")
    install_packages "${packages[@]}"
    get_source
    build
    install_built
    find_qemu || fail "the QEMU built in $place does not load plugins"
}

case ${1:-get} in
    find) find_qemu ;;
    get) find_qemu || get_qemu ;;
    *) fail "nothing, or find?" ;;
esac
