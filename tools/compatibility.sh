#!/usr/bin/env bash
# Runs the conformance kit against every store and server and remakes
# docs/reference/compatibility.md from the outcomes. `make compatibility` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

outcomes=$PWD/.cache/compatibility.jsonl
mkdir -p .cache
rm -f "$outcomes"
LIKENESS_COMPATIBILITY=$outcomes go test -count 1 -timeout 20m ./adapters/...
go run ./adapters/adaptertest/compatibility <"$outcomes" >docs/reference/compatibility.md.new
mv docs/reference/compatibility.md.new docs/reference/compatibility.md
