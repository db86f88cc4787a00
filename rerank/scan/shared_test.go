package scan_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/internal/caught"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/rerank/tensor"
)

// counted counts who scores at a time, over all of its kind.
type counted struct {
	rerank.Encoded
	now, most *atomic.Int64
}

func (c counted) Score(dst []float32, items rerank.Items) error {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for was := c.most.Load(); n > was && !c.most.CompareAndSwap(was, n); was = c.most.Load() {
	}
	runtime.Gosched()
	return c.Encoded.Score(dst, items)
}

// Scans keep to the turns that they share with other work, however many threads
// there are: the others stay free. One that gets no turn ends with its context, and the
// ones that count on it are answered.
func TestSharedTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	w := worlds(t, false)["dot"]
	shared := turns.New(2)
	s := scan.NewShared(w.table, w.sim.Spec(), shared)
	want, _ := w.naive(t, w.encoded[0], 5, nil)
	var now, most atomic.Int64
	query := scan.Query{Encoded: counted{w.encoded[0], &now, &most}, K: 5}
	scans := func(n int) *sync.WaitGroup {
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				if r, err := s.Scan(context.Background(), query, nil); err != nil || !same(r.Top, want) {
					t.Errorf("%v, %v", r.Top, err)
				}
			})
		}
		return &group
	}
	for range 20 {
		scans(6).Wait()
	}
	if most.Load() > int64(shared.Most()) {
		t.Errorf("%d scored at a time, of %d turns", most.Load(), shared.Most())
	}
	for range shared.Most() {
		must(t, shared.Take(context.Background()))
	}
	most.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Scan(ctx, query, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a turn: %v", err)
	}
	others := scans(3)
	if most.Load() != 0 {
		t.Error("somebody scored without a turn")
	}
	shared.GiveAll(shared.Most())
	others.Wait()
	if shared.Waiting() != 0 || !shared.Try() || !shared.Try() {
		t.Error("a turn was not given back")
	}
}

// TestAQueryOutlivesTheOneThatBeganThePass: a query that joined a pass is answered, though the one
// that began the pass left while it waited for a turn.
func TestAQueryOutlivesTheOneThatBeganThePass(t *testing.T) {
	w := worlds(t, false)["dot"]
	want, _ := w.naive(t, w.encoded[0], 5, nil)
	synctest.Test(t, func(t *testing.T) {
		shared := turns.New(1)
		s := scan.NewShared(w.table, w.sim.Spec(), shared)
		must(t, shared.Take(t.Context()))
		ctx, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Scan(ctx, scan.Query{Encoded: w.encoded[1], K: 5}, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that left: %v", err)
			}
		})
		synctest.Wait()
		group.Go(func() {
			if r, err := s.Scan(t.Context(), scan.Query{Encoded: w.encoded[0], K: 5}, nil); err != nil || !same(r.Top, want) {
				t.Errorf("the one that stayed: %v, %v", r.Top, err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		shared.Give()
		group.Wait()
	})
}

// mixtures is a table of a Mixture-of-Logits whose gates depend on the item.
func mixtures(t testing.TB, items int, meta table.Meta) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(31, 32))
	random := func(shape ...int) tensor.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		v := tensor.Tensor{Shape: shape, Data: make([]float32, n)}
		for i := range v.Data {
			v.Data[i] = float32(rng.NormFloat64() / math.Sqrt(float64(shape[len(shape)-1])))
		}
		return v
	}
	const dim, pq, px, d, gate = 12, 3, 2, 10, 16
	sim, err := mol.New(mol.Config{
		QueryDim: dim, ItemDim: dim, Dim: d, PairsQuery: pq, PairsItem: px, Temperature: 0.1, L2Norm: true,
		GatingQueryHidden: gate, GatingItemHidden: gate, GatingPairHidden: gate, Combination: mol.GLUSiLU,
	}, tensor.Set{
		"_query_embeddings_fn._query_emb_proj_module.1.weight": random(pq*d, dim), "_query_embeddings_fn._query_emb_proj_module.1.bias": random(pq * d),
		"_item_embeddings_fn._item_emb_proj_module.1.weight": random(px*d, dim), "_item_embeddings_fn._item_emb_proj_module.1.bias": random(px * d),
		"_gating_fn._query_only_partial_module.0.weight": random(gate, dim), "_gating_fn._query_only_partial_module.0.bias": random(gate),
		"_gating_fn._query_only_partial_module.2.weight": random(pq*px, gate),
		"_gating_fn._item_only_partial_module.1.weight":  random(gate, dim), "_gating_fn._item_only_partial_module.1.bias": random(gate),
		"_gating_fn._item_only_partial_module.3.weight": random(pq*px, gate),
		"_gating_fn._qi_partial_module.1.weight":        random(gate, pq*px), "_gating_fn._qi_partial_module.1.bias": random(gate),
		"_gating_fn._qi_partial_module.3.weight": random(pq*px, gate), "_gating_fn._qi_partial_module.3.bias": random(pq * px),
	})
	must(t, err)
	w := &world{sim: sim, features: rerank.NewMatrix(items, sim.Spec().Features)}
	must(t, sim.EncodeItems(w.features, vectors(rng, items, dim, false)))
	copy(w.features.Row(items-1), w.features.Row(0)) // the last item ties with the first
	w.build(t, meta)
	w.queries(t, rng, 70)
	return w
}

// refining counts the items that are screened in full precision, and notes a call that is wrong.
type refining struct {
	rerank.Encoded
	screened, reached int
	wrong             string
}

func (e *refining) Screens(items rerank.Items) int { return e.Encoded.(rerank.Screener).Screens(items) }

func (e *refining) Screen(level int, dst []float32, items rerank.Items, loss rerank.Loss, reach float32) error {
	err := e.Encoded.(rerank.Screener).Screen(level, dst, items, loss, reach)
	if items.Packed != nil {
		return err
	}
	for _, b := range loss.Blocks {
		if loss.Row.Lost > 0 || b.Lost > 0 || !(b.Norm > 0) {
			e.wrong = "it has a loss, or no norm"
		}
	}
	if level != e.Screens(items)-1 {
		e.wrong = "it is not by the tightest bound"
	}
	e.screened += len(dst)
	for _, b := range dst {
		if !(b < reach) {
			e.reached++
		}
	}
	return err
}

// TestRefines: of a table of rounded rows, what a screen leaves is screened in full precision, and
// what that leaves is scored.
func TestRefines(t *testing.T) {
	w := mixtures(t, 20_000, table.Meta{Format: rerank.FormatInt8, Layout: table.LayoutTiles, Full: true})
	refined := 0
	for _, e := range w.encoded[:8] {
		q := &refining{Encoded: e}
		s := scan.NewShared(w.table, w.sim.Spec(), turns.New(1))
		got, err := s.Scan(context.Background(), scan.Query{Encoded: q, K: 10}, nil)
		must(t, err)
		want, err := s.Scan(context.Background(), scan.Query{Encoded: e, K: 10, Whole: true}, nil)
		must(t, err)
		if !same(got.Top, want.Top) || q.wrong != "" || got.Scored < q.reached {
			t.Errorf("%d items are scored, %d are left in full precision; another answer, or a wrong call: %s", got.Scored, q.reached, q.wrong)
		}
		if got.Scored+q.screened-q.reached > got.Items {
			t.Errorf("of %d items %d are scored, and %d ruled out in full precision", got.Items, got.Scored, q.screened-q.reached)
		}
		refined += q.screened - q.reached
	}
	if refined == 0 {
		t.Error("full precision ruled no item out, so that this proves nothing")
	}
}

// brokenBatch is a query that cannot be scored together with others, whatever it says.
type brokenBatch struct{ rerank.Encoded }

func (b brokenBatch) Batch() rerank.Batch { return b.Encoded.(rerank.Batcher).Batch() }

// TestBatchOfMixtures: queries that are scored together get the answers that they get alone,
// whatever they ask for, more of them than one call takes, and beside one that fails there.
func TestBatchOfMixtures(t *testing.T) {
	const items = 5000
	for name, meta := range map[string]table.Meta{
		"rows": {}, "tiles": {Layout: table.LayoutTiles}, "bfloat16": {Format: rerank.FormatBFloat16, Full: true}, "int8": {Format: rerank.FormatInt8, Full: true},
	} {
		w := mixtures(t, items, meta)
		within, other := scan.NewBitmap(items), scan.NewBitmap(items)
		for i := range int32(items) {
			if i%3 > 0 {
				within.Add(i)
			} else {
				other.Add(i)
			}
		}
		var queries []scan.Query
		for i, e := range w.encoded {
			q := scan.Query{Encoded: e, K: 1 + i%25, Whole: i%7 == 0}
			switch {
			case i == 5:
				q.Encoded = brokenBatch{e}
			case i%5 == 1:
				q.Within = within
			case i%5 == 3:
				q.Within = other
			}
			queries = append(queries, q)
		}
		results := make([]scan.Result, len(queries))
		must(t, scan.NewShared(w.table, w.sim.Spec(), turns.New(2)).Batch(context.Background(), queries, results))
		alone := scan.NewShared(w.table, w.sim.Spec(), turns.New(1))
		scored, visited := 0, 0
		for i, q := range queries {
			q.Whole = true
			want, err := alone.Scan(context.Background(), q, nil)
			must(t, err)
			if !same(results[i].Top, want.Top) || results[i].Items != want.Items {
				t.Errorf("%s: query %d has %d rows of %d items, alone %d of %d, or others", name, i, len(results[i].Top), results[i].Items, len(want.Top), want.Items)
			}
			if !queries[i].Whole {
				scored, visited = scored+results[i].Scored, visited+results[i].Items
			}
		}
		if scored == visited {
			t.Errorf("%s: no bound ruled an item out, so that this proves nothing of bounds", name)
		}
	}
}

// panics is a query whose similarity panics.
type panics struct{ rerank.Encoded }

func (panics) Score([]float32, rerank.Items) error { panic("a defect of a similarity") }

// TestAPanicIsOneQuerys: a similarity that panics fails its own query, and neither the process nor
// the queries that are scored beside it.
func TestAPanicIsOneQuerys(t *testing.T) {
	w := worlds(t, false)["dot"]
	want, _ := w.naive(t, w.encoded[0], 5, nil)
	s := scan.NewShared(w.table, w.sim.Spec(), turns.New(2))
	for range 3 {
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Scan(t.Context(), scan.Query{Encoded: panics{w.encoded[1]}, K: 5}, nil); !errors.Is(err, caught.ErrPanic) {
				t.Errorf("the one that panics: %v", err)
			}
		})
		group.Go(func() {
			if r, err := s.Scan(t.Context(), scan.Query{Encoded: w.encoded[0], K: 5}, nil); err != nil || !same(r.Top, want) {
				t.Errorf("beside one that panics: %v, %v", r.Top, err)
			}
		})
		group.Wait()
	}
}

// watched is a batch that notes how many queries it gets at a time, or panics with several.
type watched struct {
	rerank.Batch
	most   atomic.Int64
	panics bool
}

// watchedQuery is a query of a watched batch.
type watchedQuery struct {
	rerank.Encoded
	of *watched
}

func (q watchedQuery) Batch() rerank.Batch { return q.of }

func (b *watched) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	if b.panics {
		panic("a defect of a batch")
	}
	b.most.Store(max(b.most.Load(), int64(len(queries))))
	own := make([]rerank.Encoded, len(queries))
	for i, q := range queries {
		own[i] = q.(watchedQuery).Encoded
	}
	return b.Batch.ScoreBatch(dst, own, items)
}

// sized is a batch that notes the fewest items that it scores at a time.
type sized struct {
	rerank.Batch
	least atomic.Int64
}

// sizedQuery is a query of a sized batch, which can be screened.
type sizedQuery struct {
	rerank.Encoded
	of *sized
}

func (q sizedQuery) Batch() rerank.Batch { return q.of }

func (q sizedQuery) Screens(items rerank.Items) int {
	return q.Encoded.(rerank.Screener).Screens(items)
}

func (q sizedQuery) Screen(level int, dst []float32, items rerank.Items, loss rerank.Loss, reach float32) error {
	return q.Encoded.(rerank.Screener).Screen(level, dst, items, loss, reach)
}

func (b *sized) ScoreBatch(dst []float32, queries []rerank.Encoded, items rerank.Items) error {
	b.least.Store(min(b.least.Load(), int64(items.Len())))
	return b.Batch.ScoreBatch(dst, unwrapped(queries), items)
}

func (b *sized) ScreenBatch(level int, dst []float32, queries []rerank.Encoded, items rerank.Items, loss rerank.Loss, reach []float32) error {
	return b.Batch.ScreenBatch(level, dst, unwrapped(queries), items, loss, reach)
}

func unwrapped(queries []rerank.Encoded) []rerank.Encoded {
	own := make([]rerank.Encoded, len(queries))
	for i, q := range queries {
		own[i] = q.(sizedQuery).Encoded
	}
	return own
}

// TestTrialsOfABatch: what scoring all items costs is measured on a part of a chunk for a batch too.
func TestTrialsOfABatch(t *testing.T) {
	w := mixtures(t, 3000, table.Meta{})
	of := &sized{Batch: w.encoded[0].(rerank.Batcher).Batch()}
	of.least.Store(3000)
	queries := make([]scan.Query, 2)
	for i := range queries {
		queries[i] = scan.Query{Encoded: sizedQuery{w.encoded[i], of}, K: 3}
	}
	must(t, scan.NewShared(w.table, w.sim.Spec(), turns.New(1)).Batch(t.Context(), queries, make([]scan.Result, len(queries))))
	if least := of.least.Load(); least > 128 {
		t.Errorf("the shortest call scored %d items for all queries, want a part of a chunk: 128 at most", least)
	}
}

// TestCallsOfABatch: one call takes 64 queries at most, so that a thousand searches at once need no memory
// for all their scores; and where a call panics, each query is scored alone.
func TestCallsOfABatch(t *testing.T) {
	const items = 3000
	w := mixtures(t, items, table.Meta{})
	for _, fails := range []bool{false, true} {
		of := &watched{Batch: w.encoded[0].(rerank.Batcher).Batch(), panics: fails}
		queries := make([]scan.Query, 0, len(w.encoded))
		for _, e := range w.encoded {
			queries = append(queries, scan.Query{Encoded: watchedQuery{e, of}, K: 3, Whole: true})
		}
		results := make([]scan.Result, len(queries))
		must(t, scan.NewShared(w.table, w.sim.Spec(), turns.New(1)).Batch(t.Context(), queries, results))
		for i, e := range w.encoded {
			if want, _ := w.naive(t, e, 3, nil); !same(results[i].Top, want) {
				t.Errorf("fails %v: query %d finds %v", fails, i, results[i].Top)
			}
		}
		if most := of.most.Load(); !fails && most != 64 {
			t.Errorf("a call took %d queries of %d", most, len(queries))
		}
	}
}
