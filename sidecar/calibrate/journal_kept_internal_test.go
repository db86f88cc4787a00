package calibrate

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/route"
)

func openTestJournal(t *testing.T, path, fingerprint string) *journal {
	t.Helper()
	j, err := openJournal(path, fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

var (
	answeredShallow = answered{Depth: 5, Recall: 0.5}
	answeredDeep    = answered{Depth: 50, Recall: 1}
	exactOfTwo      = exactAnswer{top: []rerank.Scored{{ID: rerank.UintID(1<<64 - 1), Score: 0.25}, {ID: rerank.TextID("7"), Score: -1}}, epsilon: 0.125}
)

// TestJournalIsKept: the next run finds the answers of each query, and overwrites an incomplete
// last line.
func TestJournalIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "j")
	j := openTestJournal(t, path, "x")
	if err := j.write(entry{Query: 1, Answers: []answered{answeredShallow}}, exactEntry(1, exactOfTwo)); err != nil {
		t.Fatal(err)
	}
	if err := j.write(entry{Query: 1, Answers: []answered{answeredDeep}}); err != nil {
		t.Fatal(err)
	}
	want := func(j *journal, entries int) {
		t.Helper()
		for depth, a := range map[int]answered{5: answeredShallow, 50: answeredDeep} {
			if got, ok := j.answer(1, depth); !ok || !reflect.DeepEqual(got, a) {
				t.Errorf("query 1 at depth %d: %+v, %t", depth, got, ok)
			}
		}
		if got, ok := j.exact(1); !ok || !reflect.DeepEqual(got, exactOfTwo) {
			t.Errorf("the exact answer: %+v, %t", got, ok)
		}
		if _, ok := j.answer(1, 6); ok {
			t.Error("query 1 was not answered at depth 6")
		}
		if _, ok := j.answer(2, 5); ok != (entries > 3) {
			t.Errorf("query 2 was answered: %t", ok)
		}
		if _, ok := j.exact(2); ok {
			t.Error("nobody asked for an exact answer to query 2")
		}
	}
	want(j, 3)
	must(t, j.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for _, tail := range []string{"", `{"query":2,"answers":[{"depth":5`, "\x00\x00\x00\n", "\x00\x00", `{"query":2,"answers":[{"depth":5,"recall":true}]}` + "\n"} {
		must(t, os.WriteFile(path, append(whole[:len(whole):len(whole)], tail...), 0o600))
		j = openTestJournal(t, path, "x")
		want(j, 3)
		must(t, j.write(entry{Query: 2, Answers: []answered{answeredShallow}}))
		must(t, j.Close())
		j = openTestJournal(t, path, "x")
		want(j, 4)
		must(t, j.Close())
		left, err := os.ReadFile(path)
		must(t, err)
		if n := bytes.Count(left, []byte(`"calibration"`)); n != 1 {
			t.Errorf("behind %q: the file has %d headers", tail, n)
		}
		if len(left) <= len(whole) || !bytes.Equal(left[:len(whole)], whole) {
			t.Errorf("behind %q: the file has %d bytes, of %d that were whole", tail, len(left), len(whole))
		}
	}
}

// TestJournalOfAnother: the answers of another calibration are dropped, from the file too.
func TestJournalOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := openTestJournal(t, path, "x")
	must(t, j.write(entry{Query: 1, Answers: []answered{answeredShallow}}))
	must(t, j.Close())
	for range 2 {
		j = openTestJournal(t, path, "y")
		if _, ok := j.answer(1, 5); ok {
			t.Error("an answer of another calibration counts")
		}
		must(t, j.Close())
	}
	j = openTestJournal(t, path, "x")
	if _, ok := j.answer(1, 5); ok {
		t.Error("what was dropped is back")
	}
	must(t, j.remove())
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	memory := openTestJournal(t, "", "x")
	must(t, memory.write(entry{Query: 1, Answers: []answered{answeredShallow}}))
	if _, ok := memory.answer(1, 5); !ok {
		t.Error("a journal without a file forgets")
	}
	must(t, memory.remove())
}

// TestJournalFingerprint: a journal belongs to another calibration if anything differs that answers
// depend on, and to the same one if the store only merged segments.
func TestJournalFingerprint(t *testing.T) {
	made := func(change func(r *run)) string {
		r := &run{
			Input: Input{
				Queries: []rerank.Query{{Vector: []float32{1, 2}}, {Vector: []float32{3, 4}, UserID: 5}}, HeldOut: []rerank.Query{{Vector: []float32{5, 6}}},
				Promise: Promise{K: 10},
			},
			opening: &opening{
				route:    route.Route{Policy: route.Policy{Name: "r", StoreName: "s", Collection: "c", Vector: "v", Companion: "d"}, Parts: route.Parts{Model: route.Model{Version: "m"}}},
				settings: map[string]string{"collection.hnsw.m": "16", "collection.segments": "3", "companion.segments": "4"},
			},
			rules: []rerank.Rule{{Depth: 20}, {Depth: 10}}, rows: 100,
		}
		change(r)
		return r.fingerprint()
	}
	want := made(func(*run) {})
	seen := map[string]string{want: "nothing"} // by fingerprint
	for _, of := range []string{"collection", "companion"} {
		if got := made(func(r *run) { r.settings[of+".segments"] = "2" }); got != want {
			t.Errorf("segments of the %s that the store merged make another calibration", of)
		}
	}
	for what, change := range map[string]func(r *run){
		"a query":   func(r *run) { r.Queries[1].Vector[1]++ },
		"a user":    func(r *run) { r.Queries[1].UserID++ },
		"user 0":    func(r *run) { r.Queries[0].HasUserID = true },
		"a text":    func(r *run) { r.Queries[0].Text = "x" },
		"a context": func(r *run) { r.Queries[0].Context = map[string]float32{"age": 3} },
		"several vectors": func(r *run) {
			r.Queries[0].Vectors = rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 2}}
		},
		"a held-out one": func(r *run) { r.HeldOut[0].Vector[0]++ },
		"another split": func(r *run) {
			r.HeldOut = append([]rerank.Query{r.Queries[1]}, r.HeldOut...)
			r.Queries = r.Queries[:1]
		},
		"K":              func(r *run) { r.Promise.K++ },
		"a rule":         func(r *run) { r.rules[1].Depth++ },
		"a setting":      func(r *run) { r.settings["collection.hnsw.m"] = "32" },
		"the rows":       func(r *run) { r.rows++ },
		"the model":      func(r *run) { r.route.Model.Version = "n" },
		"the route":      func(r *run) { r.route.Name = "q" },
		"the store":      func(r *run) { r.route.StoreName = "t" },
		"the collection": func(r *run) { r.route.Collection = "e" },
		"the vector":     func(r *run) { r.route.Vector = "w" },
		"the companion":  func(r *run) { r.route.Companion = "f" },
		"exact search":   func(r *run) { r.route.ExactSearch = !r.route.ExactSearch },
		"a seen item":    func(r *run) { r.seen = []seenItems{{rerank.UintID(1): true}, nil} },
		"another item":   func(r *run) { r.seen = []seenItems{{rerank.UintID(2): true}, nil} },
		"who saw it":     func(r *run) { r.seen = []seenItems{nil, {rerank.UintID(1): true}} },
		"the placement":  func(r *run) { r.route.Placement = route.PlacementStored },
	} {
		got := made(change)
		if other, is := seen[got]; is {
			t.Errorf("%s changed, and the fingerprint is the one of a change of %s", what, other)
		}
		seen[got] = what
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
