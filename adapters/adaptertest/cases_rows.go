package adaptertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
)

func filterCases() []testCase {
	cs := []testCase{}
	for _, p := range predicates() {
		cs = append(cs, testCase{"filter " + string(p), []Capability{Filter}, func(t *testing.T, e *env) { filterHolds(t, e, p) }})
	}
	return append(cs,
		testCase{"bad filters are refused", []Capability{Filter}, badFilters},
		testCase{"filtered scan", []Capability{Filter, Scan}, filteredScan},
		testCase{"ids of a filter", []Capability{Filter, Match}, matchIDs},
	)
}

func predicates() []Predicate {
	return []Predicate{ColourRed, ColourNotRed, ColourAny, SizeAtLeast50, SizeBetween, BigNumber, HasID, MatchesNothing}
}

// matches evaluates the predicate on a row. It defines the meaning of each Predicate.
func (p Predicate) matches(id rerank.ID, it Item) bool {
	switch p {
	case ColourRed:
		return it.Colour == "red"
	case ColourNotRed:
		return it.Colour != "red"
	case ColourAny:
		return it.Colour == "red" || it.Colour == "green"
	case SizeAtLeast50:
		return it.Size >= 50
	case SizeBetween:
		return it.Size >= 20 && it.Size < 40 && it.Colour == "blue"
	case BigNumber:
		return it.Big == 1<<53+1
	case HasID:
		return id == rerank.UintID(3) || id == rerank.UintID(7)
	default:
		return false
	}
}

func (e *env) filter(t *testing.T, p Predicate) (text string, keep func(row int) bool) {
	t.Helper()
	text, ok := e.kit.Filters[p]
	if !ok {
		t.Fatalf("the kit claims filters and has none for %q", p)
	}
	return text, func(row int) bool {
		it, err := itemOf(e.base.Rows.Payloads[row])
		if err != nil {
			t.Fatal(err)
		}
		return p.matches(e.base.Rows.IDs[row], it)
	}
}

func filterHolds(t *testing.T, e *env, p Predicate) {
	text, keep := e.filter(t, p)
	probes := e.probes(baseDim, 3, 40)
	lists := e.search(t, adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Exact: true, Filter: text, Probes: probes})
	e.checkLists(t, e.base, 0, probes, lists, keep)
}

func badFilters(t *testing.T, e *env) {
	if len(e.kit.BadFilters) == 0 {
		t.Fatal("the kit claims filters and has no bad ones")
	}
	for _, text := range e.kit.BadFilters {
		_, err := e.store.Search(t.Context(), adapters.SearchRequest{Collection: e.base.Collection, Vector: "vec", Filter: text, Probes: e.probes(baseDim, 1, 5)})
		if !errors.Is(err, adapters.ErrFilter) {
			t.Errorf("filter %s: %v, want ErrFilter", text, err)
		}
	}
}

func filteredScan(t *testing.T, e *env) {
	text, keep := e.filter(t, ColourAny)
	got, _ := e.scanRows(t, adapters.ScanRequest{Collection: e.base.Collection, Filter: text, Batch: 31}, 0)
	if err := sameSet(got, e.kept(keep)); err != nil {
		t.Error(err)
	}
}

func matchIDs(t *testing.T, e *env) {
	m := storeAs[adapters.Matcher](t, e)
	for _, p := range []Predicate{ColourRed, MatchesNothing} {
		text, keep := e.filter(t, p)
		ids, err := m.Match(t.Context(), e.base.Collection, text)
		if err != nil {
			t.Fatalf("match %s: %v", text, err)
		}
		if err := sameSet(ids, e.kept(keep)); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func (e *env) kept(keep func(int) bool) []rerank.ID {
	var ids []rerank.ID
	for r, id := range e.base.Rows.IDs {
		if keep(r) {
			ids = append(ids, id)
		}
	}
	return ids
}

// sameSet reports a difference between two sets of ids in any order. An id may occur
// only once.
func sameSet(got, want []rerank.ID) error {
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, rerank.ID.Compare)
	slices.SortFunc(want, rerank.ID.Compare)
	if len(got) != len(want) {
		return fmt.Errorf("%d ids, want %d", len(got), len(want))
	}
	return sameIDs(got, want)
}

func rowCases() []testCase {
	return []testCase{
		{"fetch in the order asked, without the missing", []Capability{Fetch}, fetchOrder},
		{"fetch of 2,000 rows", []Capability{Fetch}, fetchMany},
		{"payload comes back exactly", []Capability{Fetch, Payload}, fetchPayload},
		{"scan of all rows", []Capability{Scan}, scanAll},
		{"scan resumes behind a cursor", []Capability{Scan}, scanResumes},
		{"scan ends with the caller's error", []Capability{Scan}, scanStops},
		{"describe", []Capability{Describe}, describe},
		{"owners of a search", []Capability{Write, Owners}, ownersOfSearch},
		{"excluded owners", []Capability{Write, Owners}, excludedOwners},
		{"fetch by owner", []Capability{Write, Fetch, Owners}, fetchByOwner},
	}
}

func (e *env) fetch(t *testing.T, r adapters.FetchRequest) adapters.Rows {
	t.Helper()
	rows, err := storeAs[adapters.Fetcher](t, e).Fetch(t.Context(), r)
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return rows
}

func fetchOrder(t *testing.T, e *env) {
	var ids []rerank.ID
	for _, n := range []uint64{250, 3, 90_000, 3, 1, 77} {
		ids = append(ids, rerank.UintID(n))
	}
	rows := e.fetch(t, adapters.FetchRequest{Collection: e.base.Collection, IDs: ids, Vectors: []string{"vec"}})
	want := []rerank.ID{ids[0], ids[1], ids[4], ids[5]}
	if err := sameIDs(rows.IDs, want); err != nil {
		t.Fatal(err)
	}
	if err := sameVectors(rows.Vectors[0], e.base.Rows.Vectors[0], rowsOf(e.base, want)); err != nil {
		t.Error(err)
	}
	if rows.Payloads != nil {
		t.Error("payloads were not asked for")
	}
	if none := e.fetch(t, adapters.FetchRequest{Collection: e.base.Collection, Vectors: []string{"vec"}}); len(none.IDs) != 0 {
		t.Errorf("no ids were asked for and %d rows came", len(none.IDs))
	}
}

// manyFixture has 2,000 rows of dimension 384: 3 MB of vectors.
func (e *env) manyFixture(t *testing.T) Fixture {
	return e.load(t, Fixture{
		Schema: adapters.Schema{Fields: vectorFields(adapters.InnerProduct, 384, "vec")},
		Rows:   adapters.Rows{IDs: numberIDs(2000), Vectors: []rerank.Matrix{randomMatrix(rand.New(rand.NewPCG(1, 9)), 2000, 384)}},
	})
}

func fetchMany(t *testing.T, e *env) {
	f := e.manyFixture(t)
	ids := slices.Clone(f.Rows.IDs)
	slices.Reverse(ids)
	rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: ids, Vectors: []string{""}})
	if err := sameIDs(rows.IDs, ids); err != nil {
		t.Fatal(err)
	}
	if err := sameVectors(rows.Vectors[0], f.Rows.Vectors[0], rowsOf(f, ids)); err != nil {
		t.Error(err)
	}
}

func fetchPayload(t *testing.T, e *env) {
	ids := []rerank.ID{rerank.UintID(5), rerank.UintID(2)}
	r := adapters.FetchRequest{Collection: e.base.Collection, IDs: ids, Payload: true}
	rows := e.fetch(t, r)
	for i := range ids {
		if err := samePayload(rows.Payloads[i], e.base.Rows.Payloads[rowsOf(e.base, ids)[i]]); err != nil {
			t.Errorf("id %v: %v", ids[i], err)
		}
	}
	r.PayloadFields = []string{"big"}
	for i, p := range e.fetch(t, r).Payloads {
		want := fmt.Sprintf(`{"big":%d}`, 1<<53+rowsOf(e.base, ids)[i]%5)
		if err := samePayload(p, json.RawMessage(want)); err != nil {
			t.Errorf("id %v, one field: %v", ids[i], err)
		}
	}
}

// samePayload compares two JSON objects, and numbers in them by their text.
func samePayload(got, want json.RawMessage) error {
	g, err := canonical(got)
	if err != nil {
		return fmt.Errorf("payload %s: %w", got, err)
	}
	w, err := canonical(want)
	if err != nil {
		return err
	}
	if g != w {
		return fmt.Errorf("payload is %s, want %s", g, w)
	}
	return nil
}

func canonical(p json.RawMessage) (string, error) {
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(string(p)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// scanRows reads up to the given number of batches from the request's cursor (0: all). For
// the base collection it checks the vectors and payloads.
func (e *env) scanRows(t *testing.T, r adapters.ScanRequest, batches int) (ids []rerank.ID, cursor string) {
	t.Helper()
	enough := errors.New("enough")
	n := 0
	err := storeAs[adapters.Scanner](t, e).Scan(t.Context(), r, func(rows adapters.Rows, c string) error {
		ids, cursor = append(ids, rows.IDs...), c
		n++
		if r.Batch > 0 && len(rows.IDs) > r.Batch {
			t.Errorf("a batch of %d rows, %d were asked for", len(rows.IDs), r.Batch)
		}
		if len(r.Vectors) > 0 && r.Collection == e.base.Collection {
			if err := sameVectors(rows.Vectors[0], e.base.Rows.Vectors[0], rowsOf(e.base, rows.IDs)); err != nil {
				t.Error(err)
			}
		}
		if n == batches {
			return enough
		}
		return nil
	})
	if batches > 0 && !errors.Is(err, enough) || batches == 0 && err != nil {
		t.Fatalf("scan: %v", err)
	}
	return ids, cursor
}

func scanAll(t *testing.T, e *env) {
	for _, batch := range []int{0, 1000, 64} {
		ids, _ := e.scanRows(t, adapters.ScanRequest{Collection: e.base.Collection, Vectors: []string{"vec"}, Batch: batch}, 0)
		if err := sameSet(ids, e.base.Rows.IDs); err != nil {
			t.Errorf("batches of %d: %v", batch, err)
		}
	}
}

func scanResumes(t *testing.T, e *env) {
	r := adapters.ScanRequest{Collection: e.base.Collection, Vectors: []string{"vec"}, Batch: 37}
	first, cursor := e.scanRows(t, r, 3)
	r.Cursor = cursor
	rest, _ := e.scanRows(t, r, 0)
	if err := sameSet(append(first, rest...), e.base.Rows.IDs); err != nil {
		t.Error(err)
	}
}

func scanStops(t *testing.T, e *env) {
	stop := errors.New("stop")
	err := storeAs[adapters.Scanner](t, e).Scan(t.Context(), adapters.ScanRequest{Collection: e.base.Collection}, func(adapters.Rows, string) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("scan returned %v, want the caller's error", err)
	}
}

func describe(t *testing.T, e *env) {
	d, err := storeAs[adapters.Describer](t, e).Describe(t.Context(), e.base.Collection)
	if err != nil {
		t.Fatal(err)
	}
	if d.Rows != baseRows && d.Rows != -1 {
		t.Errorf("%d rows, want %d", d.Rows, baseRows)
	}
	e.checkCount(t, e.base.Collection, baseRows)
	if len(d.Fields) != 1 || d.Fields[0].Name != "vec" || d.Fields[0].Dim != baseDim || d.Fields[0].Metric != adapters.InnerProduct {
		t.Errorf("fields are %+v", d.Fields)
	}
	if d.TextIDs {
		t.Error("the ids are numbers")
	}
	if len(d.Settings) == 0 {
		t.Error("no settings of the index")
	}
}

// ownedFixture has 60 rows that belong to 20 items, numbered from 1000.
func (e *env) ownedFixture(t *testing.T) Fixture {
	f := Fixture{Schema: adapters.Schema{Owner: "item", Fields: vectorFields(adapters.InnerProduct, 8, "vec")}}
	f.Rows.IDs = numberIDs(60)
	f.Rows.Vectors = []rerank.Matrix{randomMatrix(rand.New(rand.NewPCG(2, 4)), 60, 8)}
	for r := range 60 {
		f.Rows.Owners = append(f.Rows.Owners, owner(r))
	}
	return e.load(t, f)
}

func owner(row int) rerank.ID { return rerank.UintID(uint64(1000 + row%20)) }

func checkOwners(t *testing.T, f Fixture, ids, owners []rerank.ID) {
	t.Helper()
	if len(owners) != len(ids) {
		t.Fatalf("%d owners for %d rows", len(owners), len(ids))
	}
	for i, r := range rowsOf(f, ids) {
		if owners[i] != f.Rows.Owners[r] {
			t.Errorf("row %v belongs to %v, want %v", ids[i], owners[i], f.Rows.Owners[r])
		}
	}
}

func ownersOfSearch(t *testing.T, e *env) {
	f := e.ownedFixture(t)
	probes := e.probes(8, 3, 15)
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: "vec", Exact: true, Owner: "item", Probes: probes})
	e.checkLists(t, f, 0, probes, lists, nil)
	for _, l := range lists {
		checkOwners(t, f, l.IDs, l.Owners)
	}
	if e.lacks(Scan) {
		return
	}
	err := storeAs[adapters.Scanner](t, e).Scan(t.Context(), adapters.ScanRequest{Collection: f.Collection, Owner: "item"}, func(rows adapters.Rows, _ string) error {
		checkOwners(t, f, rows.IDs, rows.Owners)
		return nil
	})
	if err != nil {
		t.Errorf("scan: %v", err)
	}
}

// excludedOwners excludes items, by their ids and not by the ids of their rows. Ids of rows that
// are no items exclude nothing.
func excludedOwners(t *testing.T, e *env) {
	f := e.ownedFixture(t)
	probes := e.probes(8, 3, 60)
	excluded := []rerank.ID{owner(0), owner(7), owner(19), f.Rows.IDs[1]}
	lists := e.search(t, adapters.SearchRequest{Collection: f.Collection, Vector: "vec", Exact: true, Owner: "item", Exclude: excluded, Probes: probes})
	e.checkLists(t, f, 0, probes, lists, func(row int) bool { return !slices.Contains(excluded, f.Rows.Owners[row]) })
}

func fetchByOwner(t *testing.T, e *env) {
	f := e.ownedFixture(t)
	asked := []rerank.ID{owner(7), rerank.UintID(5), owner(0)}
	rows := e.fetch(t, adapters.FetchRequest{Collection: f.Collection, IDs: asked, Owner: "item", Vectors: []string{"vec"}})
	var want []rerank.ID
	for _, r := range []uint64{8, 28, 48, 1, 21, 41} {
		want = append(want, rerank.UintID(r))
	}
	if err := sameIDs(rows.IDs, want); err != nil {
		t.Fatal(err)
	}
	checkOwners(t, f, rows.IDs, rows.Owners)
	if err := sameVectors(rows.Vectors[0], f.Rows.Vectors[0], rowsOf(f, want)); err != nil {
		t.Error(err)
	}
}
