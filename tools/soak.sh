#!/usr/bin/env bash
# Long runs: every fuzz target for FUZZTIME; then, unless LONG=0, the official
# clients and random messages through the proxy, a snapshot, the long form of every
# test that has one (LIKENESS_SOAK: chaos for CHAOS_FOR, sidecars and builds that are
# killed again and again, versions switched under load), and the quality figures of
# the shipped models over every query. The results go to docs/benchmarks, or to
# SOAK_OUT: each line of soak.json has its day, and LONG=0 leaves those of the long
# runs as they were; what tests log for docs/reference/reliability.md goes to reliability.json.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-2m}
out=${SOAK_OUT:-docs/benchmarks}
mkdir -p "$out"
report=$out/soak.json
lines=()

note() { # note WHAT RESULT
	lines+=("{\"run\": \"$1\", \"result\": \"$2\", \"day\": \"$(date -u +%F)\"}")
	printf '%-60s %s\n' "$1" "$2"
}

# fuzz_for TIME BINARY PACKAGE_DIRECTORY TARGET: without a bound on it, what a server's
# answer depends on would spend most of a run on making interesting inputs shorter.
fuzz_for() {
	(cd "$3" && "$2" -test.run '^$' -test.fuzz "^$4\$" -test.fuzztime "$1" -test.fuzzminimizetime 100x -test.fuzzcachedir "$kept/$3") 2>&1 </dev/null
}

# fuzz BINARY PACKAGE_DIRECTORY TARGET
fuzz() {
	local log execs status=0
	log=$(mktemp)
	fuzz_for "$fuzztime" "$@" >"$log" || status=1
	# Go ends with this error, and no input, where the time is over before it has tried the inputs that it keeps.
	if [ $status = 1 ] && grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; then
		status=0
		fuzz_for 20s "$@" >"$log" || status=1
	fi
	if [ $status = 1 ]; then
		cat "$log" >&2
		echo "soak: $2 $3 failed; Go kept the input in $2/testdata/fuzz" >&2
		rm -f "$log"
		return 1
	fi
	execs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -1) # none on a machine too busy to report
	rm -f "$log"
	note "fuzz $2 $3" "${execs:-0} inputs in $fuzztime, none failed"
}

# fuzz_all: every target; a package is built and linked once for all of its own.
fuzz_all() {
	local binaries package binary
	binaries=$(mktemp -d)
	kept=$(go env GOCACHE)/fuzz/likeness
	while IFS=: read -r file _ declaration; do
		package=$(dirname "$file") binary=$binaries/${package//\//_}
		[ -x "$binary" ] || go test -c -fuzz . -o "$binary" "./$package"
		fuzz "$binary" "$package" "$(grep -o 'Fuzz[A-Za-z0-9_]*' <<<"$declaration" | head -1)"
	done < <(git grep -nE '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')
	rm -rf "$binaries"
}

fuzz_all

through_the_proxy() {
	local log
	# The official clients on every version, and 100,000 random messages.
	log=$(mktemp)
	if ! LIKENESS_PROXY_CONFORMANCE=$log.jsonl LIKENESS_CROSSINGS=100000 go test -count 1 -v -timeout 60m ./e2e/harness >"$log" 2>&1; then
		cat "$log" >&2
		exit 1
	fi
	note "random messages through the proxy" "$(sed -n 's/.*: \([0-9]* random messages .*\)/\1/p' "$log")"
	note "official clients through the proxy" "$(grep -c . "$log.jsonl") clients and versions, no difference"
	rm -f "$log" "$log.jsonl"

	# A real snapshot of about 1.1 GB up and down through a proxy of its own process.
	log=$(mktemp)
	if ! LIKENESS_SNAPSHOT_ROWS=${SNAPSHOT_ROWS:-350000} go test -count 1 -v -timeout 60m -run '^TestSnapshotsAreStreamed$' ./sidecar/proxy >"$log" 2>&1; then
		cat "$log" >&2
		exit 1
	fi
	note "a snapshot through the proxy" "$(sed -n 's/.*snapshot_test.go:[0-9]*: \(snapshot of .*\)/\1/p' "$log")"
	rm -f "$log"
}

# quality NAME MODEL ITEMS PAIRS: the figures of one shipped model over every query, as
# docs/benchmarks/quality-NAME.json.
quality() {
	local name=$1 model=$2 items=$3 pairs=$4
	bin/likeness eval --model "examples/models/$model" --items "examples/data/banking77/$items" \
		--queries examples/data/banking77/test_vectors.npy --pairs "$pairs" --k 10 --output json >"$out/quality-$name.json"
	note "quality of $model over every query" "[quality-$name.json](quality-$name.json)"
}

# at_length PACKAGE_DIRECTORY TEST...: the long form of a package's tests, and the figures
# that they log for docs/reference/reliability.md.
at_length() {
	local package=$1 log status=0 names
	shift
	log=$(mktemp)
	names=$(IFS='|' && echo "$*")
	LIKENESS_SOAK=1 LIKENESS_CLOSED=1 LIKENESS_FOLLOW_REPORT=$(realpath "$out")/follow.json CHAOS_FOR=${CHAOS_FOR:-30m} \
		go test -v "./$package" -run "^($names)\$" -count 1 -timeout 26h >"$log" 2>&1 || status=1
	go run ./e2e/chaos/reliability -collect -figures "$out/reliability.json" <"$log"
	while read -r name took; do
		note "$package $name at length" "passed in ${took//[()]/}"
	done < <(sed -n 's/^--- PASS: \(Test[^ /]*\) \(.*\)/\1 \2/p' "$log")
	if [ $status = 1 ]; then
		cat "$log" >&2
		echo "soak: $package failed" >&2
	fi
	rm -f "$log"
	return $status
}

# tests_at_length: a line for each package with tests that LIKENESS_SOAK makes long:
# its directory and those of its tests that are in files which read it.
tests_at_length() {
	git grep -lE 'LIKENESS_SOAK"|Getenv\(soak\)' -- '*_test.go' | xargs -r grep -oE '^func Test[A-Za-z0-9_]+\(t' |
		sed -E 's|/[^/]*:func (Test[A-Za-z0-9_]*).*| \1|' | awk '{ tests[$1] = tests[$1] " " $2 } END { for (p in tests) print p tests[p] }' | sort
}

# raced: under the race detector, what tools/test.sh runs without it for its length.
raced() {
	local packages tests
	go test -race -timeout 2h $(awk -F '  +' '$1 == "soak" { print $2 }' tools/tests.txt) || return
	while IFS=$'\t' read -r packages tests; do
		go test -race -timeout 2h -run "$tests" $packages </dev/null || return
	done < <(awk -F '  +' '$1 == "instead" { print $2 "\t" $3 }' tools/tests.txt)
	note "the fits under the race detector" "passed"
}

long() {
	local failed=0
	raced || failed=1
	tools/previous.sh .cache/previous >/dev/null || echo "soak: no version skew" >&2 # here, since tests run without a network
	through_the_proxy
	while read -r -a package; do
		at_length "${package[@]}" </dev/null || failed=1
	done < <(tests_at_length)
	[ $failed = 0 ]
	pairs=$(mktemp -d)
	trap 'rm -rf "$pairs"' EXIT
	go run ./examples/banking77/pairs -out "$pairs"
	quality intents-mol banking77-mol items_vectors.npy "$pairs/intents.csv"
	quality questions-mol banking77-questions-mol train_vectors.npy "$pairs/questions.csv"
	quality questions-bilinear banking77-questions-bilinear train_vectors.npy "$pairs/questions.csv"
	if [ "$out" = docs/benchmarks ]; then
		go run ./e2e/chaos/reliability -figures "$out/reliability.json" -mutants docs/benchmarks/mutants.json >docs/reference/reliability.md
	fi
}

# earlier: the lines of the long runs in the file that is there.
earlier() {
	[ ! -f "$report" ] || grep '^{' "$report" | grep -v '"run": "fuzz ' | sed 's/,$//' || true
}

if [ "${LONG:-1}" = 0 ]; then
	mapfile -t -O ${#lines[@]} lines < <(earlier)
else
	long
fi

{
	echo '['
	printf '%s\n' "${lines[@]}" | sed '$!s/$/,/'
	echo ']'
} >"$report"
if [ "$out" = docs/benchmarks ]; then
	go run ./bench/pages
fi
