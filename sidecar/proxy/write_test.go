package proxy_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/journal"
	"github.com/likenessdb/likeness/sidecar/pipeline"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
)

// recorder is a follower that notes writes as they begin and end.
type recorder struct {
	begin func(ctx context.Context) // if set, is called in BeginOpen

	mu     sync.Mutex
	begun  []journal.Write
	chosen []rerank.ID
	open   int // begun and not ended
}

func (r *recorder) Covers(collection string) bool {
	return collection == "routed" || collection == "other"
}

func (r *recorder) BeginOpen(ctx context.Context, w journal.Write) func([]rerank.ID) {
	if r.begin != nil {
		r.begin(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, w)
	r.open++
	return func(ids []rerank.ID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		r.chosen = ids
	}
}

// take returns what began since the last take, once all of it has ended.
func (r *recorder) take(t *testing.T) (begun []journal.Write, chosen []rerank.ID) {
	t.Helper()
	for late := time.Now().Add(patience); time.Now().Before(late); {
		if begun, chosen, ok := r.ended(); ok {
			slices.SortFunc(begun, func(a, b journal.Write) int { return len(a.Collection) - len(b.Collection) })
			return begun, chosen
		}
	}
	t.Fatal("a write did not end")
	return nil, nil
}

// patience ends tests that would hang.
const patience = time.Minute

func (r *recorder) ended() (begun []journal.Write, chosen []rerank.ID, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open > 0 {
		return nil, nil, false
	}
	begun, chosen = r.begun, r.chosen
	r.begun, r.chosen = nil, nil
	return begun, chosen, true
}

// routed is a searcher with routes of some collections and no search.
type routed struct {
	pipeline.Searcher
	store       adapters.Store
	collections []string
}

func (s routed) Routes() (all []*pipeline.Route) {
	for _, c := range s.collections {
		all = append(all, &pipeline.Route{Name: c, Collection: c, StoreName: "main", Store: s.store})
	}
	return all
}

// followed makes a router whose writes f follows.
func followed(t testing.TB, store adapters.Store, f routing.Follower) *routing.Router {
	t.Helper()
	return followedWithin(t, store, f, time.Minute)
}

func followedWithin(t testing.TB, store adapters.Store, f routing.Follower, budget time.Duration) *routing.Router {
	t.Helper()
	r, err := routing.New(routed{store: store, collections: []string{"routed", "other"}},
		routing.Options{Store: "main", Logger: slog.New(slog.DiscardHandler), Follower: f, WriteBudget: budget})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func numbers(ns ...uint64) (ids []rerank.ID) {
	for _, n := range ns {
		ids = append(ids, rerank.UintID(n))
	}
	return ids
}
