#!/usr/bin/env bash
# Builds likeness-gpu on a machine with or without a GPU and does every check of it
# that needs no device: vet, lint, the PTX of the pinned compiler, which assembles for every
# generation of devices, what the binary says where there is no device, and, on a driver
# whose kernels run on the CPU, the conformance kit and bench/gpu/run.sh. What a sidecar does
# with that driver, as when the device is lost, is tested by `make test`. `make gpu` calls this,
# and with --build only builds bin/likeness-gpu.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/.cache/cuda
if ! headers=$(tools/gpu.sh headers) || ! stub=$(tools/gpu.sh stub) || ! tools/gpu.sh assemble; then
	echo 'gpu: not built and not checked: the headers and the assembler of CUDA come from wheels that pip could not fetch' >&2
	[ "${1:-}" != --build ] # a build that was asked for and not made is a failure
	exit
fi
export CGO_ENABLED=1 GOFLAGS=${GOFLAGS:--trimpath}
driver=(env CGO_CFLAGS="-I$headers" CGO_LDFLAGS="-L$stub") # for what links with it
"${driver[@]}" go build -tags cuda,cubins -ldflags "${LDFLAGS:-}" -o bin/likeness-gpu ./cmd/likeness-gpu
[ "${1:-}" != --build ] || exit 0

# What has files with the tag: the rest is vetted and linted without it, by `make lint`.
tagged=(./gpu/cuda ./cmd/likeness-gpu)
"${driver[@]}" go vet -tags cuda,cubins "${tagged[@]}"
if command -v golangci-lint >/dev/null; then
	"${driver[@]}" golangci-lint run --allow-parallel-runners --build-tags cuda,cubins "${tagged[@]}"
else
	echo 'gpu: not linted: golangci-lint is missing (make tools)' >&2
fi
tools/gpu.sh kernels --check

# Where there is no device it says so, and ends with 1: the sidecar reads that as none.
status=0
said=$(LD_LIBRARY_PATH=$stub bin/likeness-gpu serve 2>&1) || status=$?
case $status:$said in
1:*NoDevice*) ;;
*)
	printf 'gpu: without a device it ended with %s and said: %s\n' "$status" "$said" >&2
	exit 1
	;;
esac

fake=$(tools/gpu.sh fake)
go build -o "$cache/likeness" ./cmd/likeness
"${driver[@]}" LD_LIBRARY_PATH="$fake" go test -count=1 -tags cuda,cubins ./gpu/cuda
export LD_LIBRARY_PATH=$fake
"$cache/likeness" plugin check --timeout 2m --env LD_LIBRARY_PATH bin/likeness-gpu serve
# On a CPU its figures mean nothing.
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
CHECK_ROWS=100 CHECK_QUERIES=1 QUERIES=20 PYTHON=none BUDGET=3000 bench/gpu/run.sh "$results" -- --quick --rows 100 >"$results.said" 2>&1 || { cat "$results.said" >&2 && exit 1; }
rm "$results.said"
grep -q '20 of 20 queries: top 10 the same for 20' "$results/gpu.md"
files=$(cd "$results" && echo *)
[ "$files" = 'check.json gpu.json gpu.md gpu.svg run.log summary.txt' ] || { echo "gpu: run.sh left $files" >&2 && exit 1; }
echo 'gpu: ok; nothing here was run on a device'
