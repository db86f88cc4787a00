#!/usr/bin/env bash
# Remakes what is generated: proto/gen and the pages of docs/reference that the
# code knows best. With --check it writes nothing into the tree and fails where
# the tree differs.
set -euo pipefail
cd "$(dirname "$0")/.."

generate() { # generate DIRECTORY
	mkdir -p "$1/docs/reference"
	buf generate -o "$1"
	go run ./cmd/likeness config schema >"$1/docs/reference/config.schema.json"
	go run ./cmd/likeness config schema --markdown >"$1/docs/reference/config.md"
}

if [ "${1:-}" != --check ]; then
	generate .
	exit
fi
out=$PWD/.cache/generated
rm -rf "$out"
generate "$out"
status=0
diff -ru "$out/proto/gen" proto/gen || status=1
for page in "$out"/docs/reference/*; do
	diff -u "docs/reference/$(basename "$page")" "$page" || status=1
done
if [ $status != 0 ]; then
	echo 'what is generated is out of date: run `make generate`' >&2
fi
exit $status
