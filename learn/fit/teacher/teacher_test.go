package teacher

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/fit"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
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

// TestDepthsOfATable: depths at which every stage finds everything are left out, and one more is there if fewer than two are left.
func TestDepthsOfATable(t *testing.T) {
	for _, c := range []struct {
		asked    []int
		k, items int
		want     []int
	}{
		{[]int{50, 20, 50}, 10, 51, []int{20, 50}},
		{[]int{50, 20, 10}, 10, 50, []int{10, 20}},
		{[]int{50, 20}, 10, 50, []int{20}}, // 2K is 20 again
		{[]int{50, 15}, 10, 50, []int{15, 20}},
		{[]int{50, 15}, 10, 18, []int{15, 17}},
		{[]int{50}, 3, 20, []int{6}},
		{[]int{15}, 3, 20, []int{15}},
	} {
		before := slices.Clone(c.asked)
		if got := chooseDepths(c.asked, c.k, c.items); !slices.Equal(got, c.want) || !slices.Equal(c.asked, before) {
			t.Errorf("depths %v of %d items, K %d: %v, want %v", before, c.items, c.k, got, c.want)
		}
	}
}

// TestSharesFound: the share of the wanted items among the first candidates, and their mean over the queries.
func TestSharesFound(t *testing.T) {
	x := &Exam{depths: []int{1, 3}}
	first, second := x.found([]int32{7, 5, 9, 4}, []int32{9, 7, 4}), x.found([]int32{1}, []int32{2})
	if got := x.withMean(rerank.FirstStage{Searches: 2}, [][]float64{first, second}); !slices.Equal(got.Recall, []float64{1. / 6, 2. / 6}) || got.Searches != 2 {
		t.Errorf("%+v of %v and %v", got, first, second)
	}
}

// unscored is a similarity whose scores are no numbers.
type unscored struct{ rerank.Similarity }

func (unscored) Encode(rerank.Query) (rerank.Encoded, error) { return unscoredQuery{}, nil }

type unscoredQuery struct{ rerank.Encoded }

func (unscoredQuery) Score(dst []float32, _ rerank.Items) error {
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
	return nil
}

// TestTheQueryWithoutARankingIsNamed, also behind the first batch.
func TestTheQueryWithoutARankingIsNamed(t *testing.T) {
	queries := make([]int32, scoreBatch+2)
	lists := make([][]int32, len(queries))
	for i := range queries {
		queries[i], lists[i] = int32(100+i), []int32{0}
	}
	lists[scoreBatch+1] = nil
	s, err := dot.New(dot.Config{Dim: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	taught := &Teacher{Similarity: s, Queries: rerank.NewMatrix(200, 1), Encoded: rerank.Items{Features: rerank.NewMatrix(3, 1)}}
	if _, err := taught.Rescore(t.Context(), queries, lists, 2, func(int) {}); err == nil || !strings.Contains(err.Error(), "query 109 ") {
		t.Errorf("query 109 has no list: %v", err)
	}
}

// TestQueriesWithoutARanking: no fit can learn from a query whose items have no scores.
func TestQueriesWithoutARanking(t *testing.T) {
	taught := &Teacher{Similarity: unscored{}, Queries: rerank.NewMatrix(2, 1), Encoded: rerank.Items{Features: rerank.NewMatrix(3, 1)}}
	if _, err := taught.RankAll(t.Context(), []int32{1}, 2, func(int) {}); !errors.Is(err, fit.ErrData) {
		t.Errorf("of all items: %v", err)
	}
	if _, err := taught.Rescore(t.Context(), []int32{1}, [][]int32{{0, 2}}, 2, func(int) {}); !errors.Is(err, fit.ErrData) {
		t.Errorf("of some items: %v", err)
	}
}
