package bridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/learn/fit/fittest"
	"github.com/likenessdb/likeness/learn/fit/linalg"
	"github.com/likenessdb/likeness/rerank"
)

// TestQueriesWithoutAnAnswerAreDropped with all that belongs to them.
func TestQueriesWithoutAnAnswerAreDropped(t *testing.T) {
	queries := rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}}
	x := trial{oldQueries: queries, nowQueries: queries, relevant: [][]int32{{4}, {}, {6}}, hidden: [][]int32{{7}, {8}, {9}}, segments: []string{"a", "b", "c"}}
	x.keepAnswerable()
	if kept := []float32{1, 3}; !slices.Equal(x.oldQueries.Data, kept) || !slices.Equal(x.nowQueries.Data, kept) ||
		x.relevant[1][0] != 6 || len(x.hidden) != 2 || x.hidden[1][0] != 9 || !slices.Equal(x.segments, []string{"a", "c"}) {
		t.Errorf("%+v", x)
	}
}

// TestMapUnseen: the closed form maps each text as a regression of the other texts does, without those that
// are left out.
func TestMapUnseen(t *testing.T) {
	const texts, ridge = 60, 0.05
	rng := rand.New(rand.NewPCG(1, 2))
	old, now := fittest.NormalMatrix(rng, texts, 20), fittest.NormalMatrix(rng, texts, 6)
	for r := range texts {
		old.Row(r)[0] += 3 // the vectors have a mean
		now.Row(r)[1] += 2 * old.Row(r)[2]
	}
	without := []int32{3, 40}
	mapped, err := mapUnseen(old, now, without, ridge)
	if err != nil {
		t.Fatal(err)
	}
	for r := range texts {
		var others []int32
		for x := range texts {
			if x != r && !slices.Contains(without, int32(x)) {
				others = append(others, int32(x))
			}
		}
		m := addUp(linalg.Gather(old, others), linalg.Gather(now, others))
		xx, xy, _ := m.centred()
		f, err := m.affineAt(xx, xy, ridge*float64(texts-len(without))/m.n) // the ridge is a share of each text
		if err != nil {
			t.Fatal(err)
		}
		want := linalg.Gather(now, []int32{int32(r)})
		f.apply(want, old.Slice(r, r+1))
		for j, v := range want.Row(0) {
			if math.Abs(float64(v-mapped.Row(r)[j])) > 1e-4 {
				t.Fatalf("text %d, number %d: %g, and %g without the text", r, j, mapped.Row(r)[j], v)
			}
		}
	}
}
