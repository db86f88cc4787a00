#!/usr/bin/env bash
# Fits likeness and others to six sets of data, judges them, and writes docs/benchmarks/sets.json and sets.svg; `make
# generate` renders docs/benchmarks/sets.md, which says where the files of the data are.
#
#   bench/sets/run.sh DATA [OPTION...]     # options of sets.py: --only beauty,sports
#
# It needs Go and Python 3.11 or newer. BENCH_PYTHON names a Python that has what requirements.txt lists; without it one is
# made in .cache/sets-venv (PyTorch: some 5 GB). What a set gave is kept in .cache/sets: a run that was stopped goes on.
set -euo pipefail
cd "$(dirname "$0")/../.."

data=${1:?the directory of the data}
shift
python=$(bench/python.sh sets)
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "$python" bench/sets/sets.py --data "$data" "$@"
