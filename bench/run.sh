#!/usr/bin/env bash
# Times likeness beside NumPy, PyTorch and ONNX Runtime in one run, prints one table with ratios, and leaves the figures
# in docs/benchmarks: scoring.json and plots. It takes some ten minutes on a quiet machine.
#
#   bench/run.sh [--quick] [--out DIRECTORY] [--suite mol,maxsim,bilinear] [--rounds N]
#
# It needs Go, gcc (for torch.compile) and Python 3.11 or newer. BENCH_PYTHON names a Python that has what
# requirements.txt lists; without it one is made in .cache/bench-venv.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${BENCH_PYTHON:-.cache/bench-venv/bin/python}
if [ -z "${BENCH_PYTHON:-}" ] && [ ! -x "$python" ]; then
	python3 -m venv .cache/bench-venv
	"$python" -m pip install --quiet --requirement bench/requirements.txt
fi
make build
# One CPU for everybody; no library starts threads of its own.
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
pin=()
if command -v taskset >/dev/null; then
	pin=(taskset -c "${BENCH_CPU:-0}")
fi
exec "${pin[@]}" "$python" -W ignore bench/compare.py "$@"
