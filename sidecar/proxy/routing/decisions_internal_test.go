package routing

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// TestStatusNamesTheWeakest: the status of a call with several searches has the weakest of
// their certificates, and the oldest of their snapshots.
func TestStatusNamesTheWeakest(t *testing.T) {
	old, late := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	exact := Ranked{Route: "exact", Certificate: rerank.StatusExact}
	unknown := Ranked{Route: "unknown", Certificate: rerank.StatusUnknown, Partial: true}
	older, newer := Ranked{Route: "older", Certificate: rerank.StatusSnapshot, AsOf: old}, Ranked{Route: "newer", Certificate: rerank.StatusSnapshot, AsOf: late}
	some, all := exact, exact
	some.Reembedded, all.Reembedded = new(float64), new(float64)
	*some.Reembedded, *all.Reembedded = 0.998, 1
	for _, c := range []struct {
		all  []Ranked
		want string
	}{
		{[]Ranked{exact}, "rescored; route=exact; certificate=exact"},
		{[]Ranked{newer, exact, older}, "rescored; route=older; certificate=snapshot; as-of=2026-01-02T03:04:05Z"},
		{[]Ranked{older, newer}, "rescored; route=older; certificate=snapshot; as-of=2026-01-02T03:04:05Z"},
		{[]Ranked{older, unknown, exact}, "rescored; route=unknown; certificate=unknown; ranking=partial"},
		{[]Ranked{exact, some, all}, "rescored; route=exact; certificate=exact; reembedded=0.99"},
		{[]Ranked{all}, "rescored; route=exact; certificate=exact; reembedded=1.00"},
	} {
		if got := statusText("rescored", c.all); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// routes is a Searcher that only lists routes.
type routes struct {
	search.Searcher
	all map[string]*route.Route
}

func (s routes) Route(name string) (*route.Route, error) { return s.all[name], nil }

// TestReadingEndsInTime: a call is read within the shortest timeout of its collection's routes, and
// without a limit if one of them fails closed.
func TestReadingEndsInTime(t *testing.T) {
	timed := func(d time.Duration) *route.Route { return &route.Route{Policy: route.Policy{Timeout: d}} }
	closed := timed(time.Second)
	closed.Failure = route.FailClosed
	began := time.Now()
	for name, c := range map[string]struct {
		all  []*route.Route
		want time.Duration // 0: never
	}{
		"no timeout":       {[]*route.Route{timed(0)}, 0},
		"the shortest":     {[]*route.Route{timed(5 * time.Second), timed(time.Second), timed(0), timed(9 * time.Second)}, time.Second},
		"one fails closed": {[]*route.Route{timed(time.Second), closed}, 0},
	} {
		s := routes{all: map[string]*route.Route{}}
		var names []string
		for i, r := range c.all {
			names = append(names, string(rune('a'+i)))
			s.all[names[i]] = r
		}
		of := call[int]{
			coverage: &coverage{find: s.Route, names: &Names{collections: map[string][]string{"c": names}}}, database: &latency{},
			target: Target{Routed: "c"}, began: began,
		}
		by := of.readBy(t.Context())
		if c.want == 0 && !by.IsZero() || c.want > 0 && !by.Equal(began.Add(c.want)) {
			t.Errorf("%s: read until %v after it began, want %v", name, by.Sub(began), c.want)
		}
	}
}

// begun is a Follower that records the writes and the rows that they touched.
type begun struct {
	writes  []journal.Write
	touched [][]rerank.ID
	applied []bool
	blocked string // the collection whose writes must not be forwarded
}

func (b *begun) Blocked(collection string) bool { return collection == b.blocked }

func (*begun) Covers(string) bool { return true }

func (b *begun) Begin(_ context.Context, w journal.Write) func(bool, []rerank.ID) {
	b.writes = append(b.writes, w)
	return b.end
}

func (b *begun) end(applied bool, touched []rerank.ID) {
	b.applied, b.touched = append(b.applied, applied), append(b.touched, touched)
}

func (b *begun) Doubt(string) func(*journal.Write) {
	return func(w *journal.Write) { b.writes = append(b.writes, *w) }
}

// TestAliasesThatWereSwitched: the follower is told once that an alias stands for another collection, and not where
// it stands for the same one, or where either is not known.
func TestAliasesThatWereSwitched(t *testing.T) {
	for name, c := range map[string]struct {
		was, is, own string
		told         int
	}{
		"another":            {"old", "new", "new", 1},
		"the same":           {"old", "old", "old", 0},
		"not known yet":      {"", "new", "new", 0},
		"not known any more": {"old", "", "old", 0},
	} {
		b := &begun{}
		n := &Names{
			collections: map[string][]string{"c": {"r"}}, own: map[string]string{"c": c.was}, log: slog.New(slog.DiscardHandler),
			switched: (&Writes{follower: b}).aliasSwitched,
		}
		n.noteSwitched(t.Context(), map[string]Target{"c": {Own: c.is}})
		if len(b.writes) != c.told || len(b.applied) != c.told || n.own["c"] != c.own {
			t.Errorf("%s: told %+v, the alias stands for %q", name, b.writes, n.own["c"])
			continue
		}
		if c.told > 0 && !reflect.DeepEqual(b.writes[0], journal.Write{Collection: "c", Kind: journal.Collection, All: true, Waited: true}) {
			t.Errorf("%s: told %+v", name, b.writes)
		}
	}
}

// TestEndOfAWrite: rows that the request names are touched in addition to those whose ids the
// database chose. A write without an answer is followed once more as one that nobody waited for.
func TestEndOfAWrite(t *testing.T) {
	one, two := rerank.UintID(1), rerank.UintID(2)
	waited := journal.Write{Collection: "c", Kind: journal.Upsert, IDs: []rerank.ID{one}, Waited: true}
	for name, c := range map[string]struct {
		of      begunWrite
		outcome WriteOutcome
		chosen  []rerank.ID
		applied []bool
		touched [][]rerank.ID
		again   bool
	}{
		"answered":                 {begunWrite{write: waited}, Answered, nil, []bool{true}, [][]rerank.ID{nil}, false},
		"failed":                   {begunWrite{write: waited}, Failed, nil, []bool{true}, [][]rerank.ID{nil}, false},
		"refused":                  {begunWrite{write: waited}, Refused, nil, []bool{false}, [][]rerank.ID{nil}, false},
		"chosen and given":         {begunWrite{write: waited, chosen: true, given: []rerank.ID{one}}, Answered, []rerank.ID{two}, []bool{true}, [][]rerank.ID{{two, one}}, false},
		"nothing was to be chosen": {begunWrite{write: waited, given: []rerank.ID{one}}, Answered, []rerank.ID{two}, []bool{true}, [][]rerank.ID{nil}, false},
		"no answer":                {begunWrite{write: waited}, Unknown, nil, []bool{true, true}, [][]rerank.ID{nil, nil}, true},
		"no answer, nobody waited": {begunWrite{write: journal.Write{Collection: "c"}}, Unknown, nil, []bool{true}, [][]rerank.ID{nil}, false},
		"no answer, and in doubt":  {begunWrite{write: waited, doubtful: true}, Unknown, nil, []bool{true}, [][]rerank.ID{nil}, true},
	} {
		b := &begun{}
		c.of.end = b.end
		f := flight{Writes: &Writes{follower: b, budget: time.Second}}
		f.endOne(t.Context(), c.of, c.outcome, c.chosen)
		if !slices.Equal(b.applied, c.applied) || !slices.EqualFunc(b.touched, c.touched, slices.Equal[[]rerank.ID]) {
			t.Errorf("%s: ended as %v, touched %v", name, b.applied, b.touched)
		}
		if again := len(b.writes) == 1; again != c.again || again && (b.writes[0].Waited || !slices.Equal(b.writes[0].IDs, waited.IDs)) {
			t.Errorf("%s: followed again as %+v", name, b.writes)
		}
	}
}

// TestBlocked: a write is not forwarded if the follower blocks any collection that the write may
// address.
func TestBlocked(t *testing.T) {
	for blocked, want := range map[string]bool{"": false, "begun": true, "doubted": true, "other": false} {
		f := flight{
			Writes: &Writes{follower: &begun{blocked: blocked}},
			begun:  []begunWrite{{write: journal.Write{Collection: "begun"}}},
			doubts: map[string]func(*journal.Write){"doubted": nil},
		}
		if got := f.isBlocked(); got != want {
			t.Errorf("%q is blocked: %t", blocked, got)
		}
	}
}

// TestRenamedByOthers: a write's own rename does not count as another's.
func TestRenamedByOthers(t *testing.T) {
	for _, c := range []struct {
		writing Writing
		renames int
		want    bool
	}{
		{Writing{Collections: []string{"c"}}, 0, false},
		{Writing{Collections: []string{"c"}}, 1, true},
		{Writing{Renamed: []string{"a"}}, 1, false}, // its own
		{Writing{Renamed: []string{"a"}}, 2, true},
	} {
		w := &Writes{}
		w.names.renamed() // before
		f := flight{Writes: w, writing: c.writing, renames: w.names.ended()}
		for range c.renames {
			w.names.renamed()
		}
		if got := f.renamedByOthers(); got != c.want {
			t.Errorf("%+v and %d renames: %t, want %t", c.writing, c.renames, got, c.want)
		}
	}
}

// TestResolvedDoubts: a write whose name was unknown when it began, and stands for nothing now, may have gone to any
// collection that others have renamed since. A write whose name was known went nowhere else.
func TestResolvedDoubts(t *testing.T) {
	for _, c := range []struct {
		known, applied bool
	}{{true, false}, {false, true}} {
		w := &Writes{
			follower: follows{}, store: "s", budget: time.Minute,
			searcher: listed{all: []*route.Route{{Policy: route.Policy{Collection: "c", StoreName: "s"}}}},
		}
		var ended []bool // whether each end of the doubt has a write
		f := &flight{Writes: w, writing: Writing{Kind: journal.Upsert, Collections: []string{"x"}}, doubts: map[string]func(*journal.Write){
			"c": func(of *journal.Write) { ended = append(ended, of != nil) },
		}}
		f.reach = reachOf(c.known, true)
		w.names.renamed()
		f.resolveBy(t.Context(), nameTable{"c": {{collection: "c"}}}, Answered, nil)
		if !slices.Equal(ended, []bool{c.applied}) {
			t.Errorf("its name known: %t: the doubt ended %v, want one write: %t", c.known, ended, c.applied)
		}
	}
}

// TestAddedParameters: the route's exact_search and ef apply to requests that leave them open.
func TestAddedParameters(t *testing.T) {
	w := &search.Rewritten{ExactSearch: true}
	for name, c := range map[string]struct {
		s                  Search
		w                  *search.Rewritten
		ef                 int
		exact, unquantized bool
		wantEF             uint64
	}{
		"open":                  {w: w, ef: 50, exact: true, unquantized: true},
		"of another route":      {w: &search.Rewritten{}, ef: 50, wantEF: 50},
		"says not exact":        {s: Search{HasExact: true}, w: w, ef: 50, wantEF: 50},
		"says ef":               {s: Search{HasEF: true}, w: w, ef: 50},
		"says exact":            {s: Search{HasEF: true, HasExact: true, Exact: true}, w: w, ef: 50, unquantized: true},
		"says all":              {s: Search{HasEF: true, HasExact: true, Exact: true, HasQuantization: true}, w: w},
		"says the quantization": {s: Search{HasQuantization: true}, w: w, exact: true},
	} {
		if r := c.s.replacement(c.w, c.ef); r.Exact != c.exact || r.Unquantized != c.unquantized || r.EF != c.wantEF {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestExhaustiveSearches: on a quantized field, only a search that ignores the quantization
// compares the original vectors.
func TestExhaustiveSearches(t *testing.T) {
	for _, c := range []struct {
		s         Search
		sent      Replacement
		quantized string
		want      bool
	}{
		{Search{Exact: true}, Replacement{}, "", true}, {Search{Exact: true, Unquantized: true}, Replacement{}, "int8", true},
		{Search{Exact: true}, Replacement{}, "int8", false}, {Search{Unquantized: true}, Replacement{}, "", false}, {Search{Unquantized: true}, Replacement{}, "int8", false},
		{Search{}, Replacement{Exact: true}, "", true}, {Search{}, Replacement{Exact: true}, "int8", false}, {Search{}, Replacement{Exact: true, Unquantized: true}, "int8", true},
		{Search{Exact: true}, Replacement{Unquantized: true}, "int8", true}, {Search{Unquantized: true}, Replacement{Exact: true}, "int8", true},
	} {
		if got := c.s.isExhaustive(c.sent, c.quantized); got != c.want {
			t.Errorf("%+v sent with %+v on a field with quantization %q: %t, want %t", c.s, c.sent, c.quantized, got, c.want)
		}
	}
}
