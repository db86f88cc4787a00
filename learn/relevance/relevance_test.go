package relevance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

// arithmetic is a ranker without a model: it computes an item's score from its id, the field "n"
// of its payload and the text of the query. It counts the items that it scored.
type arithmetic struct {
	plugin.Description

	mu    sync.Mutex
	calls int
	most  int                                       // items of one request
	fail  func(q plugin.Query, calls int) error     // nil: never
	seen  func(q plugin.Query, items []plugin.Item) // nil: nobody looks
}

var _ ranker.Ranker = (*arithmetic)(nil)

func newArithmetic() *arithmetic {
	return &arithmetic{Description: plugin.Description{Name: "arithmetic", Version: "1", MaxItems: 4, Parallel: 3, Cost: 0.5, PayloadFields: []string{"n"}}}
}

func (a *arithmetic) Describe(context.Context) (plugin.Description, error) { return a.Description, nil }

func (a *arithmetic) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen != nil {
		a.seen(q, items)
	}
	if a.fail != nil {
		if err := a.fail(q, a.calls); err != nil {
			return ranker.Result{}, err
		}
	}
	a.calls += len(items)
	a.most = max(a.most, len(items))
	r := ranker.Result{Calls: len(items), Version: a.Version}
	for _, x := range items {
		r.Scores = append(r.Scores, truth(q, x.ID, x.Payload))
	}
	return r, ctx.Err()
}

func truth(q plugin.Query, id rerank.ID, payload json.RawMessage) float32 {
	var fields struct{ N float32 }
	_ = json.Unmarshal(payload, &fields)
	n, _ := id.Uint64()
	if n == 5 && strings.HasSuffix(q.Text, "3") {
		return float32(math.NaN()) // it cannot score this
	}
	return float32(n) + 100*fields.N + float32(len(q.Text))/10 + 10*q.Context["a"]
}

func questions(n int) []plugin.Query {
	all := make([]plugin.Query, n)
	for i := range all {
		all[i] = plugin.Query{Text: strings.Repeat("q", i) + fmt.Sprint(i), Context: map[string]float32{"a": float32(i)}}
	}
	return all
}

func things(n int) adapters.Rows {
	var rows adapters.Rows
	for i := range n {
		rows.IDs = append(rows.IDs, rerank.UintID(uint64(i)))
		rows.Payloads = append(rows.Payloads, json.RawMessage(fmt.Sprintf(`{"other": "<x>", "n": %d}`, i)))
	}
	return rows
}

func open(t *testing.T, o relevance.Options) *relevance.Asker {
	t.Helper()
	a, err := relevance.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func itemsOf(t *testing.T, a *relevance.Asker, rows adapters.Rows) relevance.Items {
	t.Helper()
	x, err := a.Items(rows)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func columns(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// fill asks for the scores of all rows by all queries, and compares them with truth.
func fill(t *testing.T, a *relevance.Asker, rows adapters.Rows, queries []plugin.Query) {
	t.Helper()
	dst := rerank.NewMatrix(len(rows.IDs), len(queries))
	if err := a.Fill(t.Context(), dst, itemsOf(t, a, rows), queries, columns(len(queries))); err != nil {
		t.Fatal(err)
	}
	for x, id := range rows.IDs {
		for q, query := range queries {
			got, want := dst.Row(x)[q], truth(query, id, rows.Payloads[x])
			if got != want && (got == got || want == want) {
				t.Fatalf("item %d, query %d: %v, want %v", x, q, got, want)
			}
		}
	}
}

// TestOnlyWhatIsMissingIsAsked: scores are stored by version, query and item. An item is identified
// by the content that the ranker reads.
func TestOnlyWhatIsMissingIsAsked(t *testing.T) {
	dir, r := t.TempDir(), newArithmetic()
	o := relevance.Options{Ranker: r, Dir: dir}
	step := func(what string, rows adapters.Rows, queries []plugin.Query, want int) {
		t.Helper()
		a := open(t, o)
		before := r.calls
		fill(t, a, rows, queries)
		if got := r.calls - before; got != want || a.Asked() != int64(want) {
			t.Errorf("%s: asked of %d and %d, want %d", what, got, a.Asked(), want)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rows := things(10)
	step("all", rows, questions(6), 60)
	step("again", rows, questions(6), 0)
	step("queries more", rows, questions(8), 20)
	step("items more", things(12), questions(8), 16)
	rows.Payloads[3] = json.RawMessage(`{"n":3,"other":"changed"}`)
	step("a field that it does not read", rows, questions(8), 0)
	rows.Payloads[3] = json.RawMessage(`{"n":4}`)
	step("a field that it reads", rows, questions(8), 8)
	r.Version = "2"
	step("another version", rows, questions(2), 20)
	r.Version = "1"
	step("the first version", rows, questions(8), 0)
	if r.most != 4 {
		t.Errorf("%d items in one request, 4 are allowed", r.most)
	}
}

// TestAfterAFailure: scores that came before a failure are not asked for again.
func TestAfterAFailure(t *testing.T) {
	dir, r := t.TempDir(), newArithmetic()
	r.Parallel = 1
	broken := errors.New("broken")
	r.fail = func(_ plugin.Query, calls int) error {
		if calls >= 30 {
			return broken
		}
		return nil
	}
	a := open(t, relevance.Options{Ranker: r, Dir: dir})
	rows, queries := things(10), questions(6)
	if err := a.Fill(t.Context(), rerank.NewMatrix(10, 6), itemsOf(t, a, rows), queries, columns(6)); !errors.Is(err, broken) {
		t.Fatalf("%v, want %v", err, broken)
	}
	done := r.calls
	r.fail = nil
	fill(t, a, rows, queries)
	if r.calls != 60 || done < 30 {
		t.Errorf("asked of %d in all, %d before the failure, want 60 and 30", r.calls, done)
	}
}

// TestARankerThatComesBack: a ranker that fails for a while is asked again; one that comes back with
// another version is not.
func TestARankerThatComesBack(t *testing.T) {
	r := newArithmetic()
	downs := 0
	r.fail = func(plugin.Query, int) error {
		if downs++; downs < 3 {
			return fmt.Errorf("%w: it starts", ranker.ErrUnavailable)
		}
		return nil
	}
	a := open(t, relevance.Options{Ranker: r, PerSecond: 1e6})
	fill(t, a, things(3), questions(1))
	r.fail = func(plugin.Query, int) error { return ranker.ErrUnavailable }
	hopeless := open(t, relevance.Options{Ranker: r, Hopeless: func() bool { return true }})
	if err := hopeless.Fill(t.Context(), rerank.NewMatrix(3, 1), itemsOf(t, hopeless, things(3)), questions(1), columns(1)); !errors.Is(err, ranker.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	r.fail, r.Version = nil, "2"
	err := a.Fill(t.Context(), rerank.NewMatrix(3, 1), itemsOf(t, a, things(3)), questions(1), columns(1))
	if !errors.Is(err, relevance.ErrVersion) {
		t.Errorf("%v, want ErrVersion", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Fill(ended, rerank.NewMatrix(3, 1), itemsOf(t, a, things(3)), questions(1), columns(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// TestOneProcessAtATime: the folder of scores is locked until Close.
func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	a := open(t, relevance.Options{Ranker: newArithmetic(), Dir: dir})
	if _, err := relevance.New(t.Context(), relevance.Options{Ranker: newArithmetic(), Dir: dir}); !errors.Is(err, relevance.ErrCache) {
		t.Errorf("%v, want ErrCache", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, relevance.Options{Ranker: newArithmetic(), Dir: dir})
}

// TestDamage: an incomplete last record is cut off, a damaged record is lost alone, and a file of
// another kind is refused.
func TestDamage(t *testing.T) {
	dir, r := t.TempDir(), newArithmetic()
	rows, queries := things(8), questions(4)
	a := open(t, relevance.Options{Ranker: r, Dir: dir})
	fill(t, a, rows, queries)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.scores"))
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	damage := slices.Clone(whole)
	damage[len(damage)/2] ^= 1
	for name, tc := range map[string]struct {
		content []byte
		calls   int
	}{
		"torn":           {whole[:len(whole)-3], 4},
		"rest of a head": {append(slices.Clone(whole), 0xF7, 'R'), 0},
		"a bit flipped":  {damage, 4},
		"zeros behind":   {append(slices.Clone(whole), make([]byte, 4096)...), 0},
	} {
		if err := os.WriteFile(files[0], tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		a, before := open(t, relevance.Options{Ranker: r, Dir: dir}), r.calls
		fill(t, a, rows, queries)
		if got := r.calls - before; got != tc.calls {
			t.Errorf("%s: asked of %d, want %d", name, got, tc.calls)
		}
		if _, lost := a.Kept(); (lost > 0) != (name == "a bit flipped") {
			t.Errorf("%s: %d bytes lost", name, lost)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(files[0], []byte("something else, and long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := relevance.New(t.Context(), relevance.Options{Ranker: r, Dir: dir}); !errors.Is(err, relevance.ErrCache) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("%v, want ErrCache", err)
	}
}

// TestEstimate: an estimate counts calls, requests and cost. The calls that it measures with are
// stored, and not made again.
func TestEstimate(t *testing.T) {
	r := newArithmetic()
	a := open(t, relevance.Options{Ranker: r, Dir: t.TempDir()})
	items, queries := itemsOf(t, a, things(10)), questions(6)
	if err := a.Fill(t.Context(), rerank.NewMatrix(10, 6), items, queries, []int{0}); err != nil {
		t.Fatal(err)
	}
	e := a.Estimate()
	a.Add(&e, items, queries, []int{0, 1, 2})
	want := relevance.Estimate{
		Ranker: "arithmetic", Version: "1", Items: 10, Queries: 3, Calls: 20, Kept: 10, Requests: 6, ItemsPerRequest: 4, ParallelRequests: 3, Cost: 10,
	}
	if e != want {
		t.Errorf("%+v\nwant %+v", e, want)
	}
	if err := a.Probe(t.Context(), &e, items, queries, []int{0, 1, 2}); err != nil || !(e.PerSecond > 0) || !(e.Seconds > 0) {
		t.Errorf("%+v, %v", e, err)
	}
	if err := a.Fill(t.Context(), rerank.NewMatrix(10, 6), items, queries, []int{0, 1, 2}); err != nil || r.calls != 30 {
		t.Errorf("asked of %d, want 30; %v", r.calls, err)
	}
}

// TestEstimatedTime: the estimated time covers the remaining calls, at the speed of the last round.
func TestEstimatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newArithmetic()
		r.Parallel = 1
		r.seen = func(plugin.Query, []plugin.Item) { <-time.After(200 * time.Millisecond) }
		a := open(t, relevance.Options{Ranker: r, Dir: t.TempDir()})
		items, queries := itemsOf(t, a, things(10)), questions(6)
		e := a.Estimate()
		a.Add(&e, items, queries, columns(6))
		if err := a.Probe(t.Context(), &e, items, queries, columns(6)); err != nil {
			t.Fatal(err)
		}
		if e.Calls != 60 || e.PerSecond != 20 || e.Seconds != 3 { // four items in a fifth of a second
			t.Errorf("%+v", e)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAskedCountsTheCallsOfTheRanker: the count includes the calls of a request that failed and was
// sent again.
func TestAskedCountsTheCallsOfTheRanker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &calling{arithmetic: newArithmetic()}
		a := open(t, relevance.Options{Ranker: r})
		if err := a.Fill(t.Context(), rerank.NewMatrix(3, 1), itemsOf(t, a, things(3)), questions(1), []int{0}); err != nil || a.Asked() != 7+3 {
			t.Errorf("asked %d times, want 10; %v", a.Asked(), err)
		}
	})
}

// calling is a ranker whose first request fails after seven calls.
type calling struct {
	*arithmetic
	failed bool
}

func (c *calling) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	if !c.failed {
		c.failed = true
		return ranker.Result{Calls: 7, Version: c.Version}, ranker.ErrUnavailable
	}
	return c.arithmetic.Rank(ctx, q, items)
}

// TestKeptOnly: with KeptOnly the ranker is never asked; scores that are not stored are NaN.
func TestKeptOnly(t *testing.T) {
	dir, r := t.TempDir(), newArithmetic()
	a := open(t, relevance.Options{Ranker: r, Dir: dir})
	fill(t, a, things(2), questions(2))
	_ = a.Close()
	before := r.calls
	a = open(t, relevance.Options{Ranker: r, Dir: dir, KeptOnly: true})
	dst := rerank.NewMatrix(3, 2)
	if err := a.Fill(t.Context(), dst, itemsOf(t, a, things(3)), questions(2), columns(2)); err != nil || r.calls != before {
		t.Errorf("asked of %d, %v", r.calls-before, err)
	}
	if dst.Row(1)[1] != truth(questions(2)[1], rerank.UintID(1), json.RawMessage(`{"n":1}`)) || dst.Row(2)[0] == dst.Row(2)[0] {
		t.Errorf("%v", dst)
	}
}

// TestWhatTheRankerReads: the ranker gets the payload fields that it asks for, with sorted keys
// however the store sent them, and the vector.
func TestWhatTheRankerReads(t *testing.T) {
	r := newArithmetic()
	r.PayloadFields, r.Vectors = []string{"n", "deep.b", "none", "deep.a.x"}, true
	var got plugin.Item
	r.seen = func(_ plugin.Query, items []plugin.Item) { got = items[0] }
	a := open(t, relevance.Options{Ranker: r})
	if payload, fields, vector := a.Reads(); !payload || !vector || len(fields) != 4 {
		t.Errorf("it reads %t %q %t", payload, fields, vector)
	}
	rows := adapters.Rows{
		IDs: []rerank.ID{rerank.TextID("x")}, Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{1, 2}}},
		Payloads: []json.RawMessage{json.RawMessage(`{"z":1, "deep": {"c":0, "b":"<>", "a": {"x": 12345678901234567890}}, "n": 1.50}`)},
	}
	if err := a.Fill(t.Context(), rerank.NewMatrix(1, 1), itemsOf(t, a, rows), questions(1), columns(1)); err != nil {
		t.Fatal(err)
	}
	if want := `{"deep":{"a":{"x":12345678901234567890},"b":"<>"},"n":1.50}`; string(got.Payload) != want || !slices.Equal(got.Vector, []float32{1, 2}) {
		t.Errorf("%s %v, want %s", got.Payload, got.Vector, want)
	}
	rows.Payloads[0] = json.RawMessage(`[1]`)
	if _, err := a.Items(rows); !errors.Is(err, adapters.ErrStore) {
		t.Errorf("%v, want ErrStore", err)
	}
}

// cut is a ranker whose answers the function scores changes before they are returned.
type cut struct {
	*arithmetic
	scores func(r ranker.Result) (ranker.Result, error)
}

func (c cut) Rank(ctx context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	r, err := c.arithmetic.Rank(ctx, q, items)
	if err != nil {
		return r, err
	}
	return c.scores(r)
}

// TestShortAnswer: an answer with fewer scores than items is an error, and none of its scores is
// stored.
func TestShortAnswer(t *testing.T) {
	c := cut{newArithmetic(), func(r ranker.Result) (ranker.Result, error) {
		r.Scores = r.Scores[1:]
		return r, nil
	}}
	a := open(t, relevance.Options{Ranker: c, Dir: t.TempDir()})
	items, err := a.Items(things(4))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Fill(t.Context(), rerank.NewMatrix(4, 1), items, questions(1), columns(1)); !errors.Is(err, ranker.ErrAnswer) {
		t.Errorf("err = %v", err)
	}
	if kept, _ := a.Kept(); kept != 0 {
		t.Errorf("%d scores are kept", kept)
	}
}

// TestPartOfAnAnswer: if a request fails after some scores came, those are stored. A NaN among them
// is not: it may stand for a score that did not come.
func TestPartOfAnAnswer(t *testing.T) {
	broken := errors.New("it broke")
	c := cut{newArithmetic(), func(r ranker.Result) (ranker.Result, error) {
		r.Scores[len(r.Scores)-1] = float32(math.NaN())
		return r, broken
	}}
	a := open(t, relevance.Options{Ranker: c, Dir: t.TempDir()})
	items, err := a.Items(things(4))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Fill(t.Context(), rerank.NewMatrix(4, 1), items, questions(1), columns(1)); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	if kept, _ := a.Kept(); kept != 3 {
		t.Errorf("%d scores are kept, want 3", kept)
	}
	c.scores = func(r ranker.Result) (ranker.Result, error) { // of which items?
		r.Scores = r.Scores[1:]
		return r, broken
	}
	a = open(t, relevance.Options{Ranker: c, Dir: t.TempDir()})
	if err := a.Fill(t.Context(), rerank.NewMatrix(4, 1), itemsOf(t, a, things(4)), questions(1), columns(1)); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	if kept, _ := a.Kept(); kept != 0 {
		t.Errorf("%d scores of unknown items are kept", kept)
	}
}

// TestPaceOfAsking: a ranker gets no more items a second than its owner permits, and one that is
// hopeless is not waited for.
func TestPaceOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newArithmetic() // which takes four items in a request
		began := time.Now()
		fill(t, open(t, relevance.Options{Ranker: r, PerSecond: 2}), things(12), questions(1))
		if took := time.Since(began); took < 4*time.Second || took > 7*time.Second {
			t.Errorf("12 items at two a second took %v", took)
		}
		r.fail = func(plugin.Query, int) error { return ranker.ErrUnavailable }
		for hopeless, want := range map[bool]time.Duration{true: 0, false: 20 * time.Second} {
			a := open(t, relevance.Options{Ranker: r, Patience: 30 * time.Second, Hopeless: func() bool { return hopeless }})
			began := time.Now()
			err := a.Fill(t.Context(), rerank.NewMatrix(3, 1), itemsOf(t, a, things(3)), questions(1), columns(1))
			if took := time.Since(began); !errors.Is(err, ranker.ErrUnavailable) || took < want || hopeless && took > 0 {
				t.Errorf("hopeless (%t): %v after %v", hopeless, err, took)
			}
		}
	})
}
