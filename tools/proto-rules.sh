#!/usr/bin/env bash
# Remakes proto/third_party/buf/validate/validate.proto from the Go package of
# protovalidate's rules, in the version that go.mod selects. With --check it
# only compares.
set -euo pipefail
cd "$(dirname "$0")/.."

package=buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go
file=proto/third_party/buf/validate/validate.proto

version() { awk -v p="$package" '$1 == p {print $2}' "$1"; }

if [ "${1:-}" = --check ]; then
	if [ "$(version go.mod)" != "$(version tools/protorules/go.mod)" ]; then
		echo "protovalidate's rules: go.mod has $(version go.mod), tools/protorules/go.mod $(version tools/protorules/go.mod): run \`make proto-rules\`" >&2
		exit 1
	fi
	(cd tools/protorules && go run .) | diff -u "$file" - || { echo 'run `make proto-rules`' >&2; exit 1; }
	exit
fi
(cd tools/protorules && go get "$package@$(version ../../go.mod)")
(cd tools/protorules && go run .) >"$file.new"
mv "$file.new" "$file"
