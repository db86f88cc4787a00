package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// list returns a list with these ids, the best first.
func list(ids ...uint64) rerank.List {
	var l rerank.List
	for i, id := range ids {
		l.IDs, l.Scores = append(l.IDs, rerank.UintID(id)), append(l.Scores, float32(100-i))
	}
	return l
}

func owned(l rerank.List, owners ...uint64) rerank.List {
	l.Owners = idsOf(owners...)
	return l
}

func idsOf(numbers ...uint64) []rerank.ID {
	ids := make([]rerank.ID, len(numbers))
	for i, n := range numbers {
		if n != 0 {
			ids[i] = rerank.UintID(n)
		}
	}
	return ids
}

// recorder is a store that records a call and returns a prepared answer.
type recorder struct {
	adapters.Store

	search  adapters.SearchRequest
	fetch   adapters.FetchRequest
	lists   [][]rerank.List // the answers to the calls, in order
	depths  []int
	rows    adapters.Rows
	failure error
}

func (r *recorder) Search(_ context.Context, s adapters.SearchRequest) ([]rerank.List, error) {
	r.search, r.depths = s, append(r.depths, s.Probes[0].Depth)
	if r.failure != nil {
		return nil, r.failure
	}
	lists := r.lists[0]
	if len(r.lists) > 1 {
		r.lists = r.lists[1:]
	}
	return lists, nil
}

func (r *recorder) Fetch(_ context.Context, f adapters.FetchRequest) (adapters.Rows, error) {
	r.fetch = f
	return r.rows, r.failure
}

// view returns a view of a route of stored vectors in which no setting has its default.
func view(store *recorder, change ...func(*route.Checked)) route.View {
	c := &route.Checked{Spec: rerank.Spec{QueryDim: 2, ItemDim: 2, Features: 2}, Route: route.Route{StoreCan: adapters.Abilities{Fetch: store}}}
	c.Collection, c.Vector, c.Store, c.Placement = "rows", "field", store, route.PlacementStored
	c.ExactSearch, c.UnitVectors, c.Consistency, c.MaxDepth = true, true, "strong", 100
	for _, f := range change {
		f(c)
	}
	return route.View{Checked: c}
}

func asked(probes ...rerank.Probe) *plan.Plan {
	return &plan.Plan{Probes: probes, AnswerRows: 3, Request: plan.Request{K: 3, Filter: "filter", Partitions: []string{"part"}, Strategy: rerank.Average}}
}

// TestListsPassOn: each setting of the route and each field of the request that matters to a search
// reaches the store.
func TestListsPassOn(t *testing.T) {
	store := &recorder{lists: [][]rerank.List{{list(1, 2)}}}
	v, p := view(store), asked(rerank.Probe{Vector: []float32{1, 2}, Depth: 4})
	if _, err := Lists(t.Context(), v, p, 2); err != nil {
		t.Fatal(err)
	}
	got := store.search
	if got.Collection != "rows" || got.Vector != "field" || len(got.Probes) != 1 || got.Filter != "filter" || !got.Exact || !got.UnitVectors || got.Owner != "" ||
		got.WithVectors || got.Consistency != "strong" || !slices.Equal(got.Partitions, []string{"part"}) || got.Payload || got.PayloadFields != nil || got.Rescore {
		t.Errorf("the store was asked %+v", got)
	}
	p.Rewritten, p.Depth, p.Request.Payload, p.Request.PayloadFields = true, 4, true, []string{"name"}
	store.lists[0][0].Payloads = []json.RawMessage{nil, nil}
	if _, err := Lists(t.Context(), v, p, 1); err != nil {
		t.Fatal(err)
	}
	if got = store.search; !got.Rescore || !got.Payload || !slices.Equal(got.PayloadFields, []string{"name"}) || got.WithVectors {
		t.Errorf("a rewritten search was %+v", got)
	}
	v = view(store, func(c *route.Checked) { c.Companion, c.Owner, c.Behavioural = "companion", "owner", true })
	store.lists[0][0] = owned(store.lists[0][0], 7, 8)
	if _, err := Lists(t.Context(), v, asked(rerank.Probe{Field: "f", Depth: 4}), 1); err != nil {
		t.Fatal(err)
	}
	if got = store.search; got.Collection != "companion" || got.Owner != "owner" || got.UnitVectors {
		t.Errorf("a search of the companion was %+v", got)
	}
}

// TestWithVectors: lists include vectors only if that saves reading them: with one probe of the
// stored vectors, in the first round, for a route that scores them.
func TestWithVectors(t *testing.T) {
	one := func() *plan.Plan { return asked(rerank.Probe{Depth: 4}) }
	two := asked(rerank.Probe{}, rerank.Probe{})
	companion := asked(rerank.Probe{Field: "f"})
	rewritten := one()
	rewritten.Rewritten = true
	v := view(&recorder{})
	if !withVectors(v, one(), 1) {
		t.Error("one probe in the first round brings no vectors")
	}
	table := view(&recorder{}, func(c *route.Checked) { c.Placement = route.PlacementTable })
	owner := view(&recorder{}, func(c *route.Checked) { c.Owner = "owner" })
	if withVectors(v, one(), 2) || withVectors(v, two, 1) || withVectors(v, companion, 1) || withVectors(v, rewritten, 1) ||
		withVectors(table, one(), 1) || withVectors(owner, one(), 1) {
		t.Error("vectors are asked for where they are not needed, or would come twice")
	}
}

// TestWithPayload: a rewritten search includes the payload if its list is the answer, or has one
// row more.
func TestWithPayload(t *testing.T) {
	for want, all := range map[bool][]plan.Plan{
		true: {{Rewritten: true, Depth: 3}, {Rewritten: true, Depth: 4}},
		false: {
			{Rewritten: true, Depth: 5}, {Depth: 3}, {Rewritten: true, Depth: 3, PayloadApart: true},
		},
	} {
		for _, p := range all {
			p.AnswerRows, p.Request.Payload = 3, true
			if WithPayload(&p) != want {
				t.Errorf("%+v asks for the payload: %v, want %v", p, !want, want)
			}
			p.Request.Payload = false
			if WithPayload(&p) {
				t.Errorf("%+v asks for a payload that nobody wants", p)
			}
		}
	}
}

// TestBrokenContract: answers that a store must not give are errors.
func TestBrokenContract(t *testing.T) {
	nan, infinite := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		lists []rerank.List
		owner string
		ok    bool
	}{
		"a list":                 {[]rerank.List{list(1, 2, 3)}, "", true},
		"as many as asked":       {[]rerank.List{list(1, 2, 3, 4)}, "", true},
		"ties":                   {[]rerank.List{{IDs: idsOf(1, 2), Scores: []float32{5, 5}}}, "", true},
		"not finite at the end":  {[]rerank.List{{IDs: idsOf(1, 2, 3), Scores: []float32{5, nan, infinite}}}, "", true},
		"too many rows":          {[]rerank.List{list(1, 2, 3, 4, 5)}, "", false},
		"no list":                {nil, "", false},
		"two lists":              {[]rerank.List{list(1), list(2)}, "", false},
		"too few scores":         {[]rerank.List{{IDs: idsOf(1, 2), Scores: []float32{5}}}, "", false},
		"not sorted":             {[]rerank.List{{IDs: idsOf(1, 2), Scores: []float32{4, 5}}}, "", false},
		"finite behind infinite": {[]rerank.List{{IDs: idsOf(1, 2), Scores: []float32{nan, 5}}}, "", false},
		"a negative error":       {[]rerank.List{{Epsilon: -1}}, "", false},
		"an error that is none":  {[]rerank.List{{Epsilon: nan}}, "", false},
		"owners":                 {[]rerank.List{owned(list(1, 2), 7, 8)}, "owner", true},
		"too few owners":         {[]rerank.List{owned(list(1, 2), 7)}, "owner", false},
	} {
		err := checkLists(view(&recorder{}), []rerank.Probe{{Depth: 4}}, c.lists, c.owner)
		if c.ok && err != nil || !c.ok && !errors.Is(err, adapters.ErrStore) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	store := &recorder{lists: [][]rerank.List{{list(1, 2)}}}
	if _, err := Lists(t.Context(), view(store), asked(rerank.Probe{Depth: 4}), 1); !errors.Is(err, errContract) {
		t.Errorf("a list without the vectors that were asked for: %v", err)
	}
	rewritten := asked(rerank.Probe{Depth: 4})
	rewritten.Rewritten, rewritten.Request.Payload = true, true
	if _, err := Lists(t.Context(), view(store), rewritten, 1); !errors.Is(err, errContract) {
		t.Errorf("a list without the payload that was asked for: %v", err)
	}
}

// TestUnion: candidates count once over all rounds, and a list with a repeated id is refused.
func TestUnion(t *testing.T) {
	v, p := view(&recorder{}), asked(rerank.Probe{}, rerank.Probe{})
	var u Union
	for round, c := range []struct {
		lists []rerank.List
		want  []rerank.ID
	}{
		{[]rerank.List{list(1, 2), list(2, 3)}, idsOf(1, 2, 3)},
		{[]rerank.List{list(1, 2, 4), list(5, 2)}, idsOf(4, 5)},
		{[]rerank.List{list(1), list(1)}, nil},
	} {
		if got, err := u.Add(v, p, c.lists, round+1); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("round %d: %v, %v; want %v", round+1, got, err, c.want)
		}
	}
	for name, lists := range map[string][]rerank.List{"twice": {list(1, 2, 1)}, "no id": {{IDs: idsOf(0), Scores: []float32{1}}}} {
		if _, err := new(Union).Add(v, p, lists, 1); !errors.Is(err, errContract) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	v = view(&recorder{}, func(c *route.Checked) { c.Owner = "owner" })
	var items Union
	if got, err := items.Add(v, p, []rerank.List{owned(list(1, 2, 3), 7, 8, 7)}, 1); err != nil || !slices.Equal(got, idsOf(7, 8)) {
		t.Errorf("the items of three rows are %v, %v", got, err)
	}
	if got, err := new(Union).Add(v, p, []rerank.List{owned(list(1, 2), 7, 8), owned(list(3, 1), 9, 7)}, 1); err != nil || !slices.Equal(got, idsOf(7, 8, 9)) {
		t.Errorf("the items of a row in two lists are %v, %v", got, err)
	}
	for name, l := range map[string]rerank.List{"a row twice": owned(list(1, 1), 7, 7), "no owner": owned(list(1), 0)} {
		if _, err := new(Union).Add(v, p, []rerank.List{l}, 1); !errors.Is(err, errContract) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// TestIDSet compares a set with a map, for ids of every kind.
func TestIDSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s, marks := NewIDSet(0), map[rerank.ID]int32{}
	var order []rerank.ID
	for range 5000 {
		n := rng.IntN(1000)
		id := []rerank.ID{rerank.UintID(uint64(n)), rerank.IntID(-int64(n) - 1), rerank.TextID(strconv.Itoa(n))}[rng.IntN(3)]
		mark := rng.Int32N(2)
		last, known := marks[id]
		if s.Has(id) != known {
			t.Fatalf("Has(%v) = %v", id, !known)
		}
		if fresh, marked := s.Add(id, mark); fresh == known || marked != (known && last == mark) {
			t.Fatalf("Add(%v, %d) = %v, %v, when its mark was %d, %v", id, mark, fresh, marked, last, known)
		}
		if !known {
			order = append(order, id)
		}
		marks[id] = mark
	}
	if !slices.Equal(s.IDs, order) {
		t.Error("the ids are not in the order in which they came")
	}
}

// TestAlign: fetched rows are assigned to the requested ids, whichever are missing.
func TestAlign(t *testing.T) {
	rows := func(owners []rerank.ID, ids ...uint64) adapters.Rows {
		return adapters.Rows{IDs: idsOf(ids...), Owners: owners, Vectors: []rerank.Matrix{rerank.NewMatrix(len(ids), 2)}}
	}
	fields := []string{"f"}
	for name, c := range map[string]struct {
		rows    adapters.Rows
		owner   string
		have    []rerank.ID
		starts  []int32
		missing []int
	}{
		"all":                  {rows(nil, 1, 2, 3, 4), "", idsOf(1, 2, 3, 4), nil, nil},
		"none":                 {rows(nil), "", nil, nil, []int{0, 1, 2, 3}},
		"some":                 {rows(nil, 2, 4), "", idsOf(2, 4), nil, []int{0, 2}},
		"the first":            {rows(nil, 1), "", idsOf(1), nil, []int{1, 2, 3}},
		"owners":               {rows(idsOf(1, 1, 3), 10, 11, 12), "owner", idsOf(1, 3), []int32{0, 2, 3}, []int{1, 3}},
		"the rows of the last": {rows(idsOf(4, 4, 4), 10, 11, 12), "owner", idsOf(4), []int32{0, 3}, []int{0, 1, 2}},
	} {
		have, starts, missing, err := Align(c.rows, idsOf(1, 2, 3, 4), fields, c.owner)
		if err != nil || !slices.Equal(have, c.have) || !slices.Equal(starts, c.starts) || !slices.Equal(missing, c.missing) {
			t.Errorf("%s: %v, %v, %v, %v; want %v, %v, %v", name, have, starts, missing, err, c.have, c.starts, c.missing)
		}
	}
	short := rows(nil, 1, 2)
	short.Vectors[0].Rows = 1
	cut := rows(nil, 1, 2)
	cut.Vectors[0].Data = cut.Vectors[0].Data[:3]
	noField := rows(nil, 1)
	noField.Vectors = nil
	for name, c := range map[string]struct {
		rows  adapters.Rows
		owner string
	}{
		"not asked": {rows(nil, 5), ""}, "in another order": {rows(nil, 2, 1), ""}, "twice": {rows(nil, 1, 1), ""},
		"too few vectors": {short, ""}, "half a vector": {cut, ""}, "no vectors": {noField, ""},
		"too few owners": {rows(idsOf(1), 10, 11), "owner"}, "owners apart": {rows(idsOf(1, 2, 1), 10, 11, 12), "owner"},
	} {
		if _, _, _, err := Align(c.rows, idsOf(1, 2, 3, 4), fields, c.owner); !errors.Is(err, errContract) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// TestSplit: the ids at given places, and the remaining ones, in their order.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		places      []int
		rest, taken []rerank.ID
	}{
		{nil, idsOf(1, 2, 3, 4), nil},
		{[]int{0}, idsOf(2, 3, 4), idsOf(1)},
		{[]int{1, 3}, idsOf(1, 3), idsOf(2, 4)},
		{[]int{0, 1, 2, 3}, nil, idsOf(1, 2, 3, 4)},
	} {
		if rest, taken := split(idsOf(1, 2, 3, 4), c.places); !slices.Equal(rest, c.rest) || !slices.Equal(taken, c.taken) {
			t.Errorf("%v: %v and %v, want %v and %v", c.places, rest, taken, c.rest, c.taken)
		}
	}
}

// TestStoreFailed: which errors of the store are returned, and which leave the answer to the
// route's failure policy. The database can answer if only the companion fails.
func TestStoreFailed(t *testing.T) {
	both := []error{adapters.ErrFilter, adapters.ErrLimit, adapters.ErrRefused, rerank.ErrQuery}
	collectionOnly := []error{adapters.ErrUnavailable, adapters.ErrNotFound, adapters.ErrField, adapters.ErrDimension, adapters.ErrMetric}
	var f *failure.Error
	for _, err := range append(slices.Clone(both), collectionOnly...) {
		if got := storeFailed(t.Context(), err, false); !errors.Is(got, err) || errors.As(got, &f) {
			t.Errorf("of the collection, %v became %v", err, got)
		}
		if got := storeFailed(t.Context(), err, true); errors.As(got, &f) == slices.Contains(both, err) {
			t.Errorf("of the companion, %v became %v", err, got)
		}
	}
	if got := storeFailed(t.Context(), errContract, false); !errors.As(got, &f) || f.Reason != failure.Store {
		t.Errorf("another error became %v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := storeFailed(ended, adapters.ErrFilter, false); errors.Is(got, adapters.ErrFilter) && !errors.Is(got, context.Canceled) {
		t.Errorf("after its end an error became %v", got)
	}
}

// TestPlain: the database's own answer is requested with all settings of the search, and deeper
// until there are enough items.
func TestPlain(t *testing.T) {
	r := plan.Request{Query: rerank.Query{Vector: []float32{1, 2}}, K: 3, Filter: "filter", Partitions: []string{"part"}}
	store := &recorder{lists: [][]rerank.List{{list(1, 2, 3)}}}
	hits, depth, err := Plain(t.Context(), view(store), r)
	if err != nil || depth != 3 || len(hits) != 3 || hits[0].ID != rerank.UintID(1) || hits[0].Score != 100 {
		t.Errorf("%v at depth %d, %v", hits, depth, err)
	}
	if got := store.search; got.Collection != "rows" || got.Vector != "field" || got.Filter != "filter" || !got.Exact || !got.UnitVectors || got.Owner != "" ||
		got.Consistency != "strong" || !slices.Equal(got.Partitions, []string{"part"}) || !slices.Equal(got.Probes[0].Vector, r.Query.Vector) {
		t.Errorf("the store was asked %+v", got)
	}
	owner := func(c *route.Checked) { c.Owner = "owner" }
	same, three := owned(list(1, 2, 3), 7, 7, 7), owned(list(1, 2, 3, 4), 7, 7, 8, 9)
	end := same
	end.Exhausted = true
	for name, c := range map[string]struct {
		lists  [][]rerank.List
		change []func(*route.Checked)
		depths []int
		items  int
	}{
		"enough at once":        {[][]rerank.List{{three}}, nil, []int{12}, 3},
		"deeper":                {[][]rerank.List{{same}, {three}}, nil, []int{12, 48}, 3},
		"as deep as it goes":    {[][]rerank.List{{same}}, nil, []int{12, 48, 100}, 1},
		"no rows are left":      {[][]rerank.List{{end}}, nil, []int{12}, 1},
		"the store gives fewer": {[][]rerank.List{{same}}, []func(*route.Checked){func(c *route.Checked) { c.MaxDepth = 5 }}, []int{5}, 1},
	} {
		store := &recorder{lists: c.lists}
		hits, depth, err := Plain(t.Context(), view(store, append([]func(*route.Checked){owner}, c.change...)...), r)
		if err != nil || len(hits) != c.items || depth != c.depths[0] || !slices.Equal(store.depths, c.depths) || store.search.Owner != "owner" {
			t.Errorf("%s: %v at depths %v, first %d, %v; want %d items at %v", name, hits, store.depths, depth, err, c.items, c.depths)
		}
	}
	twice := &recorder{lists: [][]rerank.List{{list(1, 1, 2)}}}
	if _, _, err := Plain(t.Context(), view(twice), r); !errors.Is(err, errContract) {
		t.Errorf("an id twice: %v", err)
	}
	if _, _, err := Plain(t.Context(), view(&recorder{failure: adapters.ErrUnavailable}), r); !errors.Is(err, adapters.ErrUnavailable) {
		t.Errorf("a store that is down: %v", err)
	}
}

// TestPayloads: the payload of an item is its first row's.
func TestPayloads(t *testing.T) {
	a, b, c := json.RawMessage(`{"a":1}`), json.RawMessage(`{"b":1}`), json.RawMessage(`{"c":1}`)
	store := &recorder{rows: adapters.Rows{IDs: idsOf(1, 2, 3), Owners: idsOf(7, 7, 8), Payloads: []json.RawMessage{a, b, c}}}
	got, _, err := Payloads(t.Context(), view(store), idsOf(1, 2, 3, 4), []string{"name"}, false)
	if err != nil || len(got) != 3 || string(got[rerank.UintID(2)]) != string(b) {
		t.Errorf("%s, %v", got, err)
	}
	if f := store.fetch; f.Collection != "rows" || len(f.IDs) != 4 || f.Owner != "" || !f.Payload || !slices.Equal(f.PayloadFields, []string{"name"}) || f.Consistency != "strong" || f.Vectors != nil {
		t.Errorf("the store was asked %+v", f)
	}
	got, _, err = Payloads(t.Context(), view(store, func(c *route.Checked) { c.Owner = "owner" }), idsOf(7, 8), nil, false)
	if err != nil || len(got) != 2 || string(got[rerank.UintID(7)]) != string(a) || store.fetch.Owner != "owner" {
		t.Errorf("of owners: %s, %v", got, err)
	}
	for rows, ok := range map[int]bool{2: false, 3: true} {
		store.rows.Vectors = []rerank.Matrix{rerank.NewMatrix(rows, 2)}
		if _, _, err := Payloads(t.Context(), view(store), idsOf(1, 2, 3), nil, true); (err == nil) != ok || err != nil && !errors.Is(err, errContract) {
			t.Errorf("%d vectors of three rows: %v", rows, err)
		}
	}
	store.rows.Payloads = store.rows.Payloads[:2]
	if _, _, err := Payloads(t.Context(), view(store), idsOf(1), nil, false); !errors.Is(err, errContract) {
		t.Errorf("too few payloads: %v", err)
	}
	there, err := Existing(t.Context(), view(store), idsOf(1, 2, 3, 4))
	if f := store.fetch; err != nil || len(there) != 3 || there[rerank.UintID(4)] || f.Consistency != "strong" || f.Collection != "rows" || f.Payload || f.Vectors != nil {
		t.Errorf("%v are there, %v; asked %+v", there, err, f)
	}
}

// TestFetchPassesOn: rows are read with the route's consistency, by owner where items own
// rows, and not from a store that cannot.
func TestFetchPassesOn(t *testing.T) {
	store := &recorder{}
	r := &Reader{View: view(store, func(c *route.Checked) { c.Owner = "owner" })}
	if _, err := r.fetch(t.Context(), "rows", idsOf(1, 2), []string{"f"}); err != nil {
		t.Fatal(err)
	}
	if f := store.fetch; f.Collection != "rows" || len(f.IDs) != 2 || !slices.Equal(f.Vectors, []string{"f"}) || f.Owner != "owner" || f.Consistency != "strong" || f.Payload {
		t.Errorf("the store was asked %+v", f)
	}
	reembeds(r.View.Checked)
	for collection, marks := range map[string]bool{"rows": false, "companion": true} {
		if _, err := r.fetch(t.Context(), collection, idsOf(1), []string{"f"}); err != nil || store.fetch.Payload != marks || (len(store.fetch.PayloadFields) == 1) != marks {
			t.Errorf("of a route that embeds its items again, %s was asked %+v, %v", collection, store.fetch, err)
		}
	}
	r.View.Reembed.Text = ""
	if _, err := r.fetch(t.Context(), "companion", idsOf(1), []string{"f"}); err != nil || store.fetch.Payload {
		t.Errorf("the companion was asked %+v, %v", store.fetch, err)
	}
	store.failure, r.View.Placement = adapters.ErrUnavailable, route.PlacementDerived
	if _, err := r.Read(t.Context(), idsOf(1, 2)); !errors.Is(err, adapters.ErrUnavailable) || store.fetch.Collection != "companion" || !slices.Equal(store.fetch.IDs, idsOf(1, 2)) {
		t.Errorf("the companion was asked %+v, %v", store.fetch, err)
	}
	r.View.StoreCan.Fetch = nil
	if _, err := r.fetch(t.Context(), "rows", idsOf(1), nil); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("a store that cannot fetch: %v", err)
	}
}

// TestFeaturesFailed: the reason that a failure policy and its log see.
func TestFeaturesFailed(t *testing.T) {
	if err := featuresFailed(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := featuresFailed(t.Context(), errContract); !errors.Is(err, errContract) {
		t.Errorf("a broken contract became %v", err)
	}
	var f *failure.Error
	if err := featuresFailed(t.Context(), errEncode); !errors.As(err, &f) || f.Reason != failure.Scoring {
		t.Errorf("rows that were not computed: %v", err)
	}
	if err := featuresFailed(t.Context(), adapters.ErrUnavailable); !errors.As(err, &f) || f.Reason != failure.Features {
		t.Errorf("rows that were not read: %v", err)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if err := featuresFailed(late, adapters.ErrUnavailable); !errors.As(err, &f) || f.Reason != failure.Deadline {
		t.Errorf("rows that were not read in time: %v", err)
	}
}

// reembeds makes a route embed its items again, into the field "new" of its companion.
func reembeds(c *route.Checked) {
	c.Reembed.Text, c.FeatureFields, c.Companion = "text", []string{"new"}, "companion"
}

// TestNoteChanged: a list and the rows that are read after it differ by no more than the list's error and the
// rounding of a product, or an item got another vector in between.
func TestNoteChanged(t *testing.T) {
	probe := rerank.Probe{Vector: []float32{1, 0}, Field: "new"}
	two := rerank.List{IDs: idsOf(1, 2), Scores: []float32{1000, 500}, Epsilon: 0.25}
	rows := func(first ...float32) []score.Batch {
		b := score.Batch{Items: rerank.Items{Features: rerank.NewMatrix(len(first), 2)}}
		for i, x := range first {
			b.IDs, b.Items.Features.Row(i)[0] = append(b.IDs, rerank.UintID(uint64(i+1))), x
		}
		return []score.Batch{b}
	}
	exact, whole := two, two
	exact.Exact = true
	whole.Exact, whole.Exhausted = true, true
	for name, c := range map[string]struct {
		list    rerank.List
		batches []score.Batch
		probe   rerank.Probe
		route   func(*route.Checked)
		want    bool
	}{
		"the same":                      {two, rows(1000, 500), probe, reembeds, false},
		"off by the list's error":       {two, rows(1000.25, 500), probe, reembeds, false},
		"off by more":                   {two, rows(1000.5, 500), probe, reembeds, true},
		"not a number":                  {two, rows(float32(math.NaN()), 500), probe, reembeds, true},
		"no row was read":               {two, nil, probe, reembeds, false},
		"above the last, not exact":     {two, rows(1000, 500, 501), probe, reembeds, false},
		"above the last of an exact":    {exact, rows(1000, 500, 501), probe, reembeds, true},
		"a tie with the last":           {exact, rows(1000, 500, 500.25), probe, reembeds, false},
		"below the last":                {exact, rows(1000, 500, 499), probe, reembeds, false},
		"below the last of a whole":     {whole, rows(1000, 500, 499), probe, reembeds, true},
		"nothing is listed":             {rerank.List{Exact: true}, rows(1), probe, reembeds, false},
		"another field":                 {two, rows(1, 1), rerank.Probe{Vector: probe.Vector, Field: "old"}, reembeds, false},
		"items are not embedded again":  {two, rows(1, 1), probe, func(c *route.Checked) { c.FeatureFields = []string{"new"} }, false},
		"the features are several ones": {two, rows(1, 1), probe, func(c *route.Checked) { reembeds(c); c.FeatureFields = []string{"new", "old"} }, false},
	} {
		r := &Reader{View: view(&recorder{}, c.route)}
		r.noteChanged(asked(c.probe), []rerank.List{c.list}, c.batches)
		if r.Changed != c.want {
			t.Errorf("%s: changed is %t, want %t", name, r.Changed, c.want)
		}
	}
	r := &Reader{View: view(&recorder{}, reembeds)} // rows of the first round, a list of the second
	r.noteChanged(asked(probe), []rerank.List{two}, rows(1000, 500))
	deeper := two
	deeper.Scores = []float32{1000, 499}
	if r.noteChanged(asked(probe), []rerank.List{deeper}, nil); !r.Changed {
		t.Error("a row that was read in the first round and listed otherwise in the second has not changed")
	}
}

// copied is a Deriver whose feature rows are the vectors of its only field.
type copied struct{ rerank.Deriver }

func (copied) Features(dst rerank.Matrix, fields []rerank.Matrix) error {
	copy(dst.Data, fields[0].Data)
	return nil
}

// TestCandidatesThatChanged: the rows of new candidates are held against the lists that found them, and those of earlier rounds
// against later lists.
func TestCandidatesThatChanged(t *testing.T) {
	for name, c := range map[string]struct {
		read    float32
		changed [2]bool
	}{"as they were": {100, [2]bool{false, true}}, "another vector": {90, [2]bool{true, true}}} {
		store := &recorder{rows: adapters.Rows{IDs: idsOf(1), Vectors: []rerank.Matrix{{Rows: 1, Cols: 2, Data: []float32{c.read, 0}}}, Payloads: make([]json.RawMessage, 1)}}
		r := &Reader{View: view(store, reembeds, func(c *route.Checked) { c.Placement, c.ModelCan.Derive = route.PlacementDerived, copied{} })}
		p, first, later := asked(rerank.Probe{Vector: []float32{1, 0}, Field: "new"}), list(1), list(1)
		later.Scores = []float32{99}
		if _, err := r.Candidates(t.Context(), p, idsOf(1), []rerank.List{first}, 1); err != nil || r.Changed != c.changed[0] {
			t.Errorf("%s: changed %t, %v", name, r.Changed, err)
		}
		if _, err := r.Candidates(t.Context(), p, nil, []rerank.List{later}, 2); err != nil || r.Changed != c.changed[1] {
			t.Errorf("%s: changed %t after a second list, %v", name, r.Changed, err)
		}
	}
}

// TestMean: items count by their weights, whatever the number of their rows and, for a model of
// directions, whatever the norms of their vectors.
func TestMean(t *testing.T) {
	rows := adapters.Rows{
		IDs: idsOf(1, 2, 3, 4), Owners: idsOf(7, 7, 8, 9),
		Vectors: []rerank.Matrix{{Rows: 4, Cols: 2, Data: []float32{4, 0, 4, 0, 0, 2, float32(math.NaN()), 1}}},
	}
	items := []plan.WeightedID{{ID: rerank.UintID(7), Weight: 1}, {ID: rerank.UintID(8), Weight: 2}, {ID: rerank.UintID(7), Weight: 1}, {ID: rerank.UintID(9), Weight: 1}}
	for name, c := range map[string]struct {
		unit bool
		want []float32
	}{"vectors": {false, []float32{2, 1}}, "directions": {true, []float32{0.5, 0.5}}} {
		store := &recorder{rows: rows}
		got, err := Mean(t.Context(), view(store, func(r *route.Checked) { r.Owner, r.Spec.Normalise = "owner", c.unit }), items)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("the mean of %s is %v, %v; want %v", name, got, err, c.want)
		}
		if f := store.fetch; f.Collection != "rows" || !slices.Equal(f.IDs, idsOf(7, 8, 9)) || !slices.Equal(f.Vectors, []string{"field"}) || f.Owner != "owner" || f.Consistency != "strong" {
			t.Errorf("the store was asked %+v", f)
		}
	}
	one := []plan.WeightedID{{ID: rerank.UintID(1), Weight: 1}}
	if _, err := Mean(t.Context(), view(&recorder{rows: adapters.Rows{Vectors: []rerank.Matrix{{Cols: 2}}}}), one); !errors.Is(err, plan.ErrRequest) {
		t.Errorf("an item that is gone: %v", err)
	}
	if _, err := Mean(t.Context(), view(&recorder{rows: rows}, func(c *route.Checked) { c.Spec.ItemDim, c.Spec.QueryDim = 3, 3 }), one); !errors.Is(err, errContract) {
		t.Errorf("vectors of another length: %v", err)
	}
}

// matching is a store whose filter lets given ids through.
type matching struct {
	adapters.Matcher

	ids []rerank.ID
	err error
}

func (m matching) Match(context.Context, string, string) ([]rerank.ID, error) { return m.ids, m.err }

// TestMatching: a scan under a filter visits the items of the table that the filter lets through and the
// request does not exclude. It reads those that the table lacks, as long as they are no more than a search
// may read.
func TestMatching(t *testing.T) {
	tab, err := table.FromMemory(table.Meta{}, idsOf(1, 2, 3), rerank.NewMatrix(3, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	matches := func(ids ...uint64) func(*route.Checked) {
		return func(c *route.Checked) {
			c.StoreCan.Match, c.Table, c.MaxDepth, c.VectorsElsewhere = matching{ids: idsOf(ids...)}, tab, 2, true
		}
	}
	for name, c := range map[string]struct {
		route    func(*route.Checked)
		exclude  []rerank.ID
		want     []int
		tooMuch  bool
		filtered bool
	}{
		"a filter":                {matches(1, 3, 1), nil, []int{0, 2}, false, true},
		"excluded items":          {matches(1, 3), idsOf(3), []int{0}, false, true},
		"as many as may be read":  {matches(1, 8, 9), nil, []int{0}, false, true},
		"one too many":            {matches(1, 7, 8, 9), nil, nil, true, true},
		"excluded without filter": {matches(), idsOf(2, 9), []int{0, 2}, false, false},
	} {
		p := asked()
		if p.Request.Exclude = c.exclude; !c.filtered {
			p.Request.Filter = ""
		}
		v := view(&recorder{}, c.route)
		v.Table = v.Checked.Table
		within, _, err := (&Reader{View: v}).Matching(t.Context(), p)
		if f := (*failure.Error)(nil); c.tooMuch != (errors.As(err, &f) && f.Reason == failure.Features) || !c.tooMuch && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range 3 {
			if !c.tooMuch && within.Has(i) != slices.Contains(c.want, i) {
				t.Errorf("%s: row %d is visited: %t", name, i, within.Has(i))
			}
		}
	}
}

// TestAFilterThatFails: nothing is scanned, whether or not items are excluded.
func TestAFilterThatFails(t *testing.T) {
	for _, excluded := range [][]rerank.ID{nil, idsOf(3)} {
		r := &Reader{View: view(&recorder{}, func(c *route.Checked) { c.StoreCan.Match = matching{ids: idsOf(1), err: adapters.ErrFilter} })}
		p := asked()
		p.Request.Exclude = excluded
		if within, _, err := r.Matching(t.Context(), p); !errors.Is(err, adapters.ErrFilter) || within != nil {
			t.Errorf("%v is excluded: %v", excluded, err)
		}
	}
}

// TestEncode: feature rows of many vectors, which several processors compute, are those of each vector.
func TestEncode(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2, Normalise: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	base := rerank.NewMatrix(3*minShare+1, 2)
	for i := range base.Data {
		base.Data[i] = float32(i + 1)
	}
	want := rerank.NewMatrix(base.Rows, 2)
	if err := sim.EncodeItems(want, base); err != nil {
		t.Fatal(err)
	}
	free := turns.New(2)
	v := view(&recorder{}, func(c *route.Checked) { c.Turns, c.Model.Similarity = free, sim })
	got, err := Encode(t.Context(), v.Checked, make([]rerank.ID, base.Rows), nil, base)
	if err != nil || !slices.Equal(got.Items.Features.Data, want.Data) || len(got.IDs) != base.Rows {
		t.Errorf("%d rows, %v; want the rows of the model", got.Items.Features.Rows, err)
	}
	if n, err := free.Some(t.Context(), 2); n != 2 || err != nil {
		t.Errorf("%d processors are free after that, %v; want 2", n, err)
	}
	if _, err := Encode(t.Context(), v.Checked, idsOf(1), nil, rerank.NewMatrix(1, 3)); !errors.Is(err, errContract) {
		t.Errorf("vectors of another length: %v", err)
	}
}

// TestWhoseVersions: only rows of the collection itself have the versions that a client can make a write depend on.
func TestWhoseVersions(t *testing.T) {
	for name, c := range map[string]struct {
		field string // of the probe
		owner string
		want  bool
	}{"rows of the collection": {"", "", true}, "rows of the companion": {"f", "", false}, "rows of items": {"", "owner", false}} {
		store := &recorder{lists: [][]rerank.List{{owned(list(1, 2), 7, 8)}}}
		p := asked(rerank.Probe{Field: c.field, Depth: 4})
		p.Request.Versions = true
		if _, err := Lists(t.Context(), view(store, func(r *route.Checked) { r.Companion, r.Owner = "companion", c.owner }), p, 2); err != nil {
			t.Fatal(name, err)
		}
		if store.search.Versions != c.want {
			t.Errorf("%s: versions are asked for: %t", name, store.search.Versions)
		}
	}
}

// TestNormsOfFetchedVectors: every stored vector that is read for its features is checked on a route with unit_vectors,
// and none of a field with several vectors a row.
func TestNormsOfFetchedVectors(t *testing.T) {
	for name, c := range map[string]struct {
		starts []int32
		wrong  bool
	}{"a vector a row": {nil, true}, "several": {[]int32{0, 1, 2}, false}} {
		sim, err := dot.New(dot.Config{Dim: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		store := &recorder{rows: adapters.Rows{IDs: idsOf(1, 2), Starts: c.starts, Vectors: []rerank.Matrix{{Rows: 2, Cols: 2, Data: []float32{1, 0, 0, 2}}}}}
		v := view(store, func(c *route.Checked) { c.Norms, c.Turns, c.Model.Similarity = &route.Norms{}, turns.New(1), sim })
		r := &Reader{View: v}
		if _, err := r.Read(t.Context(), idsOf(1, 2)); err != nil {
			t.Fatal(name, err)
		}
		if w := v.Norms.Wrong(); (w != nil) != c.wrong || w != nil && w.ID != rerank.UintID(2) {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// TestPrecisionOfATable: rows that the table rounded are good enough for a search, and are read from the store where full
// precision is asked for.
func TestPrecisionOfATable(t *testing.T) {
	for _, format := range []rerank.Format{rerank.FormatFloat32, rerank.FormatInt8} {
		tab, err := table.FromMemory(table.Meta{Format: format}, idsOf(1, 2), rerank.Matrix{Rows: 2, Cols: 2, Data: []float32{1, .3, .2, 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, full := range []bool{false, true} {
			v := view(&recorder{})
			v.Table = tab
			batches, missing := (&Reader{View: v, FullPrecision: full}).fromTable(idsOf(1, 2))
			fromStore := full && format == rerank.FormatInt8
			if (len(missing) == 2) != fromStore || (len(batches) == 0) != fromStore || len(batches) > 0 && batches[0].Rounded != tab.Rounded() {
				t.Errorf("%s, full precision %t: %+v; %v are read from the store", format, full, batches, missing)
			}
		}
	}
}
