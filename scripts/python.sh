#!/usr/bin/env bash
# Tests the Python package.
#   python.sh environment   makes the environment of `built` if it is missing
#   python.sh built         with the module and programs that `cargo build` made
#   python.sh wheel         as a wheel, built and installed into a fresh environment, and the
#   notebook
# Further arguments are passed to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "SKIPPED: the Python package needs Python 3.10 or newer; set PYTHON" >&2
    exit 0
fi
mode=${1:-built}
shift || true
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python-built
[ "$mode" != wheel ] || environment=$target/python-wheel

fresh_environment() {
    rm -rf "$environment"
    "$python" -m venv "$environment"
}

pip() {
    "$environment/bin/pip" --disable-pip-version-check --quiet "$@"
}

# Prints pyproject.toml's requirements for the extra `test`, or for building, one per line.
requirements() {
    "$python" - "${1:-test}" <<'END'
import sys
try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib
whole = tomllib.load(open("python/pyproject.toml", "rb"))
project = whole["project"]
if sys.argv[1] == "build":
    print(*whole["build-system"]["requires"], sep="\n")
else:
    print(*project["dependencies"], *project["optional-dependencies"]["test"], sep="\n")
END
}

kept_environment() {
    local wanted
    wanted=$("$python" --version && requirements)
    if [ "$(cat "$environment/requirements" 2>/dev/null)" != "$wanted" ]; then
        fresh_environment
        requirements | pip install --requirement /dev/stdin
        echo "$wanted" >"$environment/requirements"
    fi
}

install_built() {
    local site folio
    site=$(echo "$environment"/lib/python3*/site-packages)
    folio=$site/largefolio/_folio
    rm -rf "$site/largefolio"
    cp -r python/largefolio "$site"
    mkdir -p "$folio/bin" "$folio/lib/largefolio" "$folio/share/largefolio/traces"
    ln "$target/debug/lib_native.so" "$site/largefolio/_native.abi3.so"
    ln "$target/debug/folio" "$folio/bin"
    ln "$target"/debug/liblargefolio_{recorder,preload,regions}.so "$folio/lib/largefolio"
    cp traces/*.folio "$folio/share/largefolio/traces"
    cp -r policies "$folio/share/largefolio"
    printf '#!%s\nfrom largefolio._command import main\nmain()\n' "$environment/bin/python" \
        >"$environment/bin/folio"
    chmod +x "$environment/bin/folio"
}

# Builds with cargo's dev profile, which reuses the tests' build.
install_wheel() {
    fresh_environment
    # Use the same maturin and interpreter each time, to avoid rebuilding.
    requirements build | pip install --requirement /dev/stdin
    PATH=$environment/bin:$PATH pip install --no-compile --no-build-isolation \
        --config-settings profile=dev './python[notebook,test]'
}

case $mode in
    environment) kept_environment && exit ;;
    built) kept_environment && install_built ;;
    wheel) install_wheel ;;
    *) echo "python.sh: environment, built or wheel?" >&2 && exit 2 ;;
esac
"$environment/bin/python" -m pytest -q -rs python/tests "$@"
if [ "$mode" = wheel ]; then
    "$environment/bin/python" scripts/notebook.py --folio "$environment/bin/folio"
fi
