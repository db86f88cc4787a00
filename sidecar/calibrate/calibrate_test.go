package calibrate_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/kernel"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/route"
)

func promise() calibrate.Promise {
	return calibrate.Promise{K: 10, Recall: .9, Share: .95, Alpha: .05}
}

// input returns a calibration of 160 queries at five depths.
func input(r *route.Route) calibrate.Input {
	return calibrate.Input{
		Route: r, Queries: queries(2, 160, 0), HeldOut: queries(3, 60, 0), Source: "a test", Promise: promise(),
		Depths: []int{15, 200, 30, 100, 60}, Parallel: 2,
	}
}

// timeless returns a report without its times.
func timeless(r *calibrate.Report) *calibrate.Report {
	out := *r
	if out.Calibration != nil {
		c := *out.Calibration
		c.Made = c.Made.Truncate(1 << 62)
		out.Calibration = &c
	}
	out.Rules = append([]calibrate.Outcome(nil), out.Rules...)
	for i := range out.Rules {
		out.Rules[i].P50, out.Rules[i].P99 = 0, 0
	}
	if out.HeldOut != nil {
		h := *out.HeldOut
		h.P50, h.P99 = 0, 0
		out.HeldOut = &h
	}
	return &out
}

// TestRun: deeper lists have a higher recall, an intermediate depth is chosen, and both sources of
// exact answers agree.
func TestRun(t *testing.T) {
	var reports []*calibrate.Report
	for _, withTable := range []bool{true, false} {
		r, store := newRoute(t, withTable)
		store.indexing = "3 of 7 rows"
		in := input(r)
		in.Promise.Share = .9
		report, err := calibrate.Run(t.Context(), in)
		must(t, err)
		if report.Indexing != `collection "things": 3 of 7 rows` {
			t.Errorf("the report says of the index %q", report.Indexing)
		}
		if n := int(store.searches.Load()); n >= 160*(len(report.Rules)+1)+60*2 { // some short lists are searched deeper
			t.Errorf("%d searches at %d depths; no depth is asked after the chosen one, and held-out queries at that one alone", n, len(report.Rules))
		}
		if report.Rows != items || report.Queries != 160 || report.Source != "a test" || report.Version != version {
			t.Errorf("%+v", report)
		}
		reports = append(reports, report)
		if want := map[bool]string{true: "table", false: "collection"}[withTable]; report.Exact != want {
			t.Errorf("exact answers are from the %s, want %s", report.Exact, want)
		}
		c := report.Calibration
		if c == nil || c.Rule.Depth <= 15 || c.Rule.Depth >= 200 || c.Rule.Strategy != rerank.Average || c.K != 10 || c.Queries != 160 || c.Made.IsZero() {
			t.Fatalf("calibration %+v of %+v", c, report.Rules)
		}
		for i, o := range report.Rules {
			if i > 0 && (o.Depth <= report.Rules[i-1].Depth || o.MeanRecall < report.Rules[i-1].MeanRecall-.01) {
				t.Errorf("rule %d: %+v after %+v", i, o, report.Rules[i-1])
			}
			if o.LeastMeanRecall > o.MeanRecall || o.LeastShare != calibrate.LeastShare(o.Kept, 160, .05/5) || // one of five rules may pass by chance
				o.Passed != (o.Rule == c.Rule) || o.Passed != (i == len(report.Rules)-1) || o.Passed != (o.LeastShare >= .9) {
				t.Errorf("rule %d: %+v", i, o)
			}
		}
		if h := report.HeldOut; h == nil || h.Rule != c.Rule || h.Queries != 60 || h.Kept < 54 {
			t.Errorf("held out: %+v", h)
		}
	}
	reports[1].Exact = reports[0].Exact
	for i := range reports[0].Rules { // the table and the stored vectors are scored alike
		reports[1].Rules[i].Candidates = reports[0].Rules[i].Candidates
	}
	if a, b := timeless(reports[0]), timeless(reports[1]); !reflect.DeepEqual(a, b) {
		t.Errorf("with a table\n%+v\nwithout\n%+v", a, b)
	}
}

// TestSeenItems: neither the answers nor the exact ones have items that were seen before the
// query, and the recall is that of the others.
func TestSeenItems(t *testing.T) {
	for _, withTable := range []bool{true, false} {
		r, _ := newRoute(t, withTable)
		in := input(r)
		in.HeldOut = nil
		vectors := normal(1, items)
		for _, q := range in.Queries { // the best ten
			order := make([]int, items)
			for i := range order {
				order[i] = i
			}
			scores := make([]float32, items)
			kernel.Best().Rows(scores, q.Vector, vectors, nil)
			slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
			var seen []string
			for _, x := range order[:10] {
				seen = append(seen, strconv.Itoa(x))
			}
			in.Seen = append(in.Seen, seen)
		}
		report, err := calibrate.Run(t.Context(), in)
		must(t, err)
		if report.Calibration == nil || !report.Calibration.Excluding {
			t.Errorf("table %t: no promise without the items that were seen: %+v", withTable, report.Rules)
		}
		in.Seen = in.Seen[1:]
		if _, err := calibrate.Run(t.Context(), in); !errors.Is(err, calibrate.ErrInput) {
			t.Errorf("seen items of too few queries: %v", err)
		}
	}
}

// TestNoPromise: if no depth shows the recall, nothing is promised.
func TestNoPromise(t *testing.T) {
	r, _ := newRoute(t, true)
	in := input(r)
	in.Promise.Recall, in.Depths = 1, []int{20, 12}
	report, err := calibrate.Run(t.Context(), in)
	must(t, err)
	if report.Calibration != nil || report.HeldOut != nil || len(report.Rules) != 2 || report.Rules[0].Depth != 12 || report.Rules[0].Passed || report.Rules[1].Passed {
		t.Errorf("%+v", report)
	}
}

// TestResume: an interrupted calibration goes on, sends no query twice, and ends with the same
// result as an undisturbed one.
func TestResume(t *testing.T) {
	for _, withTable := range []bool{true, false} {
		r, undisturbed := newRoute(t, withTable)
		want, err := calibrate.Run(t.Context(), input(r))
		must(t, err)
		whole := undisturbed.searches.Load()

		r, store := newRoute(t, withTable)
		in := input(r)
		in.Journal = filepath.Join(t.TempDir(), "things", "calibration.journal")
		crash := errors.New("crash")
		asked := int64(0)
		for _, after := range []int64{1, 37, 200, 500} {
			asked = after
			store.after = func(n int64) error {
				if n > asked {
					return crash
				}
				return nil
			}
			if _, err := calibrate.Run(t.Context(), in); !errors.Is(err, crash) {
				t.Fatalf("error %v, want the crash", err)
			}
			tear(t, in.Journal)
		}
		store.after = nil
		got, err := calibrate.Run(t.Context(), in)
		must(t, err)
		if a, b := timeless(want), timeless(got); !reflect.DeepEqual(a, b) {
			t.Errorf("undisturbed\n%+v\nresumed\n%+v", a, b)
		}
		// Each of the four interruptions repeats the searches that two workers had begun, and the
		// torn line.
		if most := whole + 4*3*6; store.searches.Load() > most {
			t.Errorf("%d searches, want at most %d", store.searches.Load(), most)
		}
		if _, err := os.Stat(in.Journal); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
	}
}

// tear cuts the last line of a journal, as a crash does.
func tear(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	if strings.Count(string(b), "\n") > 1 {
		b = b[:len(b)-3]
	}
	must(t, os.WriteFile(path, b, 0o600))
}

// TestOtherJournal: answers in the journal of another calibration do not count.
func TestOtherJournal(t *testing.T) {
	r, store := newRoute(t, true)
	in := input(r)
	_, err := calibrate.Run(t.Context(), in)
	must(t, err)
	want := store.searches.Swap(0)
	in.Journal = filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(in.Journal, []byte(`{"calibration":"another"}`+"\n"+`{"query":0,"answers":[{"depth":15,"recall":1}]}`+"\n"), 0o600))
	_, err = calibrate.Run(t.Context(), in)
	must(t, err)
	if n := store.searches.Load(); n != want {
		t.Errorf("%d searches, want %d", n, want)
	}
}

// TestRefusals: a promise that cannot be shown is refused before any query is sent. The error says
// what would suffice.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*calibrate.Input)
		want   string
	}{
		{"too few queries", func(in *calibrate.Input) { in.Queries = in.Queries[:58] }, "bring 90 at least"},
		{"sure", func(in *calibrate.Input) { in.Promise.Alpha = 0 }, "below 1"},
		{"deeper than the route", func(in *calibrate.Input) { in.Route.MaxDepth, in.Route.Depth = 9, 9 }, "answers 9 at most"},
		{"no k", func(in *calibrate.Input) { in.Promise.K = 0 }, "k is 0"},
		{"too many rows", func(in *calibrate.Input) { in.Promise.K = 2000 }, "1000 at most"},
		{"recall", func(in *calibrate.Input) { in.Promise.Recall = 1.1 }, "1.1"},
		{"certain", func(in *calibrate.Input) { in.Promise.Share = 1 }, "below 1"},
		{"depth twice", func(in *calibrate.Input) { in.Depths = []int{5, 5} }, "given twice"},
		{"too deep", func(in *calibrate.Input) { in.Depths = []int{1 << 20} }, "max_depth"},
		{"a scan", func(in *calibrate.Input) { in.Route.Strategy = rerank.Scan }, "proved exact"},
		{"partitions", func(in *calibrate.Input) { in.Route.Partitions = []string{"a"} }, "partitions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, store := newRoute(t, true)
			in := input(r)
			c.change(&in)
			_, err := calibrate.Run(t.Context(), in)
			if !errors.Is(err, calibrate.ErrInput) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if store.searches.Load() != 0 {
				t.Error("the store was searched")
			}
		})
	}
}

// TestCancel: a calibration ends with its context.
func TestCancel(t *testing.T) {
	r, store := newRoute(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	store.after = func(n int64) error {
		if n == 10 {
			cancel()
		}
		return nil
	}
	if _, err := calibrate.Run(ctx, input(r)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
