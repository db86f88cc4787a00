package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/rerank"
)

// named is an embedded store that names collections, and cuts them.
type named struct{ *embedded.Store }

func (named) Identify(_ context.Context, name string) (adapters.Identity, error) {
	return adapters.Identity{Collection: name}, nil
}

func (named) Cut(context.Context, string, int) ([]string, error) { return nil, nil }

// listing is a store that lists its collections, once it is there.
type listing struct {
	named

	err error
}

func (listing) Version(context.Context) (string, error) { return "1.2", nil }

func (l listing) Collections(context.Context) ([]string, error) { return []string{"a", "b"}, l.err }

// TestCollectionsOfAStore: the guard returns what the store lists, and its error.
func TestCollectionsOfAStore(t *testing.T) {
	for _, want := range []error{nil, adapters.ErrUnavailable} {
		s := guard.New(listing{named{embedded.New()}, want}, guard.Options{Name: "s"}).(adapters.Inspector)
		if names, err := s.Collections(t.Context()); !errors.Is(err, want) || !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%q, %v; want %v", names, err, want)
		}
		if version, err := s.Version(t.Context()); version != "1.2" || err != nil {
			t.Errorf("%q, %v", version, err)
		}
	}
	if _, err := guard.New(named{embedded.New()}, guard.Options{Name: "s"}).(adapters.Inspector).Collections(t.Context()); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a store that lists nothing: %v", err)
	}
}

// TestTheGuardPassesEverythingOn: every call, and each of its repetitions, reaches the
// store with all of its arguments, the caller's credentials and the deadline.
func TestTheGuardPassesEverythingOn(t *testing.T) {
	balance.Check(t)
	calls := &recorder.Recorder{}
	var mu sync.Mutex
	failures := map[recorder.Method]int{}
	inner, err := recorder.New(named{embedded.New()}, calls, recorder.Hooks{Before: func(_ context.Context, c recorder.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if failures[c.Method]++; failures[c.Method] == 1 {
			return fmt.Errorf("%w: it starts", adapters.ErrUnavailable)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var s adapters.Store
	ctx, cancel := context.WithTimeout(adapters.AsCaller(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "k"))), time.Minute)
	defer cancel()
	search := adapters.SearchRequest{
		Collection: "c", Vector: "v", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 2}}, Filter: "f", Exclude: []rerank.ID{rerank.UintID(4)}, Exact: true, UnitVectors: true, Owner: "o",
		WithVectors: true, Consistency: "all", Partitions: []string{"p"}, Payload: true, PayloadFields: []string{"n"}, Rescore: true, EF: 9, Versions: true,
	}
	fetch := adapters.FetchRequest{Collection: "c", IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []string{"v"}, Owner: "o", Payload: true, PayloadFields: []string{"n"}, Consistency: "all"}
	scan := adapters.ScanRequest{Collection: "c", Vectors: []string{"v"}, Filter: "f", Owner: "o", Payload: true, PayloadFields: []string{"n"}, Batch: 3, Cursor: "1", Until: "2"}
	for _, r := range []any{search, fetch, scan} {
		if names := recorder.Unset(r, nil); len(names) > 0 {
			t.Fatalf("the test does not set %q of a %T", names, r)
		}
	}
	schema := adapters.Schema{Collection: "c", Owner: "o"}
	rows := adapters.Rows{IDs: fetch.IDs}
	retried := map[recorder.Method]bool{recorder.Create: false, recorder.Write: false, recorder.Drop: false, recorder.Delete: false, recorder.SwitchAlias: false, recorder.Ping: false, recorder.Cut: false}
	for method, c := range map[recorder.Method]struct {
		do   func()
		want any
	}{
		recorder.Search: {func() { _, _ = s.Search(ctx, search) }, search},
		recorder.Fetch:  {func() { _, _ = s.(adapters.Fetcher).Fetch(ctx, fetch) }, fetch},
		recorder.Scan: {func() {
			_ = s.(adapters.Scanner).Scan(ctx, scan, func(adapters.Rows, string) error { return nil })
		}, scan},
		recorder.Match:       {func() { _, _ = s.(adapters.Matcher).Match(ctx, "c", "f") }, recorder.Arguments{Collection: "c", Filter: "f"}},
		recorder.Describe:    {func() { _, _ = s.(adapters.Describer).Describe(ctx, "c") }, recorder.Arguments{Collection: "c"}},
		recorder.Count:       {func() { _, _ = s.(adapters.Counter).Count(ctx, "c") }, recorder.Arguments{Collection: "c"}},
		recorder.Identify:    {func() { _, _ = s.(adapters.Identifier).Identify(ctx, "c") }, recorder.Arguments{Collection: "c"}},
		recorder.Create:      {func() { _ = s.(adapters.Writer).Create(ctx, schema) }, recorder.Arguments{Collection: "c", Schema: schema}},
		recorder.Write:       {func() { _ = s.(adapters.Writer).Write(ctx, "c", schema, rows) }, recorder.Arguments{Collection: "c", Schema: schema, Rows: rows}},
		recorder.Drop:        {func() { _ = s.(adapters.Writer).Drop(ctx, "c") }, recorder.Arguments{Collection: "c"}},
		recorder.Delete:      {func() { _ = s.(adapters.Deleter).Delete(ctx, "c", fetch.IDs) }, recorder.Arguments{Collection: "c", IDs: fetch.IDs}},
		recorder.SwitchAlias: {func() { _ = s.(adapters.Aliaser).SwitchAlias(ctx, "a", "c") }, recorder.Arguments{Collection: "c", Alias: "a"}},
		recorder.Cut:         {func() { _, _ = s.(adapters.Partitioner).Cut(ctx, "c", 3) }, recorder.Arguments{Collection: "c", Parts: 3}},
		recorder.Ping:        {func() { _ = s.Ping(ctx) }, recorder.Arguments{}},
	} {
		calls.Forget()
		s = guard.New(inner.(guard.Server), guard.Options{Name: "s", RetryBudget: 1}) // with a budget of its own
		c.do()
		want := 1
		if _, once := retried[method]; !once {
			want = 2 // the first failed, and a read is sent again
		}
		all := calls.Calls()
		if len(all) != want {
			t.Errorf("%s reached the store %d times, want %d", method, len(all), want)
		}
		deadline, _ := ctx.Deadline()
		for i, got := range all {
			if got.Method != method || !got.AsCaller || !slices.Equal(got.Metadata.Get("api-key"), []string{"k"}) || got.Deadline.IsZero() || got.Deadline.After(deadline) {
				t.Errorf("call %d of %s: %+v", i, method, got)
			}
			for _, d := range recorder.Differences(got.Argument, c.want) {
				t.Errorf("call %d of %s: %s", i, method, d)
			}
		}
	}
}

// TestAHedgeAsksTheSame: a search that is sent a second time, beside the first, is the
// same, as the same caller.
func TestAHedgeAsksTheSame(t *testing.T) {
	balance.Check(t)
	calls := &recorder.Recorder{}
	second := make(chan struct{})
	var once sync.Once
	inner, err := recorder.New(named{embedded.New()}, calls, recorder.Hooks{Before: func(ctx context.Context, _ recorder.Call) error {
		first := false
		once.Do(func() { first = true })
		if first {
			<-second
			return ctx.Err()
		}
		close(second)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := guard.New(inner.(guard.Server), guard.Options{Name: "s", HedgeAfter: time.Millisecond})
	search := adapters.SearchRequest{Collection: "c", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 2}}, Filter: "f", Partitions: []string{"p"}, Consistency: "all", Owner: "o", Exact: true}
	ctx := adapters.AsCaller(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "k")))
	_, _ = s.Search(ctx, search)
	all := calls.Calls(recorder.Search)
	if len(all) != 2 {
		t.Fatalf("%d searches", len(all))
	}
	for i, got := range all {
		if d := recorder.Differences(got.Argument, search); len(d) > 0 || !got.AsCaller || !slices.Equal(got.Metadata.Get("api-key"), []string{"k"}) {
			t.Errorf("search %d differs in %q: %+v", i, d, got)
		}
	}
}
