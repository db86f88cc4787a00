package server

import (
	"context"
	"log/slog"
	"maps"
	"runtime/debug"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"

	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/sidecar/gate"
)

// countedCalls is a Recorder that counts the calls that ended, by method.
type countedCalls map[string]int

func (c countedCalls) CallStarted(_ context.Context, method string) func(codes.Code) {
	return func(codes.Code) { c[method]++ }
}

func (countedCalls) Panicked() {}

// TestRefusedCallsOfUnknownMethodsAreNotCounted: the name of a method becomes a label of metrics, and any
// client can choose one before its token is looked at.
func TestRefusedCallsOfUnknownMethodsAreNotCounted(t *testing.T) {
	counted := countedCalls{}
	s := &services{gate: gate.New(gate.Options{Limits: gate.Limits{MaxSearches: 1, Adaptive: true}}), recorder: counted, log: slog.New(slog.DiscardHandler)}
	arrive := func(method string) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := s.arrive(ctx, &tap.Info{FullMethodName: method})
		return err
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1))
	for arrive(likenessv1.SearchService_Search_FullMethodName) == nil { // memory is checked occasionally
	}
	if arrive(likenessv1.SearchService_SearchBatch_FullMethodName) == nil {
		t.Error("a batch was not refused")
	}
	own := maps.Clone(counted)
	for _, name := range []string{"", "a", "Search/", "search", "Search\x00"} {
		if err := arrive("/likeness.v1.SearchService/" + name); err != nil {
			t.Errorf("%q: %v, want gRPC's own answer", name, err)
		}
	}
	if !maps.Equal(counted, own) || len(counted) != 2 {
		t.Errorf("calls were counted as %v", counted)
	}
}
