package mol

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// TestTwoPass wants what the reference's algorithm 1 finds: its thresholds, the
// number of items of its second pass, and the exact top K.
func TestTwoPass(t *testing.T) {
	s := goldenCase(t, golden+"/mol/a_ml1m_8x4x64")
	f := readFile(t, golden, "retrieval", "ml1m_2000.safetensors")
	ids := f.Ints["item_ids"].Data
	c := newCollection(t, s, matrix(t, f, "item_embeddings"), ids)
	queries := matrix(t, f, "query_embeddings")
	for name, k := range map[string]int{"5": 5, "50": 50} {
		want := matrix(t, f, "algorithm1_"+name)
		top := f.Ints["brute_force_"+name+".top_ids"].Data
		for b := range queries.Rows {
			e := encode(t, s, rerank.Query{Vector: queries.Row(b), UserID: f.Ints["user_ids"].Data[b], HasUserID: true})
			row := want.Row(b)
			for printed, second := range map[bool]float32{true: row[7], false: row[8]} {
				got, err := FindTwoPass(e, rerank.Items{Features: c.features}, k, printed)
				if err != nil {
					t.Fatal(err)
				}
				for i, x := range []float32{got.Least, got.KthScore, got.Unlisted} {
					if ref := []float32{row[0], row[1], row[3]}[i]; !(math.Abs(float64(x-ref)) <= 1e-4) {
						t.Errorf("K = %d, query %d: threshold %d is %v, want %v", k, b, i, x, ref)
					}
				}
				if !(math.Abs(float64(got.Second)-float64(second)) <= 2) { // items at the threshold, within rounding
					t.Errorf("K = %d, query %d, printed %t: the second pass has %d items, want %v", k, b, printed, got.Second, second)
				}
				for i, x := range got.Top {
					if ids[x.Index] != top[b*k+i] {
						t.Fatalf("K = %d, query %d: row %d is item %d, want %d", k, b, i, ids[x.Index], top[b*k+i])
					}
				}
			}
		}
	}
	fixed, err := New(queryGate(4, 2, 8, 8).random(rand.New(rand.NewPCG(1, 2))))
	if err != nil {
		t.Fatal(err)
	}
	_, err = FindTwoPass(encode(t, fixed, rerank.Query{Vector: slices.Repeat([]float32{1}, 384)}), rerank.Items{}, 1, false)
	if !errors.Is(err, rerank.ErrQuery) {
		t.Errorf("gates of the query alone: %v", err)
	}
}

// TestTwoPassKeepsTies: a score is a weighted mean of logits, and rounding can lift it above
// them. Items that tie with the K-th score are scored in the second pass all the same.
func TestTwoPassKeepsTies(t *testing.T) {
	above := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		c, set := fullGate(1, 5, 16, 8).random(rng)
		s, err := New(c, set)
		if err != nil {
			t.Fatal(err)
		}
		e := encode(t, s, randomQuery(rng, s)).(*encoded)
		x := features(t, s, normal(rng, 1, s.spec.ItemDim)) // with equal components, and so equal logits
		for j := 1; j < s.c.PairsItem; j++ {
			copy(x.Row(0)[j*s.c.Dim:(j+1)*s.c.Dim], x.Row(0)[:s.c.Dim])
		}
		twins := rerank.Matrix{Rows: 2, Cols: x.Cols, Data: slices.Repeat(x.Data, 2)}
		got, err := FindTwoPass(e, rerank.Items{Features: twins}, 1, false)
		if err != nil || got.Second != 2 || len(got.Top) != 1 || got.Top[0].Index != 0 {
			t.Fatalf("seed %d: the second pass scored %d items and found %v, %v; want both twins and the first", seed, got.Second, got.Top, err)
		}
		e.eachTop(rerank.Items{Features: x}, func(_ int, top float32) {
			if got.KthScore > top {
				above++
			}
		})
	}
	if above == 0 {
		t.Error("no score was above its logits")
	}
}
