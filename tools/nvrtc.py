"""Compiles the GPU's kernels to PTX with NVRTC, which needs no GPU and no CUDA installation.

usage: nvrtc.py LIBNVRTC FOLDER MAIN.cu OUT.ptx
FOLDER holds MAIN.cu and every file that it includes.
"""

import ctypes
import pathlib
import sys

OPTIONS = [b"--gpu-architecture=compute_80", b"--std=c++17"]


def main(library, folder, name, out):
    nvrtc = ctypes.CDLL(library)
    text = lambda path: path.read_bytes()
    headers = sorted(pathlib.Path(folder).glob("*.cuh"))
    array = ctypes.c_char_p * len(headers)
    program = ctypes.c_void_p()
    check(nvrtc, nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text(pathlib.Path(folder, name)), name.encode(), len(headers),
        array(*map(text, headers)), array(*(h.name.encode() for h in headers))))
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    status = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = fetch(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    if log:
        sys.stderr.write(log.decode())
    check(nvrtc, status)
    pathlib.Path(out).write_bytes(fetch(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program))


def fetch(size, get, program):
    n = ctypes.c_size_t()
    size(program, ctypes.byref(n))
    buffer = ctypes.create_string_buffer(n.value)
    get(program, buffer)
    return buffer.raw.rstrip(b"\0")


def check(nvrtc, status):
    if status != 0:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit("nvrtc: " + nvrtc.nvrtcGetErrorString(status).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
