//go:build !cubins

package kernels

import "embed"

var cubins embed.FS
