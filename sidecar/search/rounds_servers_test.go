package search_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/adapters/qdrant"
	fitrbe "github.com/likenessdb/likeness/learn/fit/rbe"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/rerank/rbe"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// judgedItems are items and queries as a database compares them, and the scores of a heavy ranker,
// items by queries.
type judgedItems struct {
	items, queries, scores rerank.Matrix
}

// TestRoundsOnQdrant: behind real sentence vectors in a real Qdrant, and at 50 calls a query, four
// rounds find more of a ranker's ten best items than one round. So they do with relevance-based
// embeddings if half of the first round is Qdrant's own order. The ranker of the test is BM25 over the
// texts. With LIKENESS_RBE, the folder of bench/rbe/run.sh, it is that run's ranker, boosted or, as
// LIKENESS_RANKER says, cross; docs/benchmarks/quality.md has what both print.
func TestRoundsOnQdrant(t *testing.T) {
	d, ranker := bankingByWords(t), "bm25"
	if dir := os.Getenv("LIKENESS_RBE"); dir != "" {
		ranker = cmp.Or(os.Getenv("LIKENESS_RANKER"), "boosted")
		d = judgedItems{readVectors(t, filepath.Join(dir, "base_items.npy")), readVectors(t, filepath.Join(dir, "base_queries.npy")), readVectors(t, filepath.Join(dir, ranker+"_judged.npy"))}
	}
	store, err := qdrant.Open(qdrant.Options{Address: servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{}).Address})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	ids := make([]rerank.ID, d.items.Rows)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i))
	}
	can := adapters.AbilitiesOf(store)
	schema := adapters.Schema{Collection: collection, Fields: []adapters.VectorField{{Name: vectorField, Dim: d.items.Cols, Metric: adapters.Cosine}}}
	must(t, can.Write.Create(t.Context(), schema))
	must(t, can.Write.Write(t.Context(), collection, schema, adapters.Rows{IDs: ids, Vectors: []rerank.Matrix{d.items}}))

	const supports = 20
	o := fitrbe.DefaultOptions()
	o.Supports, o.Judged = supports, nil
	fitted, err := fitrbe.Fit(t.Context(), d.scores, o)
	must(t, err)
	sim, err := rbe.New(fitted.Config(func(i int) rerank.ID { return ids[i] }, func(i int) rerank.ID { return rerank.UintID(uint64(i)) }), fitted.Tensors)
	must(t, err)
	byScores := newWorld(t, sim, fitrbe.BaseVectors(d.scores, fitted.SupportQueries))
	cosine, err := dot.New(dot.Config{Dim: d.items.Cols, Normalise: true}, nil)
	must(t, err)
	var heldOut []int
	for q := range d.queries.Rows {
		if !slices.Contains(fitted.SupportQueries, q) {
			heldOut = append(heldOut, q)
		}
	}
	plain := func(rounds int) *route.Route {
		r := byScores.route("", ranking(d.critic(), 50, rounds))
		r.Store, r.Vector, r.Model = store, vectorField, route.Model{Name: "cosine", Version: version, Similarity: cosine}
		r.ExactSearch = true
		return r
	}
	related := func(mix float64) *route.Route {
		r := byScores.route(route.PlacementTable, ranking(d.critic(), 50, 4))
		r.Store, r.Vector, r.Strategy, r.Mix, r.ExactSearch = store, vectorField, rerank.Scan, mix, true
		return r
	}
	one, four := d.found(t, plain(1), heldOut, false), d.found(t, plain(4), heldOut, false)
	alone, mixed := d.found(t, related(0), heldOut, true), d.found(t, related(0.5), heldOut, true)
	t.Logf("recall of the ranker's ten at 50 calls, %d queries: cosine %s, four rounds %s; rbe in four rounds %s, mixed %s",
		len(heldOut), interval(one), interval(four), interval(alone), interval(mixed))
	gains := map[string][]float64{"rounds": differences(four, one), "mixing": differences(mixed, alone)}
	for name, gain := range gains {
		mean, half := estimate(gain)
		t.Logf("gain of %s: %.3f ± %.3f", name, mean, half)
		if unsure := name == "mixing" && ranker == "cross"; mean-half <= 0 && !unsure { // its embeddings leave nothing to gain
			t.Errorf("%s gain %.3f ± %.3f, want more than 0", name, mean, half)
		}
	}
}

func (d judgedItems) critic() *critic {
	return &critic{wants: plugin.Description{Version: "1", Text: true}, relevance: func(q plugin.Query, it plugin.Item) float32 {
		n, _ := strconv.Atoi(q.Text)
		return d.scores.Row(number(it))[n]
	}}
}

// found searches a route for every query and returns the share of the ranker's ten best items in each
// answer. fromScores says that the ranker's scores make the query's vector.
func (d judgedItems) found(t *testing.T, r *route.Route, queries []int, fromScores bool) []float64 {
	t.Helper()
	p := pipe(t, r)
	out := make([]float64, len(queries))
	for i, q := range queries {
		req := search.Request{Route: "r", K: 10, Query: rerank.Query{Text: strconv.Itoa(q), Vector: d.queries.Row(q)}}
		if fromScores {
			req.StoredVector, req.Query.Vector = req.Query.Vector, nil
		}
		a, err := p.Search(t.Context(), req)
		must(t, err)
		if a.Ranking.Calls > 50 || a.Degraded != nil || a.Certificate.Status != rerank.StatusUnknown {
			t.Fatalf("%+v, %+v, %+v", a.Ranking, a.Degraded, a.Certificate)
		}
		best := rerank.NewTopK(10)
		for x := range d.scores.Rows {
			best.Push(rerank.Scored{ID: rerank.UintID(uint64(x)), Score: d.scores.Row(x)[q]})
		}
		for _, want := range best.Sorted() {
			if slices.ContainsFunc(a.Hits, func(h search.Hit) bool { return h.ID == want.ID }) {
				out[i] += 0.1
			}
		}
	}
	return out
}

func differences(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// estimate returns a mean and half of its 95 % interval.
func estimate(v []float64) (mean, half float64) {
	var square float64
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		square += (x - mean) * (x - mean) / float64(len(v)-1)
	}
	return mean, 1.96 * math.Sqrt(square/float64(len(v)))
}

func interval(v []float64) string {
	mean, half := estimate(v)
	return strconv.FormatFloat(mean, 'f', 3, 64) + " ± " + strconv.FormatFloat(half, 'f', 3, 64)
}

func readVectors(t *testing.T, path string) rerank.Matrix {
	t.Helper()
	m, err := npy.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m.Matrix
}

const bankingDir = "../../examples/data/banking77"

// bankingByWords returns every fifth question of BANKING77 as items, and every twentieth test question
// as a query, with the scores of BM25.
func bankingByWords(t *testing.T) judgedItems {
	t.Helper()
	items, itemTexts := questions(t, "train", 5)
	queries, queryTexts := questions(t, "test", 20)
	word := regexp.MustCompile(`[a-z0-9']+`)
	words, length := make([]map[string]float64, len(itemTexts)), make([]float64, len(itemTexts))
	owners, mean := map[string]float64{}, 0.0
	for i, text := range itemTexts {
		words[i] = map[string]float64{}
		for _, w := range word.FindAllString(strings.ToLower(text), -1) {
			words[i][w]++
			length[i]++
		}
		for w := range words[i] {
			owners[w]++
		}
		mean += length[i] / float64(len(itemTexts))
	}
	scores := rerank.NewMatrix(items.Rows, queries.Rows)
	for q, text := range queryTexts {
		for _, w := range word.FindAllString(strings.ToLower(text), -1) {
			weight := math.Log(1 + (float64(items.Rows)-owners[w]+0.5)/(owners[w]+0.5))
			for i := range words {
				if f := words[i][w]; f > 0 {
					scores.Row(i)[q] += float32(weight * f * 2.2 / (f + 1.2*(0.25+0.75*length[i]/mean)))
				}
			}
		}
	}
	return judgedItems{items, queries, scores}
}

// questions returns every n-th question of a file, with its vector.
func questions(t *testing.T, name string, n int) (rerank.Matrix, []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(bankingDir, name+".jsonl"))
	must(t, err)
	defer f.Close()
	all := readVectors(t, filepath.Join(bankingDir, name+"_vectors.npy"))
	vectors, texts := rerank.Matrix{Cols: all.Cols}, []string(nil)
	lines := bufio.NewScanner(f)
	for row := 0; lines.Scan(); row++ {
		if row%n > 0 {
			continue
		}
		var line struct{ Text string }
		must(t, json.Unmarshal(lines.Bytes(), &line))
		texts = append(texts, line.Text)
		vectors.Data = append(vectors.Data, all.Row(row)...)
		vectors.Rows++
	}
	must(t, lines.Err())
	return vectors, texts
}
