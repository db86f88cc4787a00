#!/usr/bin/env bash
# Checks and measures likeness-gpu on a machine with a device, in eight minutes at most, and leaves six files in a folder:
#
#   summary.txt                    each bar and whether it is met, then what happened to each step
#   check.json                     the answers, bounds and golden cases against the CPU
#   gpu.json gpu.md gpu.svg        what was measured; copied to docs/benchmarks, gpu.json and gpu.svg become part of speed.md
#                                  by `make generate`
#   run.log                        all that the steps printed, and nvidia-smi
#
# Each step writes its own part as it ends, and the longer ones case by case, so that a run that is cut short has left what it
# measured. It runs from a bundle (`make gpu-bundle`) as from the tree, and needs a driver and nothing else; PyTorch is
# compared with where a Python has it with CUDA.
#
#   bench/gpu/run.sh [FOLDER] [STEP...] [-- FLAG...]
#
# FOLDER is gpu-results. Without a STEP all of them are done:
#
#   check      the answers, and the golden cases, against the CPU
#   limits     what the device can do at most
#   bench      each case: kernels, certified answers, and through the plugin
#   agreement  the top 10 of up to 10,000 queries against this machine's processors
#   pytorch    the same cases in PyTorch, eager and compiled
#
# Steps can be run one by one, in any order, and again: one alone may take all the time. FLAGs are those of `likeness-gpu bench`,
# as --case scan-8x8x32. BUDGET is the number of seconds (480), LIBCUDA the folder of the driver's libcuda.so.1 if it is not
# found, PYTHON the Python (python3), LIKENESS_GPU the program (bin/likeness-gpu).
set -uo pipefail
began=$SECONDS
cd "$(dirname "$0")/../.."

say() { echo "run.sh: $*" >&2; }

out=gpu-results steps=() flags=()
while [ $# -gt 0 ]; do
	case $1 in
	check | limits | bench | agreement | pytorch) steps+=("$1") ;;
	--) shift && flags=("$@") && break ;;
	-*) say "$1: flags stand behind --" && exit 2 ;;
	*) out=$1 ;;
	esac
	shift
done
[ ${#steps[@]} -gt 0 ] || steps=(check limits bench agreement pytorch)
program=${LIKENESS_GPU:-bin/likeness-gpu}
[ -x "$program" ] || { say "$program is missing; make gpu-bundle on a machine with Go" && exit 1; }
mkdir -p "$out" || exit 1
log=$out/run.log outcomes=() failed=()

# The last step has what the others left. Ending a step that does not end by itself takes five seconds.
budget=${BUDGET:-480} grace=5
declare -A share=([check]=60 [limits]=30 [bench]=170 [agreement]=60 [pytorch]=480)
left() { echo $((budget - grace - 3 - (SECONDS - began))); }

# finish completes the summary, however the run ends.
finish() {
	[ -e "$out/summary.txt" ] || echo "No bar was measured." >"$out/summary.txt"
	{ echo && printf '%s\n' "${outcomes[@]:-no step was run}"; } >>"$out/summary.txt"
	cat "$out/summary.txt"
}
trap finish EXIT
trap 'outcomes+=("the run was ended by a signal"); exit 1' INT TERM HUP

# The driver's own library comes first, never that of a toolkit: its stubs and its compat folder serve other drivers.
find_driver() {
	local dir path named=${LD_LIBRARY_PATH:-}
	for dir in "${LIBCUDA:-}" ${named//:/ } /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib/wsl/lib; do
		[ -z "$dir" ] || [ ! -e "$dir/libcuda.so.1" ] || { echo "$dir" && return; }
	done
	path=$(ldconfig -p 2>/dev/null | awk '/libcuda\.so\.1 .*x86-64/ { print $NF; exit }')
	[ -n "$path" ] || path=$(timeout 10 find / -xdev -name libcuda.so.1 -not -path '*/stubs/*' -not -path '*/compat/*' -not -path '/proc/*' 2>/dev/null | head -1)
	[ -n "$path" ] && dirname "$path"
}
if driver=$(find_driver); then
	outcomes+=("driver: $driver/libcuda.so.1")
	export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
	outcomes+=("driver: there is no libcuda.so.1; LIBCUDA=FOLDER names its folder") && say "${outcomes[-1]}" && exit 1
fi

# measure PARTS FLAG... does parts of the report.
measure() {
	local parts=$1
	shift
	timeout -k $grace "$limit" "$program" bench --part "$parts" --report "$out" "${flags[@]}" "$@"
}

check() { # tables small enough for the CPU's side, plain Go on one thread
	timeout -k $grace "$limit" "$program" check --rows "${CHECK_ROWS:-5000}" --queries "${CHECK_QUERIES:-10}" --output json >"$out/check.json"
}
limits() { measure limits; }
bench() { measure kernels,answers; }
agreement() { # the tables are made and loaded first
	measure agreement --agreement "${QUERIES:-10000}" --agreement-time $((limit * 3 / 4 + 1))s
}
pytorch() {
	local python=${PYTHON:-python3}
	if ! command -v "$python" >/dev/null; then
		say "without PyTorch: there is no $python (PYTHON names another)" && return
	fi
	if ! timeout 30 "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
		say "without PyTorch: $python does not have it, or finds no CUDA device with it" && return
	fi
	"$python" -c 'import triton' 2>/dev/null || say "$python has no Triton: torch.compile will fail, and its rows will say so"
	command -v cc >/dev/null || command -v gcc >/dev/null || say "there is no C compiler, which Triton wants: torch.compile may fail, and its rows will say so"
	limit=$(left)
	[ "$limit" -lt 2 ] || measure pytorch --pytorch "$python"
}

{ date -u +%FT%TZ && uname -a && ! command -v nvidia-smi >/dev/null || timeout 10 nvidia-smi -q; } >>"$log" 2>&1
for step in "${steps[@]}"; do
	limit=$(left)
	[ ${#steps[@]} -eq 1 ] || [ "$limit" -le "${share[$step]}" ] || limit=${share[$step]}
	if [ "$limit" -lt 2 ]; then
		outcomes+=("$step: no time was left") failed+=("$step")
		continue
	fi
	say "$step, $limit s at most"
	start=$SECONDS status=0
	"$step" > >(tee -a "$log" >/dev/null) 2> >(tee -a "$log" >&2) & # so that a signal ends the run at once
	wait $! || status=$?
	case $status in
	0) outcomes+=("$step: done in $((SECONDS - start)) s") ;;
	124 | 137) outcomes+=("$step: ended after $limit s; what it had measured is there") failed+=("$step") ;;
	*) outcomes+=("$step: failed ($status): $(tail -1 "$log" | cut -c1-300)") failed+=("$step") ;;
	esac
	say "${outcomes[-1]}"
done
if [ ${#failed[@]} -gt 0 ]; then
	outcomes+=("not whole: ${failed[*]}; each can be run again: bench/gpu/run.sh $out ${failed[0]}")
	exit 1
fi
