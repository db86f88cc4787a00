#!/usr/bin/env bash
# Runs every test: under the race detector, unless tools/tests.txt says how else, and why.
# Prints one summary. `make test` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

# memory succeeds where 8 GiB are free in a file system in memory, which also lets programs start.
memory() {
	local kib
	for kib in "$(df --output=avail /dev/shm | tail -n 1)" "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)"; do
		[ "$kib" -ge $((8 << 20)) ] || return
	done
	! findmnt -n -o OPTIONS -T /dev/shm | grep -qw noexec
}

# Databases and journals sync their files all the time, which no test needs: none cuts the power.
# The folder's name is short, because the path of a socket has 107 bytes at most.
TMPDIR=$(mktemp -d -p "$(memory 2>/dev/null && echo /dev/shm || echo "${TMPDIR:-/tmp}")" t.XXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR" || true' EXIT
results=$TMPDIR/results
# The linters vet the code, and no debugger reads these binaries. Compilers and linkers, which end
# soon, take a fifth less time if they seldom collect their garbage.
testing=(go test -vet=off -ldflags='-s -w' -toolexec='env GOGC=400' -timeout 15m -json)

# Tests that run the command as a process share one.
mkdir -p .cache
go build -ldflags='-s -w' -o .cache/likeness ./cmd/likeness
export LIKENESS_TEST_BINARY=$PWD/.cache/likeness

# rows COLUMN WAY... prints a column of the table's lines of these ways.
rows() {
	awk -F '  +' -v column="$1" -v ways="${*:2}" 'index(" " ways " ", " " $1 " ") { print $column }' tools/tests.txt
}

# skipped PACKAGE TEST REASON reports tests that were left out, as go test -json does.
skipped() {
	printf '{"Action":"output","Package":"%s","Test":"%s","Output":"%s\\n"}\n{"Action":"skip","Package":"%s","Test":"%s"}\n' "$1" "$2" "$3" "$1" "$2"
}

# packages runs whole packages without the race detector. $(rows …) stands without quotes: packages are words.
packages() {
	local status=0
	"${testing[@]}" $(rows 2 plain soak) || status=1
	go -C tools/image test -timeout 5m -json ./... || status=1
	# Without the assembly, scoring 10,003 items takes as long as all the rest; TestBanking77 scores 77 by a trained mixture.
	"${testing[@]}" -tags noasm -skip '^TestBanking77Questions$' $(rows 2 noasm) || status=1
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
	while IFS=$'\t' read -r packages tests; do
		"${testing[@]}" -run "$tests" $packages </dev/null || status=1
	done < <(paste <(rows 2 also instead) <(rows 3 also instead))
	# The GPU scorer, on a driver whose kernels run on the CPU. `make gpu` assembles them too, which takes half a minute.
	local scorer=$PWD/.cache/likeness-gpu headers stub
	if headers=$(tools/gpu.sh headers) && stub=$(tools/gpu.sh stub) && tools/gpu.sh fake >/dev/null &&
		CGO_ENABLED=1 CGO_CFLAGS="-I$headers" CGO_LDFLAGS="-L$stub" go build -tags cuda -ldflags='-s -w' -o "$scorer" ./cmd/likeness-gpu; then
		LIKENESS_GPU=$scorer LIKENESS_GPU_DRIVERS=$PWD/.cache/cuda "${testing[@]}" -run '^TestGPU' ./e2e/serve || status=1
	else
		skipped ./e2e/serve TestGPU 'the headers of CUDA come from a wheel that pip could not fetch'
	fi
	return $status
}

status=0
"${testing[@]}" $(rows 2 beside) >"$results.beside" &
running=($!)
packages >"$results.packages" &
running+=($!)
tests >"$results.tests" &
running+=($!)
# One package more than processors: some of them wait for servers most of their time.
go list ./... | grep -vxF "$(go list $(rows 2 beside plain soak))" |
	xargs "${testing[@]}" -race -skip "$(rows 3 instead | paste -sd '|')" -p $(($(nproc) + 1)) >"$results" || status=1
for part in "${running[@]}"; do
	wait "$part" || status=1
done
cat "$results".{packages,tests,beside} >>"$results"
python3 tools/testreport.py <"$results" || status=1
# In CI each promise of docs/reference/reliability.md is shown by a test of this run.
if [ "${CI:-}" = true ]; then
	go run ./e2e/chaos/reliability -shown <"$results" || status=1
fi
exit $status
