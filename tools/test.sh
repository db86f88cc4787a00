#!/usr/bin/env bash
# Runs every test under the race detector, the official clients through the proxy
# and the cases of 100,000 rows without it, and prints one summary. `make test`
# calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

go vet ./...

results=$(mktemp)
trap 'rm -f "$results"' EXIT
status=0
# What the clients do is one process after another; the proxy's own tests look for
# races.
clients=sidecar/proxy/harness
go list ./... | grep -v "/$clients\$" | xargs go test -race -timeout 12m -json >>"$results" || status=1
go test -timeout 12m -json "./$clients" >>"$results" || status=1
# The kit leaves one case out under the race detector. It lies at two depths.
large='^100,000_rows$'
go test -timeout 12m -json -run "^Test(Conformance|Milvus)/$large|^Test(Conformance|Milvus)/^(conformance|[0-9.]+)\$/$large" \
	./adapters/embedded ./adapters/qdrant ./adapters/milvus >>"$results" || status=1
# So do the fits, and what is learned of ten thousand questions.
go test -timeout 12m -json ./rerank/fit ./rerank/mol >>"$results" || status=1
# Processors without the assembly score in plain Go.
go test -tags noasm -timeout 12m -json ./rerank/scan ./rerank/kernel ./rerank/internal/inner ./rerank/bilinear ./rerank/mol >>"$results" || status=1
# The assembly of arm64, where its processor can be emulated.
if command -v qemu-aarch64 >/dev/null; then
	GOARCH=arm64 go test -exec qemu-aarch64 -timeout 12m -json ./rerank/kernel >>"$results" || status=1
else
	echo 'test: the kernels of arm64 were not run: it takes qemu-aarch64 (Debian: qemu-user)'
fi
python3 tools/testreport.py <"$results" || status=1
exit $status
