package bilinear

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/bilinear"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/judge"
	"github.com/likenessdb/likeness/learn/fit/samples"
	"github.com/likenessdb/likeness/learn/verdict"
)

// measure returns the MRR@10 of a fit, and of the plain inner product, on other data.
func measure(t *testing.T, d fit.Data, fitted *Fitted, wanted func(int32) bool) (mrr, cosine float64) {
	t.Helper()
	p, err := samples.Prepare(d, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := bilinear.New(fitted.Config, fitted.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(p, fit.MRR, fittest.AllRows(d.Queries.Rows), wanted)
	probe := func(u, q rerank.Matrix) {
		for r := range q.Rows {
			encoded, err := s.Encode(rerank.Query{Vector: q.Row(r)})
			if err != nil {
				t.Fatal(err)
			}
			probes, err := encoded.Probes(rerank.Plan{Strategy: rerank.Average, Depth: 1})
			if err != nil {
				t.Fatal(err)
			}
			copy(u.Row(r), probes[0].Vector)
		}
	}
	return judge.Mean(j.Marks(probe), nil), judge.Mean(j.Marks(judge.InnerProduct), nil)
}

// The bars of a competent fit on real vectors, on questions that no fit has seen. The soak searches
// for the settings, of which the short form tries the pull that a search finds and, except with the
// defaults, one scale and one rate.
func TestQuality(t *testing.T) {
	fittest.SkipUnderRace(t)
	train, test := fittest.OpenIntents(t, "train"), fittest.OpenIntents(t, "test")
	for _, tc := range []struct {
		name        string
		change      func(o *Options)
		pull        float64
		scale, rate float64
		least       float64
	}{
		{"defaults", func(*Options) {}, 3e-4, 0, 0, 0.950},
		{"rank 32", func(o *Options) { o.Form, o.Cold = bilinear.IdentityLowRank, fit.ColdIgnore }, 3e-4, 20, 0.01, 0.943},
		{"low rank 32", func(o *Options) { o.Form, o.Cold = bilinear.LowRank, fit.ColdIgnore }, 3e-4, 20, 0.01, 0.943},
		{"diagonal", func(o *Options) { o.Form, o.Cold = bilinear.Diagonal, fit.ColdIgnore }, 1e-5, 40, 0.1, 0.80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions()
			tc.change(&o)
			if os.Getenv("LIKENESS_SOAK") == "" {
				o.Pulls, o.Scale, o.Rate = []float64{tc.pull}, tc.scale, tc.rate
			}
			fitted, err := Fit(t.Context(), train, o)
			if err != nil {
				t.Fatal(err)
			}
			if mrr, _ := measure(t, test, fitted, nil); mrr < tc.least {
				t.Errorf("MRR@10 is %.4f, want %.3f", mrr, tc.least)
			}
			if tc.name == "defaults" {
				checkReport(t, fitted.Report)
			}
		})
	}
}

func checkReport(t *testing.T, r Report) {
	t.Helper()
	s := r.Spectrum
	if s.EnergyRank < 35 || s.EnergyRank > 50 {
		t.Errorf("the rank for 90%% of the energy is %d, want 35 to 50", s.EnergyRank)
	}
	for _, q := range s.Ranks {
		if q.Rank == s.Suggested && q.Value < r.Logged.Value-0.01 {
			t.Errorf("rank %d costs %.4f of MRR@10, want 0.01 at most", q.Rank, r.Logged.Value-q.Value)
		}
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "items without logs lose") {
		t.Errorf("this fit lowers items without logs and warns: %q", r.Warnings)
	}
	if r.Guarded || r.Logged.Gain < 0.2 || !strings.HasPrefix(r.Recommendation, "Worth it: take I + rank") {
		t.Errorf("reported %+v", r)
	}
}

// Fifteen intents have no log. The search for the settings is in the soak.
func TestQualityOfItemsWithoutLogs(t *testing.T) {
	fittest.SkipUnderRace(t)
	train, test := fittest.OpenIntents(t, "train"), fittest.OpenIntents(t, "test")
	seeds := []uint64{2}
	o := DefaultOptions()
	o.Cold = fit.ColdGuard
	if os.Getenv("LIKENESS_SOAK") != "" {
		seeds = []uint64{0, 1, 2, 3}
	} else {
		o.Pulls, o.Scale, o.Rate = []float64{5e-3}, 20, 0.005
	}
	var every, cold, cosine float64
	for _, seed := range seeds {
		d, without := fittest.WithoutLogs(train, seed, 15)
		fitted, err := Fit(t.Context(), d, o)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := measure(t, test, fitted, nil)
		if all < 0.87 { // what the guard costs depends on which intents they are
			t.Errorf("seed %d: MRR@10 of all items is %.4f, want 0.87", seed, all)
		}
		c, plain := measure(t, test, fitted, func(x int32) bool { return without[x] })
		t.Logf("seed %d: MRR@10 of all items %.4f, of those without logs %.4f, cosine's %.4f", seed, all, c, plain)
		n := float64(len(seeds))
		every, cold, cosine = every+all/n, cold+c/n, cosine+plain/n
		if !fitted.Report.Guarded {
			t.Errorf("seed %d: a collection with items without pairs is not guarded", seed)
		}
	}
	if every < 0.88 {
		t.Errorf("MRR@10 of all items is %.4f, want 0.88", every)
	}
	if cold < cosine {
		t.Errorf("MRR@10 of items without logs is %.4f, cosine's %.4f", cold, cosine)
	}
}

func TestSameSeedSameModel(t *testing.T) {
	d := fittest.FlippedData()
	for _, softmax := range []int{4096, 10} { // all items, sampled ones
		o := DefaultOptions()
		o.Rounds, o.Softmax, o.Draws, o.Batch = 3, softmax, 8, 64
		var first *Fitted
		for _, cores := range []int{1, 2, 4} {
			before := runtime.GOMAXPROCS(cores)
			fitted, err := Fit(t.Context(), d, o)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = fitted
				listsTrialsOnce(t, fitted.Report)
			} else if !reflect.DeepEqual(first, fitted) {
				t.Errorf("softmax to %d: %d cores give another model or report", softmax, cores)
			}
		}
		o.Seed = 2
		if other, err := Fit(t.Context(), d, o); err != nil || reflect.DeepEqual(first.Tensors, other.Tensors) {
			t.Errorf("another seed gives the same model (%v)", err)
		}
	}
}

// listsTrialsOnce checks that no setting is in a report twice: a fit that only measures new items is no trial.
func listsTrialsOnce(t *testing.T, r Report) {
	t.Helper()
	if r.Guarded || r.Cold == nil {
		t.Errorf("new items were not measured apart: guarded %t", r.Guarded)
	}
	seen := map[[3]float64]bool{}
	for _, p := range r.Pulls {
		if of := [3]float64{p.Pull, p.Scale, p.Rate}; seen[of] {
			t.Errorf("pull, scale and rate %v are listed twice", of)
		} else {
			seen[of] = true
		}
	}
}

// A log that says nothing leaves the plain inner product.
func TestNoiseIsNotWorthIt(t *testing.T) {
	d := fittest.FlippedData()
	rng := rand.New(rand.NewPCG(5, 5))
	for q := range d.Relevant {
		d.Relevant[q] = []int32{int32(rng.IntN(50))}
	}
	fitted, err := Fit(t.Context(), d, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if v := fitted.Report.Verdict; v.Answer == verdict.Yes || v.Choose != "the plain inner product" || !strings.Contains(fitted.Report.Recommendation, "keep the plain inner product") {
		t.Errorf("recommended: %s", fitted.Report.Recommendation)
	}
}

func TestRawVectorsAndCut(t *testing.T) {
	d := fittest.FlippedData()
	for i := range d.Items.Data {
		d.Items.Data[i] *= 100
	}
	o := DefaultOptions()
	o.Normalise, o.Reduce = false, 5
	fitted, err := Fit(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := fitted.Tensors["P"].Shape; fitted.Config.Form != bilinear.LowRank || s[1] != 5 || fitted.Config.Normalise {
		t.Errorf("cut to rank 5: %+v with P of %v", fitted.Config, s)
	}
	if g := fitted.Report.Logged; g.Value < g.Baseline-0.05 {
		t.Errorf("raw vectors: %+v", g)
	}
}

func TestFitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fit(ctx, fittest.FlippedData(), DefaultOptions()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
