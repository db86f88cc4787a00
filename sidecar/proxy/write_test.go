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
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// recorder is a follower that records the beginning and end of writes.
type recorder struct {
	begin func(ctx context.Context) // if set, is called in Begin

	mu     sync.Mutex
	begun  []journal.Write
	chosen []rerank.ID
	open   int // begun and not ended
	all    int // that ever began
}

func (*recorder) Blocked(string) bool { return false }

func (r *recorder) Covers(collection string) bool {
	return collection == "routed" || collection == "other"
}

func (r *recorder) Begin(ctx context.Context, w journal.Write) func(bool, []rerank.ID) {
	r.mu.Lock()
	begin := r.begin
	r.mu.Unlock()
	if begin != nil {
		begin(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := len(r.begun)
	r.begun = append(r.begun, w)
	r.open++
	r.all++
	return func(applied bool, ids []rerank.ID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		r.chosen = ids
		if !applied {
			r.begun[at].Collection = "" // take leaves it out
		}
	}
}

func (r *recorder) setBegin(begin func(ctx context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin = begin
}

// told returns how many writes have begun so far.
func (r *recorder) told() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Doubt records the write once it is believed.
func (r *recorder) Doubt(string) func(*journal.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := len(r.begun)
	r.begun = append(r.begun, journal.Write{})
	r.open++
	r.all++
	return func(w *journal.Write) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		if w != nil {
			r.begun[at] = *w
		}
	}
}

// take returns the writes that began since the last take, once all of them have ended.
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
	begun = slices.DeleteFunc(r.begun, func(w journal.Write) bool { return w.Collection == "" })
	if chosen = r.chosen; len(begun) == 0 {
		begun = nil
	}
	r.begun, r.chosen = nil, nil
	return begun, chosen, true
}

// routed is a searcher that has routes of some collections and answers no search.
type routed struct {
	search.Searcher
	store       adapters.Store
	collections []string
}

func (s routed) Routes() (all []*route.Route) {
	for _, c := range s.collections {
		all = append(all, &route.Route{Policy: route.Policy{Name: c, Collection: c, StoreName: "main", Ramp: 100}, Parts: route.Parts{Store: s.store}})
	}
	return all
}

// followed returns a router whose writes f follows.
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

func (s routed) Route(name string) (*route.Route, error) {
	for _, r := range s.Routes() {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, plan.ErrRequest
}

func (routed) Search(context.Context, search.Request) (search.Answer, error) {
	return search.Answer{}, failure.ErrDegraded
}

func numbers(ns ...uint64) (ids []rerank.ID) {
	for _, n := range ns {
		ids = append(ids, rerank.UintID(n))
	}
	return ids
}
