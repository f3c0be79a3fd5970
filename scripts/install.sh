#!/usr/bin/env bash
# Installs the output of `make build`, and uninstalls it.
#   install.sh pages       manual pages, completions, changelog and third-party licences into DIST
#   install.sh list        the list of files: mode, source, target
#   install.sh install     below DESTDIR and PREFIX, with a list of it in lib/largefolio/installed
#   install.sh uninstall   removes the files in that list
#   install.sh deb         a Debian package of the same files (needs cargo-deb), and one with debug
#                          symbols, if they were built; TARGET: Rust's name of another architecture,
#                          PROFILE: the cargo profile of BUILD
# The list of files is the package's: [package.metadata.deb] in crates/cli/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=${BUILD:-target/release}
DIST=${DIST:-target/dist}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
built_qemus=$BUILD/../lib/largefolio/qemu-* # Built by scripts/qemu.sh.
record=$PREFIX/lib/largefolio/installed # List of installed files, below DESTDIR.

fail() {
    echo "install.sh: $*" >&2
    exit 2
}

pages() {
    [ -x "$BUILD/folio" ] || fail "$BUILD/folio is missing. Run: make build"
    rm -rf "$DIST"
    mkdir -p "$DIST/completions"
    "$BUILD/folio" man -o "$DIST/man"
    "$BUILD/folio" completions bash >"$DIST/completions/folio"
    "$BUILD/folio" completions zsh >"$DIST/completions/_folio"
    "$BUILD/folio" completions fish >"$DIST/completions/folio.fish"
    install -m 644 CHANGELOG.md "$DIST/changelog"
    sed "s/@VERSION@/$("$BUILD/folio" --version | cut -d' ' -f2)/" crates/c/largefolio.pc.in >"$DIST/largefolio.pc"
    scripts/third_party.py "$DIST/THIRD-PARTY.txt"
}

# Prints mode, source and target of every file, separated by tabs.
list() {
    local source target mode file files
    sed -n '/^assets = \[/,/^\]/p' crates/cli/Cargo.toml |
        sed -nE 's/^ *\["([^"]+)", "([^"]+)", "([0-7]+)"\],$/\1\t\2\t\3/p' |
        while IFS=$'\t' read -r source target mode; do
            case $source in
                target/release/*) source=$BUILD/${source#target/release/} ;;
                ../../target/dist/*) source=$DIST/${source#../../target/dist/} ;;
                ../../*) source=${source#../../} ;;
                *) fail "$source: not in the build or the repository" ;;
            esac
            mapfile -t files < <(compgen -G "$source" | LC_ALL=C sort)
            [ ${#files[@]} -gt 0 ] || fail "$source is missing. Run: make build"
            for file in "${files[@]}"; do
                printf '%s\t%s\t%s\n' "$mode" "$file" "$(placed "$target")$(basename "$file")"
            done
        done
}

# Maps a package directory to its place below PREFIX. Debian's zsh has a directory for packages; all
# others use site-functions.
placed() {
    local target=$PREFIX/${1#usr/}
    [ "$PREFIX" = /usr ] || target=${target/vendor-completions/site-functions}
    printf '%s' "$target"
}

check() {
    case $PREFIX in
        /*) ;;
        *) fail "PREFIX=$PREFIX is not an absolute path" ;;
    esac
    case "$PREFIX$DESTDIR" in
        *..* | *$'\n'* | *$'\t'*) fail "PREFIX and DESTDIR must not have .. in them" ;;
    esac
}

# Lists the directory and its missing parents, the topmost last.
missing() {
    local directory=$1
    while [ -n "$directory" ] && [ "$directory" != / ] && [ ! -d "$DESTDIR$directory" ]; do
        echo "d $directory"
        directory=$(dirname "$directory")
    done
}

make_directory() {
    local new
    new=$(missing "$1")
    [ -z "$new" ] && return
    install -d "$DESTDIR$1" || denied
    echo "$new" >>"$notes"
}

denied() {
    fail "cannot write below $DESTDIR$PREFIX. Run: sudo make install PREFIX=$PREFIX${DESTDIR:+ DESTDIR=$DESTDIR}, or choose another PREFIX"
}

install_all() {
    check
    [ -d "$DIST" ] && [ ! "$BUILD/folio" -nt "$DIST" ] || pages
    notes=$(mktemp)
    trap 'rm -f "$notes"' EXIT
    local plan mode source target strip=${STRIP:-strip}
    plan=$(list)
    make_directory "$PREFIX/lib/largefolio"
    while IFS=$'\t' read -r mode source target; do
        make_directory "$(dirname "$target")"
        install -m "$mode" "$source" "$DESTDIR$target" || denied
        case $target in
            *.a) ! command -v "$strip" >/dev/null || "$strip" --strip-debug "$DESTDIR$target" ;;
            */bin/* | *.so) ! command -v "$strip" >/dev/null || "$strip" --strip-unneeded "$DESTDIR$target" ;;
        esac
        echo "f $target" >>"$notes"
    done <<<"$plan"
    # QEMUs built for this checkout belong to no package.
    local qemu
    for qemu in $built_qemus; do
        [ -x "$qemu" ] || continue
        target=$PREFIX/lib/largefolio/${qemu##*/}
        install -m 755 "$qemu" "$DESTDIR$target" || denied
        echo "f $target" >>"$notes"
    done
    [ ! -e "$DESTDIR$record" ] || merge
    install -m 644 "$notes" "$DESTDIR$record"
    echo "installed below $DESTDIR$PREFIX: $(grep -c '^f ' "$notes") files" >&2
}

# Merges an earlier version's list: keeps its directories, removes its obsolete files.
merge() {
    local kind path
    while read -r kind path; do
        grep -qxF "$kind $path" "$notes" && continue
        case $kind in
            d) echo "d $path" >>"$notes" ;;
            f) remove "$path" ;;
        esac
    done <"$DESTDIR$record"
}

remove() {
    case $1 in
        *..*) ;;
        "$PREFIX"/*) rm -f "$DESTDIR$1" ;;
    esac
}

uninstall_all() {
    check
    [ -e "$DESTDIR$record" ] || fail "folio is not installed below $DESTDIR$PREFIX"
    [ -w "$DESTDIR$record" ] || fail "cannot write below $DESTDIR$PREFIX. Run: sudo make uninstall PREFIX=$PREFIX"
    local kind path directories=()
    while read -r kind path; do
        case $kind in
            f) remove "$path" ;;
            d) directories+=("$path") ;;
        esac
    done <"$DESTDIR$record"
    rm -f "$DESTDIR$record"
    # Remove created directories, deepest first, unless they have other contents.
    printf '%s\n' "${directories[@]}" | awk 'NF { print length, $0 }' | sort -rn | cut -d' ' -f2- |
        while read -r path; do
            rmdir "$DESTDIR$path" 2>/dev/null || true
        done
}

deb() {
    command -v cargo-deb >/dev/null || fail "cargo-deb is missing. Run: make deb"
    PREFIX=/usr
    local package expected packed sections words=(--profile "${PROFILE:-release}")
    words+=(--variant debian)
    [ -z "${TARGET:-}" ] || words+=(--target "$TARGET")
    words+=(--output "${CARGO_TARGET_DIR:-target}/debian/")
    # Do not pipe into grep -q: it would end readelf early, which fails at random with pipefail.
    sections=$(readelf --sections --wide "$BUILD/folio")
    if [[ $sections == *.debug_line* ]]; then
        words+=(--dbgsym --compress-debug-symbols=zlib)
    else
        words+=(--strip)
    fi
    package=$(cargo deb --package largefolio-cli --no-build --quiet "${words[@]}" | grep '\.deb$')
    scripts/packed.py deb "$package"
    expected=$(list | cut -f3 | sort)
    # The package compresses some files and has additional ones.
    packed=$(dpkg-deb --fsys-tarfile "$package" | tar -t | sed -n 's|^\.||; s|^/\{0,1\}|/|; /[^/]$/p' |
        sed 's|\.gz$||' | grep -vE '/(copyright|changelog\.Debian|lintian/overrides/largefolio)$' | sort)
    if ! diff <(echo "$expected") <(echo "$packed") >&2; then
        fail "$package has other files than make install (<)"
    fi
    [[ $sections != *.debug_line* ]] || check_symbols "$package"
    echo "$package"
}

# Checks that the symbol package has symbols for every program of the package.
check_symbols() {
    local name files build_id symbols
    name=$(basename "$1" .deb)
    symbols=$(dirname "$1")/${name/_/-dbgsym_}.ddeb
    files=$(dpkg-deb --fsys-tarfile "$symbols" | tar -t)
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    dpkg-deb --extract "$1" "$unpacked"
    for program in "$unpacked"/usr/bin/folio "$unpacked"/usr/lib/liblargefolio.so "$unpacked"/usr/lib/largefolio/*.so; do
        build_id=$(LC_ALL=C readelf --notes "$program" | sed -n 's/^ *Build ID: //p')
        [[ $files == *"/.build-id/${build_id:0:2}/${build_id:2}.debug"* ]] ||
            fail "$symbols has no symbols of $(basename "$program"), build id ${build_id:-none}"
    done
}

case ${1:-} in
    pages) pages ;;
    list) check && list ;;
    install) install_all ;;
    uninstall) uninstall_all ;;
    deb) deb ;;
    *) fail "pages, list, install, uninstall or deb?" ;;
esac
