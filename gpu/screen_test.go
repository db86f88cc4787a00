package gpu_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/bound"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/internal/adversary"
	"github.com/likenessdb/likeness/rerank"
)

// TestInnerProductsAreScreened: a scan of inner products bounds all rows from float16 and scores
// the best in float32. It finds the best row although float16 lowers its score below the scores
// of all others. Rows that a query names are scored in float32 at once.
func TestInnerProductsAreScreened(t *testing.T) {
	const rows, dim, k = 1000, 64, 5
	var mu sync.Mutex
	var launched []gpu.Way
	var scored []int
	m := &hosted.Machine{Memory: 1 << 24}
	d := openOn(t, m, gpu.Options{})
	w := dotWorld(t, rows, dim)
	lowered := adversary.RoundedDown(rand.New(rand.NewPCG(1, 8)), bound.Packing(nil, dim), w.query.Vector, 1)
	packing := bound.Packing(nil, dim)
	words, raised := make([]uint32, packing.RowWords()), make([]float32, dim)
	packing.Pack(words, lowered)
	packing.Unpack(raised, words, 1)
	best := 0.0
	for c, x := range w.query.Vector { // parallel to the query: of both rows the score is the greatest of all
		if (x < 0) != (lowered[c] < 0) {
			lowered[c], raised[c] = 0, 0
		}
		best += float64(x) * float64(lowered[c])
	}
	for i := range 100 { // and a hundred rows that float16 leaves as they are, between its score and its bound
		row := w.rows.Row(i)
		copy(row, raised)
		if i == 70 {
			copy(row, lowered)
		}
	}
	must(t, d.LoadModel(t.Context(), w.at, w.file))
	m.Launched = func(jobs []gpu.Job) error {
		mu.Lock()
		defer mu.Unlock()
		launched, scored = append(launched, jobs[0].Way), append(scored, len(jobs[0].Rows))
		return nil
	}
	must(t, w.table(t.Context(), d, "a"))
	got, err := d.Scan(t.Context(), w.ask("a", k), nil)
	must(t, err)
	if len(got.Rows) != k || got.Rows[0] != 70 || float64(got.Scores[0])-best > 1e-3 || got.Measured != 0 || got.Scored != rows {
		t.Errorf("%+v, want row 70 with the score %v first", got, best)
	}
	if launched[0] != gpu.Bounded || launched[len(launched)-1] != gpu.Exact || scored[1] != 64 {
		t.Errorf("launches %v of %v named rows, want bounds of all rows, then 64 rows in float32", launched, scored)
	}
	launched = nil
	named := make([]uint32, 500)
	for i := range named {
		named[i] = uint32(i)
	}
	there, err := d.Rescore(t.Context(), w.ask("a", k), named)
	must(t, err)
	if len(launched) != 1 || launched[0] != gpu.Exact || there.Rows[0] != 70 {
		t.Errorf("launches %v, answer %+v", launched, there)
	}
	scores, top := make([]float32, rows), rerank.NewTopK(k)
	enc, err := w.Encode(w.query)
	must(t, err)
	must(t, enc.Score(scores, rerank.Items{Features: w.rows}))
	for i, x := range scores {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: x, Index: i})
	}
	if first := top.Sorted()[0]; first.Index != 70 {
		t.Errorf("the processor finds %+v", first)
	}
}
