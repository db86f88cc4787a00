#!/usr/bin/env bash
# Runs the conformance kit against every store and server and remakes
# docs/reference/compatibility.md and proxy.md from the outcomes. `make compatibility` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

outcomes=$PWD/.cache/compatibility.jsonl
mkdir -p .cache
rm -f "$outcomes"
LIKENESS_COMPATIBILITY=$outcomes go test -count 1 -timeout 20m ./adapters/...
go run ./adapters/adaptertest/compatibility <"$outcomes" >docs/reference/compatibility.md.new
{ echo; go -C tools run ./versions -root .. -page; } >>docs/reference/compatibility.md.new
mv docs/reference/compatibility.md.new docs/reference/compatibility.md

# The official clients through the proxy, on every version.
outcomes=$PWD/.cache/proxy-conformance.jsonl
rm -f "$outcomes"
LIKENESS_PROXY_CONFORMANCE=$outcomes go test -count 1 -timeout 30m -run 'Clients$' ./e2e/harness
go run ./e2e/harness/page <"$outcomes" >docs/reference/proxy.md.new
mv docs/reference/proxy.md.new docs/reference/proxy.md
