package reembed

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// recorder records the reads of rows by id, and finds none.
type recorder struct {
	adapters.Store

	requests []adapters.FetchRequest
}

func (r *recorder) Fetch(_ context.Context, f adapters.FetchRequest) (adapters.Rows, error) {
	r.requests = append(r.requests, f)
	return adapters.Rows{}, nil
}

func filler() *filling {
	return newFilling("r", Options{Rest: time.Hour, RetryRefused: time.Hour, Logger: slog.New(slog.DiscardHandler)})
}

// TestItemsAreReadAsTheRouteReads: both the companion and the collection are read with the route's consistency, so that
// an item that was embedded a moment ago is not embedded again.
func TestItemsAreReadAsTheRouteReads(t *testing.T) {
	store := &recorder{}
	r := &route.Route{Policy: route.Policy{Collection: "items", Companion: "new", Consistency: "Strong"}, Parts: route.Parts{Store: store}}
	if _, _, err := filler().read(t.Context(), r, []rerank.ID{rerank.UintID(1)}); err != nil || len(store.requests) != 2 {
		t.Fatalf("%d reads, %v", len(store.requests), err)
	}
	for i, collection := range []string{"new", "items"} {
		if f := store.requests[i]; f.Collection != collection || f.Consistency != "Strong" || len(f.IDs) != 1 {
			t.Errorf("read %d: %+v, want collection %s", i, f, collection)
		}
	}
}

// TestAWalkRests: the next walk begins after the pause, and a walk over another companion forgets which items the last
// embedder refused.
func TestAWalkRests(t *testing.T) {
	f := filler()
	f.endWalk()
	if rest := time.Until(f.walk.resume); rest < f.o.Rest/2 || !f.current().Whole {
		t.Errorf("the next walk begins in %s; %+v", rest, f.current())
	}
	refused := item{id: rerank.UintID(1), text: "t", source: "s"}
	if f.refuse(refused); !f.isRefused(refused) {
		t.Error("an item that was refused is tried again at once")
	}
	if f.begin("other"); f.isRefused(refused) || f.current().Whole || !f.walk.resume.IsZero() {
		t.Errorf("another companion: %+v, %+v", f.walk, f.current())
	}
}
