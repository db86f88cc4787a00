package gpu_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/gpu/kernels"
	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/plugin/device"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
)

// TestPatchedTablesKeepTheirLoss: the limits of a query cover the loss of float16 in a table's
// rows, whether the row with the greatest loss was there from the start, replaced another, or was
// added, in the same memory or in another.
func TestPatchedTablesKeepTheirLoss(t *testing.T) {
	m, err := model.Open("../examples/models/banking77-mol")
	must(t, err)
	w := worldOf(t, m, 300)
	w.query.HasUserID = true
	rng := rand.New(rand.NewPCG(1, 6))
	packing := rerank.Packing{Format: rerank.FormatFloat16, Cols: w.rows.Cols}
	against := make([]float32, w.rows.Cols)
	for i := range against {
		against[i] = 1
	}
	for r := range w.rows.Rows {
		copy(w.rows.Row(r), adversary.ExactlyPacked(rng, packing, 0x1p-4))
	}
	lossy := adversary.RoundedDown(rng, packing, against, 0x1p-4)
	limits := func(rows rerank.Matrix, patches ...device.Patch) kernels.Limits {
		var seen kernels.Limits
		machine := &hosted.Machine{Memory: 1 << 28, Batch: 2}
		d := openOn(t, machine, gpu.Options{})
		must(t, d.LoadModel(t.Context(), w.at, w.file))
		machine.Launched = func(jobs []gpu.Job) error {
			for _, j := range jobs {
				if j.Way == gpu.Bounded {
					seen = j.Limits
				}
			}
			return nil
		}
		w := *w
		w.rows = rows
		must(t, w.table(context.Background(), d, "a"))
		at := version("a")
		for i, p := range patches {
			p.From, p.Version = at, string(rune('b'+i))
			must(t, d.PatchTable(t.Context(), p))
			at.Version = p.Version
		}
		_, err := d.Scan(t.Context(), device.Ask{Model: w.at, Table: at, Query: w.query, K: 3}, nil)
		must(t, err)
		return seen
	}
	one := rerank.Matrix{Rows: 1, Cols: len(lossy), Data: lossy}
	whole := rerank.NewMatrix(300, w.rows.Cols)
	copy(whole.Data, w.rows.Data)
	copy(whole.Row(7), lossy)
	exact, want := limits(w.rows), limits(whole)
	if !(want.Base > 2*exact.Base) || exact.Base == 0 {
		t.Fatalf("limits %+v with the row and %+v without: it makes no difference", want, exact)
	}
	many := rerank.NewMatrix(800, w.rows.Cols) // more than the table's memory has room for
	numbers := make([]uint32, many.Rows)
	for i := range numbers {
		numbers[i] = uint32(300 + i)
		copy(many.Row(i), w.rows.Row(0))
	}
	back := rerank.Matrix{Rows: 1, Cols: len(lossy), Data: w.rows.Row(7)}
	for name, patches := range map[string][]device.Patch{
		"replaced":             {{Numbers: []uint32{7}, Rows: one}},
		"added":                {{Numbers: []uint32{300}, Rows: one}},
		"replaced, then moved": {{Numbers: []uint32{7}, Rows: one}, {Numbers: numbers, Rows: many}},
		"another patch after":  {{Numbers: []uint32{7}, Rows: one}, {Numbers: []uint32{9}, Rows: back}},
	} {
		if got := limits(w.rows, patches...); got.Base < want.Base {
			t.Errorf("%s: limits %+v, want %+v as of a table that was loaded with the row", name, got, want)
		}
	}
}
