//go:build cubins

package kernels

import "embed"

// Made by `tools/gpu.sh assemble`.
//
//go:embed cubins/kernels.*.cubin
var cubins embed.FS
