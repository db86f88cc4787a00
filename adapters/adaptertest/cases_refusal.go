package adaptertest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func refusalCases() []testCase {
	return []testCase{
		{"ping", []Capability{Search}, ping},
		{"missing collection", []Capability{Search}, missingCollection},
		{"missing vector field", []Capability{Search}, missingField},
		{"wrong dimension", []Capability{Search}, wrongDimension},
		{"NaN and infinity refused before any call", []Capability{Search}, notFinite},
		{"depth below one and over the limit", []Capability{Search}, depths},
		{"too many vector fields", []Capability{Write}, tooManyFields},
		{"message over the limit", []Capability{Fetch}, messageTooLarge},
		{"cancelled before the call", []Capability{Search}, cancelledBefore},
		{"deadline already over", []Capability{Search}, deadlineOver},
		{"cancelled in flight", []Capability{Search}, cancelledInFlight},
	}
}

func ping(t *testing.T, e *env) {
	if err := e.store.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// readOperations returns the store's operations that read a collection, by name.
func (e *env) readOperations(t *testing.T, collection, field string) map[string]func(context.Context) error {
	ops := map[string]func(context.Context) error{
		"search": func(ctx context.Context) error {
			_, err := e.store.Search(ctx, adapters.SearchRequest{Collection: collection, Vector: field, Probes: e.probes(baseDim, 1, 5)})
			return err
		},
	}
	if !e.lacks(Fetch) {
		ops["fetch"] = func(ctx context.Context) error {
			_, err := storeAs[adapters.Fetcher](t, e).Fetch(ctx, adapters.FetchRequest{Collection: collection, Vectors: []string{field}, IDs: numberIDs(2)})
			return err
		}
	}
	if !e.lacks(Scan) {
		ops["scan"] = func(ctx context.Context) error {
			return storeAs[adapters.Scanner](t, e).Scan(ctx, adapters.ScanRequest{Collection: collection, Vectors: []string{field}}, func(adapters.Rows, string) error { return nil })
		}
	}
	return ops
}

func (e *env) allFail(ctx context.Context, t *testing.T, ops map[string]func(context.Context) error, want error, naming string) {
	t.Helper()
	for name, op := range ops {
		err := op(ctx)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), naming) {
			t.Errorf("%s: the error does not name %q: %v", name, naming, err)
		}
	}
}

func missingCollection(t *testing.T, e *env) {
	name := e.name()
	ops := e.readOperations(t, name, "vec")
	if !e.lacks(Describe) {
		ops["describe"] = func(ctx context.Context) error {
			_, err := storeAs[adapters.Describer](t, e).Describe(ctx, name)
			return err
		}
	}
	if !e.lacks(Match) {
		ops["match"] = func(ctx context.Context) error {
			_, err := storeAs[adapters.Matcher](t, e).Match(ctx, name, "")
			return err
		}
	}
	e.allFail(t.Context(), t, ops, adapters.ErrNotFound, name)
}

func missingField(t *testing.T, e *env) {
	e.allFail(t.Context(), t, e.readOperations(t, e.base.Collection, "absent"), adapters.ErrField, "absent")
}

func wrongDimension(t *testing.T, e *env) {
	for _, dim := range []int{1, baseDim - 1, baseDim + 1} {
		_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: e.probes(dim, 1, 5)})
		if !errors.Is(err, adapters.ErrDimension) {
			t.Errorf("a probe of %d on a field of %d: %v, want ErrDimension", dim, baseDim, err)
		}
	}
	_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: []rerank.Probe{{Depth: 5}}})
	if !errors.Is(err, adapters.ErrDimension) {
		t.Errorf("a probe of no numbers: %v, want ErrDimension", err)
	}
}

func notFinite(t *testing.T, e *env) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		probes := e.probes(baseDim, 3, 5)
		probes[1].Vector[17] = float32(x)
		var err error
		calls := e.countCalls(t, func() {
			_, err = e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: probes})
		})
		if !errors.Is(err, rerank.ErrQuery) || !strings.Contains(err.Error(), "probes[1].vector[17]") {
			t.Errorf("%v in probes[1].vector[17]: %v, want rerank.ErrQuery that names it", x, err)
		}
		if calls != 0 {
			t.Errorf("%d calls were made", calls)
		}
	}
}

func depths(t *testing.T, e *env) {
	search := func(depth int) (err error) {
		calls := e.countCalls(t, func() {
			_, err = e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: e.probes(baseDim, 1, depth)})
		})
		if calls != 0 {
			t.Errorf("depth %d: %d calls were made", depth, calls)
		}
		return err
	}
	for _, depth := range []int{0, -1} {
		if err := search(depth); !errors.Is(err, rerank.ErrQuery) {
			t.Errorf("depth %d: %v, want rerank.ErrQuery", depth, err)
		}
	}
	if e.kit.TooDeep > 0 {
		checkLimit(t, search(e.kit.TooDeep))
	}
}

// checkLimit checks that err is a LimitError with a limit, a value and a remedy.
func checkLimit(t *testing.T, err error) {
	t.Helper()
	var limit *adapters.LimitError
	if !errors.As(err, &limit) || !errors.Is(err, adapters.ErrLimit) {
		t.Errorf("%v, want a LimitError", err)
		return
	}
	if limit.Limit == "" || limit.Remedy == "" || limit.Max <= 0 {
		t.Errorf("the limit has no name, maximum or remedy: %+v", limit)
	}
}

func tooManyFields(t *testing.T, e *env) {
	if e.kit.TooManyFields == 0 {
		e.skip(t, "the store has no such limit")
	}
	s := adapters.Schema{Collection: e.name()}
	for i := range e.kit.TooManyFields {
		s.Fields = append(s.Fields, vectorFields(adapters.InnerProduct, 4, "g"+strings.Repeat("x", i))...)
	}
	err := storeAs[adapters.Writer](t, e).Create(t.Context(), s)
	if err == nil {
		e.dropLater(t, s.Collection)
	}
	checkLimit(t, err)
}

func messageTooLarge(t *testing.T, e *env) {
	if e.kit.OpenSmall == nil {
		e.skip(t, "the store has no messages")
	}
	f := e.manyFixture(t)
	small := e.kit.OpenSmall(t)
	t.Cleanup(func() { small.Close() })
	probes := e.probes(384, 1, 2000)
	_, err := small.Search(t.Context(), adapters.SearchRequest{Collection: f.Collection, Probes: probes, WithVectors: true})
	checkLimit(t, err)
}

func cancelledBefore(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.allFail(ctx, t, e.readOperations(t, e.base.Collection, "vec"), context.Canceled, "")
}

func deadlineOver(t *testing.T, e *env) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	e.allFail(ctx, t, e.readOperations(t, e.base.Collection, "vec"), context.DeadlineExceeded, "")
}

// cancelledInFlight cancels searches while they run. Each must end with its lists or
// the context's error, and the store must still answer afterwards.
func cancelledInFlight(t *testing.T, e *env) {
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := e.store.Search(ctx, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: e.probes(baseDim, 16, 100)})
			done <- err
		}()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled search: %v", err)
		}
	}
	e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Probes: e.probes(baseDim, 1, 1)})
}
