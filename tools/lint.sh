#!/usr/bin/env bash
# Every check that is not a test; it goes on after a failure, so that one run
# shows all of them. `make lint` calls it with the tools in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
check() { # check NAME COMMAND...
	local name=$1
	shift
	if "$@"; then
		echo "ok    $name"
	else
		echo "FAIL  $name"
		failed+=("$name")
	fi
}

# These run where a failure does not end the script: chain commands with &&.
formatted() { # every Go file but the generated
	local files
	files=$(git ls-files '*.go' ':!proto/gen' | xargs -r gofmt -l) && [ -z "$files" ] || { printf 'not formatted by gofmt:\n%s\n' "$files"; return 1; }
}

tidy() {
	go mod tidy -diff && (cd tools/protorules && go mod tidy -diff && go vet ./...)
}

# compatible: the schema breaks no client of the committed baseline.
compatible() {
	buf build --exclude-source-info -o .cache/schema.binpb &&
		buf breaking .cache/schema.binpb --against proto/baseline.binpb
}

# chart: Helm renders it to what is committed, which Kubernetes and likeness accept.
chart() {
	(cd tools/helm && go vet ./... && go test -count=1 ./...) # the chart is no input that go test knows
}

mkdir -p .cache
check gofmt formatted
check "go mod tidy" tidy
check golangci-lint golangci-lint run --allow-parallel-runners ./... # another clone's run is no failure
check gpu tools/gpu-check.sh
check "go vet, arm64" env GOARCH=arm64 go vet ./rerank/... ./learn/fit/...
check "buf lint" buf lint
check "buf breaking" compatible
check "proto rules" tools/proto-rules.sh --check
check generated tools/generate.sh --check
check chart chart
check figures go -C tools run ./figures -root .. -check
check "planted defects" go -C tools run ./mutants -root .. -check
check hadolint tools/hadolint.sh
check vulnerabilities tools/vulnerabilities.sh
check "instruction counts" tools/instructions.sh

if [ ${#failed[@]} != 0 ]; then
	echo "lint: failed: ${failed[*]}" >&2
	exit 1
fi
