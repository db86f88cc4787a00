package dataset_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
)

// folder is a directory of input files.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder {
	t.Helper()
	return folder{t, t.TempDir()}
}

func (f folder) file(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// matrix writes a matrix of two columns with the numbers 1, 2, 3 and so on.
func (f folder) matrix(name string, rows int) string {
	f.t.Helper()
	m := rerank.NewMatrix(rows, 2)
	for i := range m.Data {
		m.Data[i] = float32(i + 1)
	}
	path := filepath.Join(f.dir, name)
	if err := npy.Write(path, m); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// sources returns three items, two queries, and a log: the text pairs, in a file with this name.
func (f folder) sources(name, pairs string) dataset.Sources {
	f.t.Helper()
	return dataset.Sources{Items: f.matrix("items.npy", 3), Queries: f.matrix("queries.npy", 2), Pairs: f.file(name, pairs)}
}

func open(t *testing.T, s dataset.Sources) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestPairsByRow(t *testing.T) {
	for name, text := range map[string]string{
		"plain.csv":   "query,item\n0,2\n0,1\n1,0\n0,2\n",
		"swapped.csv": "\ufeffitem,query\r\n2,0\r\n1, 0\r\n0,1\r\n2,0\r\n",
		"other.csv":   "query,shown,item\n0,7,2\n0,7,1\n1,x,0\n0,,2\n",
		"log.jsonl":   `{"query":0,"item":2,"shown":7}` + "\n\n" + `{"item":"1","query":"0"}` + "\n" + `{"query":1,"item":0}` + "\n" + `{"query":0,"item":2}`,
	} {
		d := open(t, newFolder(t).sources(name, text))
		if want := [][]int32{{1, 2}, {0}}; !reflect.DeepEqual(d.Relevant, want) || d.Weights != nil || d.Times != nil {
			t.Errorf("%s: pairs %v, want %v; weights %v, times %v", name, d.Relevant, want, d.Weights, d.Times)
		}
		ignored := d.Counts.Ignored
		d.Counts.Ignored = nil
		if want := (dataset.Counts{Items: 3, Queries: 2, Rows: 4, Pairs: 3, DuplicatePairs: 1}); !reflect.DeepEqual(d.Counts, want) {
			t.Errorf("%s: counts %+v, want %+v", name, d.Counts, want)
		}
		if strings.Contains(text, "shown") && !reflect.DeepEqual(ignored, []string{"shown"}) {
			t.Errorf("%s: ignored %v", name, ignored)
		}
	}
}

// A log with ids, weights and times is read; every kind of row that is dropped is counted.
func TestPairsByID(t *testing.T) {
	csv := `query,item,weight,time
"red shoes",a,1,2026-01-31T12:00:00Z
"red shoes",b,0.5,1769860801
"red shoes",a,2,1769860802999
boots,c,,1769860803
boots,gone,1,1769860804
hats,a,1,1769860804
hats,gone,1,1769860804
boots,a,0,1769860804
`
	jsonl := `{"query":"red shoes","item":"a","weight":1,"time":"2026-01-31T12:00:00Z"}
{"query":"red shoes","item":"b","weight":0.5,"time":1769860801}
{"query":"red shoes","item":"a","weight":2,"time":1769860802999}
{"query":"boots","item":"c","time":1769860803}
{"query":"boots","item":"gone","weight":1,"time":1769860804}
{"query":"hats","item":"a","weight":1,"time":1769860804}
{"query":"hats","item":"gone","weight":1,"time":1769860804}
{"query":"boots","item":"a","weight":0,"time":1769860804}
`
	for name, text := range map[string]string{"log.csv": csv, "log.ndjson": jsonl} {
		f := newFolder(t)
		s := f.sources(name, text)
		s.ItemIDs, s.QueryIDs = f.file("ids.txt", "a\nb\nc\n"), f.file("queries.txt", "red shoes\r\nboots\r\n")
		d := open(t, s)
		if want := [][]int32{{0, 1}, {2}}; !reflect.DeepEqual(d.Relevant, want) {
			t.Errorf("%s: pairs %v, want %v", name, d.Relevant, want)
		}
		if want := [][]float32{{3, 0.5}, {1}}; !reflect.DeepEqual(d.Weights, want) {
			t.Errorf("%s: weights %v, want %v: those of a pair given twice are added", name, d.Weights, want)
		}
		if want := []int64{1769860802, 1769860803}; !reflect.DeepEqual(d.Times, want) {
			t.Errorf("%s: times %v, want %v", name, d.Times, want)
		}
		want := dataset.Counts{
			Items: 3, Queries: 2, Rows: 8, Pairs: 3, DuplicatePairs: 1, UnknownItems: 1, UnknownQueries: 2, ZeroWeights: 1, SeveralTimes: 1,
		}
		if !reflect.DeepEqual(d.Counts, want) {
			t.Errorf("%s: counts %+v, want %+v", name, d.Counts, want)
		}
		digests, err := d.Digests()
		if err != nil || len(digests) != 5 || !strings.HasPrefix(digests["pairs"], name+" sha256:") {
			t.Errorf("digests %v, %v", digests, err)
		}
	}
}

// Each kind of invalid log is refused with the file, the place and the reason.
func TestPairsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                          "the file is empty",
		"a,b\n0,1\n":                                `line 1 is "a,b"`,
		"0,1\n0,2\n":                                `line 1 is "0,1"`,
		"query\n0\n":                                `line 1 is "query"`,
		"query,item,item\n0,1,1\n":                  `"item" stands there twice`,
		"query,item\n":                              "there is no pair in it",
		"query,item\n0,1,2\n":                       "line 2",
		"query,item\n0,1\n0\n":                      "line 3",
		"query,item\n0,1\nx,1\n":                    `line 3: query "x" is not a row number`,
		"query,item\n0,9\n":                         "line 2: item is row 9; the matrix has rows 0 to 2; if the file names items by id, give the ids (--item-ids)",
		"query,item\n-1,1\n":                        "line 2: query is row -1",
		"query,item\n0,1.0\n":                       "is not a row number",
		"query,item\n0,\"1\n":                       "line 2",
		"query,item,weight\n0,1,x\n":                `line 2: weight "x" is not a number`,
		"query,item,weight\n0,1,-1\n":               "line 2: weight is -1",
		"query,item,weight\n0,1,NaN\n":              "line 2: weight is NaN",
		"query,item,weight\n0,1,1e39\n":             "line 2: weight is 1e+39",
		"query,item,weight\n0,1,0\n":                "no pair is left of 1 rows",
		"query,item,weight\n0,1,3e38\n0,1,3e38\n":   "add up to more",
		"query,item,time\n0,1,yesterday\n":          `line 2: time "yesterday"`,
		"query,item,time\n0,1,1e300\n":              `line 2: time "1e300"`,
		"query,item,time\n0,1,999999999999999999\n": "line 2: time 999999999999999999 is too large",
		"query,item,time\n0,1,5\n0,2,\n":            "line 3: some rows have a time",
	} {
		_, err := dataset.Open(t.Context(), newFolder(t).sources("log.csv", text))
		if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "log.csv") {
			t.Errorf("%q: want ErrInput with %q and the file, have: %v", text, want, err)
		}
	}
	for text, want := range map[string]string{
		"":                                     "no pair",
		"[1,2]":                                "line 1: not a JSON object",
		"null":                                 "line 1: want one JSON object",
		`{"query":0,"item":1}{}`:               "line 1: want one JSON object",
		`{"query":0,"item":1}` + "\n" + `{"qu`: "line 2: not a JSON object: the object does not end",
		`{"query":0}`:                          `line 1: the object has no "item"; a line is {"query": …, "item": …}`,
		`{"query":0.5,"item":1}`:               "query is 0.5; an id is a string or an integer",
		`{"query":0,"item":[1]}`:               "item is [1]",
		`{"query":0,"item":1,"weight":"2x"}`:   "is not a number",
		`{"query":0,"item":1,"time":{}}`:       "line 1: time",
		strings.Repeat(" ", 2<<20):             "line 1 has more than",
	} {
		_, err := dataset.Open(t.Context(), newFolder(t).sources("log.jsonl", text))
		if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "log.jsonl") {
			t.Errorf("%.40q: want ErrInput with %q and the file, have: %v", text, want, err)
		}
	}
}

func TestSourcesRefused(t *testing.T) {
	f := newFolder(t)
	nan := rerank.NewMatrix(3, 2)
	nan.Data[3] = float32(math.NaN())
	if err := npy.Write(filepath.Join(f.dir, "nan.npy"), nan); err != nil {
		t.Fatal(err)
	}
	base := f.sources("log.csv", "query,item\n0,1\n")
	if err := npy.WriteInts(filepath.Join(f.dir, "users.npy"), []int64{1}); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(s *dataset.Sources){
		"nan.npy: row 1, column 1 is NaN":      func(s *dataset.Sources) { s.Items = filepath.Join(f.dir, "nan.npy") },
		"queries: input is not valid":          func(s *dataset.Sources) { s.Queries = filepath.Join(f.dir, "nan.npy") },
		"no such file":                         func(s *dataset.Sources) { s.Items = filepath.Join(f.dir, "absent.npy") },
		"none.csv: no such":                    func(s *dataset.Sources) { s.Pairs = filepath.Join(f.dir, "none.csv") },
		"needs 24 bytes":                       func(s *dataset.Sources) { s.Items = f.cut("items.npy", "cut.npy") },
		`not ".txt"`:                           func(s *dataset.Sources) { s.Items = f.file("items.txt", "1 2") },
		"leave out #a":                         func(s *dataset.Sources) { s.Items += "#a" },
		"0 rows of 2":                          func(s *dataset.Sources) { s.Items = f.matrix("none.npy", 0) },
		"has 2 ids for 3 rows":                 func(s *dataset.Sources) { s.ItemIDs = f.file("ids.txt", "a\nb\n") },
		"line 2 is empty":                      func(s *dataset.Sources) { s.ItemIDs = f.file("hole.txt", "a\n\nb\n") },
		"both have the item id a":              func(s *dataset.Sources) { s.ItemIDs = f.file("same.txt", "a\nb\na\n") },
		`the first unknown is query "0" of li`: func(s *dataset.Sources) { s.QueryIDs = f.file("q.txt", "x\ny\n") },
		"has 1 user ids for 2 queries":         func(s *dataset.Sources) { s.UserIDs = filepath.Join(f.dir, "users.npy") },
	} {
		s := base
		change(&s)
		if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrInput with %q, have: %v", want, err)
		}
	}
	base.Items, base.NaNItems = filepath.Join(f.dir, "nan.npy"), true
	if d := open(t, base); d.Counts.NotFiniteItems != 1 {
		t.Errorf("counts %+v", d.Counts)
	}
}

// A log with more than half of its ids unknown is refused, and the error shows unknown ids beside known
// ones. With fewer they are counted.
func TestUnknownIDs(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\n0,a\n0,sku-1\n1,sku-1\n1,sku-2\n1,sku-3\n")
	s.ItemIDs = f.file("ids.txt", "a\nb\nc\n")
	_, err := dataset.Open(t.Context(), s)
	want := `4 of 5 rows have an unknown item, as "sku-1", "sku-2", "sku-3", while the items have ids as "a", "b", "c"`
	if !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
		t.Errorf("want ErrInput with %s, have: %v", want, err)
	}
	s.Pairs = f.file("half.csv", "query,item\n0,a\n0,sku-1\n1,sku-2\n1,c\n")
	if d := open(t, s); d.Counts.UnknownItems != 2 || d.Counts.Pairs != 2 {
		t.Errorf("counts %+v", d.Counts)
	}
}

// UUIDs are the same in upper and lower case, with hyphens and without, in braces and after "urn:uuid:".
func TestUUIDs(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\n0,A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11\n0,{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}\n1,urn:uuid:b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12\n1,b0eebc999c0b4ef8bb6d6bb9bd380a12\n1,c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a13\n")
	s.ItemIDs = f.file("ids.txt", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\nb0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12\nC0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A13\n")
	if d := open(t, s); !reflect.DeepEqual(d.Relevant, [][]int32{{0}, {1, 2}}) {
		t.Errorf("pairs %v, counts %+v", d.Relevant, d.Counts)
	}
}

// A file that holds one vector, and no matrix, is a single query.
func TestOneVector(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item\n0,1\n0,2\n")
	s.Queries = f.file("one.npy", "\x93NUMPY\x01\x00\x38\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n"+"\x00\x00\x80\x3f\x00\x00\x00\x40")
	if d := open(t, s); d.Queries.Rows != 1 || !reflect.DeepEqual(d.Queries.Data, []float32{1, 2}) {
		t.Errorf("queries %+v", d.Queries)
	}
}

// cut copies a file without its last byte.
func (f folder) cut(name, to string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return f.file(to, string(b[:len(b)-1]))
}

// With RowPerTime a query has a row for each time of its pairs, so that a split by time can separate
// them.
func TestRowPerTime(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item,time\nx,0,5\nx,1,9\nx,2,5\ny,0,7\nx,1,9\n")
	s.QueryIDs, s.RowPerTime = f.file("ids.txt", "x\ny\n"), true
	d := open(t, s)
	if want := [][]int32{{0, 2}, {1}, {0}}; !reflect.DeepEqual(d.Relevant, want) || !reflect.DeepEqual(d.Times, []int64{5, 9, 7}) {
		t.Errorf("pairs %v at %v", d.Relevant, d.Times)
	}
	if want := []float32{1, 2, 1, 2, 3, 4}; !reflect.DeepEqual(d.Queries.Data, want) || d.QueryIDs[1] != d.QueryIDs[0] || len(d.QueryIDs) != 3 {
		t.Errorf("queries %v of ids %v", d.Queries, d.QueryIDs)
	}
	if d.Counts.SeveralTimes != 1 || d.Counts.DuplicatePairs != 1 || d.Counts.Pairs != 4 {
		t.Errorf("counts %+v", d.Counts)
	}
}

// TestNoRoomForRows: rows for each time need a file, without which the dataset is not opened.
func TestNoRoomForRows(t *testing.T) {
	f := newFolder(t)
	s := f.sources("log.csv", "query,item,time\n0,0,5\n0,1,9\n")
	s.RowPerTime = true
	t.Setenv("TMPDIR", filepath.Join(f.dir, "missing"))
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want ErrNotExist", err)
	}
}

// TestFilesThatCannotBeRead: a read that fails, or that its caller gave up, is an error and not an empty log.
func TestFilesThatCannotBeRead(t *testing.T) {
	f := newFolder(t)
	if digest, err := dataset.FileDigest(f.dir); err == nil {
		t.Errorf("a folder has the digest %q", digest)
	}
	s := f.sources("log.csv", "query,item\n0,0\n")
	s.ManyVectors, s.ItemCounts = true, filepath.Join(f.dir, "missing.npy")
	if _, err := dataset.Open(t.Context(), s); !errors.Is(err, dataset.ErrInput) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("counts that are missing: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if items, err := dataset.LoggedItems(ended, s.Pairs); !errors.Is(err, context.Canceled) {
		t.Errorf("items %v of a log whose reader is gone, %v", items, err)
	}
}

// TestCountRows: the rows of a pair are its weight if rows are counted, unless the log has weights.
func TestCountRows(t *testing.T) {
	for _, c := range []struct {
		log   string
		count bool
		want  [][]float32
	}{
		{"query,item\n0,1\n0,2\n0,1\n1,0\n", true, [][]float32{{2, 1}, {1}}},
		{"query,item\n0,1\n0,2\n0,1\n1,0\n", false, nil},
		{"query,item,weight\n0,1,5\n0,2,1\n0,1,2\n1,0,\n", true, [][]float32{{7, 1}, {1}}},
		{"query,item,answer,position\n0,1,a,1\n0,1,b,1\n1,0,c,1\n1,2,c,2\n", true, nil},
	} {
		s := newFolder(t).sources("log.csv", c.log)
		s.CountRows = c.count
		if d := open(t, s); !reflect.DeepEqual(d.Weights, c.want) {
			t.Errorf("%q, rows counted: %v: weights %v, want %v", c.log, c.count, d.Weights, c.want)
		}
	}
}

// TestSeen: the items that were seen before a query come from a file or from a column of the log.
// With times they are those that were seen until then, and never those that were chosen.
func TestSeen(t *testing.T) {
	const ids = "x\ny\n"
	for name, c := range map[string]struct {
		log, seen  string
		rowPerTime bool
		want       [][]int32
		unknown    int
	}{
		"a file":               {log: "query,item\nx,0\ny,1\n", seen: "query,item\nx,2\nx,0\nx,1\nx,2\n", want: [][]int32{{1, 2}, {}}},
		"unknown ids":          {log: "query,item\nx,0\ny,1\n", seen: "item,query\n2,x\n1,z\n", want: [][]int32{{2}, {}}, unknown: 1},
		"a column":             {log: "query,item,seen\nx,0,\nx,2,true\ny,1,0\ny,0,1\n", want: [][]int32{{2}, {0}}},
		"times of a column":    {log: "query,item,seen,time\nx,0,,5\nx,2,1,6\nx,1,1,4\ny,1,,7\ny,0,1,7\n", want: [][]int32{{1}, {0}}},
		"times of a file":      {log: "query,item,time\nx,0,5\nx,1,9\ny,1,7\n", seen: "query,item,time\nx,2,6\ny,0,8\ny,2,7\n", want: [][]int32{{2}, {2}}},
		"times of every row":   {log: "query,item,time\nx,0,5\nx,1,9\ny,1,7\n", seen: "query,item,time\nx,2,6\nx,0,6\n", rowPerTime: true, want: [][]int32{{}, {0, 2}, {}}},
		"no times of the log":  {log: "query,item\nx,0\ny,1\n", seen: "query,item,time\nx,2,6\n", want: [][]int32{{2}, {}}},
		"no times of the file": {log: "query,item,time\nx,0,5\nx,1,9\ny,1,7\n", seen: "query,item\nx,2\n", rowPerTime: true, want: [][]int32{{2}, {2}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			s := f.sources("log.csv", c.log)
			s.QueryIDs, s.RowPerTime = f.file("ids.txt", ids), c.rowPerTime
			if c.seen != "" {
				s.Seen = f.file("seen.csv", c.seen)
			}
			d := open(t, s)
			n := 0
			for q, items := range c.want {
				n += len(items)
				if !slices.Equal(d.Seen[q], items) {
					t.Errorf("before query row %d %v were seen, want %v", q, d.Seen[q], items)
				}
			}
			if len(d.Seen) != len(c.want) || d.Counts.Seen != n || d.Counts.UnknownSeen != c.unknown {
				t.Errorf("%v, counts %+v", d.Seen, d.Counts)
			}
		})
	}
	f := newFolder(t)
	for text, want := range map[string]string{
		"query,item,seen\n0,1,maybe\n0,0,\n": "seen is \"maybe\"",
		"query,item,seen\n0,1,1\n":           "1 are of seen items",
	} {
		if _, err := dataset.Open(t.Context(), f.sources("log.csv", text)); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	d := open(t, f.sources("log.jsonl", `{"query":0,"item":1}`+"\n"+`{"query":0,"item":2,"seen":true}`+"\n"))
	if !reflect.DeepEqual(d.Seen, [][]int32{{2}, nil}) {
		t.Errorf("of JSON lines %v were seen", d.Seen)
	}
}

// TestSeenIDs: a file of seen items may name any item, since there is no list of items to compare with. It
// names queries by the given ids, or else by row.
func TestSeenIDs(t *testing.T) {
	f := newFolder(t)
	ids := []rerank.ID{rerank.TextID("x"), rerank.TextID("y"), rerank.UintID(7)}
	got, err := dataset.ReadSeenIDs(t.Context(), f.file("seen.csv", "query,item\nx,sku-9\n7,3\nx,4\nz,4\n"), 3, ids)
	if err != nil || !reflect.DeepEqual(got, [][]string{{"sku-9", "4"}, nil, {"3"}}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = dataset.ReadSeenIDs(t.Context(), f.file("rows.csv", "query,item\n1,5\n"), 2, nil); err != nil || !reflect.DeepEqual(got, [][]string{nil, {"5"}}) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"query,item\nu,1\nv,1\nx,1\n": "2 of 3 rows",
		"query,item\nx,\n":            "item is empty",
	} {
		if _, err := dataset.ReadSeenIDs(t.Context(), f.file("bad.csv", text), 3, ids); !errors.Is(err, dataset.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestCounts: items and queries of several vectors, which ids and the log name by their numbers.
func TestCounts(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(npy.Write(path("items.npy"), rerank.NewMatrix(6, 2)))
	must(npy.Write(path("queries.npy"), rerank.NewMatrix(3, 2)))
	must(os.WriteFile(path("pairs.csv"), []byte("query,item\nb,2\na,0\n"), 0o600))
	must(os.WriteFile(path("ids.txt"), []byte("a\nb\n"), 0o600))
	for name, counts := range map[string][]int64{"items": {1, 3, 2}, "queries": {2, 1}, "few": {1, 3, 1}, "none": {1, 0, 5}, "many": {1, 9, 2}, "negative": {-1, 5, 2}} {
		must(npy.WriteInts(path(name+"-counts.npy"), counts))
	}
	s := dataset.Sources{
		Items: path("items.npy"), ItemCounts: path("items-counts.npy"), Queries: path("queries.npy"), QueryCounts: path("queries-counts.npy"),
		QueryIDs: path("ids.txt"), Pairs: path("pairs.csv"), ManyVectors: true,
	}
	d, err := dataset.Open(t.Context(), s)
	must(err)
	defer d.Close()
	if !slices.Equal(d.ItemStarts, []int32{0, 1, 4, 6}) || !slices.Equal(d.QueryStarts, []int32{0, 2, 3}) || d.Counts.Items != 3 || d.Counts.Queries != 2 ||
		!slices.Equal(d.Relevant[0], []int32{0}) || !slices.Equal(d.Relevant[1], []int32{2}) {
		t.Errorf("%+v", d)
	}
	if digests, err := d.Digests(); err != nil || digests["item_counts"] == "" || digests["query_counts"] == "" {
		t.Errorf("digests %v, %v", digests, err)
	}
	for name, change := range map[string]func(*dataset.Sources){
		"few":           func(s *dataset.Sources) { s.ItemCounts = path("few-counts.npy") },
		"none":          func(s *dataset.Sources) { s.ItemCounts = path("none-counts.npy") },
		"many":          func(s *dataset.Sources) { s.ItemCounts = path("many-counts.npy") },
		"negative":      func(s *dataset.Sources) { s.ItemCounts = path("negative-counts.npy") },
		"not permitted": func(s *dataset.Sources) { s.ManyVectors = false },
		"by time":       func(s *dataset.Sources) { s.RowPerTime = true },
		"a history": func(s *dataset.Sources) {
			s.Queries, s.QueryIDs, s.QueryCounts, s.History.Path = "", "", "", path("pairs.csv")
		},
		"item 3": func(s *dataset.Sources) { s.ItemIDs = path("ids.txt") },
	} {
		own := s
		change(&own)
		if _, err := dataset.Open(t.Context(), own); !errors.Is(err, dataset.ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
