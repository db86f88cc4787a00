#!/usr/bin/env bash
# Remakes proto/third_party, the schemas that ours imports, from the Go packages of
# them, in the versions that go.mod selects. With --check it only compares.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go google.golang.org/genproto/googleapis/api)
files=(buf/validate/validate.proto google/api/annotations.proto google/api/http.proto)

version() { awk -v p="$1" '$1 == p {print $2}' "$2"; } # version PACKAGE FILE

if [ "${1:-}" = --check ]; then
	for package in "${packages[@]}"; do
		ours=$(version "$package" go.mod) theirs=$(version "$package" tools/protorules/go.mod)
		if [ "$ours" != "$theirs" ]; then
			echo "$package: go.mod has $ours, tools/protorules/go.mod $theirs: run \`make proto-rules\`" >&2
			exit 1
		fi
	done
	for file in "${files[@]}"; do
		(cd tools/protorules && go run . "$file") | diff -u "proto/third_party/$file" - || { echo 'run `make proto-rules`' >&2; exit 1; }
	done
	exit
fi
for package in "${packages[@]}"; do
	(cd tools/protorules && go get "$package@$(version "$package" ../../go.mod)")
done
for file in "${files[@]}"; do
	mkdir -p "proto/third_party/$(dirname "$file")"
	(cd tools/protorules && go run . "$file") >"proto/third_party/$file.new"
	mv "proto/third_party/$file.new" "proto/third_party/$file"
done
