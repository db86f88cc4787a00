package mol

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/rerank/safetensors"
)

// collection is a brute-force store of one collection and its companion.
type collection struct {
	ids      []int64
	stored   rerank.Matrix
	derived  map[string]rerank.Matrix
	features rerank.Matrix
}

func newCollection(t testing.TB, s *Similarity, base rerank.Matrix, ids []int64) *collection {
	t.Helper()
	if ids == nil {
		for i := range base.Rows {
			ids = append(ids, int64(i))
		}
	}
	c := &collection{ids: ids, stored: base, derived: map[string]rerank.Matrix{}, features: features(t, s, base)}
	for _, f := range s.Fields() {
		m := rerank.NewMatrix(base.Rows, f.Dim)
		if err := s.Derive(m, f.Name, rerank.Items{Features: c.features}); err != nil {
			t.Fatal(err)
		}
		c.derived[f.Name] = m
	}
	return c
}

// search answers the probes exactly.
func (c *collection) search(t testing.TB, probes []rerank.Probe) []rerank.List {
	t.Helper()
	lists := make([]rerank.List, len(probes))
	for i, p := range probes {
		field := c.stored
		if p.Field != "" {
			field = c.derived[p.Field]
		}
		if len(p.Vector) != field.Cols {
			t.Fatalf("probe %d has %d numbers, its field %q %d", i, len(p.Vector), p.Field, field.Cols)
		}
		scores := make([]float32, field.Rows)
		kernel.Rows(scores, p.Vector, field, nil)
		top := rerank.NewTopK(p.Depth)
		for r, s := range scores {
			top.Push(rerank.Scored{ID: rerank.UintID(uint64(c.ids[r])), Score: s, Index: r})
		}
		for _, row := range top.Sorted() {
			lists[i].IDs = append(lists[i].IDs, row.ID)
			lists[i].Scores = append(lists[i].Scores, row.Score)
		}
		lists[i].Exact, lists[i].Exhausted = true, p.Depth > field.Rows
		lists[i].Epsilon = float32(kernel.Gamma(field.Cols) * rerank.Norm(p.Vector) * c.norm(field))
	}
	return lists
}

func (c *collection) norm(m rerank.Matrix) (top float64) {
	for r := range m.Rows {
		top = max(top, rerank.Norm(m.Row(r)))
	}
	return top
}

func union(lists []rerank.List) []int64 {
	var all []int64
	for _, l := range lists {
		for _, id := range l.IDs {
			n, _ := id.Uint64()
			all = append(all, int64(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rank scores the candidates and returns the ids of the best k.
func (c *collection) rank(t testing.TB, e rerank.Encoded, candidates []int64, k int) (ids []int64, scores []float32) {
	t.Helper()
	items := rerank.Items{Features: c.features}
	for _, id := range candidates {
		items.Rows = append(items.Rows, int32(slices.Index(c.ids, id)))
	}
	top := rerank.NewTopK(k)
	for i, s := range score(t, e, items) {
		top.Push(rerank.Scored{ID: rerank.UintID(uint64(candidates[i])), Score: s})
	}
	for _, row := range top.Sorted() {
		n, _ := row.ID.Uint64()
		ids, scores = append(ids, int64(n)), append(scores, row.Score)
	}
	return ids, scores
}

// planOf reads a run's name: per_embedding_5, average_200_top50, combined_50_500.
func planOf(run string) (rerank.Plan, bool) {
	var numbers []int
	for part := range strings.SplitSeq(strings.ReplaceAll(run, "top", ""), "_") {
		if n, err := strconv.Atoi(part); err == nil {
			numbers = append(numbers, n)
		}
	}
	p := rerank.Plan{Derived: true}
	switch {
	case strings.HasPrefix(run, "per_embedding"):
		p.Strategy, p.Depth = rerank.PerEmbedding, numbers[0]
	case strings.HasPrefix(run, "average"):
		p.Strategy, p.Depth = rerank.Average, numbers[0]
	case strings.HasPrefix(run, "combined"):
		p.Strategy, p.Depth, p.AverageDepth = rerank.Combined, numbers[0], numbers[1]
	default:
		return p, false
	}
	return p, true
}

// TestRetrieval wants the candidates and the top K of every run of the RAILS
// reference.
func TestRetrieval(t *testing.T) {
	s := goldenCase(t, golden+"/mol/a_ml1m_8x4x64")
	f := readFile(t, golden, "retrieval", "ml1m_2000.safetensors")
	c := newCollection(t, s, matrix(t, f, "item_embeddings"), f.Ints["item_ids"].Data)
	queries := matrix(t, f, "query_embeddings")
	runs := 0
	for name := range f.Ints {
		run, ok := strings.CutSuffix(name, ".top_ids")
		if !ok || strings.HasSuffix(run, ".bf16") {
			continue
		}
		runs++
		for b := range queries.Rows {
			e := encode(t, s, rerank.Query{Vector: queries.Row(b), UserID: f.Ints["user_ids"].Data[b], HasUserID: true})
			compareRun(t, c, f, run, b, e)
		}
	}
	if runs != 10 {
		t.Errorf("%d runs, want 10", runs)
	}
}

func compareRun(t *testing.T, c *collection, f *safetensors.File, run string, b int, e rerank.Encoded) {
	t.Helper()
	candidates := slices.Sorted(slices.Values(c.ids))
	if plan, ok := planOf(run); ok {
		probes, err := e.Probes(plan)
		if err != nil {
			t.Fatal(err)
		}
		lists := c.search(t, probes)
		candidates = union(lists)
		offsets := f.Ints[run+".candidate_offsets"].Data
		if want := f.Ints[run+".candidates"].Data[offsets[b]:offsets[b+1]]; !slices.Equal(candidates, want) {
			t.Fatalf("%s, query %d: %d candidates are not the reference's %d", run, b, len(candidates), len(want))
		}
		if thresholds, ok := f.Tensors[run+".thresholds"]; ok {
			per := len(lists)
			for i, l := range lists {
				near(t, run+" threshold", []float32{l.Threshold()}, thresholds.Data[b*per+i:][:1], 1e-6)
			}
			compareNext(t, c, f.Tensors[run+".next"].Data[b*per:], plan, e)
		}
	}
	top := f.Ints[run+".top_ids"]
	k := top.Shape[1]
	ids, scores := c.rank(t, e, candidates, k)
	if want := top.Data[b*k:][:k]; !slices.Equal(ids, want) {
		t.Fatalf("%s, query %d: top ids are %v, want %v", run, b, ids, want)
	}
	near(t, run+" scores", scores, f.Tensors[run+".top_scores"].Data[b*k:][:k], 1e-4)
}

// compareNext wants the score behind each list's last one.
func compareNext(t *testing.T, c *collection, want []float32, plan rerank.Plan, e rerank.Encoded) {
	t.Helper()
	plan.Depth++
	probes, err := e.Probes(plan)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range c.search(t, probes) {
		near(t, "the row behind a list", []float32{l.Threshold()}, want[i:][:1], 1e-6)
	}
}

// TestTheorem2 compares U with the reference's algorithm 1: the largest (K+1)-th score of a list,
// over the temperature.
func TestTheorem2(t *testing.T) {
	s := goldenCase(t, golden+"/mol/a_ml1m_8x4x64")
	f := readFile(t, golden, "retrieval", "ml1m_2000.safetensors")
	c := newCollection(t, s, matrix(t, f, "item_embeddings"), f.Ints["item_ids"].Data)
	queries, rows := matrix(t, f, "query_embeddings"), matrix(t, f, "algorithm1_5")
	for b := range queries.Rows {
		e := encode(t, s, rerank.Query{Vector: queries.Row(b), UserID: f.Ints["user_ids"].Data[b], HasUserID: true})
		probes, err := e.Probes(rerank.Plan{Strategy: rerank.PerEmbedding, Depth: 6, Derived: true})
		if err != nil {
			t.Fatal(err)
		}
		bound := e.Bound(probes, c.search(t, probes))
		if want := rows.Row(b)[3]; !(math.Abs(float64(bound.Max-want)) <= 1e-4) {
			t.Errorf("query %d: U is %v, want %v", b, bound.Max, want)
		}
	}
}
