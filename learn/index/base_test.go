package index_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/learn/index"
	"github.com/likenessdb/likeness/learn/relevance"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/rerank/tensor"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
)

// lookup is a ranker that looks scores up in a matrix: its row is the payload's field "row", its column
// the text of the query.
type lookup struct {
	scores rerank.Matrix
	asked  int
}

func (*lookup) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Name: "lookup", Version: "1", MaxItems: 3, PayloadFields: []string{"row"}}, nil
}

func (l *lookup) Rank(_ context.Context, q plugin.Query, items []plugin.Item) (ranker.Result, error) {
	r := ranker.Result{Calls: len(items), Version: "1"}
	l.asked += len(items)
	var column int
	if _, err := fmt.Sscan(q.Text, &column); err != nil {
		return r, fmt.Errorf("%w: %w", ranker.ErrQuery, err)
	}
	for _, x := range items {
		var payload struct{ Row int }
		if err := json.Unmarshal(x.Payload, &payload); err != nil {
			return r, err
		}
		r.Scores = append(r.Scores, l.scores.Row(payload.Row)[column])
	}
	return r, nil
}

// rankedWorld is a collection whose items a ranker scores, and a relevance-based model of that ranker.
type rankedWorld struct {
	ranker *lookup
	asker  *relevance.Asker
	base   *relevance.Base
	model  route.Model
	source index.Source
}

func newRankedWorld(t *testing.T, cache string, keptOnly bool) *rankedWorld {
	t.Helper()
	const items, queries = 20, 3
	w := &rankedWorld{ranker: &lookup{scores: rerank.NewMatrix(items+1, queries)}}
	c := embedded.Collection{Fields: []embedded.Field{{Vectors: rerank.NewMatrix(items, 2)}}}
	for i := range w.ranker.scores.Data {
		w.ranker.scores.Data[i] = float32(math.Sin(float64(i)))
	}
	for i := range items {
		c.Payloads = append(c.Payloads, json.RawMessage(fmt.Sprintf(`{"name":"thing %d","row":%d}`, i, i)))
	}
	store := embedded.New()
	if err := store.Load("items", c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	config := rbe.Config{SupportItems: []rerank.ID{rerank.UintID(1), rerank.UintID(2)}}
	tensors := tensor.Set{"projection": {Shape: []int{2, queries}, Data: []float32{1, 2, 3, -1, 0, 0.5}}}
	var asked []rerank.Query
	for q := range queries {
		config.SupportQueries = append(config.SupportQueries, rerank.UintID(uint64(q)))
		asked = append(asked, rerank.Query{Text: fmt.Sprint(q)})
	}
	if err := config.Ask(tensors, asked); err != nil {
		t.Fatal(err)
	}
	s, err := rbe.New(config, tensors)
	if err != nil {
		t.Fatal(err)
	}
	w.model = route.Model{Name: "ranker", Version: "1", Similarity: s}
	if w.asker, err = relevance.New(t.Context(), relevance.Options{Ranker: w.ranker, Dir: cache, KeptOnly: keptOnly}); err != nil {
		t.Fatal(err)
	}
	w.base = &relevance.Base{Asker: w.asker, Questions: s.Questions()}
	w.source = index.Source{Store: store, Collection: "items", Base: w.base, Batch: 7}
	return w
}

func (w *rankedWorld) close(t *testing.T) {
	t.Helper()
	if err := w.asker.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestIndexThroughARanker: table and companion equal those built from the matrix of base vectors,
// and a second build makes no call.
func TestIndexThroughARanker(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	build := func(s index.Source, m route.Model, name string) {
		t.Helper()
		if _, err := index.BuildTable(t.Context(), index.TableJob{Source: s, Model: m, Path: path(name)}); err != nil {
			t.Fatal(err)
		}
		files := &index.Files{Dir: path(name + ".files")}
		_, err := index.BuildCompanion(t.Context(), index.CompanionJob{Source: s, Model: m, Writer: files, Name: "c", Strategies: []rerank.Strategy{rerank.Average}})
		if err != nil || files.Close() != nil {
			t.Fatal(err)
		}
	}
	w := newRankedWorld(t, path("cache"), false)
	build(w.source, w.model, "asked")
	if w.ranker.asked != 60 {
		t.Errorf("asked of %d, want 60 for table and companion together", w.ranker.asked)
	}
	w.close(t)
	matrix := embedded.New()
	if err := matrix.Load("items", embedded.Collection{Fields: []embedded.Field{{Vectors: w.ranker.scores.Slice(0, 20)}}}); err != nil {
		t.Fatal(err)
	}
	defer matrix.Close()
	build(index.Source{Store: matrix, Collection: "items", Batch: 7}, w.model, "matrix")
	a, errA := os.ReadFile(path("asked.files/rbe.npy"))
	b, errB := os.ReadFile(path("matrix.files/rbe.npy"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the companions differ (%v, %v)", errA, errB)
	}
	d, err := index.CompareTable(t.Context(), index.TableJob{Source: index.Source{Store: matrix, Collection: "items"}, Model: w.model, Path: path("asked")})
	if err != nil || d != (index.Difference{Rows: 20}) {
		t.Errorf("the table differs from that of the matrix: %+v, %v", d, err)
	}

	// Comparing needs no calls: the stored scores suffice.
	w = newRankedWorld(t, path("cache"), true)
	defer w.close(t)
	if d, err := index.CompareTable(t.Context(), index.TableJob{Source: w.source, Model: w.model, Path: path("asked")}); err != nil || d != (index.Difference{Rows: 20}) {
		t.Errorf("compared with what is kept: %+v, %v", d, err)
	}
	if w.ranker.asked != 0 || w.base.Unknown != 0 {
		t.Errorf("asked of %d, %d unknown", w.ranker.asked, w.base.Unknown)
	}
}
