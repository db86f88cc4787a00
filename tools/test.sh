#!/usr/bin/env bash
# Runs every test under the race detector, then the cases of 100,000 rows
# without it, and prints one summary. `make test` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

go vet ./...

results=$(mktemp)
trap 'rm -f "$results"' EXIT
status=0
go test -race -timeout 12m -json ./... >>"$results" || status=1
# The kit leaves this case out under the race detector.
go test -timeout 12m -json -run '/^100,000_rows$' ./adapters/... >>"$results" || status=1
python3 tools/testreport.py <"$results" || status=1
exit $status
