package mol

import (
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

// BenchmarkMoLStep measures a step of the default fit of BANKING77. tools/fitbench/mol.py does the
// same in PyTorch. cpu-ms is user time of all cores.
func BenchmarkMoLStep(b *testing.B) {
	for _, gates := range []Gates{GatesQuery, GatesFull} {
		b.Run(string(gates), func(b *testing.B) {
			o := DefaultOptions()
			o.Gates, o.Temperature = gates, 0.05
			o.setDefaults()
			p, err := samples.Prepare(fittest.OpenIntents(b, "train"), true)
			if err != nil {
				b.Fatal(err)
			}
			t := newLearner(p, newNet(o, p, identity(p.Items.Cols), false), p.Pairs(fittest.AllRows(p.Queries.Rows), nil), o.Pulls[0], o)
			t.batches.Steps = 5
			step := func() {
				if _, err := t.TakeRound(b.Context(), 0); err != nil {
					b.Fatal(err)
				}
			}
			step()
			t.batches.Steps = 1
			before := fittest.UserTime()
			for b.Loop() {
				step()
			}
			b.ReportMetric(1e3*(fittest.UserTime()-before)/float64(b.N), "cpu-ms/op")
		})
	}
}
