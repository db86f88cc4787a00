package export_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/export"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
)

// sidecar is a state folder whose route products keeps events, with a key that others share.
type sidecar struct {
	dir   string
	route *events.Route
}

func newSidecar(t *testing.T, key string, now *time.Time) *sidecar {
	t.Helper()
	s := &sidecar{dir: t.TempDir()}
	var err error
	s.route, err = events.OpenRoute(statedir.Events(s.dir, "products"), "products", events.RouteOptions{
		Share: 1, Keep: []string{events.FieldVector, events.FieldUser}, KeyFile: key, Log: events.LogOptions{Now: func() time.Time { return *now }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// show keeps an answer with the items 1, 2 and so on, best first.
func (s *sidecar) show(vector []float32, user string, first, items int) events.AnswerID {
	answer := events.AnswerID{Call: s.route.NewCall()}
	m := &events.Impression{Answer: answer, Vector: vector, User: user, Version: "v", First: first}
	for i := range items {
		m.Items = append(m.Items, events.Item{ID: rerank.UintID(uint64(first + i)), Score: float32(-i), Arm: experiment.Arm(i % 3)})
	}
	s.route.Show(m)
	return answer
}

func (s *sidecar) feed(t *testing.T, all ...events.Feedback) {
	t.Helper()
	if r, err := s.route.Feed(t.Context(), all); err != nil || len(r.Refused) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func (s *sidecar) close(t *testing.T) {
	t.Helper()
	if err := s.route.Close(); err != nil {
		t.Fatal(err)
	}
}

func chose(answer events.AnswerID, item uint64, kind string, weight float64) events.Feedback {
	return events.Feedback{Answer: answer, Item: rerank.UintID(item), Kind: kind, Weight: weight}
}

// row is a row of the log as the export writes it.
type row struct {
	Query    string    `parquet:"query"`
	Item     string    `parquet:"item"`
	Weight   float64   `parquet:"weight"`
	Time     time.Time `parquet:"time,timestamp(millisecond)"`
	Position int32     `parquet:"position"`
	Arm      string    `parquet:"arm"`
	Answer   string    `parquet:"answer"`
	User     string    `parquet:"user"`
	Score    float32   `parquet:"score"`
	Version  string    `parquet:"version"`
}

// TestExport joins the events of two sidecars: what was shown, what was chosen, once, with what the
// one sidecar showed and the other was told.
func TestExport(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	now := day.Add(-time.Hour)
	one, two := newSidecar(t, key, &now), newSidecar(t, key, &now)
	early := one.show([]float32{1, 0}, "ann", 1, 3)
	now = day.Add(time.Hour)
	first, again := one.show([]float32{1, 0}, "ann", 1, 3), two.show([]float32{1, 0}, "bob", 11, 2)
	_ = two.show(nil, "", 1, 3) // without its query
	one.feed(t, chose(first, 2, "click", 1), chose(early, 1, "click", 1), chose(early, 1, "purchase", 1), chose(first, 9, "click", 1))
	two.feed(t, chose(first, 2, "click", 1), chose(first, 2, "purchase", 2), chose(again, 12, "click", 0.5)) // the first one was sent to both
	one.close(t)
	two.close(t)

	out := t.TempDir()
	o := export.Options{
		StateDirs: []string{one.dir, two.dir}, Route: "products", From: day, Log: filepath.Join(out, "log.parquet"), Queries: filepath.Join(out, "queries.parquet"),
		Weights: map[string]float64{"purchase": 5},
	}
	report, err := export.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := export.Report{Answers: 2, Rows: 5, Chosen: 2, Queries: 1, Feedback: 6, Repeated: 1, Unmatched: 2, NotShown: 1, WithoutQuery: 1}
	if report != want {
		t.Errorf("%+v, want %+v", report, want)
	}
	rows, err := parquet.ReadFile[row](o.Log)
	if err != nil {
		t.Fatal(err)
	}
	q := rows[0].Query
	at := func(answer events.AnswerID, user, item string, weight float64, position int32, arm string, score float32) row {
		return row{q, item, weight, now, position, arm, answer.String(), user, score, "v"}
	}
	for i := range rows {
		rows[i].Time = rows[i].Time.UTC()
	}
	if all := []row{
		at(first, "ann", "1", 0, 1, "", 0), at(first, "ann", "2", 1+5*2, 2, "control", -1), at(first, "ann", "3", 0, 3, "candidate", -2),
		at(again, "bob", "11", 0, 11, "", 0), at(again, "bob", "12", 0.5, 12, "control", -1),
	}; !reflect.DeepEqual(rows, all) {
		t.Errorf("%+v\nwant %+v", rows, all)
	}

	// A fit reads it: the rows that were not chosen are left out.
	items := filepath.Join(out, "items.npy")
	if err := npy.Write(items, rerank.Matrix{Rows: 12, Cols: 2, Data: slices.Repeat([]float32{1, 2}, 12)}); err != nil {
		t.Fatal(err)
	}
	ids := filepath.Join(out, "ids.txt")
	if err := os.WriteFile(ids, []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(t.Context(), dataset.Sources{Items: items, ItemIDs: ids, Queries: o.Queries + "#vector", Pairs: o.Log})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Queries.Rows != 1 || d.Counts.Shown != 3 || d.Counts.Rows != 5 || !reflect.DeepEqual(d.Relevant, [][]int32{{1, 11}}) {
		t.Errorf("%d queries, %+v", d.Queries.Rows, d.Counts)
	}
}

// TestExportsOfFollowingTimes: an answer at the border of two exports is in the later one alone, and an answer that two
// folders have is in it once.
func TestExportsOfFollowingTimes(t *testing.T) {
	border := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	now := border
	s := newSidecar(t, "", &now)
	s.show([]float32{1, 0}, "", 1, 3)
	now = border.Add(-time.Second)
	s.show([]float32{0, 1}, "", 1, 2)
	s.close(t)
	for name, c := range map[string]struct {
		from, to time.Time
		rows     int64
	}{"before": {border.Add(-time.Hour), border, 2}, "after": {border, border.Add(time.Hour), 3}} {
		report, err := export.Run(t.Context(), export.Options{
			StateDirs: []string{s.dir, s.dir}, Route: "products", From: c.from, To: c.to, Log: filepath.Join(t.TempDir(), "log.parquet"),
		})
		if err != nil || report.Answers != 1 || report.Rows != c.rows {
			t.Errorf("%s the border: %+v, %v; want one answer of %d rows", name, report, err, c.rows)
		}
	}
}

// TestNothingToExport: an export without answers says what is missing.
func TestNothingToExport(t *testing.T) {
	now := time.Now()
	s := newSidecar(t, "", &now)
	s.show([]float32{1}, "", 1, 1)
	s.close(t)
	for _, o := range []export.Options{
		{StateDirs: []string{s.dir}, Route: "other"}, {StateDirs: []string{filepath.Join(s.dir, "none")}, Route: "products"},
		{StateDirs: []string{s.dir}, Route: "products", From: now.Add(time.Hour)},
	} {
		o.Log = filepath.Join(t.TempDir(), "log.parquet")
		if _, err := export.Run(t.Context(), o); !errors.Is(err, export.ErrInput) {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := os.Stat(o.Log); err == nil {
			t.Errorf("%+v: there is a log", o)
		}
	}
}

// TestDamagedEvents: a place that cannot be read counts once, though an export reads all events twice.
func TestDamagedEvents(t *testing.T) {
	now := time.Now()
	s := newSidecar(t, "", &now)
	s.show([]float32{1}, "", 1, 1)
	s.show([]float32{2}, "", 1, 1)
	s.show([]float32{3}, "", 1, 1)
	s.close(t)
	files, err := filepath.Glob(filepath.Join(statedir.Events(s.dir, "products"), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 100 { // the events, and not the key
			b[len(b)/2] ^= 1
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := export.Options{StateDirs: []string{s.dir}, Route: "products", Log: filepath.Join(t.TempDir(), "log.parquet")}
	if report, err := export.Run(t.Context(), o); err != nil || report.Answers != 2 || report.Damaged != 1 {
		t.Errorf("%+v, %v; want two answers and one damaged place", report, err)
	}
}

// TestAnExportIsInterrupted: an export whose context is over ends and writes no log.
func TestAnExportIsInterrupted(t *testing.T) {
	now := time.Now()
	s := newSidecar(t, "", &now)
	s.show([]float32{1}, "", 1, 1)
	s.close(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := export.Options{StateDirs: []string{s.dir}, Route: "products", Log: filepath.Join(t.TempDir(), "log.parquet")}
	if _, err := export.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	if _, err := os.Stat(o.Log); err == nil {
		t.Error("there is a log")
	}
}
