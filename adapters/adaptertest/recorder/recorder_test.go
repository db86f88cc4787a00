package recorder_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/milvus"
	"github.com/likenessdb/likeness/adapters/qdrant"
	"github.com/likenessdb/likeness/rerank"
)

// optional are the interfaces that a store may have.
var optional = []reflect.Type{
	reflect.TypeFor[adapters.Fetcher](), reflect.TypeFor[adapters.Scanner](), reflect.TypeFor[adapters.Partitioner](),
	reflect.TypeFor[adapters.Describer](), reflect.TypeFor[adapters.Counter](),
	reflect.TypeFor[adapters.Writer](), reflect.TypeFor[adapters.Deleter](), reflect.TypeFor[adapters.Matcher](),
	reflect.TypeFor[adapters.Aliaser](), reflect.TypeFor[adapters.Identifier](),
}

// bare only searches.
type bare struct{ adapters.Store }

// describes has one ability, which no store has alone.
type describes struct {
	adapters.Store
	adapters.Describer
}

// TestAbilitiesStay: a recorded store can do what the store can do, and no more.
func TestAbilitiesStay(t *testing.T) {
	for _, inner := range []adapters.Store{embedded.New(), new(qdrant.Store), new(milvus.Store), bare{embedded.New()}} {
		s, err := recorder.New(inner, &recorder.Recorder{}, recorder.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range optional {
			if got, want := reflect.TypeOf(s).Implements(i), reflect.TypeOf(inner).Implements(i); got != want {
				t.Errorf("%T recorded is a %s: %t, want %t", inner, i, got, want)
			}
		}
	}
	e := embedded.New()
	if _, err := recorder.New(describes{e, e}, &recorder.Recorder{}, recorder.Hooks{}); !errors.Is(err, recorder.ErrAbilities) {
		t.Errorf("a store that describes and no more: %v", err)
	}
}

// TestCallsAreKept: arguments are recorded as they were at the call, with everything in the
// context, in order, and the hook's error is the answer.
func TestCallsAreKept(t *testing.T) {
	down := errors.New("down")
	r := &recorder.Recorder{}
	s, err := recorder.New(embedded.New(), r, recorder.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	request := adapters.SearchRequest{Collection: "c", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}, Partitions: []string{"p"}}
	ctx := adapters.AsCaller(metadata.NewOutgoingContext(t.Context(), metadata.Pairs("api-key", "k")))
	if _, err := s.Search(ctx, request); !errors.Is(err, adapters.ErrUnsupported) && !errors.Is(err, adapters.ErrNotFound) {
		t.Fatal(err)
	}
	want := adapters.SearchRequest{Collection: "c", Probes: []rerank.Probe{{Vector: []float32{1}, Depth: 1}}, Partitions: []string{"p"}}
	request.Probes[0].Vector[0], request.Partitions[0] = 2, "q"
	_, _ = s.(adapters.Describer).Describe(t.Context(), "d")
	calls := r.Calls()
	if len(calls) != 2 || calls[0].Method != recorder.Search || calls[1].Method != recorder.Describe || calls[1].Collection() != "d" {
		t.Fatalf("%+v", calls)
	}
	if lines := recorder.Differences(calls[0].Argument, want); len(lines) > 0 {
		t.Error(lines)
	}
	if c := calls[0]; !c.AsCaller || !slices.Equal(c.Metadata.Get("api-key"), []string{"k"}) || !c.Deadline.IsZero() {
		t.Errorf("%+v", c)
	}
	if c := calls[1]; c.AsCaller || c.Metadata != nil {
		t.Errorf("%+v", c)
	}
	if found := r.Calls(recorder.Describe); len(found) != 1 {
		t.Errorf("%d calls of one method", len(found))
	}
	r.Forget()
	s, err = recorder.New(embedded.New(), r, recorder.Hooks{Before: func(context.Context, recorder.Call) error { return down }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Search(t.Context(), request); !errors.Is(err, down) || len(r.Calls()) != 1 {
		t.Errorf("%v after %d calls", err, len(r.Calls()))
	}
}

// TestFields: a field that is not set, not known or another is named.
func TestFields(t *testing.T) {
	type pair struct{ A, B int }
	if got := recorder.Unset(pair{A: 1}, nil); !slices.Equal(got, []string{"B"}) {
		t.Error(got)
	}
	if got := recorder.Unset(pair{A: 1}, map[string]string{"B": "why"}); len(got) > 0 {
		t.Error(got)
	}
	if got := recorder.Unknown(pair{}, map[string]string{"A": "", "C": ""}); !slices.Equal(got, []string{"B", "C"}) {
		t.Error(got)
	}
	if got := recorder.Differences(pair{1, 2}, pair{1, 3}); !slices.Equal(got, []string{"B is 2, want 3"}) {
		t.Error(got)
	}
	if got := recorder.Differences(1, pair{}); len(got) != 1 {
		t.Error(got)
	}
}
