#!/usr/bin/env bash
# Installs the Python package into a fresh environment, runs its tests and the notebook. Builds with cargo's dev
# profile, so that what the gate has built already is used.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "SKIPPED: the Python package needs Python 3.10 or newer; set PYTHON" >&2
    exit 0
fi
environment=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python-venv
rm -rf "$environment"
"$python" -m venv "$environment"
pip=("$environment/bin/pip" --disable-pip-version-check --quiet)
# The same maturin and interpreter each time: what was built against them is not built again.
"${pip[@]}" install 'maturin>=1.16,<2'
PATH=$environment/bin:$PATH "${pip[@]}" install --no-compile --no-build-isolation --config-settings profile=dev './python[notebook,test]'
"$environment/bin/python" -m pytest -q -rs python/tests "$@"
"$environment/bin/python" scripts/notebook.py --folio "$environment/bin/folio"
