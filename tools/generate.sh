#!/usr/bin/env bash
# Remakes what is generated: proto/gen, and the files that the code knows best
# (docs/reference, deploy/likeness.yaml). With --check it writes nothing into the
# tree and fails where the tree differs. docs/reference/compatibility.md takes real
# servers: tools/compatibility.sh makes it.
set -euo pipefail
cd "$(dirname "$0")/.."

generate() { # generate DIRECTORY
	buf generate -o "$1"
	go run ./cmd/likeness docs --dir "$1"
	buf build -o - | apidoc >"$1/docs/reference/api.md"
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
while IFS= read -r file; do
	diff -u "$file" "$out/$file" || status=1
done < <(cd "$out" && find deploy docs -type f)
if [ $status != 0 ]; then
	echo 'what is generated is out of date: run `make generate`' >&2
fi
exit $status
