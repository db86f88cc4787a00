package adaptertest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func searchCases() []testCase {
	return []testCase{
		{"top k in order", []Capability{Search}, topKInOrder},
		{"ties fall by id", []Capability{Search}, tiesByID},
		{"deeper than the collection", []Capability{Search}, deeperThanRows},
		{"sixteen probes in one call", []Capability{Search}, probesInOneCall},
		{"concurrent searches", []Capability{Search}, concurrentSearches},
		{"the only field has no need of a name", []Capability{Search}, onlyField},
		{"no probes", []Capability{Search}, noProbes},
		{"empty collection", []Capability{Search}, emptyCollection},
		{"vectors of one probe's rows", []Capability{Search}, withVectors},
		{"exact lists say so", []Capability{Exact}, exactLists},
		{"metric inner product", []Capability{Search}, metricInnerProduct},
		{"metric cosine", []Capability{CosineMetric}, metricCosine},
		{"metric L2 with unit vectors", []Capability{L2Metric}, metricL2},
		{"metric L2 without unit vectors is refused", []Capability{L2Metric}, metricL2Refused},
		{"several vector fields", []Capability{MultipleFields}, severalFields},
		{"excluded ids", []Capability{Search}, excludedIDs},
	}
}

func topKInOrder(t *testing.T, e *env) {
	for _, depth := range []int{1, 10, 100} {
		probes := e.probes(baseDim, 5, depth)
		lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: probes})
		e.checkLists(t, e.base, 0, probes, lists, nil)
	}
}

// tiesByID searches with a probe along the vector that twelve rows share, so that
// their order shows how ties are broken.
func tiesByID(t *testing.T, e *env) {
	p := rerank.Probe{Vector: e.base.Rows.Vectors[0].Row(firstTwin), Depth: 40}
	lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: []rerank.Probe{p}})
	e.checkLists(t, e.base, 0, []rerank.Probe{p}, lists, nil)
	twins := e.base.Rows.IDs[firstTwin:afterTwins]
	at := slices.Index(lists[0].IDs, twins[0])
	if at < 0 || at+len(twins) > len(lists[0].IDs) {
		t.Fatalf("the rows nearest to themselves are not in %v", lists[0].IDs)
	}
	if err := sameIDs(lists[0].IDs[at:at+len(twins)], twins); err != nil {
		t.Error(err)
	}
}

func deeperThanRows(t *testing.T, e *env) {
	probes := e.probes(baseDim, 2, baseRows+50)
	lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: probes})
	e.checkLists(t, e.base, 0, probes, lists, nil)
	for _, l := range lists {
		if !e.lacks(Exact) && !l.Exhausted {
			t.Error("an exact list with every row does not say that it is exhausted")
		}
	}
}

func probesInOneCall(t *testing.T, e *env) {
	probes := e.probes(baseDim, 16, 20)
	r := adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: probes}
	e.search(t, r) // warms up the server, which asks for metadata once
	calls := e.countCalls(t, func() {
		e.checkLists(t, e.base, 0, probes, e.search(t, r), nil)
	})
	if most := e.callsAllowed([]string{"vec"}); e.kit.Calls != nil && calls != most {
		t.Errorf("16 probes took %d calls, want %d", calls, most)
	}
}

// countCalls returns the number of calls that Kit.Calls counts while f runs, 0 if it
// counts none.
func (e *env) countCalls(t *testing.T, f func()) int64 {
	t.Helper()
	if e.kit.Calls == nil {
		f()
		return 0
	}
	before := e.kit.Calls()
	f()
	return e.kit.Calls() - before
}

func (e *env) callsAllowed(fields []string) int64 {
	if e.kit.CallsOfSearch == nil {
		return 1
	}
	return e.kit.CallsOfSearch(fields)
}

func concurrentSearches(t *testing.T, e *env) {
	probes := e.probes(baseDim, 6, 20)
	r := adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: probes}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all [][]rerank.List
	)
	for range 8 {
		wg.Go(func() {
			lists, err := e.store.Search(t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("search: %v", err)
				return
			}
			all = append(all, lists)
		})
	}
	wg.Wait()
	for _, lists := range all {
		e.checkLists(t, e.base, 0, probes, lists, nil)
	}
}

func onlyField(t *testing.T, e *env) {
	probes := e.probes(baseDim, 2, 10)
	lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Exact: true, Probes: probes})
	e.checkLists(t, e.base, 0, probes, lists, nil)
}

func noProbes(t *testing.T, e *env) {
	calls := e.countCalls(t, func() { e.search(t, adapters.SearchRequest{Collection: e.base.Collection}) })
	if calls != 0 {
		t.Errorf("no probes took %d calls", calls)
	}
}

func emptyCollection(t *testing.T, e *env) {
	f := e.load(t, Fixture{Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 8, "vec")}})
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: "vec", Exact: true, Probes: e.probes(8, 3, 10)})
	for _, l := range lists {
		if len(l.IDs) != 0 || !e.lacks(Exact) && !l.Exhausted {
			t.Errorf("a list of an empty collection: %+v", l)
		}
	}
	e.emptyRows(t, f)
}

func (e *env) emptyRows(t *testing.T, f Fixture) {
	if !e.lacks(Fetch) {
		rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: []rerank.ID{rerank.UintID(1)}, Vectors: []string{"vec"}})
		if len(rows.IDs) != 0 {
			t.Errorf("an empty collection returned %v", rows.IDs)
		}
	}
	if !e.lacks(Scan) {
		if rows, _ := e.scanRows(t, adapters.ScanRequest{Collection: f.Collection}, 0); len(rows) != 0 {
			t.Errorf("an empty collection yielded %v", rows)
		}
	}
	if !e.lacks(Describe) {
		d, err := storeAs[adapters.Describer](t, e).Describe(t.Context(), f.Collection)
		if err != nil || d.Rows > 0 {
			t.Errorf("an empty collection has %d rows, error %v", d.Rows, err)
		}
	}
}

func withVectors(t *testing.T, e *env) {
	probes := e.probes(baseDim, 1, 10)
	r := adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, WithVectors: true, Probes: probes}
	lists := e.search(t, r)
	e.checkLists(t, e.base, 0, probes, lists, nil)
	if err := sameVectors(lists[0].Vectors, e.base.Rows.Vectors[0], rowsOf(e.base, lists[0].IDs)); err != nil {
		t.Error(err)
	}
	r.Probes = e.probes(baseDim, 2, 10)
	if _, err := e.store.Search(t.Context(), r); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("vectors of two probes: %v, want ErrUnsupported", err)
	}
	for _, fields := range [][]string{nil, {"size", "label"}} {
		withPayload(t, e, fields)
	}
}

// withPayload wants a list to come with the payload that Fetch reads of its rows.
func withPayload(t *testing.T, e *env, fields []string) {
	t.Helper()
	r := adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Payload: true, PayloadFields: fields, Probes: e.probes(baseDim, 1, 10)}
	list := e.search(t, r)[0]
	if len(list.IDs) != 10 || len(list.Payloads) != 10 {
		t.Fatalf("%d rows with %d payloads, want 10", len(list.IDs), len(list.Payloads))
	}
	if !e.lacks(Fetch) {
		rows, err := storeAs[adapters.Fetcher](t, e).Fetch(t.Context(), adapters.FetchRequest{Collection: e.base.Collection, IDs: list.IDs, Payload: true, PayloadFields: fields})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range rows.Payloads {
			if string(list.Payloads[i]) != string(p) {
				t.Errorf("row %v of a list has the payload %s, fetched %s", list.IDs[i], list.Payloads[i], p)
			}
		}
	}
	r.Probes = e.probes(baseDim, 2, 10)
	if _, err := e.store.Search(t.Context(), r); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("payloads of two probes: %v, want ErrUnsupported", err)
	}
}

// rowsOf returns the row numbers of ids in a fixture.
func rowsOf(f Fixture, ids []rerank.ID) []int {
	rows := make([]int, len(ids))
	for i, id := range ids {
		rows[i] = slices.Index(f.Rows.IDs, id)
	}
	return rows
}

func exactLists(t *testing.T, e *env) {
	for _, depth := range []int{10, baseRows + 1} {
		for i, l := range e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Exact: true, Probes: e.probes(baseDim, 2, depth)}) {
			if !l.Exact {
				t.Errorf("depth %d, list %d is not exact", depth, i)
			}
			if l.Exhausted != (depth > baseRows) {
				t.Errorf("depth %d of %d rows, list %d: exhausted is %v", depth, baseRows, i, l.Exhausted)
			}
		}
	}
}

// metricFixture has one field of the given metric, with vectors of many lengths unless
// unit is set.
func (e *env) metricFixture(t *testing.T, m adapters.Metric, unit bool) Fixture {
	rng := rand.New(rand.NewPCG(3, uint64(len(m))))
	v := randomMatrix(rng, 200, 16)
	for r := range v.Rows {
		for i := range v.Row(r) {
			v.Row(r)[i] *= float32(r%7 + 1)
		}
		if unit {
			rerank.Normalise(v.Row(r))
		}
	}
	return e.load(t, Fixture{
		Schema: adapters.Schema{Fields: vectorFields(m, 16, "vec")},
		Rows:   adapters.Rows{IDs: numberIDs(200), Vectors: []rerank.Matrix{v}},
	})
}

func numberIDs(n int) []rerank.ID {
	ids := make([]rerank.ID, n)
	for i := range ids {
		ids[i] = rerank.UintID(uint64(i + 1))
	}
	return ids
}

func (e *env) metricHolds(t *testing.T, m adapters.Metric, unit bool) {
	t.Helper()
	f := e.metricFixture(t, m, unit)
	probes := e.probes(16, 4, 30)
	for i := range probes[1].Vector {
		probes[1].Vector[i] *= 100 // probes may have any norm
	}
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: "vec", Exact: true, UnitVectors: unit, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, nil)
}

func metricInnerProduct(t *testing.T, e *env) { e.metricHolds(t, adapters.InnerProduct, false) }

func metricCosine(t *testing.T, e *env) {
	e.metricHolds(t, adapters.Cosine, false)
	e.metricHolds(t, adapters.Cosine, true)
}

func metricL2(t *testing.T, e *env) { e.metricHolds(t, adapters.L2, true) }

func metricL2Refused(t *testing.T, e *env) {
	f := e.metricFixture(t, adapters.L2, false)
	_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: f.Collection, Vector: "vec", Probes: e.probes(16, 1, 5)})
	if !errors.Is(err, adapters.ErrMetric) {
		t.Errorf("inner products over L2: %v, want ErrMetric", err)
	}
}

// fieldsFixture has fields a and b of different dimensions.
func (e *env) fieldsFixture(t *testing.T) Fixture {
	rng := rand.New(rand.NewPCG(5, 5))
	return e.load(t, Fixture{
		Schema: adapters.Schema{Fields: append(vectorFields(adapters.InnerProduct, 12, "a"), vectorFields(adapters.InnerProduct, 20, "b")...)},
		Rows:   adapters.Rows{IDs: numberIDs(150), Vectors: []rerank.Matrix{randomMatrix(rng, 150, 12), randomMatrix(rng, 150, 20)}},
	})
}

func severalFields(t *testing.T, e *env) {
	f := e.fieldsFixture(t)
	var probes []rerank.Probe
	for i := range 6 {
		p := e.probes([]int{12, 20}[i%2], 6, 15)[i]
		p.Field = []string{"a", "b"}[i%2]
		probes = append(probes, p)
	}
	r := adapters.SearchRequest{Collection: f.Collection, Exact: true, Probes: probes}
	e.search(t, r)
	var lists []rerank.List
	calls := e.countCalls(t, func() { lists = e.search(t, r) })
	if most := e.callsAllowed([]string{"a", "b"}); e.kit.Calls != nil && calls != most {
		t.Errorf("six probes on two fields took %d calls, want %d", calls, most)
	}
	for i := range probes {
		e.checkLists(t, f, i%2, probes[i:i+1], lists[i:i+1], nil)
	}
	_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: f.Collection, Probes: e.probes(12, 1, 5)})
	if !errors.Is(err, adapters.ErrField) {
		t.Errorf("no field named, and there are two: %v, want ErrField", err)
	}
	if err != nil && !strings.Contains(err.Error(), f.Collection) {
		t.Errorf("the error does not name the collection: %v", err)
	}
}

// excludedIDs excludes the best rows, rows that do not exist, and as many ids as a search may
// exclude. No other row is missing.
func excludedIDs(t *testing.T, e *env) {
	probes := e.probes(baseDim, 3, 40)
	r := adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Probes: probes}
	best := e.search(t, r)[0].IDs[:20]
	many := slices.Clone(best)
	for n := uint64(1e6); len(many) < 10_000; n++ {
		many = append(many, rerank.UintID(n))
	}
	for _, ids := range [][]rerank.ID{best, many, e.base.Rows.IDs} {
		r.Exclude = ids
		keep := func(row int) bool { return !slices.Contains(ids, e.base.Rows.IDs[row]) }
		e.checkLists(t, e.base, 0, probes, e.search(t, r), keep)
		if e.lacks(Filter) {
			continue
		}
		text, passes := e.filter(t, ColourAny)
		filtered := r
		filtered.Filter = text
		e.checkLists(t, e.base, 0, probes, e.search(t, filtered), func(row int) bool { return keep(row) && passes(row) })
	}
}
