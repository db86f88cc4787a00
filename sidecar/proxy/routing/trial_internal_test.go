package routing

import (
	"reflect"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// trying answers every request, and notes the queries.
type trying struct{ asked []rerank.Query }

func (t *trying) Trying() bool { return true }

func (t *trying) Tries(r search.Request) bool {
	t.asked = append(t.asked, r.Query)
	return true
}

// TestAnyTried: an experiment answers a call only if it can answer each of its searches, and it is asked with
// the whole query.
func TestAnyTried(t *testing.T) {
	threshold := float32(0.5)
	many := rerank.Matrix{Rows: 2, Cols: 1, Data: []float32{1, 2}}
	for name, c := range map[string]struct {
		search Search
		tried  bool
	}{
		"plain":           {Search{Query: []float32{1}, Limit: 5}, true},
		"several vectors": {Search{Vectors: many, Limit: 5}, true},
		"the last rank":   {Search{Limit: 1, Offset: search.MaxTried - 1}, true},
		"beyond it":       {Search{Limit: 2, Offset: search.MaxTried - 1}, false},
		"long":            {Search{Limit: search.MaxTried + 1}, false},
		"exact":           {Search{Limit: 5, Exact: true}, false},
		"a threshold":     {Search{Limit: 5, Threshold: &threshold}, false},
		"a stage":         {Search{Limit: 5, Staged: true}, false},
	} {
		trials := &trying{}
		of := call[int]{trials: trials}
		rt := &route.Route{Policy: config.Policy{Name: "r"}}
		if got := of.anyTried(t.Context(), []Search{c.search, {Query: []float32{3}, Limit: 5}}, []*route.Route{rt, rt}); got != c.tried {
			t.Errorf("%s: %t, want %t", name, got, c.tried)
		}
		if c.tried && c.search.Vectors.Rows > 0 && !reflect.DeepEqual(trials.asked[0].Vectors, many) {
			t.Errorf("%s: asked with %+v", name, trials.asked)
		}
	}
}
