#!/usr/bin/env bash
# Long runs: every fuzz target for FUZZTIME, then the property tests with many
# more cases (LIKENESS_SOAK), then the full quality figures of the shipped models.
# The results go to docs/benchmarks, or to SOAK_OUT.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-2m}
out=${SOAK_OUT:-docs/benchmarks}
mkdir -p "$out"
report=$out/soak.md
lines=()

note() { # note WHAT RESULT
	lines+=("| $1 | $2 |")
	printf '%-60s %s\n' "$1" "$2"
}

# fuzz PACKAGE_DIRECTORY TARGET
fuzz() {
	local log execs
	log=$(mktemp)
	if ! go test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		echo "soak: $1 $2 failed; Go kept the input in $1/testdata/fuzz" >&2
		rm -f "$log"
		return 1
	fi
	execs=$(grep -o 'execs: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
	rm -f "$log"
	note "fuzz $1 $2" "${execs:-0} inputs, none failed"
}

while IFS=: read -r file _ declaration; do
	fuzz "$(dirname "$file")" "$(grep -o 'Fuzz[A-Za-z0-9_]*' <<<"$declaration" | head -1)"
done < <(git grep -nE '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')
