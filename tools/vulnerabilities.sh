#!/usr/bin/env bash
# Looks for known vulnerabilities that the code can reach, in the modules and the toolchain. Not every network has
# their database: then it says that nothing was checked and passes; with --strict it fails. VULNDB names a copy of the
# database, as file:///path. `make vulnerabilities` and `make lint` call it.
set -euo pipefail
cd "$(dirname "$0")/.."

db=${VULNDB:-https://vuln.go.dev}
# A scan would find out only after it has read all code, and its tool takes a minute to build.
if [[ $db == http* ]] && ! python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=10).read()' "$db/index/db.json" 2>/dev/null; then
	echo "vulnerabilities: NOT RUN: the database at $db cannot be reached" >&2
	[ "${1:-}" != --strict ]
	exit
fi
make --no-print-directory "$PWD/.cache/tools/.built-supply"
"$PWD/.cache/tools/govulncheck" -db "$db" ./...
