//go:build cuda

package cuda

/*
#include <cuda.h>
#include <stdlib.h>

// load_module calls cuModuleLoadDataEx with buffers for what the compiler says. Options are
// an array of pointers, which Go may not pass.
static CUresult load_module(CUmodule *m, const void *image, char *info, char *failure, size_t size) {
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
	void *values[] = {info, (void *)size, failure, (void *)size, (void *)1};
	return cuModuleLoadDataEx(m, image, 5, options, values);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/plugin/device"
)

// Functions of the driver that package cu lacks, called through the driver's own header.
// Handles are converted by their memory layout, which is one pointer on both sides.

// allowShared lets a kernel use more dynamic shared memory than every device guarantees.
func allowShared(f cu.Function, bytes int) error {
	handle := *(*C.CUfunction)(unsafe.Pointer(&f))
	return resultOf(C.cuFuncSetAttribute(handle, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// loadModule loads kernels, which the driver compiles if they are PTX, and returns what the
// compiler said of them. An error contains the compiler's own text.
func loadModule(image string) (m cu.Module, log string, err error) {
	const size = 1 << 16
	text, info, failure := C.CString(image), (*C.char)(C.calloc(1, size)), (*C.char)(C.calloc(1, size))
	defer func() { C.free(unsafe.Pointer(text)); C.free(unsafe.Pointer(info)); C.free(unsafe.Pointer(failure)) }()
	var handle C.CUmodule
	err = resultOf(C.load_module(&handle, unsafe.Pointer(text), info, failure, size-1)) // a NUL is left at the end
	if said := strings.TrimSpace(C.GoString(failure)); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return *(*cu.Module)(unsafe.Pointer(&handle)), strings.TrimSpace(C.GoString(info)), err
}

// memory returns the total and the free memory of the context's device.
func memory() (total, free int64, err error) {
	var f, t C.size_t
	err = resultOf(C.cuMemGetInfo(&f, &t))
	return int64(t), int64(f), err
}

// newPinned allocates pinned host memory, which the device can read and write by itself.
func newPinned(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	code := C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE)
	if err := resultOf(code); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

func freePinned(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return resultOf(C.cuMemFreeHost(unsafe.Pointer(&b[0])))
}

// result is an error code of the driver.
type result C.CUresult

// Error describes the code in the words of cuda.h.
func (r result) Error() string {
	var name, text *C.char
	C.cuGetErrorName(C.CUresult(r), &name)
	C.cuGetErrorString(C.CUresult(r), &text)
	if name == nil || text == nil {
		return fmt.Sprintf("CUDA error %d", int(r))
	}
	return fmt.Sprintf("%s: %s", C.GoString(name), C.GoString(text))
}

func resultOf(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return result(r)
}

// judgedLaunch converts an error of a call that prepares or makes a launch. It returns
// gpu.ErrRefused if the launch does not fit the device, which leaves the context intact.
func judgedLaunch(what string, err error) error {
	for _, refusal := range []error{
		cu.InvalidValue, cu.LaunchOutOfResources, cu.NotFound, cu.NotSupported, cu.InvalidImage, cu.NoBinaryForGpu, cu.InvalidPtx, cu.JitCompilerNotFound,
		result(C.CUDA_ERROR_INVALID_VALUE), result(C.CUDA_ERROR_NOT_SUPPORTED), // of allowShared
	} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %s: %w", gpu.ErrRefused, what, err)
		}
	}
	return judged(what, err)
}

// judged converts an error of the driver: out of memory becomes device.ErrMemory, and every
// other error gpu.ErrLost, because after most of them every call in the context fails.
func judged(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cu.OutOfMemory), errors.Is(err, result(C.CUDA_ERROR_OUT_OF_MEMORY)):
		return fmt.Errorf("%w: %s: %w", device.ErrMemory, what, err)
	default:
		return fmt.Errorf("%w: %s: %w", gpu.ErrLost, what, err)
	}
}
