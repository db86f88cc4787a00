package gpu_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/gpu"
	"github.com/likenessdb/likeness/gpu/hosted"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/mol"
	"github.com/likenessdb/likeness/rerank/npy"
)

// TestTrained: of models whose gates were learned, answers are proved by the rows that
// are kept at first, or by twice as many, and are the processor's. A search is one
// launch of bounds and one of float32, in nine cases of ten at least.
func TestTrained(t *testing.T) {
	items, queries := 1200, 4
	if os.Getenv("LIKENESS_SOAK") != "" {
		items, queries = 10003, 25
	}
	const k = 10
	for _, name := range []string{"banking77-mol", "banking77-questions-mol"} {
		m, err := model.Open(filepath.Join("../examples/models", name))
		must(t, err)
		w := worldOf(t, m, 0)
		base, asked := vectors(t, "train_vectors.npy").Slice(0, items), vectors(t, "test_vectors.npy")
		w.rows = rerank.NewMatrix(items, m.Spec().Features)
		must(t, m.Similarity.(*mol.Similarity).EncodeItems(w.rows, base))
		var mu sync.Mutex
		launched := map[gpu.Way]int{}
		machine := &hosted.Machine{Memory: 1 << 24, Batch: 2}
		d := openOn(t, machine, gpu.Options{})
		must(t, d.LoadModel(t.Context(), w.at, w.file))
		machine.Launched = func(jobs []gpu.Job) error {
			mu.Lock()
			defer mu.Unlock()
			launched[jobs[0].Way]++
			if n := len(jobs[0].Rows); jobs[0].Way == gpu.Exact && (n < 64 || n > 128) {
				t.Errorf("%s: %d rows in float32, want 64 or 128", name, n)
			}
			return nil
		}
		must(t, w.table(t.Context(), d, "a"))
		for q := range queries {
			w.query.Vector = asked.Row(100 * q)
			got, err := d.Scan(t.Context(), w.ask("a", k), nil)
			must(t, err)
			enc, err := m.Encode(w.query)
			must(t, err)
			scores, top := make([]float32, items), rerank.NewTopK(k)
			must(t, enc.Score(scores, rerank.Items{Features: w.rows}))
			for i, x := range scores {
				top.Push(rerank.Scored{ID: rerank.UintID(uint64(i)), Score: x, Index: i})
			}
			for i, want := range top.Sorted() {
				if off := want.Score - got.Scores[i]; got.Measured != 0 || int(got.Rows[i]) != want.Index && (off > 1e-4 || off < -1e-4) {
					t.Errorf("%s, query %d: place %d is row %d, want %d", name, q, i, got.Rows[i], want.Index)
				}
			}
		}
		if n := launched[gpu.Bounded]; n > queries+queries/10 || launched[gpu.Exact] != n {
			t.Errorf("%s: launches %v, want about %d of bounds and as many in float32", name, launched, queries)
		}
	}
}

func vectors(t *testing.T, name string) rerank.Matrix {
	t.Helper()
	m, err := npy.Open(filepath.Join("../examples/data/banking77", name))
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m.Matrix
}
