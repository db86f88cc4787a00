package ranker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// insideKey is the context key of a function that a call calls when it has reached the scorer.
type insideKey struct{}

// gate is a scorer whose calls the test controls.
type gate struct {
	description plugin.Description
	mu          sync.Mutex
	do          func(ctx context.Context, items []plugin.Item) error
}

func (g *gate) Describe(context.Context) (plugin.Description, error) { return g.description, nil }

func (g *gate) Score(ctx context.Context, _ plugin.Query, items []plugin.Item) ([]float32, error) {
	if inside, ok := ctx.Value(insideKey{}).(func()); ok {
		inside()
	}
	g.mu.Lock()
	do := g.do
	g.mu.Unlock()
	if do != nil {
		if err := do(ctx, items); err != nil {
			return nil, err
		}
	}
	return make([]float32, len(items)), nil
}

func (g *gate) set(do func(ctx context.Context, items []plugin.Item) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.do = do
}

// TestSlotsComeBack: after every way in which a call can end, the scorer's full number of
// concurrent calls is possible again, whoever waited for a slot meanwhile.
func TestSlotsComeBack(t *testing.T) {
	const parallel = 4
	down := errors.New("no reason")
	for name, end := range map[string]func(cancel context.CancelFunc) func(ctx context.Context, items []plugin.Item) error{
		"scored":      func(context.CancelFunc) func(context.Context, []plugin.Item) error { return nil },
		"failed":      fails(down),
		"unavailable": fails(plugin.ErrUnavailable),
		"too large":   fails(plugin.ErrTooLarge),
		"bad query":   fails(plugin.ErrQuery),
		"cancelled": func(cancel context.CancelFunc) func(context.Context, []plugin.Item) error {
			return func(ctx context.Context, _ []plugin.Item) error {
				cancel()
				<-ctx.Done()
				return ctx.Err()
			}
		},
		"hung": func(context.CancelFunc) func(context.Context, []plugin.Item) error {
			return func(ctx context.Context, _ []plugin.Item) error {
				<-ctx.Done()
				return ctx.Err()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{description: plugin.Description{Version: "1", Parallel: parallel, MaxItems: 1}}
				c := ranker.New(g, ranker.Options{Name: "r", Timeout: time.Second, BreakAfter: 1000, BreakFor: time.Millisecond, RetryBudget: 0.5})
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
					g.set(end(cancel))
					var all sync.WaitGroup
					for range 3 * parallel { // most of them wait for a slot
						all.Go(func() { _, _ = c.Rank(ctx, query, itemsOf(3, 0)) })
					}
					all.Wait()
					cancel()
				}
				g.set(nil)
				<-time.After(time.Minute) // a breaker that opened closes
				for range 2 {
					_, _ = c.Rank(t.Context(), query, itemsOf(1, 0))
				}
				balance.Now(t, balance.Slots("calls of the scorer", parallel, func(ctx context.Context, inside func()) error {
					_, err := c.Rank(context.WithValue(ctx, insideKey{}, inside), query, itemsOf(1, 0))
					return err
				}))
			})
		})
	}
}

func fails(err error) func(context.CancelFunc) func(context.Context, []plugin.Item) error {
	return func(context.CancelFunc) func(context.Context, []plugin.Item) error {
		return func(context.Context, []plugin.Item) error { return fmt.Errorf("%w: by order of the test", err) }
	}
}

// heard is a scorer that records its calls.
type heard struct {
	description plugin.Description
	mu          sync.Mutex
	queries     []plugin.Query
	items       []plugin.Item
	left        []time.Duration
}

func (h *heard) Describe(context.Context) (plugin.Description, error) { return h.description, nil }

func (h *heard) Score(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queries, h.items = append(h.queries, q), append(h.items, items...)
	deadline, _ := ctx.Deadline()
	h.left = append(h.left, time.Until(deadline))
	return make([]float32, len(items)), nil
}

// TestTheScorerHearsEverything: the scorer gets all parts of the query and of every item, in
// batches, within the timeout of a call.
func TestTheScorerHearsEverything(t *testing.T) {
	h := &heard{description: plugin.Description{Version: "1", MaxItems: 2, Parallel: 1}}
	c := ranker.New(h, ranker.Options{Name: "r", Timeout: 7 * time.Second})
	want := plugin.Query{Vector: []float32{1}, Vectors: rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{2, 3}}, UserID: 7, HasUserID: true, Text: "words", Context: map[string]float32{"hour": 3}}
	if names := recorder.Unset(want, nil); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	var items []plugin.Item
	for i := range 5 {
		items = append(items, plugin.Item{ID: rerank.UintID(uint64(i)), Payload: []byte(`{"n":1}`), Vector: []float32{float32(i)}})
	}
	if names := recorder.Unset(items[1], nil); len(names) > 0 {
		t.Fatalf("the test does not set %q", names)
	}
	if _, err := c.Rank(t.Context(), want, items); err != nil {
		t.Fatal(err)
	}
	if len(h.queries) != 3 || len(h.items) != len(items) {
		t.Fatalf("%d calls of %d items", len(h.queries), len(h.items))
	}
	for i, q := range h.queries {
		if d := recorder.Differences(q, want); len(d) > 0 {
			t.Errorf("call %d: %q", i, d)
		}
		if h.left[i] <= 0 || h.left[i] > 7*time.Second {
			t.Errorf("call %d has %v", i, h.left[i])
		}
	}
	for i, it := range h.items {
		if d := recorder.Differences(it, items[i]); len(d) > 0 {
			t.Errorf("item %d: %q", i, d)
		}
	}
}
