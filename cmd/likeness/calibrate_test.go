package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/calibrate"
)

// calibrateFiles writes the configuration of a collection with every fifth of the shipped
// questions. Its route searches with the learned linear probe of the shipped model.
func calibrateFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	shipped, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	configuration := filepath.Join(dir, "likeness.yaml")
	text := fmt.Sprintf(`
state_dir: state
listen: {grpc: "127.0.0.1:0", admin: ""}
stores: {files: {kind: embedded, collections: {questions: {vectors: %[1]s/data/banking77/items_vectors.npy, metric: cosine}}}}
models: {mol: {path: %[1]s/models/banking77-questions-mol}}
routes:
  questions: {store: files, collection: questions, model: mol, placement: stored, strategy: distilled, head: linear, depth: 20}
`, shipped)
	if err := os.WriteFile(configuration, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return configuration
}

const testVectors = "../../examples/data/banking77/test_vectors.npy"

// TestCalibrate finds a promise and stores it. The sidecar then claims it, and `config validate
// --connect` shows it.
func TestCalibrate(t *testing.T) {
	configuration := calibrateFiles(t)
	page := filepath.Join(t.TempDir(), "calibration.html")
	args := []string{"calibrate", "--config", configuration, "--route", "questions", "--queries", testVectors, "--sample", "200", "--hold-out", "100", "--html", page}
	r := execute(t, "", append(args, "--output", "json")...)
	var report calibrate.Report
	if err := json.Unmarshal([]byte(r.out), &report); r.code != 0 || err != nil {
		t.Fatalf("code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	c := report.Calibration
	if c == nil || c.Rule.Depth < 10 || c.Queries != 200 || report.HeldOut == nil || report.Rules[0].Depth != 10 || report.Rules[len(report.Rules)-1].Rule != c.Rule || !strings.Contains(report.Source, "sha256:") {
		t.Fatalf("%s", r.out)
	}
	kept := filepath.Join(filepath.Dir(configuration), "state", "routes", "questions", "calibration-"+report.Version+".json")
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), fmt.Sprintf("<strong>Depth %d</strong>", c.Rule.Depth)) || strings.Count(string(html), "<svg") != 2 {
		t.Errorf("the page: %v\n%s", err, html)
	}
	text := execute(t, "", args...)
	if text.code != 0 || !strings.Contains(text.out, "chosen") || !strings.Contains(text.out, "wrote "+kept) {
		t.Errorf("code %d\n%s%s", text.code, text.out, text.err)
	}
	seen := filepath.Join(t.TempDir(), "seen.csv")
	if err := os.WriteFile(seen, []byte("query,item\n0,1\n0,2\n17,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := execute(t, "", append(args, "--seen", seen, "--dry-run", "--output", "json")...)
	if err := json.Unmarshal([]byte(without.out), &report); without.code != 0 || err != nil || !report.Calibration.Excluding {
		t.Errorf("without seen items: code %d, %v\n%s%s", without.code, err, without.out, without.err)
	}
	v := execute(t, "", "config", "validate", "--config", configuration, "--connect")
	if want := fmt.Sprintf("route questions: recall@10 >= 0.9 for 95 %% of the queries, at depth %d", c.Rule.Depth); v.code != 0 || !strings.Contains(v.out, want) {
		t.Errorf("code %d, %s%s, want %q", v.code, v.out, v.err, want)
	}
	v = execute(t, "", "config", "validate", "--config", configuration, "--connect", "--set", "routes.questions.head=residual")
	if v.code != 0 || !strings.Contains(v.out, "not claimed: it was made for strategy distilled, weights uniform, head linear and the route has") {
		t.Errorf("code %d, %s%s", v.code, v.out, v.err)
	}
}

// TestCalibrateRefusals: wrong input ends with the exit code for wrong usage, and writes nothing. A
// promise that no depth shows ends with the exit code for a failure.
func TestCalibrateRefusals(t *testing.T) {
	configuration := calibrateFiles(t)
	base := []string{"calibrate", "--config", configuration, "--route", "questions"}
	badSeen := filepath.Join(t.TempDir(), "seen.csv")
	if err := os.WriteFile(badSeen, []byte("query,item\n99999,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no queries", nil, 2, "from-collection"},
		{"both", []string{"--queries", testVectors, "--from-collection", "70"}, 2, "from-collection"},
		{"no such route", []string{"--queries", testVectors, "--route", "x"}, 2, `no route "x"`},
		{"too few", []string{"--queries", testVectors, "--sample", "58", "--depths", "12"}, 2, "bring 59 at least"},
		{"too few for seven depths", []string{"--queries", testVectors, "--sample", "96"}, 2, "at one of 7 depths, even if all of them are answered well; bring 97 at least"},
		{"more than there are", []string{"--queries", testVectors, "--sample", "3000", "--hold-out", "100"}, 2, "ask for fewer"},
		{"recall", []string{"--queries", testVectors, "--recall", "2"}, 2, "a recall of 2"},
		{"share", []string{"--queries", testVectors, "--share", "0"}, 2, "share 0"},
		{"no file", []string{"--queries", "absent.npy"}, 2, "absent.npy"},
		{"no folder", []string{"--queries", testVectors, "--set", "state_dir="}, 2, "state_dir"},
		{"seen of another file", []string{"--queries", testVectors, "--seen", badSeen}, 2, "query is row 99999"},
		{"seen of stored vectors", []string{"--from-collection", "70", "--seen", badSeen}, 2, "seen"},
		{"not shown", []string{"--queries", testVectors, "--sample", "100", "--depths", "12", "--recall", "1"}, 1, "no depth shows the promise"},
	} {
		if r := execute(t, "", append(append([]string{}, base...), c.args...)...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: code %d, %s, want %d and %q", c.name, r.code, r.err, c.code, c.want)
		}
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(configuration), "state", "routes", "questions", "*.json"))
	if err != nil || len(found) > 0 {
		t.Errorf("there are %q, %v", found, err)
	}
	dry := execute(t, "", append(base, "--from-collection", "70", "--depths", "30", "--dry-run", "--recall", "0.5")...)
	if dry.code != 0 || strings.Contains(dry.out, "wrote") || !strings.Contains(dry.out, "70 stored vectors of collection questions") {
		t.Errorf("code %d\n%s%s", dry.code, dry.out, dry.err)
	}
}

// TestTwoSidecars: the second sidecar on a state_dir ends, and says why.
func TestTwoSidecars(t *testing.T) {
	configuration := calibrateFiles(t)
	lock, err := statedir.Lock(filepath.Join(filepath.Dir(configuration), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	r := execute(t, "", "serve", "--config", configuration)
	if r.code == 0 || !strings.Contains(r.err, "belongs to another sidecar that runs: give each sidecar its own, or stop that one first") {
		t.Errorf("code %d\n%s", r.code, r.err)
	}
	if r := execute(t, "", "config", "validate", "--connect", "--config", configuration); r.code != 0 {
		t.Errorf("config validate needs the lock: %s", r.err)
	}
}
