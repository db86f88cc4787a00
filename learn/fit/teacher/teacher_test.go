package teacher

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
)

// remembering is a similarity that remembers the queries that it is asked to encode.
type remembering struct {
	rerank.Similarity
	asked *[]rerank.Query
}

func (r remembering) Encode(q rerank.Query) (rerank.Encoded, error) {
	*r.asked = append(*r.asked, q)
	return nil, nil
}

// TestEncode: a query has its own vector, or vectors, and its own user.
func TestEncode(t *testing.T) {
	var asked []rerank.Query
	vectors := rerank.Matrix{Rows: 3, Cols: 1, Data: []float32{1, 2, 3}}
	for _, of := range []*Teacher{
		{Queries: vectors, Users: []int64{70, 80, 90}}, {Queries: vectors, QueryStarts: []int32{0, 1, 3}}, {Queries: vectors},
	} {
		of.Similarity = remembering{asked: &asked}
		if _, err := of.Encode(1); err != nil {
			t.Fatal(err)
		}
	}
	if q := asked[0]; q.Vector[0] != 2 || q.UserID != 80 || !q.HasUserID {
		t.Errorf("query 1 is asked as %+v", q)
	}
	if q := asked[1]; !slices.Equal(q.Vectors.Data, []float32{2, 3}) || q.Vector != nil {
		t.Errorf("the query of several vectors is asked as %+v", q)
	}
	if q := asked[2]; q.Vector[0] != 2 || q.HasUserID {
		t.Errorf("without users query 1 is asked as %+v", q)
	}
}

func TestBestRows(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, tc := range []struct {
		scores []float32
		n      int
		want   []int32
	}{
		{[]float32{1, 3, 2}, 2, []int32{1, 2}},
		{[]float32{1, 1, 1}, 2, []int32{0, 1}},
		{[]float32{nan, 5, inf}, 3, []int32{1}},
		{nil, 3, []int32{}},
	} {
		if got := BestRows(tc.scores, tc.n); !slices.Equal(got, tc.want) {
			t.Errorf("best %d of %v: %v, want %v", tc.n, tc.scores, got, tc.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	scores := make([]float32, 5000)
	for i := range scores {
		scores[i] = float32(rng.IntN(300)) // ties
	}
	all := BestRows(scores, len(scores))
	if got := BestRows(scores, 100); !slices.Equal(got, all[:100]) {
		t.Errorf("the best 100 are not the first of the sorted rows")
	}
}

func TestInTurn(t *testing.T) {
	for _, tc := range []struct {
		lists [][]int32
		most  int
		want  []int32
	}{
		{[][]int32{{1, 2, 3}, {2, 4, 5}}, 4, []int32{1, 2, 4, 3}},
		{[][]int32{{1}, {1}}, 4, []int32{1}},
		{[][]int32{{1, 2}, {3, 4}}, 1, []int32{1}},
	} {
		if got := inTurn(tc.lists, tc.most); !slices.Equal(got, tc.want) {
			t.Errorf("%v up to %d: %v, want %v", tc.lists, tc.most, got, tc.want)
		}
	}
}
