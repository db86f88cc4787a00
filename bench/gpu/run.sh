#!/usr/bin/env bash
# Checks and measures likeness-gpu on a machine with a device, and leaves what came of it in a folder: check.json,
# gpu.json, gpu.md and gpu.svg, of which each step writes its own part as it ends, and the longer ones case by case. It
# runs from a bundle (`make gpu-bundle`) as from the tree, and needs a driver and nothing else; PyTorch is compared with
# where a Python has it with CUDA.
#
#   bench/gpu/run.sh [FOLDER] [STEP...] [-- FLAG...]
#
# FOLDER is gpu-results. Copied to docs/benchmarks, gpu.json and gpu.svg become part of speed.md by `make generate`. Without a STEP all of them are done, in
# ten minutes at most:
#
#   check      the answers, and the golden cases, against the CPU
#   limits     what the device can do at most
#   bench      each case: kernels, certified answers, and through the plugin
#   agreement  the top 10 of up to 10,000 queries against this machine's processors
#   pytorch    the same cases in PyTorch, eager and compiled
#
# One STEP alone may take nine minutes, or LIMIT seconds. Steps can be run one by one, in any order, and again. FLAGs are those
# of `likeness-gpu bench`, as --case scan-8x8x32. PYTHON names the Python (python3). LD_LIBRARY_PATH may have to name the
# folder of the driver's libcuda.so.1.
set -euo pipefail
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
declare -A seconds=([check]=60 [limits]=40 [bench]=190 [agreement]=150 [pytorch]=150)
case ${#steps[@]} in
0) steps=(check limits bench agreement pytorch) ;;
1) seconds[${steps[0]}]=540 ;;
esac
program=bin/likeness-gpu
[ -x "$program" ] || { say "$program is missing; make gpu-bundle on a machine with Go" && exit 1; }
mkdir -p "$out"

# measure STEP PART FLAG... does parts of the report.
measure() {
	local step=$1 part=$2
	shift 2
	timeout -k 10 "$limit" "$program" bench --part "$part" --report "$out" "${flags[@]}" "$@" >"$out/$step.txt"
}

check() { # tables small enough for the CPU's side, plain Go on one thread
	timeout -k 10 "$limit" "$program" check --rows "${CHECK_ROWS:-5000}" --queries "${CHECK_QUERIES:-10}" --output json >"$out/check.json"
}
limits() { measure limits limits; }
bench() { measure bench kernels,answers; }
agreement() { # the tables are made and loaded first
	measure agreement agreement --agreement "${QUERIES:-10000}" --agreement-time $((limit * 3 / 4))s
}
pytorch() {
	local python=${PYTHON:-python3}
	if ! command -v "$python" >/dev/null; then
		say "without PyTorch: there is no $python (PYTHON names another)" && return
	fi
	if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
		say "without PyTorch: $python does not have it, or finds no CUDA device with it" && return
	fi
	"$python" -c 'import triton' 2>/dev/null || say "$python has no Triton: torch.compile will fail, and its rows will say so"
	command -v cc >/dev/null || command -v gcc >/dev/null || say "there is no C compiler, which Triton wants: torch.compile may fail, and its rows will say so"
	measure pytorch pytorch --pytorch "$python"
}

if command -v nvidia-smi >/dev/null; then nvidia-smi -q >"$out/nvidia-smi.txt" || true; fi
failed=()
for step in "${steps[@]}"; do
	limit=${LIMIT:-${seconds[$step]}}
	say "$step, $limit s at most"
	began=$SECONDS status=0
	"$step" || status=$?
	case $status in
	0) say "$step took $((SECONDS - began)) s" ;;
	124 | 137) say "$step was ended after $limit s; what it had measured is in $out" && failed+=("$step") ;;
	*) say "$step failed ($status); the other steps are done all the same" && failed+=("$step") ;;
	esac
done
if [ ${#failed[@]} -gt 0 ]; then
	say "not whole: ${failed[*]}; each can be run again: bench/gpu/run.sh $out ${failed[0]}"
	exit 1
fi
