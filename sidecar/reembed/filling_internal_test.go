package reembed

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/sidecar/embed"
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

// vectorsOf is an embedder that makes the same vectors of any texts.
type vectorsOf [][]float32

func (v vectorsOf) Embed(context.Context, []string, ...string) ([][]float32, error) { return v, nil }

// downStore fetches no rows.
type downStore struct{ adapters.Store }

func (downStore) Fetch(context.Context, adapters.FetchRequest) (adapters.Rows, error) {
	return adapters.Rows{}, adapters.ErrUnavailable
}

// bridged is a route that embeds its items again, by a model of two dimensions.
func bridged(t *testing.T, store adapters.Store) *route.Route {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &route.Route{Policy: route.Policy{Collection: "items", Companion: "new"}, Parts: route.Parts{Store: store, Model: route.Model{Similarity: sim}}}
	r.Reembed.Text, r.Reembed.Rate = "text", 7
	return r
}

// TestTouchedItemsWaitThroughAnOutage: items that answers showed are tried again after a failure, at the rate of the
// route in service.
func TestTouchedItemsWaitThroughAnOutage(t *testing.T) {
	f, r := filler(), bridged(t, downStore{})
	f.o.Route = func(string) (*route.Route, error) { return r, nil }
	f.o.Embedder = func(string) embed.Embedder { return vectorsOf{} }
	f.touch([]rerank.ID{rerank.UintID(1), rerank.UintID(2)})
	if err := f.step(t.Context()); !errors.Is(err, adapters.ErrUnavailable) || f.current().Waiting != 2 {
		t.Errorf("%d items wait, %v", f.current().Waiting, err)
	}
	if f.embeds.Limit() != 7 {
		t.Errorf("%g items a second are embedded", f.embeds.Limit())
	}
}

// TestAMendedTextIsTriedAgain: a refusal is of one text of an item, and ends after a while.
func TestAMendedTextIsTriedAgain(t *testing.T) {
	f := filler()
	bad, mended := item{id: rerank.UintID(1), text: "t", source: "s"}, item{id: rerank.UintID(1), text: "u", source: "v"}
	if f.refuse(bad); f.isRefused(mended) {
		t.Error("an item is refused for the text that it had")
	}
	f.o.RetryRefused = -time.Second
	if f.refuse(bad); f.isRefused(bad) {
		t.Error("a refusal does not end")
	}
}

// TestAZeroVectorIsRefused: an item of which the embedder makes a zero vector is left out, and the others are written.
func TestAZeroVectorIsRefused(t *testing.T) {
	f, r := filler(), bridged(t, downStore{})
	f.o.Embedder = func(string) embed.Embedder { return vectorsOf{{0, 0}, {0, 1}} }
	items := []item{{id: rerank.UintID(1), text: "a", source: "s"}, {id: rerank.UintID(2), text: "b", source: "u"}}
	vectors, err := f.embed(t.Context(), r, items)
	if err != nil || len(vectors) != 1 || vectors[0].ID != items[1].id || vectors[0].Source != "u" || !f.isRefused(items[0]) || f.current().Refused != 1 {
		t.Errorf("%+v, %v; %+v", vectors, err, f.current())
	}
	f.o.Embedder = func(string) embed.Embedder { return vectorsOf{{0, 1, 2}, {0, 1, 2}} }
	if _, err := f.embed(t.Context(), r, items); !errors.Is(err, embed.ErrAnswer) {
		t.Errorf("vectors of another length: %v", err)
	}
}
