package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/examples/banking77"
	"github.com/likenessdb/likeness/learn/eval"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// intentsPairs writes the pairs of the intents task to a file.
func intentsPairs(t *testing.T) string {
	t.Helper()
	task, err := banking77.Intents("../../examples/data/banking77")
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close()
	path := filepath.Join(t.TempDir(), "pairs.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(task.WritePairs(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func evalArgs(pairs string, more ...string) []string {
	return append([]string{
		"eval", "--model", "../../examples/models/banking77-mol", "--items", "../../examples/data/banking77/items_vectors.npy",
		"--queries", "../../examples/data/banking77/test_vectors.npy", "--pairs", pairs, "--every", "6",
	}, more...)
}

// printed runs a command line and returns its output.
func printed(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs strings.Builder
	err = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), err
}

func TestEvalPrintsJSON(t *testing.T) {
	out, _, err := printed(t, evalArgs(intentsPairs(t), "--strategies", "scan,average:20", "--output", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Metrics, Baseline map[string]float64
		Strategies        map[string]struct {
			Recall float64 `json:"first_stage_recall"`
		}
		Counts map[string]int
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"mrr@10", "p@10", "recall@10", "recall@1", "hit_rate@5"} {
		if _, ok := r.Metrics[name]; !ok {
			t.Errorf("metrics lack %s", name)
		}
		if _, ok := r.Baseline[name]; !ok {
			t.Errorf("the baseline lacks %s", name)
		}
	}
	if r.Metrics["mrr@10"] < 0.93 || r.Baseline["mrr@10"] > 0.75 || r.Strategies["scan"].Recall != 1 || r.Counts["queries"] != 514 {
		t.Errorf("%s", out)
	}
}

func TestEvalPrintsText(t *testing.T) {
	out, _, err := printed(t, evalArgs(intentsPairs(t), "--k", "3", "--baseline", "none", "--strategies", "scan,stored:3")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"banking77-mol", "mrr@3", "first-stage recall", "take scan: it finds 1.0000 of the exact top 3", "mrr@1 = map@1 = ndcg@1 = recall@1 = hit_rate@1 = p@1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "cosine") {
		t.Errorf("a baseline that was not asked for:\n%s", out)
	}
}

// TestEvalComparesModels evaluates several models with cold items, and writes a page with plots.
func TestEvalComparesModels(t *testing.T) {
	pairs, dir := intentsPairs(t), t.TempDir()
	page, trained := filepath.Join(dir, "r.html"), filepath.Join(dir, "train.csv")
	if err := os.WriteFile(trained, []byte("query,item\n0,1\n7,1\n9,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err := printed(t, evalArgs(pairs, "--model", "../../examples/models/banking77-questions-bilinear",
		"--trained-pairs", trained, "--html", page)...)
	if err != nil {
		t.Fatal(err, errs)
	}
	for _, want := range []string{"Worth it: take banking77-mol (mol).", "cold", "warm", "worst regressions", "stored:20", "ndcg@10"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	b, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(b), "Gate usage") || !strings.Contains(string(b), "Spectrum of W") {
		t.Errorf("%v, %d bytes", err, len(b))
	}
}

// TestQualityEvalOfCosine: the metrics of cosine on all questions equal those that other
// implementations compute.
func TestQualityEvalOfCosine(t *testing.T) {
	args := evalArgs(intentsPairs(t), "--every", "1", "--output", "json")
	out, _, err := printed(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Baseline map[string]float64 }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"mrr@10": 0.7191, "recall@1": 0.6221, "recall@5": 0.8481, "recall@10": 0.9071} {
		if d := r.Baseline[name] - want; d > 0.0005 || d < -0.0005 {
			t.Errorf("%s is %.4f, want %.4f", name, r.Baseline[name], want)
		}
	}
}

func TestEvalRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("query,item\n0,77\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	items := filepath.Join(t.TempDir(), "nan.npy")
	m := rerank.NewMatrix(77, 384)
	m.Data[2*384+1] = float32(math.NaN())
	if err := npy.Write(items, m); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"not a number": {evalArgs(bad, "--items", items), "nan.npy: row 2, column 1 is NaN", 2},
		"no model":     {[]string{"eval"}, "model", 2},
		"row of pairs": {evalArgs(bad), "line 2: item is row 77", 2},
		"strategy":     {evalArgs(bad, "--strategies", "best:3"), "best", 2},
		"baseline":     {evalArgs(bad, "--baseline", "l2"), "l2", 2},
	} {
		_, errs, err := printed(t, c.args...)
		if err == nil || !strings.Contains(errs, c.want) || exitCode(err) != c.code {
			t.Errorf("%s: exit code %d, stderr %q; want %d and %q", name, exitCode(err), errs, c.code, c.want)
		}
	}
}

func TestEvalReadsItemIDs(t *testing.T) {
	dir := t.TempDir()
	ids, pairs := filepath.Join(dir, "ids.txt"), filepath.Join(dir, "pairs.csv")
	var lines strings.Builder
	for i := range 77 {
		lines.WriteString("intent-" + string(rune('A'+i/26)) + string(rune('a'+i%26)) + "\n")
	}
	for path, text := range map[string]string{ids: lines.String(), pairs: "query,item\n0,intent-Aa\n0,gone\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, err := printed(t, evalArgs(pairs, "--item-ids", ids, "--output", "json")...)
	if err != nil || !strings.Contains(out, `"unknown_items": 1`) || !strings.Contains(errs, "1 rows dropped: their item is not") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

func TestIndexBuildsATableFromAnArray(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intents.table")
	args := []string{
		"index", "--model", "../../examples/models/banking77-mol", "--items", "../../examples/data/banking77/items_vectors.npy",
		"--collection", "intents", "--table", path,
	}
	out, _, err := printed(t, args...)
	if err != nil || !strings.Contains(out, "77 items in 77 rows") {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, errs, err := printed(t, args...); err == nil || !strings.Contains(errs, "--force") {
		t.Errorf("a second time: %v, %s", err, errs)
	}
	if _, _, err := printed(t, append(args, "--force", "--output", "json")...); err != nil {
		t.Errorf("with --force: %v", err)
	}
	if _, err := os.Stat(path + ".part"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the unfinished file is left")
	}
}

// TestIndexKeepsTheTableForTheCompanion: a run that was interrupted after it wrote the table is
// repeated with the same flags, and keeps the table.
func TestIndexKeepsTheTableForTheCompanion(t *testing.T) {
	dir := t.TempDir()
	args := []string{
		"index", "--model", "../../examples/models/banking77-mol", "--items", "../../examples/data/banking77/items_vectors.npy",
		"--collection", "intents", "--table", filepath.Join(dir, "t"), "--companion", "learned", "--files", filepath.Join(dir, "learned"),
	}
	if _, errs, err := printed(t, append(args, "--only", "table")...); err != nil {
		t.Fatal(err, errs)
	}
	out, errs, err := printed(t, args...)
	if err != nil || !strings.Contains(out, "77 items, of an earlier run") || !strings.Contains(out, "companion learned") {
		t.Errorf("%v %s\n%s", err, errs, out)
	}
	args[2] = "../../examples/models/banking77-questions-mol"
	if _, errs, err := printed(t, args...); err == nil || !strings.Contains(errs, "version") || !strings.Contains(errs, "--force") {
		t.Errorf("the table of another model: %v %s", err, errs)
	}
}

func TestModelShowAndImport(t *testing.T) {
	shown, _, err := printed(t, "model", "show", "../../examples/models/banking77-questions-mol")
	if err != nil || !strings.Contains(shown, "residual") {
		t.Fatalf("%v\n%s", err, shown)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	imported, _, err := printed(t, "model", "import", "../../examples/models/banking77-questions-mol", path, "--name", "other", "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var was, is struct{ Name, Version string }
	if err := json.Unmarshal([]byte(imported), &was); err != nil {
		t.Fatal(err)
	}
	again, _, err := printed(t, "model", "show", path, "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(again), &is); err != nil || is != was || is.Name != "other" || !strings.Contains(shown, is.Version) {
		t.Errorf("imported %+v, read %+v, %v", was, is, err)
	}
	if _, _, err := printed(t, "model", "import", "../../examples/models/banking77-mol", path); err == nil {
		t.Error("import replaced a file without --force")
	}
}

func TestBenchSearch(t *testing.T) {
	out, _, err := printed(t, "bench", "search", "--items", "200", "--candidates", "50", "--searches", "3", "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Results []struct {
			Case       string
			Candidates float64
			Own        struct {
				P50 float64 `json:"p50_ms"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Results) != 10 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range r.Results {
		if c.Candidates < 50 || c.Own.P50 <= 0 {
			t.Errorf("%+v", c)
		}
	}
	if _, _, err := printed(t, "bench", "search", "--candidates", "5"); exitCode(err) != 2 {
		t.Errorf("fewer candidates than k: %v", err)
	}
}

// TestEvalByTraffic: queries that the fit learned from are told from new ones, by their vectors or
// their ids, and count as often as they were asked.
func TestEvalByTraffic(t *testing.T) {
	dir, flags := fitFiles(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	if r := execute(t, "", flags...); r.code != 0 {
		t.Fatal(r.err)
	}
	queries, err := npy.Open(path("queries.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer queries.Close()
	if err := npy.Write(path("trained.npy"), queries.Slice(0, 100)); err != nil {
		t.Fatal(err)
	}
	logged, err := os.ReadFile(path("pairs.csv"))
	if err != nil {
		t.Fatal(err)
	}
	pairs, trained, ids := "query,item,weight\n", "query,item\n", ""
	for q, line := range strings.Split(string(logged), "\n")[1:401] {
		_, item, _ := strings.Cut(line, ",")
		weight := 1
		if q < 100 {
			weight = 9
			trained += fmt.Sprintf("q%d,%s\n", q, item)
		}
		pairs += fmt.Sprintf("q%d,%s,%d\n", q, item, weight)
		ids += fmt.Sprintf("q%d\n", q)
	}
	for name, text := range map[string]string{"weighted.csv": pairs, "trained.csv": trained, "ids.txt": ids} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	evaluate := func(more ...string) (r eval.Report) {
		t.Helper()
		out, errs, err := printed(t, append([]string{
			"eval", "--model", path("m.safetensors"), "--items", path("items.npy"), "--queries", path("queries.npy"), "--query-ids", path("ids.txt"),
			"--pairs", path("weighted.csv"), "--output", "json",
		}, more...)...)
		if err != nil {
			t.Fatal(err, errs)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	byVector, byID := evaluate("--trained-queries", path("trained.npy"), "--by-traffic"), evaluate("--trained-pairs", path("trained.csv"), "--by-traffic")
	for name, r := range map[string]eval.Report{"by vector": byVector, "by id": byID} {
		traffic := r.Models[0].Traffic
		if len(traffic) != 3 || traffic[1].Name != "seen before" || traffic[1].Queries != 100 || traffic[2].Queries != 300 {
			t.Fatalf("%s: %+v", name, traffic)
		}
		all, seen, unseen := traffic[0].Metrics["map@10"], traffic[1].Metrics["map@10"], traffic[2].Metrics["map@10"]
		if !(math.Abs(traffic[1].Share-0.75) <= 1e-9) || !(math.Abs(all-0.75*seen-0.25*unseen) <= 1e-9) || seen == unseen {
			t.Errorf("%s: all %.4f of seen %.4f (%.2f) and new %.4f", name, all, seen, traffic[1].Share, unseen)
		}
	}
	if got, want := byID.Metrics["mrr@10"], byID.Models[0].Traffic[0].Metrics["mrr@10"]; !(math.Abs(got-want) <= 1e-9) {
		t.Errorf("by traffic mrr@10 is %.6f, want %.6f", got, want)
	}
	if g := byID.Models[0].Gains["mrr@10"]; !(math.Abs(g.Difference-byID.Metrics["mrr@10"]+byID.Baseline["mrr@10"]) <= 1e-9) || g.Low > g.Difference || g.High < g.Difference {
		t.Errorf("the gain by traffic is %+v", g)
	}
	text, _, err := printed(t, "eval", "--model", path("m.safetensors"), "--items", path("items.npy"), "--queries", path("queries.npy"),
		"--pairs", path("pairs.csv"), "--trained-queries", path("trained.npy"), "--by-traffic")
	if err != nil || !strings.Contains(text, "traffic") || !strings.Contains(text, "seen before") || !strings.Contains(text, "map@10") {
		t.Errorf("%v\n%s", err, text)
	}
	newOnly := evaluate("--trained-queries", path("trained.npy"))
	if got, want := newOnly.Metrics["mrr@10"], byVector.Models[0].Traffic[2].Metrics["mrr@10"]; newOnly.Counts.SeenBefore != 100 || newOnly.Counts.Queries != 300 || !(math.Abs(got-want) <= 1e-9) {
		t.Errorf("of new queries mrr@10 is %.6f, want %.6f: %+v", got, want, newOnly.Counts)
	}
}

// TestEvalPositions: a log that says what was shown is judged by its clicks too.
func TestEvalPositions(t *testing.T) {
	log := filepath.Join(t.TempDir(), "shown.csv")
	var text strings.Builder
	_, _ = text.WriteString("query,item,answer,position,weight\n")
	for q := range 300 {
		for p := range 3 {
			_, _ = fmt.Fprintf(&text, "%d,%d,a%d,%d,%d\n", q, (q+p)%77, q, p+1, p%2)
		}
	}
	if err := os.WriteFile(log, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := printed(t, evalArgs(log)...)
	if err != nil || !strings.Contains(out, "from clicks, 50 answers") || !strings.Contains(out, "regression EM") && !strings.Contains(out, "Not corrected") {
		t.Errorf("%s, %v", out, err)
	}
	if out, _, err = printed(t, evalArgs(log, "--positions", "ignore")...); err != nil || strings.Contains(out, "from clicks") {
		t.Errorf("%s, %v", out, err)
	}
	if _, _, err = printed(t, evalArgs(log, "--clip", "0.5")...); err == nil {
		t.Error("--clip 0.5 is taken")
	}
}
