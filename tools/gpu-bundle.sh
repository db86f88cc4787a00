#!/usr/bin/env bash
# Packs what a machine with nothing but a driver needs to run bench/gpu/run.sh: the
# binary, the PTX that it embeds, the golden cases, and the program that compares with
# PyTorch. `make gpu-bundle` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/gpu-check.sh --build
newest=$(objdump -T bin/likeness-gpu | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
if [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" != GLIBC_2.34 ]; then
	echo "gpu-bundle: likeness-gpu needs $newest, want GLIBC_2.34 at most" >&2
	exit 1
fi
out=bin/likeness-gpu.tar.gz
tar -czf "$out" --transform 's|^|likeness-gpu/|' -C "$PWD" bin/likeness-gpu gpu/kernels/{kernels,limits}.ptx \
	testdata/golden/{README.md,mol,bilinear,rbe,behavioural,retrieval} bench/gpu/{run.sh,baseline.py} LICENSE NOTICE
size=$(stat -c %s "$out")
[ "$size" -lt $((60 << 20)) ] || { echo "gpu-bundle: $out has $size bytes, at most 60 MiB" >&2; exit 1; }
echo "$out: $size bytes"
