package fit

import (
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"
	"github.com/likenessdb/likeness/rerank/npy"
)

// BenchmarkTraining is one training of each form on BANKING77's intents: 200
// steps of 500 pairs. bench/fit.py is the full form's in PyTorch.
func BenchmarkTraining(b *testing.B) {
	open := func(name string) rerank.Matrix {
		m, err := npy.Open(banking + name + "_vectors.npy")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close() })
		return m.Matrix
	}
	d := Data{Items: open("items"), Queries: open("train")}
	for q := range d.Queries.Rows { // what is chosen does not change the time
		d.Relevant = append(d.Relevant, []int32{int32(q % d.Items.Rows)})
	}
	p, err := prepare(d, true)
	if err != nil {
		b.Fatal(err)
	}
	o := DefaultOptions()
	for _, kind := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
		b.Run(string(kind), func(b *testing.B) {
			for b.Loop() {
				f := newForm(kind, o.Rank, p, 1)
				r := o.recipe(setting{pull: 1e-5, scale: 20, rate: o.rate(kind)})
				if _, err := train(b.Context(), p, f, p.pairs(allRows(d.Queries.Rows), nil), r, nil, watch{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
