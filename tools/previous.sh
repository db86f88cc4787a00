#!/usr/bin/env bash
# previous.sh FOLDER: builds the version before this one into FOLDER/COMMIT, and prints
# that folder: the binary likeness, and faulty-plugin, a scorer of that version. The
# version before is the newest release tag that this commit comes after; until there is
# one, the commit in tools/previous.txt. Ends with 3 where the history does not reach
# that far, as in a shallow clone.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:?usage: previous.sh FOLDER}
mkdir -p "$out"
out=$(realpath "$out")
ref=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || cat tools/previous.txt)
commit=$(git rev-parse --verify --quiet "$ref^{commit}") || {
	shallow=
	[ "$(git rev-parse --is-shallow-repository 2>/dev/null)" != true ] || shallow="; the clone is shallow: git fetch --unshallow"
	echo "previous: the history does not have $ref$shallow" >&2
	exit 3
}
if [ ! -x "$out/$commit/likeness" ]; then
	source=$(mktemp -d)
	trap 'rm -rf "$source"' EXIT
	git archive --format=tar "$commit" | tar -x -C "$source"
	mkdir -p "$out/$commit"
	(cd "$source" &&
		go build -ldflags "-X main.version=0.0.0-previous -X main.commit=$commit" -o "$out/$commit/" ./cmd/likeness &&
		go build -o "$out/$commit/faulty-plugin" ./sidecar/plugins/faulty/plugin)
fi
echo "$out/$commit"
