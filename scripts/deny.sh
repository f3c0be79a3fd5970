#!/usr/bin/env bash
# Checks the dependencies against deny.toml: licences, duplicate versions, sources, and known
# vulnerabilities if the RustSec database is available. Installs cargo-deny into target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
tools=$PWD/target/tools
deny=$tools/bin/cargo-deny
if [ "$("$deny" --version 2>/dev/null)" != "cargo-deny $version" ]; then
    ${CARGO:-cargo} install --quiet --locked --root "$tools" cargo-deny --version "$version"
fi
check() {
    "$deny" --log-level warn --workspace check --hide-inclusion-graph "$@"
}
check licenses bans sources
if said=$("$deny" fetch db 2>&1); then
    check advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/advisory-db-*/.git/HEAD" >/dev/null; then
    echo "known vulnerabilities: using an older RustSec database, because it could not be updated" >&2
    check --disable-fetch advisories
else
    echo "SKIPPED: known vulnerabilities: the RustSec database cannot be fetched (${said##*$'\n'}). Run where it can: scripts/deny.sh" >&2
fi
