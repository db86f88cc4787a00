package maxsim

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/likenessdb/likeness/rerank"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/samples"
)

var updateMaxSim = flag.Bool("update-maxsim", false, "write testdata/quality.json anew")

// TestQualityMaxSim holds the MRR@10 of behavioural vectors on BANKING77's test
// questions to the committed figures, and to what MVG reaches there by NumPy.
func TestQualityMaxSim(t *testing.T) {
	fittest.SkipUnderRace(t)
	const file = "testdata/quality.json"
	golden, got := map[string]float64{}, map[string]float64{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &golden)
	}
	if err != nil && !*updateMaxSim {
		t.Fatal(err)
	}
	train, test := fittest.OpenIntents(t, "train"), fittest.OpenIntents(t, "test")
	for _, tc := range []struct {
		name  string
		mavg  []float64
		least float64
	}{
		{"1 vector an item", []float64{1}, 0.895},
		{"3 vectors an item", []float64{3}, 0.930},
		{"10 vectors an item", []float64{10}, 0.943},
		{"chosen", DefaultOptions().MAvg, 0.943},
	} {
		o := DefaultOptions()
		o.MAvg = tc.mavg
		before := fittest.UserTime()
		fitted, vectors := maxsimOf(t, train, o)
		t.Logf("%s: %.2f s of user time", tc.name, fittest.UserTime()-before)
		mrr := maxsimOn(t, test, vectors)
		if mrr < tc.least {
			t.Errorf("%s: MRR@10 is %.4f, want %.3f", tc.name, mrr, tc.least)
		}
		r := fitted.Report
		if r.Vectors > r.Budget || r.Vectors < r.Budget*9/10 {
			t.Errorf("%s: %d vectors of a budget of %d", tc.name, r.Vectors, r.Budget)
		}
		got[tc.name] = mrr
		if want, ok := golden[tc.name]; !*updateMaxSim && (!ok || !(math.Abs(mrr-want) <= 0.0005)) {
			t.Errorf("%s: MRR@10 is %.4f, was %.4f; if that is meant, run with -update-maxsim", tc.name, mrr, want)
		}
	}
	if *updateMaxSim {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// maxsimOn is the MRR@10 of the items with these vectors beside their own.
func maxsimOn(t *testing.T, d fit.Data, vectors map[int]rerank.Matrix) float64 {
	t.Helper()
	log, err := samples.PrepareUnscaled(d)
	if err != nil {
		t.Fatal(err)
	}
	j := unitJudge(log, fittest.AllRows(d.Queries.Rows))
	all := make([]rerank.Matrix, d.Items.Rows)
	for x, v := range vectors {
		all[x] = v
	}
	r := newRanking(j, func(int32) bool { return false })
	r.addChunk(joinVectors(log.Items, 0, all))
	return j.Mean(j.MarksOf(r.hits()))
}
