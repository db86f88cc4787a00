package fit

import (
	"syscall"
	"testing"
)

// BenchmarkMoLStep is a step of the default fit of BANKING77, of which
// tools/fitbench/mol.py is the same in PyTorch. cpu-ms is user time, of all cores.
func BenchmarkMoLStep(b *testing.B) {
	for _, gates := range []Gates{GatesQuery, GatesFull} {
		b.Run(string(gates), func(b *testing.B) {
			o := DefaultMoLOptions()
			o.Gates, o.Temperature = gates, 0.05
			o.settle()
			p, err := prepare(intents(b, "train"), true)
			if err != nil {
				b.Fatal(err)
			}
			w := &molWork{problem: p, options: o}
			t := w.trainer(molRecipe{pull: o.Pulls[0], pairs: p.pairs(allRows(p.queries.Rows), nil)})
			t.steps = 5
			step := func() {
				if _, err := t.round(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			step()
			t.steps = 1
			before := userTime()
			for b.Loop() {
				step()
			}
			b.ReportMetric(1e3*(userTime()-before)/float64(b.N), "cpu-ms/op")
		})
	}
}

// userTime of the process in seconds.
func userTime() float64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Sec) + float64(r.Utime.Usec)/1e6
}
