package search_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/adaptertest/recorder"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// vectorField and consistency are settings of the route; partition is the request's.
const (
	vectorField = "vec"
	consistency = "majority"
	partition   = "north"
)

// callerKey is the credential in the context of all requests.
const callerKey = "key-of-the-caller"

// recorded is a world whose store records its calls, under a named vector field.
type recorded struct {
	*world
	calls recorder.Recorder
	hooks recorder.Hooks
}

func newRecorded(t testing.TB, sim rerank.Similarity, vectors rerank.Matrix) *recorded {
	t.Helper()
	w := newWorld(t, sim, vectors)
	name(t, w)
	r := &recorded{world: w}
	r.hooks.Forward = func(s adapters.SearchRequest) adapters.SearchRequest {
		s.Partitions = nil // an embedded collection has none
		return s
	}
	return r
}

// name loads the world's collection again, with a name for its vector field.
func name(t testing.TB, w *world) {
	t.Helper()
	var all adapters.Rows
	unnamed := adapters.ScanRequest{Collection: collection, Vectors: []string{""}, Payload: true}
	must(t, w.store.Scan(t.Context(), unnamed, func(rows adapters.Rows, _ string) error {
		all.Payloads = append(all.Payloads, rows.Payloads...)
		return nil
	}))
	in := embedded.Collection{
		Fields:   []embedded.Field{{VectorField: adapters.VectorField{Name: vectorField, Metric: w.metric}, Vectors: w.vectors}},
		Payloads: all.Payloads,
	}
	if w.sim.Spec().GroupedRows {
		in.OwnerField, in.Owners = owner, w.owners
	}
	must(t, w.store.Drop(t.Context(), collection))
	must(t, w.store.Load(collection, in))
}

// pipe returns a pipeline for a route with every setting set that reaches a store.
func (w *recorded) pipe(t testing.TB, p route.Placement, change ...func(*route.Route)) *search.Engine {
	t.Helper()
	store, err := recorder.New(w.store, &w.calls, w.hooks)
	must(t, err)
	r := w.route(p, func(r *route.Route) {
		r.Store, r.Vector, r.Consistency = store, vectorField, consistency
		r.ExactSearch, r.UnitVectors, r.Timeout = true, true, time.Minute
	})
	for _, c := range change {
		c(r)
	}
	piped := pipe(t, r)
	must(t, piped.Open(t.Context()))
	w.calls.Forget() // forgets the calls of Open
	return piped
}

// asCaller returns the context of a caller.
func asCaller(ctx context.Context) context.Context {
	return adapters.AsCaller(metadata.NewOutgoingContext(ctx, metadata.Pairs("api-key", callerKey)))
}

// search makes a search as a caller. It wants every call that follows from the search to have
// the caller's credential and a deadline.
func (w *recorded) search(t testing.TB, p *search.Engine, r search.Request) search.Answer {
	t.Helper()
	r.Route = "r"
	a, err := p.Search(asCaller(t.Context()), r)
	must(t, err)
	w.wantCaller(t)
	return a
}

func (w *recorded) wantCaller(t testing.TB) {
	t.Helper()
	calls := w.calls.Calls()
	if len(calls) == 0 {
		t.Fatal("the store was not called")
	}
	for _, c := range calls {
		if !c.AsCaller || !slices.Equal(c.Metadata.Get("api-key"), []string{callerKey}) {
			t.Errorf("%s is made as the caller: %t, with %v", c.Method, c.AsCaller, c.Metadata)
		}
		if c.Deadline.IsZero() {
			t.Errorf("%s has no deadline, and the route has a timeout", c.Method)
		}
	}
}

// of returns the arguments of the recorded calls of one method.
func of[A any](t testing.TB, w *recorded, m recorder.Method) (all []A) {
	t.Helper()
	for _, c := range w.calls.Calls(m) {
		all = append(all, c.Argument.(A))
	}
	if len(all) == 0 {
		t.Fatalf("no call of %s: %+v", m, w.calls.Calls())
	}
	return all
}

// wantSearch compares every field of a search except its probes. Fields that are not set must be
// listed in except, with the reason.
func wantSearch(t testing.TB, what string, got, want adapters.SearchRequest, except map[string]string) {
	t.Helper()
	want.Probes = got.Probes
	if unset := recorder.Unset(want, except); len(unset) > 0 {
		t.Errorf("%s: the test sets nothing for %q; set it or say why not", what, unset)
	}
	for _, d := range recorder.Differences(got, want) {
		t.Errorf("%s: %s", what, d)
	}
}

// wantFetch is wantSearch for a fetch.
func wantFetch(t testing.TB, what string, got, want adapters.FetchRequest, except map[string]string) {
	t.Helper()
	if unset := recorder.Unset(want, except); len(unset) > 0 {
		t.Errorf("%s: the test sets nothing for %q; set it or say why not", what, unset)
	}
	for _, d := range recorder.Differences(got, want) {
		t.Errorf("%s: %s", what, d)
	}
}

// nothing returns the id of an item that does not exist.
func nothing() []rerank.ID { return []rerank.ID{rerank.UintID(1 << 40)} }

// wanted returns a search with every field set. owned says whether items own rows.
func wanted(owned bool) (s adapters.SearchRequest, except map[string]string) {
	s = adapters.SearchRequest{
		Collection: collection, Vector: vectorField, Filter: even, Exclude: nothing(), Exact: true, UnitVectors: true,
		Consistency: consistency, Partitions: []string{partition},
	}
	except = map[string]string{"WithVectors": "vectors come with the ids of one probe on the stored vectors only"}
	for _, f := range []string{"Payload", "PayloadFields", "Rescore", "EF"} {
		except[f] = "only the rows of a rewritten search are the answer: TestARewrittenSearchIsOneSearch"
	}
	except["Versions"] = "nobody asked for versions: TestVersionsOfHits"
	if owned {
		s.Owner = owner
	} else {
		except["Owner"] = "items are rows"
	}
	return s, except
}

// everyField lists the fields of a request, and where their arrival is checked. A new field must be
// added here, with a check.
var everyField = map[string]string{
	"Route": "TestSwitch", "Query": "TestTheModelGetsThePlan", "K": "TestDeepeningAsksTheSame", "Filter": "TestSearchesArriveWhole",
	"Partitions": "TestSearchesArriveWhole", "Strategy": "TestTheModelGetsThePlan", "Depth": "TestTheModelGetsThePlan",
	"AverageDepth": "TestTheModelGetsThePlan", "Weights": "TestTheModelGetsThePlan", "Head": "TestTheModelGetsThePlan",
	"MaxGap": "TestDeepeningAsksTheSame", "Explain": "TestPayloadAndExplanation", "Payload": "TestPayloadsArriveWhole",
	"PayloadFields": "TestPayloadsArriveWhole", "NoFallback": "TestNoFallbackAsksNothingMore", "Calls": "TestRankersGetTheWholeQuery",
	"Rounds": "TestRankersGetTheWholeQuery", "Confirms": "TestConfirmingReads", "Collection": "TestCallsNameTheCollection",
	"MaxRank": "TestPagesOfOneList", "RequireExact": "TestRequireExact",
	"Versions": "TestVersionsOfHits", "Exclude": "TestSearchesArriveWhole", "Mix": "TestMixing", "StoredVector": "TestMixing", "History": "TestHistory", "KeepHistory": "TestHistory",
	"Shown": "TestImpressions", "User": "TestImpressions", "Tried": "TestTrialTakes", "AnswerBy": "TestTrialInTime",
}

func TestEveryFieldOfARequestIsSeen(t *testing.T) {
	for _, f := range recorder.Unknown(search.Request{}, everyField) {
		t.Errorf("search.Request.%s: no test sees it arrive, or there is none of that name", f)
	}
	value := map[string]string{"Route": "", "Query": "TestTheModelGetsThePlan", "IDs": "TestScoreReadsWhole", "Vectors": "TestScoreVectors", "Documents": "TestScoreDocuments", "Explain": "TestScore", "Collection": "TestCallsNameTheCollection", "History": "TestHistory"}
	for _, f := range recorder.Unknown(search.ScoreRequest{}, value) {
		t.Errorf("search.ScoreRequest.%s: no test sees it arrive, or there is none of that name", f)
	}
}

// TestSearchesArriveWhole: the first stage and every kind of plain answer send all settings of the
// request and the route.
func TestSearchesArriveWhole(t *testing.T) {
	broken := errors.New("out of registers")
	for _, c := range []struct {
		name     string
		grouped  bool
		blocks   int
		place    route.Placement
		strategy rerank.Strategy
		broken   error
		before   func(n int) func(context.Context, recorder.Call) error
		reason   string // "" if rescored
		searches int
	}{
		{name: "one probe", blocks: 1, place: route.PlacementStored, strategy: rerank.Average, searches: 1},
		{name: "many probes", blocks: 3, place: route.PlacementStored, strategy: rerank.PerEmbedding, searches: 1},
		{name: "table", blocks: 3, place: route.PlacementTable, strategy: rerank.Combined, searches: 1},
		{name: "owned rows", grouped: true, blocks: 3, place: route.PlacementStored, strategy: rerank.PerEmbedding, searches: 1},
		{name: "scoring failed", blocks: 3, place: route.PlacementTable, strategy: rerank.PerEmbedding, broken: broken, reason: failure.Scoring, searches: 2},
		{name: "scoring of owned rows failed", grouped: true, blocks: 3, place: route.PlacementTable, strategy: rerank.PerEmbedding, broken: broken, reason: failure.Scoring, searches: 2},
		{name: "features are not to be had", blocks: 3, place: route.PlacementStored, strategy: rerank.PerEmbedding, before: refusing(recorder.Fetch, adapters.ErrStore), reason: failure.Features, searches: 2},
		{name: "the store fails once", blocks: 3, place: route.PlacementTable, strategy: rerank.PerEmbedding, before: refusing(recorder.Search, adapters.ErrStore), reason: failure.Store, searches: 2},
		{name: "no time is left", blocks: 3, place: route.PlacementTable, strategy: rerank.PerEmbedding, before: hanging, reason: failure.Deadline, searches: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := &toy{dim: 6, blocks: c.blocks, grouped: c.grouped}
			w := newRecorded(t, sim, random(1, 90, 6))
			w.sim = &toy{dim: 6, blocks: c.blocks, grouped: c.grouped, broken: c.broken}
			if c.before != nil {
				w.hooks.Before = c.before(1)
			}
			p := w.pipe(t, c.place, func(r *route.Route) {
				r.Strategy = c.strategy
				if c.reason == failure.Deadline {
					r.Timeout = 500 * time.Millisecond
				}
			})
			q := random(2, 1, 6).Row(0)
			a := w.search(t, p, search.Request{Query: rerank.Query{Vector: q}, K: 3, Filter: even, Exclude: nothing(), Partitions: []string{partition}})
			if got := a.Degraded; (got != nil) != (c.reason != "") || got != nil && got.Reason != c.reason {
				t.Fatalf("%+v, want %q", got, c.reason)
			}
			searches := of[adapters.SearchRequest](t, w, recorder.Search)
			if len(searches) != c.searches {
				t.Fatalf("%d searches, want %d", len(searches), c.searches)
			}
			for i, s := range searches {
				want, except := wanted(c.grouped)
				want.WithVectors = c.place == route.PlacementStored && c.blocks == 1
				wantSearch(t, fmt.Sprintf("search %d", i), s, want, except)
			}
			if c.reason != "" { // the store ordered its rows by the query itself
				if plain := searches[1].Probes; len(plain) != 1 || plain[0].Field != "" || !slices.Equal(plain[0].Vector, q) || plain[0].Depth < 3 {
					t.Errorf("the plain answer is asked by %+v", plain)
				}
			}
		})
	}
}

// refusing makes the first call of a method fail.
func refusing(m recorder.Method, err error) func(int) func(context.Context, recorder.Call) error {
	return func(times int) func(context.Context, recorder.Call) error {
		var mu sync.Mutex
		return func(_ context.Context, c recorder.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.Method != m || times == 0 {
				return nil
			}
			times--
			return err
		}
	}
}

// hanging makes the first searches last until their deadline.
func hanging(times int) func(context.Context, recorder.Call) error {
	first := refusing(recorder.Search, context.DeadlineExceeded)(times)
	return func(ctx context.Context, c recorder.Call) error {
		err := first(ctx, c)
		if err != nil {
			<-ctx.Done()
		}
		return err
	}
}

// TestDeepeningAsksTheSame: every round makes the same search at twice the depth. Only the first
// one requests vectors.
func TestDeepeningAsksTheSame(t *testing.T) {
	w := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 300, 6))
	for _, strategy := range []rerank.Strategy{rerank.PerEmbedding, rerank.Combined} {
		w.calls.Forget()
		p := w.pipe(t, route.PlacementStored, func(r *route.Route) { r.Strategy, r.Depth, r.AverageDepth, r.MaxRounds = strategy, 4, 3, 4 })
		a := w.search(t, p, search.Request{
			Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 2, Filter: even, Exclude: nothing(), Partitions: []string{partition}, MaxGap: ptr(0),
		})
		rounds := of[adapters.SearchRequest](t, w, recorder.Search)
		if len(rounds) < 3 || len(rounds) != a.Certificate.Rounds {
			t.Fatalf("%s: %d searches in %d rounds", strategy, len(rounds), a.Certificate.Rounds)
		}
		for i, r := range rounds {
			want, except := wanted(false)
			wantSearch(t, fmt.Sprintf("%s, round %d", strategy, i+1), r, want, except)
			if len(r.Probes) != len(rounds[0].Probes) {
				t.Fatalf("%s, round %d has %d probes", strategy, i+1, len(r.Probes))
			}
			for j, p := range r.Probes {
				first := rounds[0].Probes[j]
				first.Depth <<= i
				if lines := recorder.Differences(p, first); len(lines) > 0 {
					t.Errorf("%s, round %d, probe %d: %q", strategy, i+1, j, lines)
				}
			}
		}
	}
	one := newRecorded(t, &toy{dim: 6, blocks: 1}, tied(200, 6))
	p := one.pipe(t, route.PlacementStored, func(r *route.Route) { r.Strategy, r.Depth, r.MaxRounds = rerank.Average, 4, 4 })
	_ = one.search(t, p, search.Request{Query: rerank.Query{Vector: []float32{1, 1, 1, 1, 1, 1}}, K: 2, Filter: even, Exclude: nothing(), Partitions: []string{partition}})
	for i, r := range of[adapters.SearchRequest](t, one, recorder.Search) {
		want, except := wanted(false)
		want.WithVectors = i == 0
		wantSearch(t, fmt.Sprintf("ties, round %d", i+1), r, want, except)
	}
	if n := len(one.calls.Calls(recorder.Search)); n < 2 {
		t.Errorf("%d rounds with ties", n)
	}
}

// tied returns vectors whose inner products are all equal.
func tied(rows, dim int) rerank.Matrix {
	m := rerank.NewMatrix(rows, dim)
	for i := range m.Data {
		m.Data[i] = 1
	}
	return m
}

// TestFeaturesAreReadWhole: features that a placement lacks are fetched from their source, with the
// route's field, owner and consistency.
func TestFeaturesAreReadWhole(t *testing.T) {
	for _, c := range []struct {
		name    string
		grouped bool
		place   route.Placement
		want    adapters.FetchRequest
	}{
		{"stored", false, route.PlacementStored, adapters.FetchRequest{Collection: collection, Vectors: []string{vectorField}}},
		{"stored, owned", true, route.PlacementStored, adapters.FetchRequest{Collection: collection, Vectors: []string{vectorField}, Owner: owner}},
		{"not in the table", false, route.PlacementTable, adapters.FetchRequest{Collection: collection, Vectors: []string{vectorField}}},
		{"derived", false, route.PlacementDerived, adapters.FetchRequest{Collection: companion, Vectors: []string{"c0", "c1", "c2"}}},
		{"derived, owned", true, route.PlacementDerived, adapters.FetchRequest{Collection: companion, Vectors: []string{"c0", "c1", "c2"}, Owner: owner}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := &toy{dim: 6, blocks: 3, grouped: c.grouped}
			w := newRecorded(t, sim, random(1, 90, 6))
			if c.place == route.PlacementTable {
				features := rerank.NewMatrix(90, 6)
				must(t, sim.EncodeItems(features, w.vectors))
				w.table = w.tabulate(t, features, 0)
			}
			p := w.pipe(t, c.place, func(r *route.Route) { r.Strategy = rerank.PerEmbedding })
			q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
			a := w.search(t, p, search.Request{Query: q, K: 3, Filter: even, Exclude: nothing()})
			got := of[adapters.FetchRequest](t, w, recorder.Fetch)
			if len(got) != 1 {
				t.Fatalf("%d fetches", len(got))
			}
			c.want.IDs, c.want.Consistency = got[0].IDs, consistency
			except := map[string]string{"Payload": "features need none", "PayloadFields": "features need none"}
			if !c.grouped {
				except["Owner"] = "items are rows"
			}
			wantFetch(t, "candidates", got[0], c.want, except)
			if len(got[0].IDs) != a.Certificate.Candidates {
				t.Errorf("%d ids of %d candidates", len(got[0].IDs), a.Certificate.Candidates)
			}
			for _, s := range of[adapters.SearchRequest](t, w, recorder.Search) {
				want, exceptions := wanted(c.grouped)
				want.Partitions, exceptions["Partitions"] = nil, "a companion has none"
				if want.Collection = c.want.Collection; want.Collection == companion {
					want.UnitVectors, exceptions["UnitVectors"] = false, "the word is of the stored vectors, not of derived ones"
				}
				wantSearch(t, "first stage", s, want, exceptions)
			}
		})
	}
}

// TestPayloadsArriveWhole: the hits have the requested payloads, also in a plain answer.
func TestPayloadsArriveWhole(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		for _, down := range []error{nil, errors.New("out of registers")} {
			w := newRecorded(t, &toy{dim: 6, blocks: 3, grouped: grouped}, random(1, 90, 6))
			w.sim = &toy{dim: 6, blocks: 3, grouped: grouped, broken: down}
			p := w.pipe(t, route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.PerEmbedding })
			a := w.search(t, p, search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3, Payload: true, PayloadFields: []string{"n", "third"}})
			if (a.Degraded == nil) != (down == nil) {
				t.Fatalf("%+v", a.Degraded)
			}
			want := adapters.FetchRequest{Collection: collection, Payload: true, PayloadFields: []string{"n", "third"}, Consistency: consistency}
			except := map[string]string{"Vectors": "payloads alone are asked"}
			if grouped {
				want.Owner = owner
			} else {
				except["Owner"] = "items are rows"
			}
			for _, h := range a.Hits {
				want.IDs = append(want.IDs, h.ID)
			}
			got := of[adapters.FetchRequest](t, w, recorder.Fetch)
			wantFetch(t, fmt.Sprintf("payload, grouped %t", grouped), got[len(got)-1], want, except)
		}
	}
}

// TestVersionsOfHits: hits have the versions from the lists, if each hit was in a list of the
// collection itself.
func TestVersionsOfHits(t *testing.T) {
	numbered := func(lists []rerank.List) []rerank.List {
		for i := range lists {
			for _, id := range lists[i].IDs {
				n, _ := id.Uint64()
				lists[i].Versions = append(lists[i].Versions, 1000+n)
			}
		}
		return lists
	}
	for _, c := range []struct {
		name         string
		place        route.Placement
		strategy     rerank.Strategy
		unasked      bool
		lists        func([]rerank.List) []rerank.List
		asks, answer bool // versions are requested from the store; the answer has them
	}{
		{name: "table", place: route.PlacementTable, strategy: rerank.PerEmbedding, lists: numbered, asks: true, answer: true},
		{name: "stored", place: route.PlacementStored, strategy: rerank.PerEmbedding, lists: numbered, asks: true, answer: true},
		{name: "nobody asked", place: route.PlacementTable, strategy: rerank.PerEmbedding, unasked: true, lists: numbered},
		{name: "companion", place: route.PlacementDerived, strategy: rerank.PerEmbedding},
		{name: "scan", place: route.PlacementTable, strategy: rerank.Scan},
		{name: "a store without versions", place: route.PlacementTable, strategy: rerank.PerEmbedding, asks: true},
		{name: "one list without versions", place: route.PlacementTable, strategy: rerank.PerEmbedding, asks: true, lists: func(lists []rerank.List) []rerank.List {
			return append(lists[:1:1], numbered(lists[1:])...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
			w.hooks.Lists = c.lists
			p := w.pipe(t, c.place, func(r *route.Route) { r.Strategy, r.Depth, r.MaxRounds = c.strategy, 5, 1 })
			a, err := p.Search(asCaller(t.Context()), search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 5, Versions: !c.unasked})
			must(t, err)
			if a.HasVersions != c.answer || len(a.Hits) != 5 {
				t.Errorf("versions: %t, want %t; hits %v", a.HasVersions, c.answer, a.Hits)
			}
			for _, h := range a.Hits {
				if n, _ := h.ID.Uint64(); c.answer && h.Version != 1000+n {
					t.Errorf("hit %s has version %d", h.ID, h.Version)
				}
			}
			for _, s := range w.calls.Calls(recorder.Search) {
				if s := s.Argument.(adapters.SearchRequest); s.Versions != c.asks {
					t.Errorf("the store is asked for versions: %t, want %t", s.Versions, c.asks)
				}
			}
		})
	}
}

// TestConfirmingReads: rows that a table or companion may show although the database has deleted
// them are read again, from the collection and as the caller, unless the caller reads them itself.
func TestConfirmingReads(t *testing.T) {
	for _, place := range []route.Placement{route.PlacementTable, route.PlacementDerived} {
		w := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
		p := w.pipe(t, place, func(r *route.Route) {
			r.Freshness, r.Strategy = freshness(false), rerank.PerEmbedding
			if place == route.PlacementTable {
				r.Strategy = rerank.Scan
			}
		})
		request := search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3, Filter: even, Exclude: nothing()}
		a := w.search(t, p, request)
		got := of[adapters.FetchRequest](t, w, recorder.Fetch)
		want := adapters.FetchRequest{Collection: collection, Consistency: consistency}
		for _, h := range a.Hits {
			want.IDs = append(want.IDs, h.ID)
		}
		wantFetch(t, string(place), got[len(got)-1], want, map[string]string{
			"Vectors": "ids alone are asked", "Payload": "ids alone are asked", "PayloadFields": "ids alone are asked", "Owner": "items are rows",
		})
		before := len(got)
		w.calls.Forget()
		request.Confirms = true
		_ = w.search(t, p, request)
		if after := len(w.calls.Calls(recorder.Fetch)); after != before-1 {
			t.Errorf("%s: %d reads where the caller confirms itself, %d where it does not", place, after, before)
		}
	}
}

// TestFilteredScansAskForTheFilter: a scan requests the ids that pass the filter or, if items own
// rows, their owners.
func TestFilteredScansAskForTheFilter(t *testing.T) {
	rows := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	p := rows.pipe(t, route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan })
	request := search.Request{Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3, Filter: even, Exclude: nothing()}
	_ = rows.search(t, p, request)
	for _, m := range of[recorder.Arguments](t, rows, recorder.Match) {
		if d := recorder.Differences(m, recorder.Arguments{Collection: collection, Filter: even}); len(d) > 0 {
			t.Error(d)
		}
	}
	owned := newRecorded(t, &toy{dim: 6, blocks: 3, grouped: true}, random(1, 90, 6))
	p = owned.pipe(t, route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.Scan })
	_ = owned.search(t, p, request)
	for _, s := range of[adapters.ScanRequest](t, owned, recorder.Scan) {
		want := adapters.ScanRequest{Collection: collection, Filter: even, Owner: owner}
		if d := recorder.Differences(s, want); len(d) > 0 {
			t.Error(d)
		}
		if unset := recorder.Unset(want, map[string]string{
			"Vectors": "owners alone are asked", "Payload": "owners alone are asked", "PayloadFields": "owners alone are asked",
			"Batch": "the adapter's choice", "Cursor": "from the beginning", "Until": "to the end",
		}); len(unset) > 0 {
			t.Errorf("the test sets nothing for %q", unset)
		}
	}
}

// TestScoreReadsWhole: scoring ids reads them as a search does, with the caller's credential and
// the route's deadline.
func TestScoreReadsWhole(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		w := newRecorded(t, &toy{dim: 6, blocks: 3, grouped: grouped}, random(1, 90, 6))
		p := w.pipe(t, route.PlacementStored)
		ids := slices.Clone(w.items()[3:8])
		_, err := p.Score(asCaller(t.Context()), search.ScoreRequest{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, IDs: ids})
		must(t, err)
		w.wantCaller(t)
		want := adapters.FetchRequest{Collection: collection, IDs: ids, Vectors: []string{vectorField}, Consistency: consistency}
		except := map[string]string{"Payload": "features need none", "PayloadFields": "features need none"}
		if grouped {
			want.Owner = owner
		} else {
			except["Owner"] = "items are rows"
		}
		got := of[adapters.FetchRequest](t, w, recorder.Fetch)
		wantFetch(t, fmt.Sprintf("score, grouped %t", grouped), got[0], want, except)
	}
}

// TestCallsNameTheCollection: a request that names a collection is answered from it alone, and the
// route's collection is not used.
func TestCallsNameTheCollection(t *testing.T) {
	w := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	p := w.pipe(t, route.PlacementStored, func(r *route.Route) { r.Failure = route.FailClosed })
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	if _, err := p.Search(asCaller(t.Context()), search.Request{Route: "r", Collection: "other", Query: q, K: 3}); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("a search of a collection that is not there: %v", err)
	}
	for _, got := range of[adapters.SearchRequest](t, w, recorder.Search) {
		if got.Collection != "other" {
			t.Errorf("a search asks %q, want %q", got.Collection, "other")
		}
	}
	if _, err := p.Score(asCaller(t.Context()), search.ScoreRequest{Route: "r", Collection: "other", Query: q, IDs: w.items()[:2]}); !errors.Is(err, adapters.ErrNotFound) {
		t.Errorf("scores in a collection that is not there: %v", err)
	}
	for _, got := range of[adapters.FetchRequest](t, w, recorder.Fetch) {
		if got.Collection != "other" {
			t.Errorf("scoring reads %q, want %q", got.Collection, "other")
		}
	}
}

// confirmed is a store whose collections can be told apart. It notes which were described.
type confirmed struct {
	*embedded.Store

	described []string
}

func (*confirmed) Identify(context.Context, string) (adapters.Identity, error) {
	return adapters.Identity{}, nil
}

func (c *confirmed) Describe(ctx context.Context, name string) (adapters.Description, error) {
	c.described = append(c.described, name)
	return c.Store.Describe(ctx, name)
}

// TestTheNamedCollectionIsConfirmed: before a search of a collection that the request names, the store describes that one.
func TestTheNamedCollectionIsConfirmed(t *testing.T) {
	w := newWorld(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	store := &confirmed{Store: w.store}
	p := pipe(t, w.route(route.PlacementStored, func(r *route.Route) { r.Store = store }))
	must(t, p.Open(t.Context()))
	store.described = nil
	q := rerank.Query{Vector: random(2, 1, 6).Row(0)}
	if _, err := p.Search(t.Context(), search.Request{Route: "r", Collection: "other", Query: q, K: 3}); err == nil || !slices.Contains(store.described, "other") {
		t.Errorf("%q were described, %v; want the collection that the request names", store.described, err)
	}
}

// TestRefiningReadsWhole: scores that the table's format rounded are recomputed from stored vectors
// if a proof is requested.
func TestRefiningReadsWhole(t *testing.T) {
	base := dotWorld(t)
	name(t, base)
	w := &recorded{world: base}
	p := w.pipe(t, route.PlacementTable, func(r *route.Route) {
		r.Table, r.Strategy = base.rounded(t, rerank.Formats()[1], table.LayoutRows, false), rerank.Scan
	})
	_ = w.search(t, p, search.Request{Query: rerank.Query{Vector: random(2, 1, 16).Row(0)}, K: 3, MaxGap: ptr(0.5)})
	for _, got := range of[adapters.FetchRequest](t, w, recorder.Fetch) {
		want := adapters.FetchRequest{Collection: collection, IDs: got.IDs, Vectors: []string{vectorField}, Consistency: consistency}
		wantFetch(t, "refining", got, want, map[string]string{"Payload": "none is needed", "PayloadFields": "none is needed", "Owner": "items are rows"})
	}
}

// TestNoFallbackAsksNothingMore: a caller who has the store's own answer gets no plain answer, and
// the store is not asked for one.
func TestNoFallbackAsksNothingMore(t *testing.T) {
	w := newRecorded(t, &toy{dim: 6, blocks: 3}, random(1, 90, 6))
	w.sim = &toy{dim: 6, blocks: 3, broken: errors.New("out of registers")}
	p := w.pipe(t, route.PlacementTable, func(r *route.Route) { r.Strategy = rerank.PerEmbedding })
	_, err := p.Search(asCaller(t.Context()), search.Request{Route: "r", Query: rerank.Query{Vector: random(2, 1, 6).Row(0)}, K: 3, NoFallback: true})
	if n := len(w.calls.Calls(recorder.Search)); !errors.Is(err, failure.ErrDegraded) || n != 1 {
		t.Errorf("%d searches, %v", n, err)
	}
}

// noted is a toy that records its calls.
type noted struct {
	*toy
	users bool
	mu    sync.Mutex
	query []rerank.Query
	plans []rerank.Plan
}

func (n *noted) Spec() rerank.Spec {
	s := n.toy.Spec()
	s.UserIDs = n.users
	return s
}

func (n *noted) Encode(q rerank.Query) (rerank.Encoded, error) {
	n.mu.Lock()
	n.query = append(n.query, q)
	n.mu.Unlock()
	e, err := n.toy.Encode(q)
	if err != nil {
		return nil, err
	}
	return &notedQuery{e.(*toyQuery), n}, nil
}

// last returns the last query and plan, and forgets the plan.
func (n *noted) last() (q rerank.Query, p rerank.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.plans) > 0 {
		p = n.plans[len(n.plans)-1]
	}
	n.plans = nil
	return n.query[len(n.query)-1], p
}

type notedQuery struct {
	*toyQuery
	of *noted
}

func (e *notedQuery) Probes(p rerank.Plan) ([]rerank.Probe, error) {
	e.of.mu.Lock()
	e.of.plans = append(e.of.plans, p)
	e.of.mu.Unlock()
	p.Head = "" // a toy has no heads
	return e.toyQuery.Probes(p)
}

// TestTheModelGetsThePlan: the model gets the settings of the request or, for those that it leaves
// out, of the route, and encodes the whole query.
func TestTheModelGetsThePlan(t *testing.T) {
	sim := &noted{toy: &toy{dim: 6, blocks: 3}, users: true}
	w := newRecorded(t, sim.toy, random(1, 90, 6))
	w.sim = sim
	p := w.pipe(t, route.PlacementDerived, func(r *route.Route) {
		r.Strategy, r.Depth, r.AverageDepth, r.Weights, r.Head = rerank.Combined, 11, 12, rerank.GateWeights, "route's"
	})
	query := rerank.Query{Vector: random(2, 1, 6).Row(0), UserID: 77, HasUserID: true}
	queryExcept := map[string]string{"Text": "a route without a ranker refuses it", "Context": "a route without a ranker refuses it", "Vectors": "a model of one vector refuses them"}
	if unset := recorder.Unset(query, queryExcept); len(unset) > 0 {
		t.Errorf("the test sets nothing for %q of the query", unset)
	}
	for name, c := range map[string]struct {
		request search.Request
		want    rerank.Plan
	}{
		"the route's": {search.Request{}, rerank.Plan{Strategy: rerank.Combined, Depth: 11, AverageDepth: 12, Weights: rerank.GateWeights, Derived: true, Head: "route's"}},
		"the request's": {
			search.Request{Strategy: rerank.Average, Depth: 21, AverageDepth: 22, Weights: rerank.UniformWeights, Head: "its"},
			rerank.Plan{Strategy: rerank.Average, Depth: 21, AverageDepth: 22, Weights: rerank.UniformWeights, Derived: true, Head: "its"},
		},
	} {
		if unset := recorder.Unset(c.want, nil); len(unset) > 0 {
			t.Errorf("%s: the test sets nothing for %q", name, unset)
		}
		c.request.Query, c.request.K = query, 3
		_ = w.search(t, p, c.request)
		q, plan := sim.last()
		for _, d := range append(recorder.Differences(plan, c.want), recorder.Differences(q, query)...) {
			t.Errorf("%s: %s", name, d)
		}
	}
	query.UserID = 78
	_, err := p.Score(t.Context(), search.ScoreRequest{Route: "r", Query: query, IDs: w.items()[:2]})
	must(t, err)
	q, _ := sim.last()
	for _, d := range recorder.Differences(q, query) {
		t.Errorf("scoring: %s", d)
	}
}

// declining is a device that records its requests and declines them.
type declining struct {
	query  []rerank.Query
	within []*scan.Bitmap
	items  [][]int32
	k      []int
}

func (d *declining) Rescore(_ context.Context, _ *table.Table, q rerank.Query, items []int32, k int) (score.Selection, error) {
	d.query, d.items, d.k = append(d.query, q), append(d.items, items), append(d.k, k)
	return score.Selection{}, errors.New("it does nothing")
}

func (d *declining) Scan(_ context.Context, _ *table.Table, q rerank.Query, within *scan.Bitmap, k int) (score.Selection, error) {
	d.query, d.within, d.k = append(d.query, q), append(d.within, within), append(d.k, k)
	return score.Selection{}, errors.New("it does nothing")
}

func (d *declining) Judge(error) {}

// TestADeviceGetsTheWholeQuery: a device gets the whole query, the items that pass the filter, and
// a limit above the answer's length.
func TestADeviceGetsTheWholeQuery(t *testing.T) {
	sim := &noted{toy: &toy{dim: 6, blocks: 3}, users: true}
	w := newRecorded(t, sim.toy, random(1, 900, 6))
	w.sim = sim
	query := rerank.Query{Vector: random(2, 1, 6).Row(0), UserID: 77, HasUserID: true}
	d := &declining{}
	for _, strategy := range []rerank.Strategy{rerank.Scan, rerank.PerEmbedding} {
		p := w.pipe(t, route.PlacementTable, func(r *route.Route) { r.Strategy, r.Device, r.Depth, r.MaxDepth = strategy, d, 400, 1000 })
		_ = w.search(t, p, search.Request{Query: query, K: 7, Filter: even, Exclude: nothing()})
	}
	if len(d.query) != 2 || len(d.within) != 1 || len(d.items) != 1 {
		t.Fatalf("%d calls, %d scans, %d rescored", len(d.query), len(d.within), len(d.items))
	}
	for i, q := range d.query {
		for _, line := range recorder.Differences(q, query) {
			t.Errorf("call %d: %s", i, line)
		}
		if d.k[i] <= 7 {
			t.Errorf("call %d asks for %d of 7", i, d.k[i])
		}
	}
	for row := range 900 {
		if d.within[0].Has(row) != isEven(row) {
			t.Fatalf("row %d: the scan is within %t, the filter says %t", row, d.within[0].Has(row), isEven(row))
		}
	}
	for _, row := range d.items[0] {
		if !isEven(int(row)) {
			t.Fatalf("row %d is rescored, which the filter does not let through", row)
		}
	}
}

// TestRankersGetTheWholeQuery: a ranker gets the whole query, and rows with the fields that it
// wants, including support items.
func TestRankersGetTheWholeQuery(t *testing.T) {
	base := newRelevances(t, 150, 10)
	name(t, base.world)
	w := &recorded{world: base.world, hooks: recorder.Hooks{Forward: func(s adapters.SearchRequest) adapters.SearchRequest {
		s.Partitions = nil
		return s
	}}}
	j := base.critic()
	j.wants.PayloadFields, j.wants.Vectors, j.wants.Payload = []string{"n"}, true, false
	var asked []plugin.Query
	truth := j.relevance
	j.relevance = func(q plugin.Query, it plugin.Item) float32 {
		asked = append(asked, q)
		if payloadNumber(t, it.Payload) != number(it) || !slices.Equal(it.Vector, w.vectors.Row(number(it))) {
			t.Errorf("item %s comes with %s and %v", it.ID, it.Payload, it.Vector)
		}
		return truth(q, it)
	}
	p := w.pipe(t, route.PlacementStored, ranking(j, 40, 1))
	calls := 37
	request := search.Request{
		Query: rerank.Query{Text: "query 77", UserID: 7, HasUserID: true, Context: map[string]float32{"hour": 3}},
		K:     5, Calls: &calls, Rounds: 3, Filter: even, Exclude: nothing(), Partitions: []string{partition},
	}
	a := w.search(t, p, request)
	if a.Ranking.Budget != 37 || a.Ranking.Calls > 37 || a.Ranking.Rounds < 2 {
		t.Errorf("%+v", a.Ranking)
	}
	want := request.Query
	if unset := recorder.Unset(want, map[string]string{"Vector": "it is what the ranker's scores make", "Vectors": "a model of one vector refuses them"}); len(unset) > 0 {
		t.Errorf("the test sets nothing for %q", unset)
	}
	for i, q := range asked {
		if lines := recorder.Differences(q, want); len(lines) > 0 {
			t.Fatalf("item %d: %q", i, lines)
		}
	}
	for i, s := range of[adapters.SearchRequest](t, w, recorder.Search) { // in every round
		want, except := wanted(false)
		want.WithVectors = s.WithVectors
		wantSearch(t, fmt.Sprintf("search %d", i), s, want, except)
	}
	ranked := 0
	for i, f := range of[adapters.FetchRequest](t, w, recorder.Fetch) {
		wants := adapters.FetchRequest{Collection: collection, IDs: f.IDs, Vectors: []string{vectorField}, Consistency: consistency}
		except := map[string]string{"Owner": "items are rows"}
		if len(f.PayloadFields) > 0 || f.Payload {
			ranked++
			wants.Payload, wants.PayloadFields = true, []string{"n"}
		} else {
			except["Payload"], except["PayloadFields"] = "features need none", "features need none"
		}
		wantFetch(t, fmt.Sprintf("fetch %d", i), f, wants, except)
	}
	if ranked < 2 {
		t.Errorf("%d fetches for the ranker", ranked)
	}
}
