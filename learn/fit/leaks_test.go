package fit_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bilinear"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/maxsim"
	"github.com/likenessdb/likeness/learn/fit/mol"
	"github.com/likenessdb/likeness/rerank"
)

// A log of noise has nothing to learn: which item a question chose is random. What a fit
// reports of held-out questions is then about chance, unless the fit has seen them.
const (
	noiseDim       = 32
	noiseItems     = 100
	noiseQuestions = 400
	// mostByChance bounds the MRR@10 of a random ranking: the mean over ranks 1 to 10 of
	// 100 items is 0.029, and its standard error over 100 questions 0.012.
	mostByChance = 0.08
)

// noise returns a log of random questions that each chose a random item.
func noise(rng *rand.Rand) fit.Data {
	d := fit.Data{Items: fittest.NormalMatrix(rng, noiseItems, noiseDim), Queries: fittest.NormalMatrix(rng, noiseQuestions, noiseDim)}
	for q := range d.Queries.Rows {
		d.Relevant, d.Times = append(d.Relevant, []int32{int32(rng.IntN(noiseItems))}), append(d.Times, int64(q))
	}
	return d
}

// repeated returns a log in which most questions of the last fifth of the time repeat an
// earlier question, and choose what it chose.
func repeated(rng *rand.Rand) fit.Data {
	d := noise(rng)
	last := noiseQuestions * 4 / 5
	for q := last; q < noiseQuestions-30; q++ {
		copy(d.Queries.Row(q), d.Queries.Row(q-last))
		d.Relevant[q] = d.Relevant[q-last]
	}
	return d
}

// questionsAsItems returns a log in which the items are questions, as on a site for questions that
// were asked before. Pairs go both ways: question q chose item x, and the question with
// the vector of item x chose the item with the vector of q.
func questionsAsItems(rng *rand.Rand) fit.Data {
	d := fit.Data{Items: fittest.NormalMatrix(rng, noiseItems, noiseDim), Queries: rerank.NewMatrix(noiseItems, noiseDim)}
	copy(d.Queries.Data, d.Items.Data)
	partner := rng.Perm(noiseItems)
	d.Relevant, d.Times = make([][]int32, noiseItems), make([]int64, noiseItems)
	for i := 0; i < noiseItems; i += 2 {
		a, b := partner[i], partner[i+1]
		d.Relevant[a], d.Relevant[b] = []int32{int32(b)}, []int32{int32(a)}
		d.Times[a], d.Times[b] = int64(i), int64(i+1)
	}
	return d
}

// TestNoiseIsNotLearned fits noise in which a careless fit would see its held-out
// questions, and wants figures of chance.
func TestNoiseIsNotLearned(t *testing.T) {
	logs := map[string]struct {
		data  fit.Data
		split fit.SplitBy
	}{
		"noise":                       {noise(rand.New(rand.NewPCG(1, 1))), fit.ByQuery},
		"noise, by time":              {noise(rand.New(rand.NewPCG(1, 2))), fit.ByTime},
		"repeated questions":          {repeated(rand.New(rand.NewPCG(1, 3))), fit.ByQuery},
		"repeated questions, by time": {repeated(rand.New(rand.NewPCG(1, 4))), fit.ByTime},
		"questions are items":         {questionsAsItems(rand.New(rand.NewPCG(1, 5))), fit.ByQuery},
	}
	fits := map[string]func(context.Context, fit.Data, fit.Common) (fit.Comparison, error){
		"bilinear": func(ctx context.Context, d fit.Data, c fit.Common) (fit.Comparison, error) {
			o := bilinear.DefaultOptions()
			o.Common, o.Pulls, o.Scale, o.Rate = c, []float64{1e-5}, 20, 0.01
			f, err := bilinear.Fit(ctx, d, o)
			if err != nil {
				return fit.Comparison{}, err
			}
			return f.Report.Logged, nil
		},
		"mol": func(ctx context.Context, d fit.Data, c fit.Common) (fit.Comparison, error) {
			o := mol.DefaultOptions()
			o.Common, o.PairsQuery, o.PairsItem, o.Dim, o.Rounds, o.Pulls = c, 2, 2, 16, 10, []float64{1e-5}
			f, err := mol.Fit(ctx, d, o)
			if err != nil {
				return fit.Comparison{}, err
			}
			return f.Report.Logged, nil
		},
		"maxsim": func(ctx context.Context, d fit.Data, c fit.Common) (fit.Comparison, error) {
			o := maxsim.DefaultOptions()
			o.Common = c
			f, err := maxsim.Fit(ctx, d, o, func(int, rerank.Matrix) error { return nil })
			if err != nil {
				return fit.Comparison{}, err
			}
			best := f.Report.Logged
			for _, trial := range f.Report.Trials {
				if trial.Logged.Value > best.Value {
					best = trial.Logged
				}
			}
			return best, nil
		},
	}
	for name, log := range logs {
		for kind, run := range fits {
			t.Run(kind+"/"+name, func(t *testing.T) {
				c := fit.DefaultCommon()
				c.HeldOut, c.SplitBy, c.ColdShare, c.Cold = 0.2, log.split, 0, fit.ColdIgnore
				got, err := run(t.Context(), log.data, c)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("MRR@10 %.4f, inner product %.4f, %d questions", got.Value, got.Baseline, got.Queries)
				if got.Queries < 10 || got.Value > mostByChance || got.Baseline > mostByChance {
					t.Errorf("MRR@10 of %d held-out questions is %.4f and %.4f by the inner product; want at most %g, chance", got.Queries, got.Value, got.Baseline, mostByChance)
				}
			})
		}
	}
}
