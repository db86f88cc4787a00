#!/usr/bin/env bash
# Trains two heavy rankers on BANKING77, scores a collection with them, fits relevance-based embeddings to the scores and
# writes docs/benchmarks/rbe.json and rbe.svg; `make generate` renders the page. Everything is seeded; a run that was stopped goes on where it was, and what
# was removed from FOLDER is made again: without *_reference.jsonl, the reference alone.
#
#   bench/rbe/run.sh [FOLDER]          # of models, scores and results: .cache/rbe
#
# It needs Go and Python 3.11 or newer. BENCH_PYTHON names a Python that has what requirements.txt lists; without it one is
# made in .cache/rbe-venv (PyTorch: some 5 GB). WORKERS processes score.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$(realpath -m "${1:-.cache/rbe}")
python=${BENCH_PYTHON:-.cache/rbe-venv/bin/python}
if [ -z "${BENCH_PYTHON:-}" ] && [ ! -x "$python" ]; then
	python3 -m venv .cache/rbe-venv
	"$python" -m pip install --quiet --requirement bench/rbe/requirements.txt
fi
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
mkdir -p "$out"
for ranker in boosted cross; do
	[ -f "$out/$ranker.json" ] || "$python" "bench/rbe/$ranker.py" --out "$out" --workers "${WORKERS:-1}"
	go run ./bench/rbe hits -dir "$out" -ranker "$ranker"
	go run ./bench/rbe budget -dir "$out" -ranker "$ranker"
	"$python" bench/rbe/reference.py --dir "$out" --ranker "$ranker"
done
go run ./bench/rbe figures -dir "$out"
