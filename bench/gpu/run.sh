#!/usr/bin/env bash
# Checks and measures likeness-gpu on a machine with a device, in less than ten minutes, and leaves what came of it in a
# folder: check.txt, check.json, gpu.json, gpu.md and gpu.svg. It runs from a bundle (`make gpu-bundle`) as from the tree, and
# needs a driver and nothing else; PyTorch is compared with where a Python has it with CUDA.
#
#   bench/gpu/run.sh [FOLDER] [--quick ...]     FOLDER: gpu-results; docs/benchmarks in the tree puts the figures into its page;
#                                               flags are those of `likeness-gpu bench`
#
# PYTHON names that Python (python3). LD_LIBRARY_PATH may have to name the folder of the driver's libcuda.so.1.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=gpu-results flags=()
for argument in "$@"; do
	case $argument in
	-*) flags+=("$argument") ;;
	*) out=$argument ;;
	esac
done
mkdir -p "$out"
program=bin/likeness-gpu
[ -x "$program" ] || { echo "run.sh: $program is missing; make gpu-bundle on a machine with Go" >&2; exit 1; }

failed=0
echo "run.sh: checking" >&2
if ! "$program" check --output json >"$out/check.json"; then
	echo "run.sh: the device does not agree with the CPU, see $out/check.json; it is measured all the same" >&2
	failed=1
fi
python=${PYTHON:-python3} pytorch=()
if command -v "$python" >/dev/null && "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	pytorch=(--pytorch "$python")
else
	echo "run.sh: $python has no PyTorch with CUDA: without the comparison" >&2
fi
command -v nvidia-smi >/dev/null && nvidia-smi -q >"$out/nvidia-smi.txt" || true
# Compiling for PyTorch takes the most; what is measured until then is printed again by a run without it.
timeout 540 "$program" bench "${flags[@]}" "${pytorch[@]}" --report "$out" ||
	timeout 120 "$program" bench --quick "${flags[@]}" --report "$out" || failed=1
exit $failed
