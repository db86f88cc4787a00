package scan_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/likenessdb/likeness/internal/race"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/maxsim"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a table with queries to it.
type world struct {
	sim      rerank.Similarity
	table    *table.Table
	encoded  []rerank.Encoded
	features rerank.Matrix // float32, of the table's rows
	starts   []int32
}

func (w *world) queries(t testing.TB, rng *rand.Rand, n int) {
	t.Helper()
	spec := w.sim.Spec()
	for range n {
		q := rerank.Query{Vector: make([]float32, spec.QueryDim), UserID: rng.Int64N(100), HasUserID: spec.UserIDs}
		for i := range q.Vector {
			q.Vector[i] = float32(rng.NormFloat64())
		}
		e, err := w.sim.Encode(q)
		must(t, err)
		w.encoded = append(w.encoded, e)
	}
}

// build makes the table, with ids that descend, so that ties do not fall by number.
func (w *world) build(t testing.TB, meta table.Meta) {
	t.Helper()
	n := w.features.Rows
	if w.starts != nil {
		n = len(w.starts) - 1
	}
	ids := make([]rerank.ID, n)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(10*n - i))
	}
	meta.Block = w.sim.Spec().Block
	var err error
	w.table, err = table.FromMemory(meta, ids, w.features, w.starts)
	must(t, err)
}

// vectors has rows of few different numbers, so that many tie, zero rows, rows
// that are not finite, and some that are long.
func vectors(rng *rand.Rand, rows, cols int, adversarial bool) rerank.Matrix {
	m := rerank.NewMatrix(rows, cols)
	for r := range rows {
		row := m.Row(r)
		for i := range row {
			row[i] = float32(rng.NormFloat64())
		}
		if !adversarial {
			continue
		}
		switch rng.IntN(8) {
		case 0:
			clear(row)
		case 1:
			copy(row, m.Row(rng.IntN(r+1)))
		case 2:
			row[rng.IntN(cols)] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[rng.IntN(3)])
		case 3:
			copy(row, m.Row(rng.IntN(r+1)))
			row[rng.IntN(cols)] *= 1 + 1e-6
		case 4:
			for i := range row {
				row[i] *= 1e3
			}
		}
	}
	return m
}

// naive scores everything, one item after the other.
func (w *world) naive(t testing.TB, e rerank.Encoded, k int, within []int32) (top []rerank.Scored, notFinite int) {
	t.Helper()
	best := rerank.NewTopK(k)
	for item := range w.table.Len() {
		if within != nil && !slices.Contains(within, int32(item)) {
			continue
		}
		items := rerank.Items{Features: w.features, Rows: []int32{int32(item)}}
		if w.starts != nil {
			items = rerank.Items{Features: w.features, Starts: w.starts[item : item+2]}
		}
		var score [1]float32
		must(t, e.Score(score[:], items))
		if score[0]-score[0] != 0 {
			notFinite++
		}
		best.Push(rerank.Scored{ID: w.table.ID(item), Score: score[0], Index: item})
	}
	return best.Sorted(), notFinite
}

func same(a, b []rerank.Scored) bool {
	return slices.EqualFunc(a, b, func(x, y rerank.Scored) bool {
		return x.ID == y.ID && x.Index == y.Index && math.Float32bits(x.Score) == math.Float32bits(y.Score)
	})
}

func subset(rng *rand.Rand, n int) []int32 {
	within := []int32{}
	for i := range n {
		if rng.IntN(5) == 0 {
			within = append(within, int32(i))
		}
	}
	return within
}

func worlds(t testing.TB, adversarial bool) map[string]*world {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	inner, err := dot.New(dot.Config{Dim: 19}, nil)
	must(t, err)
	best, err := maxsim.New(maxsim.Config{Dim: 19}, nil)
	must(t, err)
	starts := []int32{0}
	for starts[len(starts)-1] < 3000 {
		starts = append(starts, starts[len(starts)-1]+1+rng.Int32N(4))
	}
	all := map[string]*world{
		"dot":     {sim: inner, features: vectors(rng, 3001, 19, adversarial)},
		"max-sim": {sim: best, features: vectors(rng, int(starts[len(starts)-1]), 19, adversarial), starts: starts},
	}
	for _, w := range all {
		w.build(t, table.Meta{})
		w.queries(t, rng, 5)
	}
	return all
}

// TestExact wants of every table what the naive loop finds, under filters too.
func TestExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, adversarial := range []bool{false, true} {
		for name, w := range worlds(t, adversarial) {
			s := scan.New(w.table, w.sim.Spec())
			for i, e := range w.encoded {
				k := []int{1, 10, 100, 2900, 5000}[i]
				var within []int32
				q := scan.Query{Encoded: e, K: k}
				if i%2 == 1 {
					within = subset(rng, w.table.Len())
					q.Within = scan.NewBitmap(w.table.Len())
					q.Within.Add(within...)
				}
				want, notFinite := w.naive(t, e, k, within)
				got, err := s.Scan(context.Background(), q, nil)
				must(t, err)
				if !same(got.Top, want) || got.NotFinite != notFinite {
					t.Errorf("%s, query %d: %d rows, %d not finite, want %d and %d; the first are %v, want %v",
						name, i, len(got.Top), got.NotFinite, len(want), notFinite, got.Top[0], want[0])
				}
			}
		}
	}
}

// TestShared wants the same answers of queries that share a pass, in one call or
// in many.
func TestShared(t *testing.T) {
	for name, w := range worlds(t, true) {
		s := scan.New(w.table, w.sim.Spec())
		queries, results := make([]scan.Query, len(w.encoded)), make([]scan.Result, len(w.encoded))
		want := make([][]rerank.Scored, len(w.encoded))
		for i, e := range w.encoded {
			queries[i] = scan.Query{Encoded: e, K: 20}
			want[i], _ = w.naive(t, e, 20, nil)
		}
		must(t, s.Batch(context.Background(), queries, results))
		for i, r := range results {
			if !same(r.Top, want[i]) {
				t.Errorf("%s: query %d of a batch has another answer", name, i)
			}
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				q := i % len(queries)
				r, err := s.Scan(context.Background(), queries[q], nil)
				if err != nil || !same(r.Top, want[q]) {
					t.Errorf("%s: query %d has another answer beside others: %v", name, q, err)
				}
			})
		}
		wg.Wait()
	}
}

// stopper ends its query's context in the second call.
type stopper struct {
	rerank.Encoded
	calls  atomic.Int32
	cancel context.CancelFunc
	err    error
}

func (s *stopper) Score(dst []float32, items rerank.Items) error {
	if s.calls.Add(1) == 2 {
		s.cancel()
		return s.err
	}
	return s.Encoded.Score(dst, items)
}

// TestEnded wants a query to end with its context or its error, and others to go on.
func TestEnded(t *testing.T) {
	w := worlds(t, false)["dot"]
	s := scan.New(w.table, w.sim.Spec())
	want, _ := w.naive(t, w.encoded[1], 5, nil)
	broken := errors.New("broken")
	for _, fail := range []error{nil, broken} {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := s.Scan(context.Background(), scan.Query{Encoded: w.encoded[1], K: 5}, nil)
			if err != nil || !same(r.Top, want) {
				t.Errorf("beside a query that ended: %v", err)
			}
		})
		_, err := s.Scan(ctx, scan.Query{Encoded: &stopper{Encoded: w.encoded[0], cancel: cancel, err: fail}, K: 5}, nil)
		if want := []error{context.Canceled, broken}; !errors.Is(err, want[0]) && !errors.Is(err, want[1]) {
			t.Errorf("the query that ended has the error %v", err)
		}
		wg.Wait()
		cancel()
	}
}

// failing is a query whose scores fail once, in a chunk that is not the first.
type failing struct {
	rerank.Encoded
	calls atomic.Int32
	err   error
}

func (f *failing) Score(dst []float32, items rerank.Items) error {
	if f.calls.Add(1) == 3 {
		return f.err
	}
	return f.Encoded.Score(dst, items)
}

// TestAChunkThatFails: its error is that of the query, whose answer would lack its items, and of
// no other query.
func TestAChunkThatFails(t *testing.T) {
	w := worlds(t, false)["dot"]
	s := scan.New(w.table, w.sim.Spec())
	want, _ := w.naive(t, w.encoded[1], 5, nil)
	broken := errors.New("broken")
	for range 2 {
		queries := []scan.Query{{Encoded: w.encoded[1], K: 5}, {Encoded: &failing{Encoded: w.encoded[0], err: broken}, K: 5}, {Encoded: w.encoded[1], K: 5}}
		results := make([]scan.Result, len(queries))
		if err := s.Batch(context.Background(), queries, results); !errors.Is(err, broken) {
			t.Errorf("error %v, want %v", err, broken)
		}
		for _, i := range []int{0, 2} {
			if !same(results[i].Top, want) {
				t.Errorf("query %d beside it has another answer", i)
			}
		}
	}
}

// TestWhatIsCounted: every item that the filter lets through is visited, and every one of them is
// scored if the bounds are off.
func TestWhatIsCounted(t *testing.T) {
	for name, w := range worlds(t, true) {
		w.build(t, table.Meta{Format: rerank.FormatBFloat16, Full: true})
		s := scan.New(w.table, w.sim.Spec())
		within := scan.NewBitmap(w.table.Len())
		for i := 0; i < w.table.Len(); i += 3 {
			within.Add(int32(i))
		}
		for _, c := range []struct {
			within *scan.Bitmap
			items  int
		}{{nil, w.table.Len()}, {within, within.Len()}} {
			for _, whole := range []bool{false, true} {
				r, err := s.Scan(context.Background(), scan.Query{Encoded: w.encoded[0], K: 5, Within: c.within, Whole: whole}, nil)
				must(t, err)
				if r.Items != c.items || (r.Scored == r.Items) != whole || r.Scored < 5 {
					t.Errorf("%s, whole %t: %d items, %d of them scored; want %d", name, whole, r.Items, r.Scored, c.items)
				}
			}
		}
	}
}

// TestNothing wants an answer where there is nothing to go over.
func TestNothing(t *testing.T) {
	w := worlds(t, false)["dot"]
	s := scan.New(w.table, w.sim.Spec())
	r, err := s.Scan(context.Background(), scan.Query{Encoded: w.encoded[0], K: 3, Within: scan.NewBitmap(w.table.Len())}, nil)
	if err != nil || len(r.Top) != 0 || r.Items != 0 {
		t.Errorf("an empty filter: %+v, %v", r, err)
	}
	empty := &world{sim: w.sim, features: rerank.NewMatrix(0, 19)}
	empty.build(t, table.Meta{})
	r, err = scan.New(empty.table, w.sim.Spec()).Scan(context.Background(), scan.Query{Encoded: w.encoded[0], K: 3}, nil)
	if err != nil || len(r.Top) != 0 {
		t.Errorf("an empty table: %+v, %v", r, err)
	}
}

// TestFormats wants of tables of every format, with full precision beside or
// without, what the naive loop finds in the rows that are scored.
func TestFormats(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for name, w := range worlds(t, false) {
		for _, format := range rerank.Formats() {
			for _, layout := range []table.Layout{table.LayoutRows, table.LayoutTiles} {
				for _, full := range []bool{false, true} {
					w := *w
					w.build(t, table.Meta{Format: format, Layout: layout, Full: full})
					if _, ok := w.table.Full(); !ok { // the packed rows are scored
						m := rerank.NewMatrix(w.features.Rows, w.features.Cols)
						for r := range m.Rows {
							w.table.Row32(m.Row(r), r)
						}
						w.features = m
					}
					loss := w.table.Loss()
					loss.Blocks = slices.Clone(loss.Blocks)
					s := scan.New(w.table, w.sim.Spec())
					if after := w.table.Loss(); after.Row != loss.Row || !slices.Equal(after.Blocks, loss.Blocks) {
						t.Errorf("%s, %s %s, full %t: a scanner changed the table's rounding errors from %+v to %+v", name, format, layout, full, loss, after)
					}
					within := subset(rng, w.table.Len())
					for i, e := range w.encoded[:2] {
						q := scan.Query{Encoded: e, K: 10}
						var list []int32
						if i == 1 {
							q.Within, list = scan.NewBitmap(w.table.Len()), within
							q.Within.Add(within...)
						}
						want, _ := w.naive(t, e, 10, list)
						got, err := s.Scan(context.Background(), q, nil)
						must(t, err)
						for k := range want {
							if got.Top[k].Index != want[k].Index || !(math.Abs(float64(got.Top[k].Score-want[k].Score)) <= 1e-4) {
								t.Errorf("%s, %s %s, full %t, query %d: row %d is %v, want %v", name, format, layout, full, i, k, got.Top[k], want[k])
							}
						}
					}
				}
			}
		}
	}
}

// TestBounds wants no bound of an inner product below the score, of adversarial
// rows in bfloat16 and int8 against those in float32.
func TestBounds(t *testing.T) {
	for name, w := range worlds(t, true) {
		for _, meta := range []table.Meta{
			{Format: rerank.FormatBFloat16, Layout: table.LayoutRows, Full: true}, {Format: rerank.FormatBFloat16, Layout: table.LayoutTiles, Full: true},
			{Format: rerank.FormatInt8, Layout: table.LayoutRows, Full: true}, {Format: rerank.FormatInt8, Layout: table.LayoutTiles, Full: true},
		} {
			w.build(t, meta)
			all := make([]int32, w.table.Len())
			for i := range all {
				all[i] = int32(i)
			}
			exact, _ := w.table.FullItems(all, &rerank.Items{})
			scores, bounds := make([]float32, len(all)), make([]float32, len(all))
			for _, e := range w.encoded {
				must(t, e.Score(scores, exact))
				s := e.(rerank.Screener)
				for _, items := range []rerank.Items{w.table.All(), w.table.Items(all, &rerank.Items{})} {
					if s.Screens(items) == 0 {
						t.Fatalf("%s: no bound", name)
					}
					for level := range s.Screens(items) {
						must(t, s.Screen(level, bounds, items, w.table.Loss(), 0))
						for i, b := range bounds {
							if b < scores[i] || scores[i]-scores[i] != 0 && b-b == 0 {
								t.Fatalf("%s %+v: item %d scores %v, its bound is %v", name, meta, i, scores[i], b)
							}
						}
					}
				}
			}
		}
	}
}

// TestAllocations wants a scan in steady state not to allocate by the item or chunk.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("off under the race detector, which empties the pool of jobs")
	}
	w := worlds(t, false)["dot"]
	s := scan.New(w.table, w.sim.Spec())
	var top []rerank.Scored
	allocs := testing.AllocsPerRun(50, func() {
		r, err := s.Scan(context.Background(), scan.Query{Encoded: w.encoded[0], K: 10}, top[:0])
		must(t, err)
		top = r.Top
	})
	if allocs > 2 {
		t.Errorf("a scan allocates %v times", allocs)
	}
}
