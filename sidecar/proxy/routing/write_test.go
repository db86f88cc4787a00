package routing_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// aliased is a store whose alias "a" can be moved.
type aliased struct {
	adapters.Store
	readers []string // keys that may not write
	checked int
	mu      sync.Mutex
	a       string
	read    int
}

func (s *aliased) Identify(_ context.Context, name string) (adapters.Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	id := adapters.Identity{Collection: name, Key: "id"}
	if s.a == name {
		id.Aliases = []string{"a"}
	}
	return id, nil
}

// CheckWrite refuses readers.
func (s *aliased) CheckWrite(ctx context.Context, _ string, _ adapters.WriteWay) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked++
	md, _ := metadata.FromOutgoingContext(ctx)
	if !adapters.IsAsCaller(ctx) || slices.Contains(s.readers, strings.Join(md.Get("api-key"), ",")) {
		return adapters.ErrRefused
	}
	return nil
}

func (s *aliased) move(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a = to
}

// twoCollections is a searcher with a route for x and one for y.
type twoCollections struct {
	search.Searcher
	store adapters.Store
}

func (s twoCollections) Routes() (all []*route.Route) {
	for _, c := range []string{"x", "y"} {
		all = append(all, &route.Route{Policy: route.Policy{Name: c, Collection: c, StoreName: "s", Ramp: 100}, Parts: route.Parts{Store: s.store}})
	}
	return all
}

// ledger is a follower of x and y that records its calls.
type ledger struct {
	mu      sync.Mutex
	lines   []string
	pending int
}

func (*ledger) Blocked(string) bool { return false }

func (*ledger) Covers(collection string) bool { return collection == "x" || collection == "y" }

func (l *ledger) note(by int, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending += by
	if format != "" {
		l.lines = append(l.lines, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) Begin(_ context.Context, w journal.Write) func(bool, []rerank.ID) {
	l.note(1, "journal %s", w.Collection)
	return func(applied bool, _ []rerank.ID) { l.note(-1, "%s %t", w.Collection, applied) }
}

func (l *ledger) Doubt(collection string) func(*journal.Write) {
	l.note(1, "")
	return func(w *journal.Write) {
		if w == nil {
			l.note(-1, "")
			return
		}
		l.note(-1, "doubted %s %s", w.Collection, w.Kind)
	}
}

// take returns the records since the last take, in any order, once no write is pending.
func (l *ledger) take(t *testing.T) []string {
	t.Helper()
	for late := time.Now().Add(time.Minute); time.Now().Before(late); {
		l.mu.Lock()
		if l.pending == 0 {
			lines := l.lines
			l.lines = nil
			l.mu.Unlock()
			slices.Sort(lines)
			return lines
		}
		l.mu.Unlock()
	}
	t.Fatal("a write stays pending")
	return nil
}

func asWriter(t *testing.T, key string) context.Context {
	t.Helper()
	return metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", key))
}

func upsertOf(name string) func() routing.Writing {
	return func() routing.Writing {
		return routing.Writing{Kind: journal.Upsert, Collections: []string{name}, Read: func(context.Context, adapters.Identity) routing.Rows {
			return routing.Rows{IDs: []rerank.ID{rerank.UintID(1)}}
		}}
	}
}

func writing(t *testing.T) (*routing.Router, *aliased, *ledger) {
	t.Helper()
	store, l := &aliased{a: "x"}, &ledger{}
	r, err := routing.New(twoCollections{store: store}, routing.Options{Store: "s", Logger: slog.New(slog.DiscardHandler), Follower: l, WriteBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, store, l
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestWriters: a write is journalled before it is forwarded only if the database lately let the
// credential write to the collection.
func TestWriters(t *testing.T) {
	r, _, l := writing(t)
	for _, c := range []struct {
		key, name string
		outcome   routing.WriteOutcome
		want      []string
	}{
		{"k", "x", routing.Refused, nil},
		{"k", "x", routing.Unknown, []string{"doubted x upsert"}},
		{"k", "x", routing.Failed, []string{"doubted x upsert"}},
		{"k", "x", routing.Answered, []string{"doubted x upsert"}},
		{"other", "x", routing.Refused, nil},
		{"k", "y", routing.Refused, nil},
		{"k", "x", routing.Answered, []string{"journal x", "x true"}},
		{"k", "x", routing.Unknown, []string{"journal x", "x true"}},
		{"k", "x", routing.Refused, []string{"journal x", "x false"}},
		{"k", "x", routing.Answered, []string{"doubted x upsert"}},
		{"k", "z", routing.Answered, nil},
	} {
		ended, outlives, _ := r.Writes.Begin(asWriter(t, c.key), upsertOf(c.name))
		if ended != nil {
			if trusted := len(c.want) == 2; outlives == trusted {
				t.Errorf("%+v: outlives its client: %t", c, outlives)
			}
			ended(c.outcome, nil)
		}
		same(t, fmt.Sprintf("%+v", c), l.take(t), c.want)
	}
}

// An error that does not clearly refuse a write counts only if the database lets the caller write
// at all.
func TestAnErrorThatTellsAReaderNothing(t *testing.T) {
	r, store, l := writing(t)
	store.readers = []string{"reader"}
	rename := func() routing.Writing {
		return routing.Writing{Kind: journal.Collection, Collections: []string{"x"}, Renamed: []string{"x"}}
	}
	for _, c := range []struct {
		key     string
		outcome routing.WriteOutcome
		want    []string
	}{
		{"reader", routing.Failed, nil}, {"reader", routing.Unknown, nil}, {"reader", routing.Refused, nil},
		{"reader", routing.Answered, []string{"doubted x upsert"}}, // the database knows better
		{"writer", routing.Failed, []string{"doubted x upsert"}}, {"writer", routing.Unknown, []string{"doubted x upsert"}},
	} {
		ended, _, _ := r.Writes.Begin(asWriter(t, c.key), upsertOf("x"))
		ended(c.outcome, nil)
		same(t, fmt.Sprintf("%+v", c), l.take(t), c.want)
	}
	store.mu.Lock()
	before := store.read
	store.mu.Unlock()
	for range 20 {
		ended, _, _ := r.Writes.Begin(asWriter(t, "a reader"+t.Name()), rename)
		ended(routing.Refused, nil)
		l.take(t)
	}
	if store.mu.Lock(); store.read != before {
		t.Errorf("refused renames had names read %d times", store.read-before)
	}
	store.mu.Unlock()
}

// A write in flight, however long it takes, delays nobody if the database does not let its caller
// write. If it is carried out nevertheless, it counts.
func TestAWriteThatTrickles(t *testing.T) {
	r, store, l := writing(t)
	store.readers = []string{"reader"}
	ended, _, _ := r.Writes.Begin(asWriter(t, "reader"), upsertOf("x"))
	if l.take(t); store.checked != 1 { // take waits until nothing is pending
		t.Errorf("asked %d times", store.checked)
	}
	ended(routing.Answered, nil)
	same(t, "carried out", l.take(t), []string{"doubted x upsert"})
	ended, _, _ = r.Writes.Begin(asWriter(t, "reader"), upsertOf("x"))
	if store.checked != 1 {
		t.Error("a caller whom the database let write is asked for again")
	}
	ended(routing.Refused, nil)
	same(t, "refused", l.take(t), []string{"journal x", "x false"})
}

// If the database has not let a credential write lately, its write is read only after the database
// has carried it out.
func TestAStrangersWriteIsNotRead(t *testing.T) {
	r, _, l := writing(t)
	reads := 0
	read := func() routing.Writing {
		w := upsertOf("x")()
		rows := w.Read
		w.Read = func(ctx context.Context, of adapters.Identity) routing.Rows {
			reads++
			return rows(ctx, of)
		}
		return w
	}
	for _, c := range []struct {
		outcome routing.WriteOutcome
		reads   int
	}{{routing.Refused, 0}, {routing.Answered, 1}, {routing.Answered, 1}} {
		reads = 0
		ended, outlives, _ := r.Writes.Begin(asWriter(t, "k"), read)
		if outlives && reads > 0 {
			t.Errorf("%+v: read before it was sent", c)
		}
		ended(c.outcome, nil)
		if l.take(t); reads != c.reads {
			t.Errorf("%+v: read %d times", c, reads)
		}
	}
}

// TestAliasThatMoves: a write by an alias that moves while the write is in flight counts for the
// alias's old and new collection. A move that the database refused changes nothing.
func TestAliasThatMoves(t *testing.T) {
	r, store, l := writing(t)
	move := func() routing.Writing {
		return routing.Writing{Kind: journal.Collection, Renamed: []string{"a"}}
	}
	ended, _, _ := r.Writes.Begin(asWriter(t, "k"), upsertOf("a"))
	moved, _, _ := r.Writes.Begin(asWriter(t, "k"), move)
	store.move("y")
	moved(routing.Answered, nil)
	ended(routing.Answered, nil)
	same(t, "while it was on its way", l.take(t), []string{"doubted x upsert", "doubted y upsert"})

	moved, _, _ = r.Writes.Begin(asWriter(t, "k"), move) // by a writer who is known
	ended, _, _ = r.Writes.Begin(asWriter(t, "k"), upsertOf("a"))
	ended(routing.Answered, nil) // first, though it may have come second
	store.move("x")
	moved(routing.Answered, nil)
	same(t, "that ended first", l.take(t), []string{"doubted x upsert", "journal y", "y true"})

	ended, _, _ = r.Writes.Begin(asWriter(t, "k"), upsertOf("a"))
	ended(routing.Answered, nil)
	l.take(t)
	before := store.read
	for range 100 {
		moved, _, _ := r.Writes.Begin(asWriter(t, "stranger"), move)
		ended, _, _ := r.Writes.Begin(asWriter(t, "k"), upsertOf("a"))
		moved(routing.Refused, nil)
		ended(routing.Answered, nil)
		same(t, "beside a stranger", l.take(t), []string{"journal x", "x true"})
	}
	if store.read != before {
		t.Errorf("refused moves had names read %d times", store.read-before)
	}
}
