#!/usr/bin/env bash
# Runs every test: most packages under the race detector and, beside them, what is run
# without: the official clients through the proxy, the cases of 100,000 rows, fits,
# commands and examples, plain Go kernels. Prints one summary. `make test` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

results=$(mktemp)
trap 'rm -f "$results" "$results".{packages,tests,clients}' EXIT
# The linters vet the code, and no debugger reads these binaries.
testing=(go test -vet=off -ldflags=-w -timeout 15m -json)
# What the clients do is one process after another, which wait for each other most of
# the time, so that they run beside everything else. The proxy's own tests look for races.
clients=e2e/harness
# The device's kernels run in a process of their own, built by the C++ compiler; archtest reads text.
alone='./gpu/kernels ./gpu/bench ./internal/archtest'
# Fits, commands, examples and the many shapes of a MoL would take most of the time under the race detector: `make soak` runs them with it.
fits='./learn/... ./rerank/mol ./cmd/... ./e2e/text ./python ./bench/... ./examples/...'
# The kit leaves one case out under the race detector. It lies at two depths.
large='^100,000_rows$'

# skipped PACKAGE TEST REASON reports tests that were left out, as go test -json does.
skipped() {
	printf '{"Action":"output","Package":"%s","Test":"%s","Output":"%s\\n"}\n{"Action":"skip","Package":"%s","Test":"%s"}\n' "$1" "$2" "$3" "$1" "$2"
}

# packages runs whole packages without the race detector.
packages() {
	local status=0
	"${testing[@]}" $alone $fits || status=1
	go -C tools/image test -timeout 5m -json ./... || status=1
	# Processors without the assembly score in plain Go.
	"${testing[@]}" -tags noasm ./rerank/scan ./rerank/kernel ./rerank/internal/inner ./rerank/bilinear ./rerank/mol || status=1
	# The assembly of arm64, where its processor can be emulated.
	if command -v qemu-aarch64 >/dev/null; then
		GOARCH=arm64 "${testing[@]}" -exec qemu-aarch64 ./rerank/kernel || status=1
	else
		skipped ./rerank/kernel arm64 'it takes qemu-aarch64 (Debian: qemu-user)'
	fi
	return $status
}

# tests runs single tests without the race detector, one package after the other: enough runs beside them.
tests() {
	local status=0 testing=("${testing[@]}" -p 1)
	"${testing[@]}" -run "^Test(Conformance|Milvus)/$large|^Test(Conformance|Milvus)/^(conformance|[0-9.]+)\$/$large" \
		./adapters/embedded ./adapters/qdrant ./adapters/milvus || status=1
	# What a reader costs and what it understands is tested in one goroutine, with nothing to race.
	"${testing[@]}" -run '^Test(CostOf|.*ReadsTheGrammar)' ./sidecar/server ./sidecar/server/gateway ./sidecar/proxy/{milvus,qdrant,wire} ./adapters/internal/filter || status=1
	# What measures memory, for which the race detector has no room.
	"${testing[@]}" -run '^(TestMemoryCeiling|TestBombsTogether|TestReceivedTogether)$' ./e2e/serve || status=1
	# What scores thousands of items by trained models.
	"${testing[@]}" -run '^Test(CertificatesOfTrainedModels|Questions)$' ./sidecar/search ./sidecar/calibrate || status=1
	# The GPU scorer, on a driver whose kernels run on the CPU.
	if tools/gpu-check.sh --build >&2 && tools/gpu.sh fake >/dev/null; then
		LIKENESS_GPU=$PWD/bin/likeness-gpu LIKENESS_GPU_DRIVERS=$PWD/.cache/cuda "${testing[@]}" -run '^TestGPU' ./e2e/serve || status=1
	else
		skipped ./e2e/serve TestGPU 'the headers of CUDA come from a wheel that pip could not fetch'
	fi
	return $status
}

status=0
"${testing[@]}" "./$clients" >"$results.clients" &
running=($!)
packages >"$results.packages" &
running+=($!)
tests >"$results.tests" &
running+=($!)
# One package more than processors: some of them wait for servers most of their time.
go list ./... | grep -vxF "$(go list "./$clients" $alone $fits)" | xargs "${testing[@]}" -race -p $(($(nproc) + 1)) >"$results" || status=1
for part in "${running[@]}"; do
	wait "$part" || status=1
done
cat "$results".{packages,tests,clients} >>"$results"
python3 tools/testreport.py <"$results" || status=1
# In CI each promise of docs/reference/reliability.md is shown by a test of this run.
if [ "${CI:-}" = true ]; then
	go run ./e2e/chaos/reliability -shown <"$results" || status=1
fi
exit $status
