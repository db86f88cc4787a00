#!/usr/bin/env bash
# Judges late interaction: which share of exact MaxSim a learned companion finds, and what scoring costs beside others. It
# writes docs/benchmarks/late.json and prints the tables of docs/benchmarks/late.md.
#
#   bench/late/run.sh DATA [OPTION...]     # options of late.py: --only cranfield, --no-speed
#
# DATA has scifact.zip (docs/benchmarks/sets.md says where it is) and cran.all.1400, cran.qry and cranqrel of
# noramtboraas/information-retrieval, and keeps the token states (1.2 GB). It needs Go and Python 3.11 or newer. BENCH_PYTHON
# names a Python that has what requirements.txt lists; without it one is made in .cache/late-venv (PyTorch: some 5 GB).
set -euo pipefail
cd "$(dirname "$0")/../.."

data=${1:?the directory of the data}
shift
python=$(bench/python.sh late)
go build -o bin/likeness ./cmd/likeness
go test -c -o .cache/late.test ./rerank/late
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "$python" bench/late/late.py --data "$data" "$@"
