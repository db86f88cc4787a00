package gpu_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/plugin/device/devicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a device on a machine of 64 MiB in plain Go.
func open(t testing.TB, o gpu.Options) *gpu.Device {
	return openOn(t, &hosted.Machine{Memory: 64 << 20, Batch: 8}, o)
}

func openOn(t testing.TB, m gpu.Machine, o gpu.Options) *gpu.Device {
	t.Helper()
	d, err := gpu.New(func() (gpu.Machine, error) { return m, nil }, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestDevice: the conformance kit.
func TestDevice(t *testing.T) {
	devicetest.Run(t, open(t, gpu.Options{}), devicetest.Options{Timeout: 10 * time.Minute})
}
