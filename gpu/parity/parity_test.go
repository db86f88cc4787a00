package parity_test

import (
	"context"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/gpu/parity"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/plugin/device/cpu"
)

// TestCheck: a machine in plain Go agrees with the CPU, on every golden case too.
func TestCheck(t *testing.T) {
	d, err := gpu.New(func() (gpu.Machine, error) { return &hosted.Machine{Memory: 1 << 28}, nil }, gpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	golden, err := parity.Golden("../../testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	for i := range golden { // it is slow
		golden[i].Queries = golden[i].Queries[:1]
	}
	o := parity.Options{Rows: 201, Queries: 2, K: 10, Bounds: func(ctx context.Context, v device.Version, s *parity.Subject) (int, float64, error) {
		b, err := d.CheckBounds(ctx, v, s.Rows, s.Queries)
		return b.Pairs, b.Room, err
	}}
	random, err := parity.Random([]parity.Shape{{PairsQuery: 2, PairsItem: 3, Dim: 8, Hidden: 4}}, o)
	if err != nil {
		t.Fatal(err)
	}
	n, bounded := map[bool]int{}, 0
	err = parity.Check(t.Context(), d, append(random, golden...), o, func(r parity.Result) {
		n[r.Golden]++
		if r.Bounds > 0 {
			bounded++
			if r.BoundsRoom <= 0 || r.BoundsRoom >= 1 || r.Bounds < r.Queries*(r.Rows-3) {
				t.Errorf("%s: %d bounds, %v of their room is used", r.Case, r.Bounds, r.BoundsRoom)
			}
		}
		if r.Failed != "" || !r.Golden && r.Same != r.Queries {
			t.Errorf("%+v", r)
		}
	})
	if bounded < 25 {
		t.Errorf("%d cases have bounds", bounded)
	}
	if err != nil || n[false] != 7 || n[true] != 29 {
		t.Errorf("%d random and %d golden cases, want 7 and 29; %v", n[false], n[true], err)
	}
}

// TestMisses: a device that scores wrongly, or leaves a row out, fails.
func TestMisses(t *testing.T) {
	for name, spoil := range map[string]func(*device.Best){
		"a score": func(b *device.Best) { b.Scores[1]-- },
		"a row":   func(b *device.Best) { b.Rows, b.Scores = b.Rows[1:], b.Scores[1:] },
	} {
		d := wrong{cpu.New(cpu.Options{}), spoil}
		o := parity.Options{Rows: 50, Queries: 1, K: 5}
		subjects, err := parity.Random(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		err = parity.Check(t.Context(), d, subjects, o, func(r parity.Result) {
			if r.Failed == "" {
				t.Errorf("%s: %s passed", name, r.Case)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

type wrong struct {
	device.Device
	spoil func(*device.Best)
}

func (w wrong) Scan(ctx context.Context, a device.Ask, bitmap []byte) (device.Best, error) {
	b, err := w.Device.Scan(ctx, a, bitmap)
	w.spoil(&b)
	return b, err
}
