package agreement_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/gpu/agreement"
	"github.com/likenessdb/likeness/gpu/workload"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wrong is a device that answers some queries with other rows or scores.
type wrong struct {
	device.Device
	spoil func(b *device.Best)
}

func (d *wrong) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	b, err := d.Device.Scan(ctx, a, bitmap)
	d.spoil(&b)
	return b, err
}

// TestCompare: every query is compared, and what is not the same is counted.
func TestCompare(t *testing.T) {
	cases, err := workload.Named([]string{"scan-8x8x32"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil             func(b *device.Best)
		rows, order, near int
		all               bool
	}{
		"as it is": {func(*device.Best) {}, 40, 40, 40, true},
		"order": {func(b *device.Best) {
			b.Rows[0], b.Rows[1], b.Scores[0], b.Scores[1] = b.Rows[1], b.Rows[0], b.Scores[1], b.Scores[0]
		}, 40, 0, 40, true},
		"scores":      {func(b *device.Best) { b.Scores[3] += 2e-4 }, 40, 40, 0, true},
		"a row":       {func(b *device.Best) { b.Rows = b.Rows[:9] }, 0, 0, 40, true},
		"out of time": {func(*device.Best) {}, 0, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, told := agreement.Options{Queries: 40, Batch: 16, Seed: 3}, 0
			if !c.all {
				o.Time = time.Nanosecond
			}
			r, err := agreement.Compare(t.Context(), &wrong{cpu.New(cpu.Options{}), c.spoil}, cases[0].AtMost(500), o, func(agreement.Result) { told++ })
			if err != nil {
				t.Fatal(err)
			}
			if !c.all {
				if r.Queries >= 40 || r.Wanted != 40 {
					t.Errorf("%d of %d queries in no time", r.Queries, r.Wanted)
				}
				return
			}
			if r.Queries != 40 || told != 3 || r.SameRows != c.rows || r.SameOrder != c.order || r.Near != c.near {
				t.Errorf("told %d times: %+v", told, r)
			}
		})
	}
}
