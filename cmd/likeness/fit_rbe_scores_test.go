package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
)

// asScorer makes the test binary a plugin that reads its scores from a matrix.
const asScorer = "as-scorer"

// serveMatrix serves the scores of a matrix in a file. The payload's "row" names the row, the
// query's text the column. It logs a line for each call, if args name a log.
func serveMatrix(args []string) {
	m, err := npy.Open(args[0])
	if err != nil {
		panic(err)
	}
	d := plugin.Description{Name: "matrix", Version: args[1], MaxItems: 16, Parallel: 2, Cost: 0.25, Text: true, PayloadFields: []string{"row"}}
	err = plugin.Serve(d, func(_ context.Context, q plugin.Query, items []plugin.Item) ([]float32, error) {
		var column int
		if _, err := fmt.Sscan(q.Text, &column); err != nil || column >= m.Cols {
			return nil, fmt.Errorf("%w: %q", plugin.ErrQuery, q.Text)
		}
		scores := make([]float32, len(items))
		for i, x := range items {
			var payload struct{ Row int }
			if err := json.Unmarshal(x.Payload, &payload); err != nil {
				return nil, err
			}
			scores[i] = m.Row(payload.Row)[column]
		}
		return scores, nil
	})
	if err != nil {
		panic(err)
	}
}

// rankedFiles names the files of a matrix of scores and of its items and queries.
type rankedFiles struct {
	dir    string
	scores rerank.Matrix
}

func newRankedFiles(t *testing.T) rankedFiles {
	t.Helper()
	f := rankedFiles{t.TempDir(), rerank.NewMatrix(50, 40)}
	rng := rand.New(rand.NewPCG(5, 5))
	var queries [40][3]float64
	for q := range queries {
		for i := range queries[q] {
			queries[q][i] = rng.NormFloat64()
		}
	}
	var payload, asked, ids, kinds strings.Builder
	for x := range f.scores.Rows {
		a, b, c := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
		for q, v := range &queries {
			f.scores.Row(x)[q] = float32(math.Tanh(a*v[0] + b*v[1] + c*v[2]))
		}
		fmt.Fprintf(&payload, "{\"title\": \"thing %d\", \"row\": %d, \"of\": {\"kind\": \"kind %d\"}}\n", x, x, x%4)
		fmt.Fprintf(&kinds, "kind %d\n", x%4)
		fmt.Fprintf(&ids, "thing-%d\n", x)
	}
	for q := range queries {
		fmt.Fprintf(&asked, "{\"id\": %d, \"text\": \"%d\"}\n", q, q)
	}
	for name, text := range map[string]string{"payload.jsonl": payload.String(), "queries.jsonl": asked.String(), "ids.txt": ids.String(), "kinds.txt": kinds.String()} {
		if err := os.WriteFile(f.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := rerank.NewMatrix(len(queries), 3)
	for q, v := range &queries {
		for i, x := range v {
			own.Row(q)[i] = float32(x)
		}
	}
	for name, m := range map[string]rerank.Matrix{"scores.npy": f.scores, "own.npy": own} {
		if err := npy.Write(f.path(name), m); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f rankedFiles) path(name string) string { return filepath.Join(f.dir, name) }

// scorer returns the flags that name the plugin.
func (f rankedFiles) scorer(version string) []string {
	return []string{"--scorer", os.Args[0], "--scorer-arg", asScorer, "--scorer-arg", f.path("scores.npy"), "--scorer-arg", version}
}

// fit returns the flags of a fit that asks the plugin.
func (f rankedFiles) fit(version string, more ...string) []string {
	args := append([]string{"fit", "rbe"}, f.scorer(version)...)
	args = append(args, "--payload", f.path("payload.jsonl"), "--item-ids", f.path("ids.txt"), "--queries", f.path("queries.jsonl"),
		"--supports", "6", "--hit-rates", "5:5", "--output", "json")
	return append(args, more...)
}

func fitted(t *testing.T, args []string) fitRBEResult {
	t.Helper()
	r := execute(t, "", args...)
	var report fitRBEResult
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	return report
}

// TestFitRBEThroughARanker: a fit that asks a ranker gives the same model as one that reads the
// ranker's matrix. It makes no call twice, and fewer calls if the fit reads fewer scores.
func TestFitRBEThroughARanker(t *testing.T) {
	f := newRankedFiles(t)
	for name, tc := range map[string]struct {
		flags []string
		calls int64
	}{
		"l2_greedy":   {nil, 50 * 40},
		"random":      {[]string{"--select", "random", "--support-queries", "8", "--held-out", "0.1"}, 50 * 12},
		"regularised": {[]string{"--select", "kmeans", "--lambda", "0.1", "--support-queries", "20"}, 50 * 32},
		"perceptrons": {[]string{"--hidden", "6", "--out-width", "3", "--rounds", "2", "--support-queries", "20"}, 50 * 40},
	} {
		matrix := append([]string{
			"fit", "rbe", "--scores", f.path("scores.npy"), "--item-ids", f.path("ids.txt"), "--queries", f.path("queries.jsonl"), "--out", f.path(name + "-matrix.safetensors"),
			"--supports", "6", "--hit-rates", "5:5", "--output", "json",
		}, tc.flags...)
		want := fitted(t, matrix)
		out := f.path(name + ".safetensors")
		got := fitted(t, f.fit("1", append(tc.flags, "--out", out)...))
		if got.Version != want.Version || !reflect.DeepEqual(got.Report, want.Report) || !slices.Equal(got.Supports, want.Supports) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
		if a := got.Asked; a.Asked != tc.calls || a.Calls != tc.calls || a.Cost != float64(tc.calls)/4 || a.ItemsPerRequest != 16 || a.ParallelRequests != 2 {
			t.Errorf("%s: %+v, want %d calls", name, a, tc.calls)
		}
		again := fitted(t, f.fit("1", append(tc.flags, "--out", out, "--force")...))
		if again.Asked.Asked != 0 || again.Asked.Kept != tc.calls || again.Version != want.Version {
			t.Errorf("%s again: %+v", name, again.Asked)
		}
	}
	byKind := fitted(t, []string{"fit", "rbe", "--scores", f.path("scores.npy"), "--item-ids", f.path("ids.txt"), "--queries", f.path("queries.jsonl"),
		"--support-category", f.path("kinds.txt"), "--hit-rates", "5:5", "--output", "json", "--out", f.path("kinds.safetensors")})
	asked := fitted(t, slices.DeleteFunc(f.fit("1", "--support-category", "of.kind", "--out", f.path("kind.safetensors")), func(arg string) bool { return arg == "--supports" || arg == "6" }))
	if len(byKind.Supports) != 4 || !slices.Equal(asked.Supports, byKind.Supports) || asked.Select != "category" {
		t.Errorf("one support a category: %v of the ranker's scores, %v of the matrix", asked.Supports, byKind.Supports)
	}
	if r := execute(t, "", f.fit("1", "--support-category", "kind", "--out", f.path("kind.safetensors"), "--force")...); r.code != 2 || !strings.Contains(r.err, `field "kind"`) {
		t.Errorf("no such field: code %d\n%s", r.code, r.err)
	}
	own := fitted(t, f.fit("1", "--hidden", "6", "--out-width", "3", "--rounds", "2", "--query-features", f.path("own.npy"), "--out", f.path("own.safetensors")))
	if own.SupportItems != 6 || own.Version == "" {
		t.Errorf("with query features: %+v", own)
	}
	if r := execute(t, "", f.fit("1", "--query-features", f.path("own.npy"), "--out", f.path("own.safetensors"), "--force")...); r.code != 2 || !strings.Contains(r.err, "features of 40 queries") {
		t.Errorf("features without perceptrons: code %d\n%s", r.code, r.err)
	}
	few := fitted(t, f.fit("1", "--select", "random", "--held-out", "0", "--support-queries", "9", "--out", f.path("few.safetensors")))
	if few.Asked.Asked != 6*9 || few.Asked.Sampled != 50 || len(few.Supports) != 6 || few.HeldOutQueries != 0 {
		t.Errorf("supports alone: %+v, %v", few.Asked, few.Supports)
	}
	m, err := model.Open(f.path("few.safetensors"))
	if err != nil || len(m.Similarity.(interface{ Questions() []rerank.Query }).Questions()) != 9 || m.Provenance["data.ranker"] != "matrix 1" {
		t.Errorf("%v, %v", m, err)
	}
	shown := execute(t, "", "model", "show", f.path("few.safetensors"))
	if first := few.Supports[0].String(); shown.code != 0 || !strings.Contains(shown.out, "support items") || !strings.Contains(shown.out, "\n  "+first) || !strings.Contains(shown.out, "support queries") {
		t.Errorf("want the support items from %s on in\n%s%s", first, shown.out, shown.err)
	}
}

// TestFitRBERefusals: a fit that would cost too much, or whose ranker cannot be asked, is refused.
func TestFitRBERefusals(t *testing.T) {
	f := newRankedFiles(t)
	out := []string{"--out", f.path("m.safetensors")}
	estimate := fitted(t, f.fit("1", append(out, "--estimate")...))
	if estimate.Model != "" || estimate.Asked.Calls != 2000 || !(estimate.Asked.PerSecond > 0) || estimate.Asked.Asked > 1000 {
		t.Errorf("%+v", estimate.Asked)
	}
	if _, err := os.Stat(f.path("m.safetensors")); err == nil {
		t.Error("an estimate wrote a model")
	}
	for want, args := range map[string][]string{
		"--max-calls permits 100":     f.fit("1", append(out, "--max-calls", "100")...),
		"no executable":               append([]string{"fit", "rbe", "--scorer", f.path("none"), "--queries", f.path("queries.jsonl")}, out...),
		"items are missing":           append(append([]string{"fit", "rbe", "--queries", f.path("queries.jsonl")}, f.scorer("1")...), out...),
		"give --scores, or a ranker":  append([]string{"fit", "rbe", "--queries", f.path("queries.jsonl"), "--payload", f.path("payload.jsonl")}, out...),
		"lambda is -1":                f.fit("1", append(out, "--lambda", "-1")...),
		"name the payload fields":     append([]string{"fit", "rbe", "--scorer-url", "http://127.0.0.1:1/rerank", "--queries", f.path("queries.jsonl")}, out...),
		"neither a text nor a vector": f.fit("1", append(out, "--queries", f.path("payload.jsonl"))...),
	} {
		if r := execute(t, "", args...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("code %d, want 2 with %q in\n%s", r.code, want, r.err)
		}
	}
}
