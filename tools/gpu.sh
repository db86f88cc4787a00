#!/usr/bin/env bash
# What the GPU scorer is built of and tested with on a machine without a GPU; what is fetched
# lies in .cache/cuda, and no step needs a CUDA installation.
#
#   tools/gpu.sh kernels [--check]  remake gpu/kernels/*.ptx with the pinned compiler;
#                                   --check: fail if they are not what is committed
#   tools/gpu.sh assemble           assemble the committed PTX for every generation of devices, into gpu/kernels/cubins,
#                                   which the tag cubins embeds; fail if a kernel keeps registers in memory
#   tools/gpu.sh clocks [FLAGS]     what limits the MoL kernels: clocks counted in the code for sm_90, and a replay of it;
#                                   flags are those of tools/sass
#   tools/gpu.sh headers            cuda.h; prints the folder, for CGO_CFLAGS=-I
#   tools/gpu.sh stub               libcuda.so to link with, which finds no device; prints its folder
#   tools/gpu.sh fake               libcuda.so.1 that runs the kernels on the CPU; prints its folder
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/.cache/cuda
cubins=gpu/kernels/cubins
nvrtc=nvidia-cuda-nvrtc-cu12==12.0.140
runtime=nvidia-cuda-runtime-cu12==12.4.127
assembler=nvidia-cuda-nvcc-cu12==12.8.93 # the first minor version that knows sm_100 and sm_120
disassembler=nvidia-cuda-nvdisasm==13.5.37

# wheel NAME==VERSION: prints the folder of an unpacked wheel, which is fetched once.
wheel() {
	local dir=$cache/wheels/${1/==/-}
	if [ ! -d "$dir" ]; then
		rm -rf "$dir.new"
		python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$dir.new" "$1" >&2
		mv "$dir.new" "$dir"
	fi
	echo "$dir/nvidia"
}

kernels() {
	local lib module made failed=0
	lib=$(wheel "$nvrtc")/cuda_nvrtc/lib
	for module in kernels limits; do
		made=$cache/$module.ptx
		LD_LIBRARY_PATH=$lib python3 tools/nvrtc.py "$lib/libnvrtc.so.12" gpu/kernels/cuda $module.cu "$made"
		if [ "${1:-}" != --check ]; then
			cp "$made" gpu/kernels/$module.ptx
		elif ! cmp "$made" gpu/kernels/$module.ptx; then
			echo "gpu.sh: gpu/kernels/$module.ptx is not what gpu/kernels/cuda compiles to; run tools/gpu.sh kernels" >&2
			failed=1
		fi
	done
	return $failed
}

# A driver then need not do it, which takes seconds. What was assembled of the same PTX is kept.
assemble() {
	local ptxas module arch out said bytes made
	made=$(sha256sum gpu/kernels/*.ptx tools/gpu.sh)
	[ "$(cat $cubins/made 2>/dev/null)" != "$made" ] || return 0
	ptxas=$(wheel "$assembler")/cuda_nvcc/bin/ptxas
	rm -rf $cubins
	mkdir $cubins
	for module in kernels limits; do
		for arch in sm_80 sm_86 sm_89 sm_90 sm_100 sm_120; do
			out=$cubins/$module.$arch.cubin
			said=$("$ptxas" -v -arch=$arch -o $out gpu/kernels/$module.ptx 2>&1) || { echo "$said" >&2 && return 1; }
			# Eight bytes are one number: of dot_rows for sm_80, of mol_scan_8x8x32x128 for sm_90.
			bytes=$(grep -oE '[0-9]+ bytes spill stores' <<<"$said" | sort -rn | head -1)
			if [ "${bytes%% *}" -gt 8 ]; then
				echo "gpu.sh: a kernel of gpu/kernels/$module.ptx has $bytes for $arch (ptxas -v), 8 at most" >&2
				return 1
			fi
		done
	done
	echo "$made" >$cubins/made
}

clocks() {
	local nvdisasm
	assemble
	nvdisasm=$(wheel "$disassembler")/cu13/bin/nvdisasm
	"$nvdisasm" -hex $cubins/kernels.sm_90.cubin 2>/dev/null | go -C tools run ./sass "$@"
}

headers() { echo "$(wheel "$runtime")/cuda_runtime/include"; }

# entries prints every function that cuda.h declares.
entries() {
	printf '#include <cuda.h>\n' | gcc -E -I"$(headers)" - | grep -oE '\bcu[A-Z][A-Za-z0-9_]*[[:space:]]*\(' | tr -d ' \t(' | sort -u
}

stub() { # every function returns CUDA_ERROR_NO_DEVICE
	local dir=$cache/stub
	mkdir -p "$dir"
	entries | sed 's/.*/int &(void) { return 100; }/' >"$dir/stub.c"
	gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$dir/libcuda.so.1" "$dir/stub.c"
	ln -sf libcuda.so.1 "$dir/libcuda.so"
	echo "$dir"
}

fake() { # what the driver does not have returns CUDA_ERROR_NOT_SUPPORTED
	local dir=$cache/fake
	mkdir -p "$dir"
	entries | sed 's/.*/__attribute__((weak)) int &(void) { return 801; }/' >"$dir/rest.c"
	gcc -fPIC -c -o "$dir/rest.o" "$dir/rest.c"
	g++ -std=c++17 -O2 -fPIC -ffp-contract=off -Wall -Wno-unknown-pragmas -shared -Wl,-soname,libcuda.so.1 \
		-I"$(headers)" -static-libstdc++ -static-libgcc \
		-o "$dir/libcuda.so.1" gpu/kernels/emulator/driver.cpp gpu/kernels/emulator/emulator.cpp "$dir/rest.o"
	ln -sf libcuda.so.1 "$dir/libcuda.so"
	echo "$dir"
}

mkdir -p "$cache"
case ${1:-} in
kernels | assemble | clocks | headers | stub | fake) "$@" ;;
*)
	sed -n '5,13s/^# *//p' "$0" >&2
	exit 2
	;;
esac
