package follow_test

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

const interval = 500 * time.Millisecond

// window is the detection window that docs/proxy.md states.
const window = 2 * interval

// TestForeignWrites: writes through the proxy never dispute the declaration. A write that bypasses
// it is found, and remembered over a restart, until a requested comparison finds no more.
func TestForeignWrites(t *testing.T) {
	w := newWorldOn(t, openQdrant(t), 20)
	r := w.route(t, "")
	r.Writes = route.WritesProxy
	dir := t.TempDir()
	open := func() *follow.Follower {
		f, err := follow.New(follow.Options{Store: w.db, Dir: dir}, []follow.Route{{Route: r, Interval: interval}})
		must(t, err)
		return f
	}
	f := open()
	fresh(t, r)
	for first := f.Status()[0].Reconciles; f.Status()[0].Reconciles < first+3; {
		id := rand.Uint64N(40)
		done := begin(t.Context(), f, journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(id)})
		w.put(t, id, rand.Uint64(), 1)
		done()
	}
	fresh(t, r)
	if s := f.Status()[0]; s.Foreign != nil || r.Freshness.Horizon().Disputed == route.DisputeForeign {
		t.Fatalf("only the proxy wrote: %+v", s.Foreign)
	}
	w.put(t, 77, 5, 5)
	until(t, func() bool { return r.Freshness.Horizon().Disputed == route.DisputeForeign })
	if s := f.Status()[0]; s.Foreign == nil || s.Foreign.Rows != 1 || s.Foreign.ID != "77" {
		t.Errorf("%+v", s.Foreign)
	}
	must(t, f.Close(closing(t)))
	f = open()
	t.Cleanup(func() { must(t, f.Close(closing(t))) })
	if got := r.Freshness.Horizon().Disputed; got != route.DisputeForeign {
		t.Errorf("after a restart: %q", got)
	}
	_, err := f.Reconcile(t.Context(), items)
	must(t, err)
	until(t, func() bool { return r.Freshness.Horizon().Disputed == "" })
}

// states holds the successive states of a collection: the seeds of its rows' vectors, by id.
type states struct {
	mu   sync.Mutex
	all  []map[uint64]uint64
	done int // the last state made by a write that has ended
}

// begin adds the state that a write will create.
func (s *states) begin(change func(map[uint64]uint64)) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.all[len(s.all)-1])
	change(next)
	s.all = append(s.all, next)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = len(s.all) - 1
	}
}

// at returns the number of the last state that is certain.
func (s *states) at() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// since returns the states that a search may have seen which began at state from.
func (s *states) since(from int) []map[uint64]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all[from:])
}

// TestExactIsNeverWrong searches while rows are written: through the proxy, by id and without ids,
// and past it. Every answer that is called exact must match a state of the collection during the
// search; one that Qdrant computes, a state for each row. The declared route may be wrong only within
// the detection window after a write past the proxy. EXACT_FOR sets the duration.
func TestExactIsNeverWrong(t *testing.T) {
	length := 15 * time.Second
	if os.Getenv("LIKENESS_SOAK") != "" {
		length = 3 * time.Minute
	}
	if text := os.Getenv("EXACT_FOR"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		must(t, err)
	}
	w := newWorldOn(t, openQdrant(t), 20)
	declared, undeclared, replica := w.route(t, ""), w.route(t, ""), w.route(t, "")
	for name, r := range map[string]*route.Route{"declared": declared, "undeclared": undeclared, "replica": replica} {
		r.Name, r.Strategy, r.Companion = name, rerank.Scan, ""
	}
	declared.Writes = route.WritesProxy
	open := func(routes ...follow.Route) *follow.Follower {
		f, err := follow.New(follow.Options{Store: w.db, Dir: t.TempDir()}, routes)
		must(t, err)
		t.Cleanup(func() { must(t, f.Close(closing(t))) })
		return f
	}
	f := open(follow.Route{Route: declared, Interval: interval}, follow.Route{Route: undeclared, Interval: interval})
	open(follow.Route{Route: replica, Interval: interval}) // to this route, every write is foreign
	stored := &route.Route{
		Policy: route.Policy{Name: "stored", Collection: items, Vector: "vec", StoreName: "main", Placement: route.PlacementStored, ExactSearch: true, Depth: 100, UnitVectors: true},
		Parts:  route.Parts{Store: w.db, Model: w.model},
	}
	routes := []*route.Route{declared, undeclared, replica, stored}
	engine, err := search.New(routes, search.Options{})
	must(t, err)

	first := map[uint64]uint64{}
	for i := range uint64(20) {
		first[i] = i
	}
	history := &states{all: []map[uint64]uint64{first}}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var foreign foreignAt
	var writer sync.WaitGroup
	writer.Go(func() { w.writeUntil(ctx, t, f, history, &foreign) })
	defer writer.Wait()
	exact := map[string]int{}
	rng := rand.New(rand.NewPCG(5, 1))
	answers := 0
	for ; ctx.Err() == nil && !t.Failed(); answers++ {
		r := routes[answers%len(routes)]
		q := rerank.Query{Vector: make([]float32, w.model.Similarity.Spec().QueryDim)}
		for i := range q.Vector {
			q.Vector[i] = float32(rng.NormFloat64())
		}
		from, began := history.at(), time.Now()
		a, err := engine.Search(t.Context(), search.Request{Route: r.Name, Query: q, K: 5})
		must(t, err)
		if a.Certificate.Status != rerank.StatusExact {
			continue
		}
		exact[r.Name]++
		switch {
		case r == undeclared || r == replica:
			t.Errorf("%s: exact, though others may write", r.Name)
		case r == declared && foreign.within(began):
		case r == stored: // Qdrant reads one row after the other
			if states := history.since(from); !w.isAnswer(t, a.Hits, states, q) {
				t.Errorf("stored: exact, and rows as in none of %d states of the collection: %+v", len(states), a.Certificate)
			}
		case !slices.ContainsFunc(history.since(from), func(rows map[uint64]uint64) bool {
			return w.isAnswer(t, a.Hits, []map[uint64]uint64{rows}, q)
		}):
			t.Errorf("%s: exact, and the answer of no state of the collection: %+v", r.Name, a.Certificate)
		}
	}
	stop()
	writer.Wait()
	t.Logf("%d answers, exact: %v; %d writes past the proxy", answers, exact, foreign.count)
	if exact["declared"] == 0 || exact["stored"] == 0 {
		t.Error("no answer of a route was exact that can be")
	}
}

// foreignAt records when writes past the proxy ended.
type foreignAt struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

func (f *foreignAt) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.count = time.Now(), f.count+1
}

// within reports whether a search that began at that time may miss the last such write.
func (f *foreignAt) within(began time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count > 0 && began.Before(f.last.Add(window))
}

// pass waits for d, which uses up detection windows, or until ctx ends.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// writeUntil writes rows until ctx is done.
func (w *world) writeUntil(ctx context.Context, t *testing.T, f *follow.Follower, history *states, foreign *foreignAt) {
	rng := rand.New(rand.NewPCG(7, 1))
	for n := 1; ctx.Err() == nil; n++ {
		id, seed := rng.Uint64N(25), rng.Uint64()
		remove := rng.IntN(4) == 0
		if n%60 == 0 { // a pause in which the tables become fresh
			pass(ctx, window)
		}
		past := n%150 == 0
		if past { // recorded before and after it is sent
			foreign.note()
		}
		end := history.begin(func(rows map[uint64]uint64) {
			if rows[id] = seed; remove {
				delete(rows, id)
			}
		})
		done := func() {}
		if !past {
			jw := journal.Write{Collection: items, Kind: journal.Upsert, IDs: ids(id)}
			if n%20 == 0 {
				jw.IDs, jw.All = nil, true
			}
			done = begin(t.Context(), f, jw)
		}
		if remove {
			w.remove(t, id)
		} else {
			w.put(t, id, seed, 1)
		}
		done()
		end()
		if past {
			foreign.note()
			pass(ctx, 2*window)
			for range 2 { // the first finds and repairs it, the second finds no more
				if _, err := f.Reconcile(ctx, items); err != nil {
					return
				}
			}
		}
	}
}

// isAnswer reports whether hits are the best five rows if each row was as in any of the states, up to
// scores that rounding can exchange.
func (w *world) isAnswer(t *testing.T, hits []search.Hit, states []map[uint64]uint64, q rerank.Query) bool {
	t.Helper()
	seeds := map[uint64][]uint64{} // of each row, in the states that have it
	for _, rows := range states {
		for id, seed := range rows {
			seeds[id] = append(seeds[id], seed)
		}
	}
	last := float32(math.Inf(-1)) // what a row that is not a hit may score
	if len(hits) == 5 {
		last = hits[4].Score
	}
	right := 0
	for id, of := range seeds {
		scores := w.scores(t, of, q)
		at := slices.IndexFunc(hits, func(h search.Hit) bool { return h.ID == rerank.UintID(id) })
		switch {
		case at < 0 && len(of) == len(states) && slices.Min(scores) > last+1e-4:
			return false
		case at >= 0 && slices.ContainsFunc(scores, func(s float32) bool { return math.Abs(float64(s-hits[at].Score)) <= 1e-4 }):
			right++
		}
	}
	return right == len(hits) && slices.IsSortedFunc(hits, func(a, b search.Hit) int { return cmp.Compare(b.Score, a.Score) })
}

// scores returns the scores of the vectors of seeds.
func (w *world) scores(t *testing.T, seeds []uint64, q rerank.Query) []float32 {
	t.Helper()
	enc, err := w.model.Similarity.Encode(q)
	must(t, err)
	vectors := rerank.NewMatrix(len(seeds), w.schema.Fields[0].Dim)
	for i, seed := range seeds {
		copy(vectors.Row(i), w.vector(seed))
	}
	features := rerank.NewMatrix(len(seeds), w.model.Similarity.Spec().Features)
	must(t, w.model.Similarity.EncodeItems(features, vectors))
	scores := make([]float32, len(seeds))
	must(t, enc.Score(scores, rerank.Items{Features: features}))
	return scores
}
