#!/usr/bin/env bash
# Builds likeness-gpu on a machine with or without a GPU and does every check of it
# that needs no device: vet, lint, the PTX of the pinned compiler, what it says where
# there is no device, and the conformance kit, through the sidecar's own plugin
# protocol, on a driver whose kernels run on the CPU. `make gpu` calls it, and with
# --build only builds bin/likeness-gpu.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/.cache/cuda
if ! headers=$(tools/gpu.sh headers) || ! stub=$(tools/gpu.sh stub); then
	echo 'gpu: not built and not checked: the headers of CUDA come from a wheel that pip could not fetch' >&2
	[ "${1:-}" != --build ] # a build that was asked for and not made is a failure
	exit
fi
export CGO_ENABLED=1 CGO_CFLAGS="-I$headers" CGO_LDFLAGS="-L$stub" GOFLAGS=${GOFLAGS:--trimpath}
go build -tags cuda -ldflags "${LDFLAGS:-}" -o bin/likeness-gpu ./cmd/likeness-gpu
[ "${1:-}" != --build ] || exit 0

# What has files with the tag: the rest is vetted and linted without it, by `make lint`.
tagged=(./gpu/cuda ./cmd/likeness-gpu)
go vet -tags cuda "${tagged[@]}"
if command -v golangci-lint >/dev/null; then
	golangci-lint run --allow-parallel-runners --build-tags cuda "${tagged[@]}"
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
export LD_LIBRARY_PATH=$fake
"$cache/likeness" plugin check --timeout 2m --env LD_LIBRARY_PATH bin/likeness-gpu serve
bin/likeness-gpu check --rows 300 --queries 2 2>/dev/null
bin/likeness-gpu bench --quick --rows 200 2>/dev/null >/dev/null # on a CPU its figures mean nothing
echo 'gpu: ok; nothing here was run on a device'
