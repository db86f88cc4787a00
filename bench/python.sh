#!/usr/bin/env bash
# Prints the path of a Python that has what bench/NAME/requirements.txt lists: BENCH_PYTHON, or one that it makes in
# .cache/NAME-venv the first time. The scripts bench/*/run.sh call it from the root of the repository.
#
#   bench/python.sh NAME
set -euo pipefail

name=$1
python=${BENCH_PYTHON:-.cache/$name-venv/bin/python}
if [ -z "${BENCH_PYTHON:-}" ] && [ ! -x "$python" ]; then
	python3 -m venv ".cache/$name-venv" >&2
	"$python" -m pip install --quiet --requirement "bench/$name/requirements.txt" >&2
fi
echo "$python"
