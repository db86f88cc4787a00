package routing

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/rank"
)

// hitsOf returns hits with these scores and ids from 1 on.
func hitsOf(scores ...float32) (all []search.Hit) {
	for i, s := range scores {
		all = append(all, search.Hit{ID: rerank.UintID(uint64(i + 1)), Score: s})
	}
	return all
}

func scoresOf(hits []search.Hit) (all []float32) {
	for _, h := range hits {
		all = append(all, h.Score)
	}
	return all
}

// TestPage: a page has the hits that the database returns. Whether the search is ranked again after
// a missing hit depends on the certificate, and on whether the database's own threshold may have
// removed the hit.
func TestPage(t *testing.T) {
	const exact, unknown = rerank.StatusExact, rerank.StatusUnknown
	for name, c := range map[string]struct {
		ranked      Ranked
		gone        uint64
		err         error
		scores      []float32
		certificate rerank.Status
	}{
		"all there":                       {Ranked{Limit: 2, Certificate: exact}, 9, nil, []float32{4, 3}, exact},
		"an offset":                       {Ranked{Limit: 2, Offset: 1, Certificate: exact}, 9, nil, []float32{3, 2}, exact},
		"one gone":                        {Ranked{Limit: 2, Certificate: exact}, 1, ErrChanged, nil, exact},
		"one gone, not proved":            {Ranked{Limit: 2, Certificate: unknown}, 1, nil, []float32{3, 2}, unknown},
		"one gone behind the page":        {Ranked{Limit: 2, Certificate: exact}, 3, nil, []float32{4, 3}, exact},
		"one gone, the last ranking":      {Ranked{Limit: 2, Certificate: exact, isLast: true}, 1, nil, []float32{3, 2}, unknown},
		"the database's scores":           {Ranked{Limit: 2, Certificate: exact, StoreScores: true}, 1, ErrChanged, nil, exact},
		"the database's threshold":        {Ranked{Limit: 2, Certificate: exact, StoreScores: true, Cut: true}, 1, nil, []float32{3, 2}, unknown},
		"the threshold of the similarity": {Ranked{Limit: 2, Certificate: exact, Cut: true}, 1, ErrChanged, nil, exact},
		"too few":                         {Ranked{Limit: 4, Certificate: unknown}, 1, ErrShort, nil, unknown},
		"too few, and none more":          {Ranked{Limit: 9, Certificate: unknown, All: true}, 9, nil, []float32{4, 3, 2, 1}, unknown},
		"too few, and one of all gone":    {Ranked{Limit: 9, Certificate: unknown, All: true}, 1, ErrShort, nil, unknown},
		"cut, and one of all gone":        {Ranked{Limit: 9, Certificate: unknown, All: true, Cut: true}, 1, nil, []float32{3, 2, 1}, unknown},
		"an offset behind all":            {Ranked{Limit: 2, Offset: 7, Certificate: unknown, All: true, Cut: true}, 9, nil, nil, unknown},
	} {
		r := c.ranked
		r.Hits = hitsOf(4, 3, 2, 1)
		hits, err := r.Page(t.Context(), func(id rerank.ID) Row { return Row{IsThere: id != rerank.UintID(c.gone)} })
		if !errors.Is(err, c.err) || !slices.Equal(scoresOf(hits), c.scores) || r.Certificate != c.certificate {
			t.Errorf("%s: scores %v, certificate %s, error %v", name, scoresOf(hits), r.Certificate, err)
		}
	}
}

// TestScoresOfReturnedVectors: hits whose rows have their vectors get the scores of these vectors
// if they differ, and lose their proof. A row without its vector leaves the scores unchanged;
// vectors that cannot be scored fail the confirmation.
func TestScoresOfReturnedVectors(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		epsilon     float32
		certificate rerank.Status
		vectors     [][]float32
		scored      []float32
		err, want   error
		scores      []float32
		status      rerank.Status
	}{
		"as ranked":              {0, "snapshot", [][]float32{{1}, {2}}, []float32{4, 3}, nil, nil, []float32{4, 3}, "snapshot"},
		"within the error":       {0.1, "snapshot", [][]float32{{1}, {2}}, []float32{4, 3.19}, nil, nil, []float32{4, 3}, "snapshot"},
		"beyond the error":       {0.1, "snapshot", [][]float32{{1}, {2}}, []float32{4, 3.21}, nil, nil, []float32{4, 3.21}, "unknown"},
		"another order":          {0, "calibrated", [][]float32{{1}, {2}}, []float32{2, 3}, nil, nil, []float32{3, 2}, "unknown"},
		"one without its vector": {0, "snapshot", [][]float32{{1}, nil}, []float32{9, 9}, nil, nil, []float32{4, 3}, "snapshot"},
		"without vectors":        {0, "snapshot", [][]float32{nil, nil}, []float32{9, 9}, nil, nil, []float32{4, 3}, "snapshot"},
		"cannot be scored":       {0, "snapshot", [][]float32{{1}, {2}}, []float32{4, 3}, failed, Degraded{Reason: "confirm"}, []float32{4, 3}, "snapshot"},
		"scores are missing":     {0, "snapshot", [][]float32{{1}, {2}}, []float32{4}, nil, Degraded{Reason: "confirm"}, []float32{4, 3}, "snapshot"},
	} {
		r := Ranked{Hits: hitsOf(4, 3), Limit: 2, Certificate: c.certificate, Epsilon: c.epsilon}
		r.score = func(context.Context, rerank.Matrix) ([]float32, error) { return c.scored, c.err }
		hits, err := r.Page(t.Context(), func(id rerank.ID) Row {
			n, _ := id.Uint64()
			return Row{IsThere: true, Vector: c.vectors[n-1]}
		})
		if !errors.Is(err, c.want) || !slices.Equal(scoresOf(hits), c.scores) || r.Certificate != c.status {
			t.Errorf("%s: scores %v, certificate %s, error %v", name, scoresOf(hits), r.Certificate, err)
		}
	}
}

// TestScoringNeedsVectorsThatDecide: vectors of returned rows are scored only if they determine the
// route's score.
func TestScoringNeedsVectorsThatDecide(t *testing.T) {
	plain, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		similarity rerank.Similarity
		want       bool
	}{"dot": {plain, true}, "relevance-based": {relevanceBased{plain}, false}, "no model": {nil, false}} {
		rt := &route.Route{Parts: route.Parts{Model: route.Model{Similarity: c.similarity}}}
		if got := (&rescorer{}).scoring(rt, rerank.Query{Vector: []float32{1}}) != nil; got != c.want {
			t.Errorf("%s: scored: %t", name, got)
		}
	}
}

// relevanceBased is a similarity whose item vectors are a ranker's scores.
type relevanceBased struct{ rerank.Similarity }

func (r relevanceBased) Spec() rerank.Spec {
	s := r.Similarity.Spec()
	s.Kind = rerank.KindRBE
	return s
}

// TestFinish: a ranking is cut at a threshold, which its hits exceed. It passes if a page has
// no candidates, and fails if a score is no number.
func TestFinish(t *testing.T) {
	two, inf := float32(2), float32(math.Inf(1))
	for name, c := range map[string]struct {
		ranked Ranked
		search Search
		want   error
		hits   []float32
		all    bool
	}{
		"whole":                     {Ranked{Hits: hitsOf(3, 2, 1), More: true}, Search{}, nil, []float32{3, 2, 1}, false},
		"cut":                       {Ranked{Hits: hitsOf(3, 2, 1), More: true, Cut: true}, Search{Threshold: &two}, nil, []float32{3}, true},
		"the database cuts":         {Ranked{Hits: hitsOf(3, 2, 1), More: true, Cut: true, StoreScores: true}, Search{Threshold: &two}, nil, []float32{3, 2, 1}, false},
		"infinite":                  {Ranked{Hits: hitsOf(inf, 2)}, Search{}, Degraded{Reason: "score-not-finite"}, []float32{inf, 2}, false},
		"the last hit":              {Ranked{Hits: hitsOf(3, 2, 1), Offset: 2}, Search{}, nil, []float32{3, 2, 1}, false},
		"behind the last hit":       {Ranked{Hits: hitsOf(3, 2, 1), Offset: 3}, Search{}, Pass("no-candidates"), []float32{3, 2, 1}, false},
		"behind the last, and cut":  {Ranked{Hits: hitsOf(3, 2, 1), Offset: 3, Cut: true}, Search{Threshold: &two}, nil, []float32{3}, true},
		"none exceed the threshold": {Ranked{Hits: hitsOf(2, 1), Cut: true}, Search{Threshold: &two}, nil, nil, true},
	} {
		r := c.ranked
		err := r.finish(c.search)
		if !errors.Is(err, c.want) || !slices.Equal(scoresOf(r.Hits), c.hits) || r.All != c.all || c.all && r.More {
			t.Errorf("%s: hits %v, all %t, more %t, error %v", name, scoresOf(r.Hits), r.All, r.More, err)
		}
	}
}

// TestPartialRankings: a ranking is partial if the ranker ran out of time or failed, and not if
// it scored all that it was allowed to. Hits that it did not score are left out.
func TestPartialRankings(t *testing.T) {
	for reason, want := range map[string]bool{"": false, rank.CutBudget: false, rank.CutDeadline: true, rank.CutFailed: true} {
		r := Ranked{Hits: hitsOf(3, 2, 1), All: true}
		r.Hits[0].Ranked = true
		if r.keepRanked(&rank.Ranking{Reason: reason}); r.Partial != want || len(r.Hits) != 1 || r.All {
			t.Errorf("reason %q: %+v", reason, r)
		}
	}
}

// TestShown: a call was shown all hits only if each of its searches was.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		all  []Ranked
		want bool
	}{{[]Ranked{{Shown: true}, {Shown: true}}, true}, {[]Ranked{{Shown: true}, {}}, false}, {[]Ranked{{}, {}}, false}} {
		if got := AllShown(c.all); got != c.want {
			t.Errorf("%+v: %t", c.all, got)
		}
	}
}

// TestConsistencyNeedsARead: hits of a search that asks for a read consistency are read with
// it, so that the versions that the search itself shows are not enough.
func TestConsistencyNeedsARead(t *testing.T) {
	s := Search{IDsOnly: true, Needs: []string{"indexed-only"}}
	if s.NeedConsistency(); s.IDsOnly || !slices.Equal(s.Needs, []string{"indexed-only", "consistency"}) {
		t.Errorf("%+v", s)
	}
}

// TestStatusOfASnapshot: the status tells the time of a snapshot if it is known, and that a
// row was seen against unit_vectors.
func TestStatusOfASnapshot(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for want, r := range map[string]Ranked{
		"rewritten; route=r; certificate=snapshot":                             {Route: "r", Certificate: "snapshot"},
		"rewritten; route=r; certificate=snapshot; as-of=2026-01-02T02:04:05Z": {Route: "r", Certificate: "snapshot", AsOf: at},
		"rewritten; route=r; certificate=exact":                                {Route: "r", Certificate: "exact", AsOf: at},
		"rewritten; route=r; certificate=unknown; norms=wrong":                 {Route: "r", Certificate: "unknown", WrongNorm: true},
	} {
		if got := statusText("rewritten", []Ranked{r}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
