package bilinear

import (
	"testing"

	"github.com/likenessdb/likeness/rerank/bilinear"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// BenchmarkTraining is one training of each form on BANKING77's intents: 200
// steps of 500 pairs. bench/fit.py is the full form's in PyTorch.
func BenchmarkTraining(b *testing.B) {
	d := fit.Data{Items: fittest.OpenVectors(b, "items"), Queries: fittest.OpenVectors(b, "train")}
	for q := range d.Queries.Rows { // what is chosen does not change the time
		d.Relevant = append(d.Relevant, []int32{int32(q % d.Items.Rows)})
	}
	log, err := samples.Prepare(d, true)
	if err != nil {
		b.Fatal(err)
	}
	o := DefaultOptions()
	pairs := log.Pairs(fittest.AllRows(d.Queries.Rows), nil)
	for _, kind := range []bilinear.Form{bilinear.Full, bilinear.LowRank, bilinear.IdentityLowRank, bilinear.Diagonal} {
		b.Run(string(kind), func(b *testing.B) {
			for b.Loop() {
				l := newLearner(log, newForm(kind, o.Rank, log, 1, start{}), pairs, setting{pull: 1e-5, scale: 20, rate: o.rateFor(kind)}, o.Rounds, o)
				for round := range o.Rounds {
					if _, err := l.TakeRound(b.Context(), round); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
