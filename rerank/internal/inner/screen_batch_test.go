package inner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
)

// TestTogether: queries that are screened and scored together get the same bits as alone, whatever
// the format of the rows and however they lie.
func TestTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	for kind, plain := range similarities(t, r) {
		for _, k := range kernel.Sets() {
			s := plain.(interface {
				WithKernels(k *kernel.Set) rerank.Similarity
			}).WithKernels(k)
			queries := make([]rerank.Encoded, 21)
			for i := range queries {
				var err error
				if queries[i], err = s.Encode(rerank.Query{Vector: random(r, 1, dim).Data}); err != nil {
					t.Fatal(err)
				}
			}
			for layout, items := range screened(r, kind == "maxsim") {
				t.Run(kind+" "+k.Name()+" "+layout, func(t *testing.T) { sameTogether(t, queries, items) })
			}
		}
	}
}

// screened are items of rounded rows, in every layout.
func screened(r *rand.Rand, grouped bool) map[string]rerank.Items {
	m, rows := random(r, 350, dim), make([]int32, 101)
	for i := range rows {
		rows[i] = r.Int32N(350)
	}
	all := map[string]rerank.Items{}
	for _, packing := range []rerank.Packing{{Format: rerank.FormatBFloat16, Cols: dim}, {Format: rerank.FormatInt8, Cols: dim}, {Format: rerank.FormatInt8, Cols: dim, Block: dim/2 - 1}} {
		for _, tiled := range []bool{false, true} {
			q, _ := pack(packing, m, tiled)
			name := fmt.Sprintf("%s in %d, tiled %t", packing.Format, packing.Blocks(), tiled)
			all[name], all[name+", gathered"] = rerank.Items{Packed: q}, rerank.Items{Packed: q, Rows: rows}
			if grouped {
				all[name+", groups"] = rerank.Items{Packed: q, Starts: []int32{1, 2, 5, 5, 9, 340, 341, 350}}
			}
		}
	}
	return all
}

func sameTogether(t *testing.T, queries []rerank.Encoded, items rerank.Items) {
	t.Helper()
	n := items.Len()
	together, alone := make([]float32, len(queries)*n), make([]float32, 0, len(queries)*n)
	batch := rerank.EncodedAbilitiesOf(queries[0]).Batch.Batch()
	loss := rerank.Loss{Row: rerank.Extent{Lost: 0.5, Norm: 9}}
	for level := range queries[0].(rerank.Screener).Screens(items) {
		if err := batch.ScreenBatch(level, together, queries, items, loss, make([]float32, len(queries))); err != nil {
			t.Fatal(err)
		}
		alone = alone[:0]
		for _, q := range queries {
			alone = alone[:len(alone)+n]
			if err := q.(rerank.Screener).Screen(level, alone[len(alone)-n:], items, loss, 0); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(together, alone) {
			t.Fatalf("level %d: bounds together differ from bounds alone", level)
		}
	}
	if err := batch.ScoreBatch(together, queries, items); err != nil {
		t.Fatal(err)
	}
	alone = alone[:0]
	for _, q := range queries {
		alone = alone[:len(alone)+n]
		if err := q.Score(alone[len(alone)-n:], items); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(together, alone) {
		t.Fatal("scores together differ from scores alone")
	}
}

// TestTogetherRefuses: queries of two similarities are not in one batch, and what does not fit is refused.
func TestTogetherRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 9))
	all, v := similarities(t, r), random(r, 1, dim).Data
	encode := func(kind string) rerank.Encoded {
		e, err := all[kind].Encode(rerank.Query{Vector: v})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	one, other := encode("dot"), encode("maxsim")
	batch := rerank.EncodedAbilitiesOf(one).Batch.Batch()
	if batch == rerank.EncodedAbilitiesOf(other).Batch.Batch() {
		t.Error("queries of two similarities are in one batch")
	}
	q, _ := pack(rerank.Packing{Format: rerank.FormatInt8, Cols: dim}, random(r, 3, dim), true)
	items := rerank.Items{Packed: q}
	if err := batch.ScreenBatch(0, make([]float32, 6), []rerank.Encoded{one, other}, items, rerank.Loss{}, make([]float32, 2)); !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("a query of another similarity: %v, want ErrQuery", err)
	}
	if err := batch.ScreenBatch(0, make([]float32, 5), []rerank.Encoded{one, one}, items, rerank.Loss{}, make([]float32, 2)); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("too few places: %v, want ErrItems", err)
	}
	if err := batch.ScreenBatch(0, make([]float32, 6), []rerank.Encoded{one, one}, items, rerank.Loss{}, make([]float32, 1)); !errors.Is(err, rerank.ErrItems) {
		t.Errorf("one score to reach for two queries: %v, want ErrItems", err)
	}
}
