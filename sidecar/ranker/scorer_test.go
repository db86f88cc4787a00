package ranker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scorer is a ranker in this process, in virtual time, that can be told to be slow,
// small, broken or wrong.
type scorer struct {
	description plugin.Description
	takesItems  int // refused beyond; 0: no limit
	takesBytes  int // of payload
	start, each time.Duration
	fail        func(call int, items []plugin.Item) error
	answer      func(call int, scores []float32) []float32
	version     func(call int) string // of the answer

	mu        sync.Mutex
	calls     int
	items     int
	described int
	flying    int
	most      int   // calls at a time
	sizes     []int // of the calls
	down      bool
}

func (s *scorer) Describe(context.Context) (plugin.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.described++
	if s.down {
		return plugin.Description{}, fmt.Errorf("%w: down", plugin.ErrUnavailable)
	}
	return s.description, nil
}

func (s *scorer) Score(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
	scores, _, err := s.ScoreVersion(ctx, q, items)
	return scores, err
}

func (s *scorer) ScoreVersion(ctx context.Context, q plugin.Query, items []plugin.Item) ([]float32, string, error) {
	call, version := s.begin(len(items))
	defer s.end()
	if s.fail != nil {
		if err := s.fail(call, items); err != nil {
			return nil, version, err
		}
	}
	bytes := 0
	for _, item := range items {
		bytes += len(item.Payload)
	}
	if s.takesItems > 0 && len(items) > s.takesItems || s.takesBytes > 0 && bytes > s.takesBytes {
		return nil, version, fmt.Errorf("%w: %d items of %d bytes", plugin.ErrTooLarge, len(items), bytes)
	}
	if wait := s.start + time.Duration(len(items))*s.each; wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, version, ctx.Err()
		}
	}
	scores := make([]float32, len(items))
	for i, item := range items {
		scores[i] = relevance(q, item)
	}
	if s.answer != nil {
		scores = s.answer(call, scores)
	}
	return scores, version, nil
}

func (s *scorer) begin(items int) (call int, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.items += items
	s.sizes = append(s.sizes, items)
	s.flying++
	s.most = max(s.most, s.flying)
	version = s.description.Version
	if s.version != nil {
		version = s.version(s.calls)
	}
	return s.calls, version
}

func (s *scorer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
}

func (s *scorer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// relevance is a number of its own for each query and item.
func relevance(q plugin.Query, item plugin.Item) float32 {
	h := fnv.New32a()
	fmt.Fprint(h, q.Text, item.ID)
	return float32(h.Sum32()) / math.MaxUint32
}

func itemsOf(n, payload int) []plugin.Item {
	items := make([]plugin.Item, n)
	for i := range items {
		items[i].ID = rerank.UintID(uint64(i))
		if payload > 0 {
			items[i].Payload = json.RawMessage(`{"text":"` + string(make([]byte, 0, payload)) + fmt.Sprintf("%0*d", payload, i) + `"}`)
		}
	}
	return items
}

// scored counts the items with scores, and wants each to be its own.
func scored(t *testing.T, q plugin.Query, items []plugin.Item, scores []float32) int {
	t.Helper()
	if len(scores) != len(items) {
		t.Fatalf("%d scores for %d items", len(scores), len(items))
	}
	n := 0
	for i, s := range scores {
		if math.IsNaN(float64(s)) {
			continue
		}
		if n++; s != relevance(q, items[i]) {
			t.Fatalf("item %d has the score %g, its own is %g", i, s, relevance(q, items[i]))
		}
	}
	return n
}

// watch is an observer.
type watch struct {
	mu       sync.Mutex
	outcomes map[string]int
	reasons  map[string]int
	items    int
	retries  int
	broken   bool
}

func (w *watch) RankerCalled(_ context.Context, _ string, items int) func(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items += items
	return func(outcome string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.outcomes == nil {
			w.outcomes = map[string]int{}
		}
		w.outcomes[outcome]++
	}
}

func (w *watch) RankerRetried(string) { w.mu.Lock(); defer w.mu.Unlock(); w.retries++ }

func (w *watch) RankerNotAsked(_ string, items int, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reasons == nil {
		w.reasons = map[string]int{}
	}
	w.reasons[reason] += items
}

func (w *watch) RankerBroken(_ string, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}
