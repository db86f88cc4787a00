#!/usr/bin/env bash
# Counts the instructions of the hot loops under valgrind and compares them with tools/instructions.txt: unlike a time, a
# count does not depend on what else the machine does. --update writes the file instead. valgrind knows no AVX-512, so the
# sets avx2 and go are counted. Where valgrind is missing, or the processor is another, it says so and passes.
set -euo pipefail
cd "$(dirname "$0")/.."

tolerance=3 # percent
committed=tools/instructions.txt
if ! command -v valgrind >/dev/null || [ "$(go env GOARCH)" != amd64 ] || ! grep -qw avx2 /proc/cpuinfo; then
	echo 'instructions: not counted: it takes valgrind and a processor with AVX2'
	exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -trimpath -o "$work/likeness" ./cmd/likeness

# count KERNEL FUNCTION ARGUMENTS...: instructions of the function and what it calls, in one round.
count() {
	local kernel=$1 function=$2 log
	shift 2
	log=$work/log
	# Four rounds, three of them to warm up; no garbage collection, nothing preempted, and one processor, since valgrind
	# counts by thread: a goroutine that changes threads inside the function loses a part.
	if ! GOMAXPROCS=1 GOGC=off GODEBUG=asyncpreemptoff=1 valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="*$function" \
		"$work/likeness" bench score --kernel "$kernel" --runs 1 --time 0s "$@" >/dev/null 2>"$log"; then
		cat "$log" >&2
		return 1
	fi
	sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p' "$log" | awk '{ printf "%d\n", $1 / 4 }'
}

measure() {
	local kernel mol='mol.(?encoded).Score' product='inner.(?Product).Score'
	for kernel in avx2 go; do
		echo "mol-8x4x64 $kernel $(count $kernel "$mol" --shape 8x4x64 --candidates 512)"
		echo "mol-8x4x64-gathered $kernel $(count $kernel "$mol" --shape 8x4x64 --candidates 512 --gather --rows 2000)"
		echo "bilinear-384 $kernel $(count $kernel "$product" --kind bilinear --shape 384 --candidates 512)"
		echo "maxsim-32x4x128 $kernel $(count $kernel inner.ScoreBatch --kind maxsim --shape 32x4x128 --candidates 256)"
	done
}

# again measures once more and keeps the greater counts: what was lost is seldom lost again.
again() {
	measure >"$work/again"
	awk '{ k = $1 " " $2 } !(k in most) { keys[++n] = k } $3 > most[k] { most[k] = $3 } END { for (i = 1; i <= n; i++) print keys[i], most[keys[i]] }' \
		"$work/counts" "$work/again" >"$work/greatest"
	mv "$work/greatest" "$work/counts"
}

measure >"$work/counts"
if [ "${1:-}" = --update ]; then
	again
	cp "$work/counts" "$committed"
	exit
fi
compare() {
	awk -v tolerance=$tolerance '
	NR == FNR { was[$1 " " $2] = $3; next }
	{
		key = $1 " " $2; seen[key] = 1
		if (!(key in was)) { print "instructions: " key " has no committed count"; bad = 1; next }
		change = 100 * ($3 / was[key] - 1)
		printf "%-28s %12d, %+.1f %%\n", key, $3, change
		if (change > tolerance) { print "instructions: " key " takes " $3 " instructions, " was[key] " are committed"; bad = 1 }
		if (change < -tolerance) { print "instructions: " key " takes fewer: tools/instructions.sh --update"; bad = 1 }
	}
	END { for (key in was) if (!(key in seen)) { print "instructions: " key " was not counted"; bad = 1 }; exit bad }
' "$committed" "$work/counts"
}

# What is off is counted again, for the changes of thread that happened all the same.
compare >"$work/report" || { again && compare >"$work/report"; } || { again && compare >"$work/report"; } || { cat "$work/report"; exit 1; }
cat "$work/report"
