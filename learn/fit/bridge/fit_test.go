package bridge_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/learn/fit/bridge"
	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/learn/verdict"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
)

// world is a collection whose texts are points of a space. Each model sees linear functions of a point,
// with noise.
type world struct {
	rng    *rand.Rand
	points rerank.Matrix
}

func newWorld(texts, dim int) world {
	rng := rand.New(rand.NewPCG(5, 6))
	return world{rng, fittest.NormalMatrix(rng, texts, dim)}
}

// model is a random linear function of a number of the coordinates.
func (w world) model(seen, dim int) rerank.Matrix {
	m := fittest.NormalMatrix(w.rng, dim, w.points.Cols)
	for r := range m.Rows {
		clear(m.Row(r)[seen:])
	}
	return m
}

// embed returns what a model makes of points.
func (w world) embed(model, points rerank.Matrix, noise float64) rerank.Matrix {
	out := rerank.NewMatrix(points.Rows, model.Rows)
	for r := range points.Rows {
		for j := range model.Rows {
			sum := 3 + noise*w.rng.NormFloat64() // the vectors have a mean
			for k, v := range points.Row(r) {
				sum += float64(v) * float64(model.Row(j)[k])
			}
			out.Row(r)[j] = float32(sum)
		}
	}
	return out
}

// queries returns points near some of the texts, and the rows of these texts.
func (w world) queries(n int, noise float64) (rerank.Matrix, [][]int32) {
	points, relevant := rerank.NewMatrix(n, w.points.Cols), make([][]int32, n)
	for q := range n {
		x := w.rng.IntN(w.points.Rows)
		relevant[q] = []int32{int32(x)}
		for k, v := range w.points.Row(x) {
			points.Row(q)[k] = v + float32(noise*w.rng.NormFloat64())
		}
	}
	return points, relevant
}

// data returns texts and queries by two models that see this many of 16 coordinates.
func data(oldSees, newSees int) bridge.Data {
	w := newWorld(600, 16)
	old, now := w.model(oldSees, 20), w.model(newSees, 24)
	asked, relevant := w.queries(300, 0.6)
	return bridge.Data{
		Old: w.embed(old, w.points, 0.1), New: w.embed(now, w.points, 0.1),
		OldQueries: w.embed(old, asked, 0.1), NewQueries: w.embed(now, asked, 0.1), Relevant: relevant,
	}
}

// TestVerdict: the old model sees some of what makes texts differ, the new one more or less of it.
func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		old, now int
		answer   verdict.Answer
		choose   string
	}{
		"the new model sees less":                {16, 5, verdict.No, bridge.KeepOld},
		"the same in other coordinates":          {12, 12, verdict.No, bridge.KeepOld},
		"the new model sees what the old misses": {5, 16, verdict.Yes, bridge.Anew},
	} {
		f, err := bridge.Fit(context.Background(), data(c.old, c.now), bridge.DefaultOptions())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v := f.Report.Verdict; v.Answer != c.answer || v.Choose != c.choose || f.Report.Evidence != bridge.Pairs || len(v.Text) == 0 {
			t.Errorf("%s: %+v\n%+v", name, v, f.Report.Ways)
		}
	}
}

// TestBridgeIsTaken: the old model has all that the new one knows, in coordinates whose inner product is
// bad at finding. The bridge undoes that.
func TestBridgeIsTaken(t *testing.T) {
	d := data(16, 16)
	for _, m := range []rerank.Matrix{d.Old, d.OldQueries} {
		for r := range m.Rows {
			for j := range m.Row(r)[:2] {
				m.Row(r)[j] *= 12
			}
		}
	}
	o := bridge.DefaultOptions()
	o.Normalise = false
	d.Segments = make([]string, d.NewQueries.Rows)
	for q := range d.Segments {
		d.Segments[q] = []string{"even", "odd"}[q%2]
	}
	d.Segments[0] = "rare"
	f, err := bridge.Fit(context.Background(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Report
	if r.Verdict.Choose != bridge.Bridged || r.Ways[1].Low < 0.97 || r.Explained < 0.9 || len(r.Segments) != 2 || r.Segments[0].Verdict.Choose == "" || !strings.Contains(r.Warnings[0], "rare") {
		t.Errorf("%+v", r)
	}
	if !(math.Abs(r.Calibration.Slope-1) <= 0.2) {
		t.Errorf("the scores of items that no map has seen are not on the new scale: %+v", r.Calibration)
	}
	// The form ranks the collection as the verdict says.
	ndcg := ndcgOf(t, f, d.Old, d.NewQueries, d.Relevant)
	if !(math.Abs(ndcg-r.Ways[1].NDCG) <= 0.03) {
		t.Errorf("the form has nDCG@10 %.4f, the verdict %.4f", ndcg, r.Ways[1].NDCG)
	}
}

// ndcgOf returns nDCG@10 of a fitted bridge for queries and their right answers.
func ndcgOf(t *testing.T, f *bridge.Fitted, items, queries rerank.Matrix, relevant [][]int32) float64 {
	t.Helper()
	s, err := mol.New(f.Config, f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	features := rerank.NewMatrix(items.Rows, s.Spec().Features)
	if err := s.EncodeItems(features, items); err != nil {
		t.Fatal(err)
	}
	return meanNDCG(relevant, func(q int) []float32 {
		e, err := s.Encode(rerank.Query{Vector: queries.Row(q)})
		if err != nil {
			t.Fatal(err)
		}
		scores := make([]float32, items.Rows)
		if err := e.Score(scores, rerank.Items{Features: features}); err != nil {
			t.Fatal(err)
		}
		return scores
	})
}

// cosineNDCG returns nDCG@10 of the cosine.
func cosineNDCG(items, queries rerank.Matrix, relevant [][]int32) float64 {
	return meanNDCG(relevant, func(q int) []float32 {
		scores := make([]float32, items.Rows)
		for x := range scores {
			scores[x] = float32(linalg.Dot(queries.Row(q), items.Row(x)) / rerank.Norm(items.Row(x)))
		}
		return scores
	})
}

// meanNDCG returns nDCG@10 of the scores that each query gives the items.
func meanNDCG(relevant [][]int32, scoresOf func(q int) []float32) (mean float64) {
	for q, items := range relevant {
		scores := scoresOf(q)
		var gain, most float64
		for i, x := range items {
			rank := 0
			for _, v := range scores {
				if v > scores[x] {
					rank++
				}
			}
			if rank < 10 {
				gain += 1 / math.Log2(float64(rank+2))
			}
			if i < 10 {
				most += 1 / math.Log2(float64(i+2))
			}
		}
		mean += gain / most / float64(len(relevant))
	}
	return mean
}

// TestWithoutPairs: agreement is never taken for a reason to embed anew.
func TestWithoutPairs(t *testing.T) {
	for _, queries := range []bool{false, true} {
		d := data(5, 16)
		d.Relevant = nil
		if !queries {
			d.OldQueries, d.NewQueries = rerank.Matrix{}, rerank.Matrix{}
		}
		f, err := bridge.Fit(context.Background(), d, bridge.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		r := f.Report
		if r.Evidence != bridge.Agreement || r.Verdict.Answer == verdict.Yes || r.Verdict.Choose != bridge.KeepOld || !(math.Abs(r.Ways[3].NDCG-1) <= 1e-9) {
			t.Errorf("with queries %t: %+v\n%+v", queries, r.Verdict, r.Ways)
		}
		if want := map[bool]int{false: 480, true: 600}[queries]; r.Items != want {
			t.Errorf("with queries %t: %d items, want %d", queries, r.Items, want)
		}
	}
}

// TestUnseenItems: with more numbers than texts a map can repeat what it has seen, and the verdict must
// not be about that.
func TestUnseenItems(t *testing.T) {
	w := newWorld(80, 8)
	d := bridge.Data{Old: fittest.NormalMatrix(w.rng, 80, 100), New: fittest.NormalMatrix(w.rng, 80, 10)}
	f, err := bridge.Fit(context.Background(), d, bridge.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Report; r.Explained > 0.1 || r.Ways[1].NDCG > 0.6 || r.Verdict.Answer == verdict.Yes {
		t.Errorf("noise explains %.2f, agreement %.2f: %+v", r.Explained, r.Ways[1].NDCG, r.Verdict)
	}
}

func TestInvalid(t *testing.T) {
	good := func() bridge.Data { return data(8, 8) }
	for name, c := range map[string]struct {
		change func(*bridge.Data, *bridge.Options)
		want   error
		text   string
	}{
		"texts":    {func(d *bridge.Data, _ *bridge.Options) { d.New = d.New.Slice(0, 599) }, fit.ErrData, "600 vectors by the old model and 599"},
		"few":      {func(d *bridge.Data, _ *bridge.Options) { d.Old, d.New = d.Old.Slice(0, 49), d.New.Slice(0, 49) }, fit.ErrData, "want 50"},
		"queries":  {func(d *bridge.Data, _ *bridge.Options) { d.OldQueries = d.OldQueries.Slice(0, 9) }, fit.ErrData, "9 queries"},
		"segments": {func(d *bridge.Data, _ *bridge.Options) { d.Segments = []string{"a"} }, fit.ErrData, "segments of 1"},
		"pairs":    {func(d *bridge.Data, _ *bridge.Options) { d.Relevant[3] = []int32{600} }, fit.ErrData, "600"},
		"equal":    {func(d *bridge.Data, _ *bridge.Options) { clear(d.Old.Data) }, fit.ErrData, "equal"},
		"lazy":     {func(_ *bridge.Data, o *bridge.Options) { o.Lazy = 1 }, fit.ErrOption, "embedded again"},
	} {
		d, o := good(), bridge.DefaultOptions()
		c.change(&d, &o)
		if _, err := bridge.Fit(context.Background(), d, o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

// TestOtherItems: with hardly more texts than numbers, the verdict's value of a bridge is what the bridge has for
// queries and items that it has not seen. It may have seen other queries about these items.
func TestOtherItems(t *testing.T) {
	for name, elsewhere := range map[string]bool{"queries about the texts": false, "queries about all items": true} {
		t.Run(name, func(t *testing.T) {
			const texts = 150
			w := newWorld(2*texts, 40)
			old, now := w.model(40, 100), w.model(40, 60)
			x, y := w.embed(old, w.points, 12), w.embed(now, w.points, 1)
			asked, relevant := w.queries(1200, 0.6)
			qx, qy := w.embed(old, asked, 12), w.embed(now, asked, 1)
			var log, later []int32
			for q, items := range relevant {
				switch {
				case elsewhere && q%2 == 0, !elsewhere && items[0] < texts:
					log = append(log, int32(q))
				case items[0] >= texts:
					later = append(later, int32(q))
				}
			}
			d := bridge.Data{Old: x.Slice(0, texts), New: y.Slice(0, texts), OldQueries: linalg.Gather(qx, log), NewQueries: linalg.Gather(qy, log)}
			for _, q := range log {
				if relevant[q][0] >= texts {
					relevant[q] = nil
				}
				d.Relevant = append(d.Relevant, relevant[q])
			}
			f, err := bridge.Fit(context.Background(), d, bridge.DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			var wanted [][]int32
			for _, q := range later {
				wanted = append(wanted, []int32{relevant[q][0] - texts})
			}
			truth := ndcgOf(t, f, x.Slice(texts, 2*texts), linalg.Gather(qy, later), wanted)
			if said := f.Report.Ways[1].NDCG; !(math.Abs(said-truth) <= 0.015) {
				t.Errorf("on other items the bridge has nDCG@10 %.4f, the verdict says %.4f", truth, said)
			}
		})
	}
}

// TestAnswersDrawItems: texts of a topic differ in coordinates that both models see and that do not matter. The queries'
// right answers say so, and the verdict's value holds for items and queries of these topics that the fit has not seen.
func TestAnswersDrawItems(t *testing.T) {
	const topics, texts, asked, later = 60, 480, 240, 1200 // later queries ask for as many other texts
	w := newWorld(2*texts+asked+later, 20)
	centres := fittest.NormalMatrix(w.rng, topics, 6)
	for r := range w.points.Rows {
		for k, v := range centres.Row(r % topics) {
			w.points.Row(r)[k] = v + w.points.Row(r)[k]/2
		}
	}
	x, y := w.embed(w.model(20, 24), w.points, 0.5), w.embed(w.model(20, 28), w.points, 0.5)
	relevant := make([][]int32, later)
	for q := range relevant {
		for r := q % topics; r < texts; r += topics {
			relevant[q] = append(relevant[q], int32(r))
		}
	}
	d := bridge.Data{
		Old: x.Slice(0, texts), New: y.Slice(0, texts), Relevant: relevant[:asked],
		OldQueries: x.Slice(2*texts, 2*texts+asked), NewQueries: y.Slice(2*texts, 2*texts+asked),
	}
	f, err := bridge.Fit(context.Background(), d, bridge.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	r := f.Report
	if r.AnswerShare == 0 || !r.FromQueries || r.Verdict.Choose != bridge.Bridged || r.Ways[1].NDCG < r.Ways[3].NDCG {
		t.Errorf("the answers draw no item: %+v", r)
	}
	asking := y.Slice(2*texts+asked, y.Rows)
	truth := ndcgOf(t, f, x.Slice(texts, 2*texts), asking, relevant) / cosineNDCG(y.Slice(texts, 2*texts), asking, relevant)
	if !(math.Abs(r.Ways[1].Kept-truth) <= 0.06) {
		t.Errorf("on other items the bridge keeps %.3f of a new index, the verdict says %.3f", truth, r.Ways[1].Kept)
	}
	d.Relevant = nil
	if f, err = bridge.Fit(context.Background(), d, bridge.DefaultOptions()); err != nil || f.Report.AnswerShare != 0 {
		t.Errorf("without pairs items are drawn at a share of %g, error %v", f.Report.AnswerShare, err)
	}
}
