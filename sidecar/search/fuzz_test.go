package search_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// documented lists the errors with which a request may be answered.
var documented = []error{route.ErrUnknown, plan.ErrRequest, rerank.ErrQuery, rerank.ErrStrategy, adapters.ErrFilter, context.DeadlineExceeded}

// FuzzSearch: a request is answered correctly or with a documented error, and never panics.
func FuzzSearch(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 3))
	vectors := random(11, 90, 5)
	copy(vectors.Row(30), vectors.Row(31))
	vectors.Row(40)[2] = float32(math.Inf(1))
	var trials []*trial
	for _, name := range []string{"dot", "bilinear", "mol", "maxsim"} {
		sim, o := kinds[name](f, rng, 5)
		v := vectors
		if name == "mol" { // whose oracle has no answer to infinite items
			v = random(11, 90, 5)
		}
		trials = append(trials, newTrial(f, rng, sim, o, v))
	}
	f.Add(byte(0), "average", "", "", "", 3, 9, 9, uint32(0), []byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 191})
	f.Add(byte(5), "per_embedding", "gates", "", even, 20, 1, 0, uint32(0x7fc00000), []byte("0123456789abcdefghij"))
	f.Add(byte(11), "scan", "uniform", "x", first, 1000, -1, 1<<30, uint32(1), []byte{})
	f.Add(byte(200), "", "", "", "{", 0, 0, 0, uint32(0x3f800000), []byte("0123456789abcdef0123"))
	f.Fuzz(func(t *testing.T, rt byte, strategy, weights, head, filter string, k, depth, average int, gap uint32, query []byte) {
		tr := trials[int(rt)%len(trials)]
		r := search.Request{
			Route: "r", K: k, Depth: depth, AverageDepth: average, Strategy: rerank.Strategy(strategy),
			Weights: rerank.Weights(weights), Head: head, Filter: filter, Explain: rt&16 != 0, Payload: rt&32 != 0,
		}
		for len(query) >= 4 {
			r.Query.Vector = append(r.Query.Vector, math.Float32frombits(binary.LittleEndian.Uint32(query)))
			query = query[4:]
		}
		if gap != 0 {
			r.MaxGap = ptr(math.Float32frombits(gap))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		a, err := tr.pipelines[int(rt/4)%len(tr.pipelines)].Search(ctx, r)
		if err != nil {
			if !slices.ContainsFunc(documented, func(want error) bool { return errors.Is(err, want) }) {
				t.Fatalf("an error that is not documented: %v", err)
			}
			return
		}
		tr.check(t, r, a)
	})
}

// check checks the answer to a valid request, if the query's inner products stay within float32.
func (tr *trial) check(t *testing.T, r search.Request, a search.Answer) {
	norm := rerank.Norm(r.Query.Vector)
	if norm > 1e6 || norm < 1e-6 {
		return
	}
	ids, err := tr.store.Match(context.Background(), collection, r.Filter)
	must(t, err)
	through := make([]bool, tr.vectors.Rows)
	for _, id := range ids {
		n, _ := id.Uint64()
		through[n] = true
	}
	truth := tr.truth(tr.world, tr.items, r.Query.Vector, func(row int) bool { return through[row] })
	for id, phi := range truth {
		if math.IsNaN(phi) || math.IsInf(phi, 0) {
			delete(truth, id)
		}
	}
	a.Hits = slices.DeleteFunc(a.Hits, func(h search.Hit) bool {
		return math.IsNaN(float64(h.Score)) || math.IsInf(float64(h.Score), 0)
	})
	if problem := contradiction(a, truth, r.K, tr.rounding(r.Query.Vector, truth)); problem != "" {
		t.Fatalf("%s\nrequest %+v\ncertificate %+v", problem, r, a.Certificate)
	}
}
