//go:build cuda && cubins

package cuda

import (
	"strings"
	"testing"

	"github.com/likenessdb/likeness/gpu/kernels"
)

// TestKernelsOfTheDevice: a device loads the newest cubin that it can run, or the PTX if there
// is none or the driver refuses it. The module has the kernels in any case.
func TestKernelsOfTheDevice(t *testing.T) {
	for name, c := range map[string]struct{ capability, refused, want string }{
		"the same":                  {"86", "", "sm_86"},
		"the same with minor 0":     {"90", "", "sm_90"},
		"a lower minor version":     {"88", "", "sm_86"},
		"a major version of 12":     {"121", "", "sm_120"},
		"no cubin of this major":    {"110", "", "PTX"},
		"no binary for this device": {"90", "209", "PTX, because the driver refused sm_90: "},
		"an invalid image":          {"80", "200", "PTX, because the driver refused sm_80: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAKE_CUDA_CAPABILITY", c.capability)
			if c.refused != "" {
				t.Setenv("FAKE_CUDA_CUBIN", c.refused)
			}
			m, err := Open(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			if got := m.facts.Kernels; !strings.HasPrefix(got, c.want) || c.refused == "" && got != c.want {
				t.Errorf("loaded %s, want %s", got, c.want)
			}
			for _, s := range kernels.Shapes() {
				if _, err := m.module.Function(s.Scan(1, 1, 1).Name); err != nil {
					t.Errorf("%s: %v", s, err)
				}
			}
			if _, err := m.module.Function("limit_fma"); err == nil {
				t.Error("the module has a kernel of another one")
			}
		})
	}
}
