package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/plugins/faulty"
)

const (
	dim       = 16
	fixedRows = 400
	wanted    = 10   // k
	depth     = 20   // of the ranked route
	tolerance = 2e-4 // of scores of magnitude 10
)

// hit is one row of an answer.
type hit struct {
	id    uint64
	score float64
}

// oracle computes φ(q,x) = qᵀWx of all rows, in float64.
type oracle struct {
	w    [][]float64
	rows map[uint64][]float32
}

func vector(rng *rand.Rand) []float32 {
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(rng.NormFloat64())
	}
	return v
}

// newOracle makes a random W and writes it as a model into a folder.
func newOracle(t *testing.T, rng *rand.Rand, folder string) *oracle {
	t.Helper()
	o := &oracle{rows: map[uint64][]float32{}}
	w := tensor.Tensor{Shape: []int{dim, dim}}
	for range dim {
		row := make([]float64, dim)
		for j := range row {
			x := float32(rng.NormFloat64())
			row[j] = float64(x)
			w.Data = append(w.Data, x)
		}
		o.w = append(o.w, row)
	}
	m, err := model.New(model.Parameters{Kind: rerank.KindBilinear, Name: "w", Tensors: tensor.Set{"W": w},
		Config: fmt.Appendf(nil, `{"query_embedding_dim":%d,"item_embedding_dim":%d,"normalise":false,"form":"full"}`, dim, dim)})
	if err == nil {
		err = model.Write(filepath.Join(folder, "w.safetensors"), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(fixedRows) {
		o.rows[id] = vector(rng)
	}
	return o
}

func (o *oracle) score(q, x []float32) float64 {
	sum := 0.0
	for i, row := range o.w {
		for j, w := range row {
			sum += float64(q[i]) * w * float64(x[j])
		}
	}
	return sum
}

// best returns all rows, best first.
func (o *oracle) best(q []float32) []hit {
	hits := make([]hit, 0, len(o.rows))
	for _, id := range slices.Sorted(maps.Keys(o.rows)) {
		hits = append(hits, hit{id, o.score(q, o.rows[id])})
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return hits
}

// ranked returns the best rows in the order of a ranker with faulty's scores.
func (o *oracle) ranked(q []float32) []hit {
	hits := o.best(q)[:depth]
	for i := range hits {
		hits[i].score = float64(faulty.Score(rerank.UintID(hits[i].id)))
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return hits
}

// agree returns the fault of an answer, or "". Rows of nearly equal scores may come in either
// order.
func agree(got, want []hit, of map[uint64]float64) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d rows, want %d", len(got), len(want))
	}
	seen := map[uint64]bool{}
	for i, h := range got {
		own, known := of[h.id]
		switch {
		case !known || seen[h.id]:
			return fmt.Sprintf("row %d is %d, which is not there or comes twice", i, h.id)
		case !(math.Abs(h.score-own) <= tolerance): // NaN is wrong
			return fmt.Sprintf("row %d, %d, has %v, want %v", i, h.id, h.score, own)
		case !(math.Abs(own-want[i].score) <= tolerance): // NaN is wrong
			return fmt.Sprintf("row %d is %d of %v, want %d of %v", i, h.id, own, want[i].id, want[i].score)
		}
		seen[h.id] = true
	}
	return ""
}

func scores(hits []hit) map[uint64]float64 {
	m := map[uint64]float64{}
	for _, h := range hits {
		m[h.id] = h.score
	}
	return m
}

// check returns the fault of an answer to q, or "".
func (o *oracle) check(got []hit, q []float32) string {
	all := o.best(q)
	return agree(got, all[:min(wanted, len(all))], scores(all))
}

func (o *oracle) checkRanked(got []hit, q []float32) string {
	all := o.ranked(q)
	return agree(got, all[:wanted], scores(all))
}
