package search

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/search/rank"
	"github.com/likenessdb/likeness/sidecar/search/retrieve"
)

// TestAgree: scores agree within the errors of both sides. A missing hit is no contradiction.
func TestAgree(t *testing.T) {
	one := rerank.UintID(1)
	for name, c := range map[string]struct {
		have, want           float64
		hitError, exactError float64
		same                 bool
	}{
		"equal":                      {2, 2, 0, 0, true},
		"a rounding":                 {2, 2 + 0x1p-23, 0, 0, true},
		"more than a rounding":       {2, 2 + 0x1p-21, 0, 0, false},
		"the error of the answer":    {2, 2.5, 0.5, 0, true},
		"the error of the exact one": {2, 1.5, 0, 0.5, true},
		"both errors":                {2, 3, 0.5, 0.5, true},
		"more than both":             {2, 3.01, 0.5, 0.5, false},
		"not a number":               {2, math.NaN(), 0.5, 0.5, false},
	} {
		hits := []Hit{{ID: one, Score: float32(c.have)}, {ID: rerank.UintID(2), Score: 9}}
		if got := agree(hits, c.hitError, map[rerank.ID]float64{one: c.want}, c.exactError); got != c.same {
			t.Errorf("%s: %t, want %t", name, got, c.same)
		}
	}
}

// TestIsScan: what a request asks for counts before what its route does.
func TestIsScan(t *testing.T) {
	for _, c := range []struct {
		ofRoute, asked rerank.Strategy
		want           bool
	}{{rerank.Scan, "", true}, {rerank.Scan, rerank.Average, false}, {rerank.Average, rerank.Scan, true}, {rerank.Average, "", false}} {
		checked := &route.Checked{}
		checked.Strategy = c.ofRoute
		if got := isScan(checked, Request{Strategy: c.asked}); got != c.want {
			t.Errorf("%q asked of a route of %q: %t", c.asked, c.ofRoute, got)
		}
	}
}

// TestStoppedBy: an error of a later round keeps the answer of the earlier rounds if time has run
// out or the store gives no deeper lists.
func TestStoppedBy(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	limit := &adapters.LimitError{Limit: "max_depth"}
	for name, c := range map[string]struct {
		ctx   context.Context
		round int
		err   error
		want  rerank.Stop
	}{
		"the first round":        {over, 1, limit, ""},
		"time is over":           {over, 2, errors.New("failed"), rerank.StopDeadline},
		"the store's limit":      {t.Context(), 2, limit, rerank.StopLimit},
		"the store fails":        {t.Context(), 2, adapters.ErrUnavailable, ""},
		"the store is too large": {over, 3, limit, rerank.StopDeadline},
	} {
		if got := stoppedBy(c.ctx, c.round, c.err); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// viewOf returns a view of a route of a store with two-dimensional vectors.
func viewOf(change func(*route.Checked)) route.View {
	c := &route.Checked{Spec: rerank.Spec{QueryDim: 2, ItemDim: 2}}
	c.Name, c.Collection, c.Store, c.Failure, c.MaxDepth = "r", "items", embedded.New(), route.FailOpen, 100
	change(c)
	return route.View{Checked: c}
}

// TestTimeIsKeptBack: a search ends early only where something else can answer in the time that is left.
func TestTimeIsKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		patient, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		until, endEarly := (&search{view: viewOf(func(*route.Checked) {})}).keepTimeBack(patient)
		defer endEarly()
		if deadline, _ := until.Deadline(); time.Until(deadline) != 10*time.Second-maxKeptBack {
			t.Errorf("of ten seconds, the search has %s", time.Until(deadline))
		}
		for name, c := range map[string]struct {
			change func(*route.Checked)
			want   time.Duration
		}{
			"the store can answer": {func(*route.Checked) {}, 800 * time.Millisecond},
			"it may not":           {func(c *route.Checked) { c.Failure = route.FailClosed }, time.Second},
			"there is none":        {func(c *route.Checked) { c.Store = nil }, time.Second},
		} {
			s := &search{view: viewOf(c.change)}
			until, end := s.keepTimeBack(ctx)
			if deadline, _ := until.Deadline(); time.Until(deadline) != c.want {
				t.Errorf("%s: the search has %s, want %s", name, time.Until(deadline), c.want)
			}
			end()
		}
	})
}

// TestWithoutTheRanker: answers in the order of the similarity take the place of a ranker's only where the route and
// the request permit other answers.
func TestWithoutTheRanker(t *testing.T) {
	hits := []rerank.Scored{{ID: rerank.UintID(1)}, {ID: rerank.UintID(2)}}
	for name, c := range map[string]struct {
		failure route.FailurePolicy
		request plan.Request
		err     error
		want    error
	}{
		"fail_open":          {route.FailOpen, plan.Request{}, ranker.ErrUnavailable, nil},
		"fail_closed":        {route.FailClosed, plan.Request{}, ranker.ErrUnavailable, failure.ErrDegraded},
		"no other answer":    {route.FailOpen, plan.Request{NoFallback: true}, ranker.ErrUnavailable, failure.ErrDegraded},
		"the query is wrong": {route.FailOpen, plan.Request{}, ranker.ErrQuery, ranker.ErrQuery},
	} {
		s := &search{view: viewOf(func(r *route.Checked) { r.Failure = c.failure }), plan: &plan.Plan{Request: c.request, AnswerRows: 1}}
		got, err := s.orderWithoutRanker(t.Context(), hits, c.err)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || len(got) != 1 || s.answer.Degraded == nil) {
			t.Errorf("%s: %v, %v, degraded %+v; want %v", name, got, err, s.answer.Degraded, c.want)
		}
	}
}

// embedder makes one vector of every text.
type embedder struct{ embed.Embedder }

func (embedder) Embed(_ context.Context, queries []string, documents ...string) ([][]float32, error) {
	return slices.Repeat([][]float32{{1, 2}}, len(queries)+len(documents)), nil
}

// TestTheTextOfAnEmbeddedQuery: stays for a ranker, and is dropped where nobody reads it.
func TestTheTextOfAnEmbeddedQuery(t *testing.T) {
	e, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []ranker.Ranker{nil, struct{ ranker.Ranker }{}} {
		v := viewOf(func(c *route.Checked) { c.Embedder, c.Ranker = embedder{}, r })
		q, _, err := e.embed(t.Context(), v.Checked, rerank.Query{Text: "words"})
		if err != nil || !slices.Equal(q.Vector, []float32{1, 2}) || (q.Text == "words") != (r != nil) {
			t.Errorf("ranker %v: %+v, %v", r, q, err)
		}
		if err := plan.CheckQuery(v.Checked, q); err != nil {
			t.Errorf("ranker %v: the embedded query is refused: %v", r, err)
		}
	}
}

// failing is an embedder that makes no vector.
type failing struct{ embed.Embedder }

func (failing) Embed(context.Context, []string, ...string) ([][]float32, error) {
	return nil, embed.ErrUnavailable
}

// TestAVectorThatIsOnlyMixedIn: an embedder that fails costs the share of the store's order, and nothing else, unless
// the caller is gone.
func TestAVectorThatIsOnlyMixedIn(t *testing.T) {
	e, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		vector []float32 // of the query
		fails  bool
	}{"mixed in": {t.Context(), []float32{1, 2}, false}, "the caller is gone": {gone, []float32{1, 2}, true}, "the query's only one": {t.Context(), nil, true}} {
		r := Request{Query: rerank.Query{Text: "words", Vector: c.vector}}
		_, err := e.embedRequest(c.ctx, viewOf(func(c *route.Checked) { c.Embedder = failing{} }).Checked, &r)
		if errors.Is(err, embed.ErrUnavailable) != c.fails || err == nil && (r.Mix == nil || *r.Mix != 0) {
			t.Errorf("%s: %v, mix %v", name, err, r.Mix)
		}
	}
}

// TestNobodyWaitsForTheStoresOrder: a caller that is gone gets no other answer.
func TestNobodyWaitsForTheStoresOrder(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s := &search{view: viewOf(func(*route.Checked) {})}
	if err := s.fallBack(gone, &failure.Error{Reason: failure.Deadline, Err: gone.Err()}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the caller", err)
	}
}

// TestWhoTakesPart: a search without a user is assigned by its query. Each session of a user gets an arm of its own, and
// each query of the session a seed of its own.
func TestWhoTakesPart(t *testing.T) {
	half, all := &Trial{Name: "e", Share: 0.5, Session: time.Hour}, &Trial{Name: "e", Share: 1, Session: time.Hour}
	asks := func(text string) Request { return Request{User: "u", Query: rerank.Query{Text: text}} }
	arms, takes := map[experiment.Arm]bool{}, map[bool]bool{}
	for i := range 64 {
		begin := time.Unix(0, 0).Add(time.Duration(i) * time.Hour)
		takes[half.assign(Request{Query: rerank.Query{Text: strconv.Itoa(i)}}, begin).Takes] = true
		first, last := all.assign(asks("a"), begin), all.assign(asks("a"), begin.Add(time.Hour-1))
		if arms[first.Arm] = true; first != last {
			t.Errorf("within a session %+v becomes %+v", first, last)
		}
		filtered := asks("a")
		filtered.Filter = "f"
		if first.Seed == all.assign(asks("b"), begin).Seed || first.Seed == all.assign(filtered, begin).Seed {
			t.Error("two queries of a session have one seed")
		}
	}
	if len(takes) != 2 || len(arms) != 2 {
		t.Errorf("64 texts take part: %v; 64 sessions are answered by %v", takes, arms)
	}
}

// encodedDot returns an encoded query of two elements.
func encodedDot(t *testing.T) rerank.Encoded {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := sim.Encode(rerank.Query{Vector: []float32{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// doubted is writes that the database may have made.
type doubted struct{ asked *int }

func (d doubted) Cleared(context.Context) bool { *d.asked++; return true }

// TestDoubtsOfDerivedData: before a certificate of a table or companion the doubt about writes in flight is settled,
// and a vector that changed during the search leaves it behind.
func TestDoubtsOfDerivedData(t *testing.T) {
	for name, c := range map[string]struct {
		placement route.Placement
		changed   bool
		behind    bool
		asked     int
	}{"a table": {route.PlacementTable, false, false, 1}, "changed": {route.PlacementDerived, true, true, 1}, "stored vectors": {route.PlacementStored, true, false, 0}} {
		asked := 0
		v := viewOf(func(r *route.Checked) { r.Placement = c.placement })
		v.Doubt = doubted{&asked}
		f := &finder{view: v, plan: &plan.Plan{Request: plan.Request{K: 1, Strategy: rerank.Average}, Encoded: encodedDot(t)}, reader: &retrieve.Reader{Changed: c.changed}, certifiedK: 1}
		if f.certify(t.Context(), 1); f.view.Behind != c.behind || asked != c.asked {
			t.Errorf("%s: behind %t, the doubt was settled %d times; want %t, %d", name, f.view.Behind, asked, c.behind, c.asked)
		}
	}
}

// TestWhatAnImpressionSays: whether the answer was degraded, and that an experiment's answer is kept whatever the share.
func TestWhatAnImpressionSays(t *testing.T) {
	dir := t.TempDir()
	kept, err := events.OpenRoute(dir, "r", events.RouteOptions{Share: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{events: events.Book{"r": kept}}
	want := 0
	for _, a := range []Answer{{}, {Experiment: "interleaving"}, {Experiment: "interleaving", Degraded: &Degraded{}}, {Degraded: &Degraded{}}} {
		id, err := events.ParseAnswerID(e.keepImpression(Request{Route: "r"}, "", &a))
		if err != nil {
			t.Fatal(err)
		}
		if id.Call.Kept() != (a.Experiment != "") {
			t.Errorf("%+v is kept: %t", a, id.Call.Kept())
		}
		if id.Call.Kept() {
			want++
		}
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	var degraded []bool
	if _, err := events.Read(dir, events.Visitor{Impression: func(m *events.Impression) error { degraded = append(degraded, m.Degraded); return nil }}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(degraded, []bool{false, true}) || want != 2 {
		t.Errorf("kept impressions say degraded: %v", degraded)
	}
}

// TestSomethingElseIsMixedIn: items of the store's order that the ranker was asked about already do not take the place
// of new ones.
func TestSomethingElseIsMixedIn(t *testing.T) {
	store := embedded.New()
	vectors := rerank.NewMatrix(9, 2)
	for i := range 9 {
		vectors.Row(i)[0] = float32(9 - i)
	}
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: vectors}}}
	if err := store.Load("items", in); err != nil {
		t.Fatal(err)
	}
	calls, mix := 6, 0.5
	v := viewOf(func(c *route.Checked) {
		c.Store, c.StoreCan, c.Ranker = store, adapters.AbilitiesOf(store), describing{}
		c.RankWithin = func(_ context.Context, _ plugin.Query, items []plugin.Item, _ int) (ranker.Result, error) {
			return ranker.Result{Scores: make([]float32, len(items)), Calls: len(items)}, nil
		}
	})
	r := plan.Request{Query: rerank.Query{Vector: []float32{1, 0}}, StoredVector: []float32{1, 0}, Calls: &calls, Rounds: 1, Mix: &mix, Strategy: rerank.Average}
	spending, r, err := rank.Begin(t.Context(), v, r, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	spending.Round(t.Context(), rank.Candidates{Database: []rerank.ID{rerank.UintID(0), rerank.UintID(1)}}, 2, 2)
	s := &search{engine: &Engine{log: slog.New(slog.DiscardHandler)}, view: v, plan: &plan.Plan{Request: r}, spending: spending}
	if got := s.mixIn(t.Context()); !slices.Equal(got, []rerank.ID{rerank.UintID(2), rerank.UintID(3)}) {
		t.Errorf("half of the four calls that are left go to %v, want items 2 and 3, the best that nobody scored", got)
	}
}

// TestARankerThatIsNotAsked: a degraded answer says that the ranker scored nothing of what it should have, and why.
func TestARankerThatIsNotAsked(t *testing.T) {
	store, calls, mix := embedded.New(), 6, 0.0
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{1, 0}}}}}
	if err := store.Load("items", in); err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]string{failure.Deadline: rank.CutDeadline, failure.Store: rank.CutFailed} {
		v := viewOf(func(c *route.Checked) {
			c.Store, c.StoreCan, c.Ranker, c.Failure, c.MaxDepth = store, adapters.AbilitiesOf(store), describing{}, route.FailOpen, 10
		})
		r := plan.Request{Query: rerank.Query{Vector: []float32{1, 0}}, K: 1, Calls: &calls, Rounds: 1, Mix: &mix, Strategy: rerank.Average}
		spending, r, err := rank.Begin(t.Context(), v, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s := &search{engine: &Engine{log: slog.New(slog.DiscardHandler)}, view: v, plan: &plan.Plan{Request: r, AnswerRows: 1}, spending: spending}
		if err := s.fallBack(t.Context(), &failure.Error{Reason: reason, Err: errors.New("broken")}); err != nil || len(s.answer.Hits) != 1 {
			t.Fatal(s.answer.Hits, err)
		}
		if spending.Cut != calls || spending.Reason != want {
			t.Errorf("%s: %d calls are cut because of %q; want %d, %q", reason, spending.Cut, spending.Reason, calls, want)
		}
	}
}

// describing is a ranker with only a description.
type describing struct {
	ranker.Ranker

	wants plugin.Description
}

func (d describing) Describe(context.Context) (plugin.Description, error) { return d.wants, nil }

// rewrittenOf returns a rewritten query of an inner-product field, whose vector has norm 2.
func rewrittenOf(change func(*route.Checked)) *Rewritten {
	v := viewOf(func(c *route.Checked) {
		c.Field = adapters.VectorField{Metric: adapters.InnerProduct, Dim: 2, FullPrecision: true}
		change(c)
	})
	return &Rewritten{Vector: []float32{2, 0}, Scale: 3, Offset: 5, route: v.Checked, request: Request{K: 3}}
}

// TestEvidenceOfADatabase: only finite scores of the database bound what its answer lacks.
func TestEvidenceOfADatabase(t *testing.T) {
	hits := []Hit{{Score: 9}, {Score: 7}, {Score: float32(math.Inf(-1))}, {Score: float32(math.NaN())}}
	e := rewrittenOf(func(*route.Checked) {}).evidence(DatabaseAnswer{Hits: hits})
	if e.Hits != 4 || e.Finite != 2 || e.Known.Max != 7 || e.KthScore != 7 || !rerank.IsFinite(e.Known.Epsilon) {
		t.Errorf("%+v, bound %+v", e, e.Known)
	}
}

// TestWhatADatabaseProves: a list is exact only if the whole field compares vectors as they are and the search was
// exhaustive by itself or as asked. One that is shorter than asked for holds all rows, and one that was narrowed, or
// stage of another answer, does not prove that there are no others.
func TestWhatADatabaseProves(t *testing.T) {
	one := []Hit{{Score: 9}}
	always := func(c *route.Checked) { c.Field.AlwaysExact = true }
	for name, c := range map[string]struct {
		change                                  func(*route.Checked)
		got                                     DatabaseAnswer
		exact, exhausted, restricted, hidesRows bool
	}{
		"as asked":             {func(c *route.Checked) { c.Field.Exact = true }, DatabaseAnswer{Hits: one, Exact: true}, true, true, false, false},
		"not asked for":        {func(c *route.Checked) { c.Field.Exact = true }, DatabaseAnswer{Hits: one}, false, false, false, false},
		"always":               {always, DatabaseAnswer{Hits: one}, true, true, false, false},
		"a whole page":         {always, DatabaseAnswer{Hits: []Hit{{Score: 9}, {Score: 8}, {Score: 7}}}, true, false, false, false},
		"narrowed":             {always, DatabaseAnswer{Hits: one, Narrowed: true}, true, true, true, true},
		"one stage of several": {always, DatabaseAnswer{Hits: one, Staged: true}, false, false, false, false},
		"rounded vectors":      {func(c *route.Checked) { c.Field.AlwaysExact, c.Field.FullPrecision = true, false }, DatabaseAnswer{Hits: one}, false, false, false, false},
	} {
		e := rewrittenOf(c.change).evidence(c.got)
		if l := e.Lists[0]; l.Exact != c.exact || l.Exhausted != c.exhausted || e.Restricted != c.restricted || e.HidesRows != c.hidesRows {
			t.Errorf("%s: %+v, restricted %t, hides rows %t", name, l, e.Restricted, e.HidesRows)
		}
	}
}

// TestEpsilonOfADatabase: on a field of inner products the longest vector is taken to be twice as long as the scores
// show, unless the operator declares unit vectors; the rounding of a field of float16 comes on top.
func TestEpsilonOfADatabase(t *testing.T) {
	hits := []Hit{{Score: 4}, {Score: -13}}
	const scale, shown = 3 * 2, (13 + 5.) / (3 * 2) // of φ in the score, and the longest vector that the scores show
	own := float64(13+5) * 0x1p-22                  // of the conversion to φ
	for name, c := range map[string]struct {
		change func(*route.Checked)
		want   float64
	}{
		"vectors of any norm": {func(*route.Checked) {}, float64(adapters.Epsilon32(adapters.VectorField{Dim: 2}.Roundings()+4, scale, 2*shown))},
		"unit vectors":        {func(c *route.Checked) { c.UnitVectors = true }, float64(adapters.Epsilon32(adapters.VectorField{Dim: 2}.Roundings()+4, scale, 1))},
		"float16": {
			func(c *route.Checked) { c.Field.Datatype = adapters.Float16 },
			float64(adapters.Epsilon32(adapters.VectorField{Dim: 2}.Roundings()+4, scale, 2*shown)) + 3*float64(adapters.Epsilon16(2, 2, 2*shown)),
		},
	} {
		if got := rewrittenOf(c.change).epsilon(hits); !(math.Abs(float64(got)-c.want-own) <= 1e-6*(c.want+own)) {
			t.Errorf("%s: the scores may be off by %g, want %g", name, got, c.want+own)
		}
	}
}

// TestCostsThatAreLearned: only searches of the whole collection in one round say what a scan and the first stage cost.
func TestCostsThatAreLearned(t *testing.T) {
	for name, c := range map[string]struct {
		request plan.Request
		rounds  int
		learned bool
	}{
		"one round":      {plan.Request{Strategy: rerank.Average}, 1, true},
		"deeper":         {plan.Request{Strategy: rerank.Average}, 2, false},
		"filtered":       {plan.Request{Strategy: rerank.Average, Filter: "f"}, 1, false},
		"of a partition": {plan.Request{Strategy: rerank.Average, Partitions: []string{"p"}}, 1, false},
		"excluded items": {plan.Request{Strategy: rerank.Average, Exclude: make([]rerank.ID, 1)}, 1, false},
	} {
		costs := new(route.Costs)
		s := &search{view: viewOf(func(r *route.Checked) { r.Costs = costs }), plan: &plan.Plan{Request: c.request}}
		s.countCosts(&finder{certificate: rerank.Certificate{Rounds: c.rounds}, timings: Timings{Retrieve: time.Second}})
		if _, why := costs.Choose(10, rerank.Average); strings.Contains(why, "to measure") == c.learned {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// TestWaitingForACandidate: takes at most half of the time that the caller has left.
func TestWaitingForACandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for within, want := range map[time.Duration]time.Duration{time.Minute: 500 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond, -time.Second: 0} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if _, ok := await(ctx, make(chan tried), within); ok || time.Since(began) != want {
				t.Errorf("within %s: %t after %s, want %s", within, ok, time.Since(began), want)
			}
			cancel()
		}
		done := make(chan tried, 1)
		done <- tried{took: 7}
		if got, ok := await(t.Context(), done, -time.Second); !ok || got.took != 7 {
			t.Errorf("an answer that is here: %+v, %t", got, ok)
		}
	})
}

// TestInterleavedFigures: an interleaved list has the versions of its rows only if both lists have them, counts what
// both left out, and proves nothing.
func TestInterleavedFigures(t *testing.T) {
	for _, c := range [][2]bool{{false, true}, {true, false}, {true, true}} {
		control := Answer{HasVersions: c[0], NotFinite: 1, NotIndexed: 2, Certificate: rerank.Certificate{Status: rerank.StatusExact}, Hits: []Hit{{ID: rerank.UintID(1)}}}
		candidate := Answer{HasVersions: c[1], NotFinite: 3, NotIndexed: 4, Hits: []Hit{{ID: rerank.UintID(2)}}}
		if a := interleave(control, candidate, 2, 1); a.HasVersions != (c[0] && c[1]) || a.NotFinite != 4 || a.NotIndexed != 6 || len(a.Hits) != 2 || a.Certificate.Status != rerank.StatusUnknown {
			t.Errorf("%v: %+v", c, a)
		}
	}
}

// fetching is a store that records the collections whose rows were read by id.
type fetching struct {
	*embedded.Store

	read []string
}

func (f *fetching) Fetch(_ context.Context, r adapters.FetchRequest) (adapters.Rows, error) {
	f.read = append(f.read, r.Collection)
	return adapters.Rows{}, nil
}

// TestAPlanMadeAgain: a route that is checked during a search keeps the strategy and the query that were planned, and
// the ranker reads its rows from the collection that is searched.
func TestAPlanMadeAgain(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := &fetching{Store: embedded.New()}
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(1, 2)}}}
	if err := store.Load("items", in); err != nil {
		t.Fatal(err)
	}
	tab, err := table.FromMemory(table.Meta{ModelVersion: "v", Collection: "items"}, []rerank.ID{rerank.UintID(0)}, rerank.NewMatrix(1, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &route.Route{
		Policy: route.Policy{Name: "r", StoreName: "s", Collection: "items", Placement: route.PlacementStored, Strategy: rerank.Average},
		Parts:  route.Parts{Store: store, Table: tab, Model: route.Model{Name: "m", Version: "v", Similarity: sim}},
	}
	e, err := New([]*route.Route{r}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	version, err := e.Find(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	defer version.Release()
	s := &search{engine: e, view: version.Current().View()}
	s.plan = &plan.Plan{Request: plan.Request{K: 1, Strategy: rerank.Scan}, Encoded: encodedDot(t)}
	embedded, calls := rerank.Query{Vector: []float32{3, 4}}, 1
	s.spending, _, err = rank.Begin(t.Context(), viewOf(func(c *route.Checked) {
		c.Store, c.StoreCan, c.Ranker = store, adapters.AbilitiesOf(store), describing{wants: plugin.Description{Payload: true}}
	}), plan.Request{Query: embedded, Calls: &calls, Rounds: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.restart(t.Context(), version, plan.Request{K: 1, Collection: "others", Query: rerank.Query{Text: "words"}}, embedded); err != nil {
		t.Fatal(err)
	}
	if s.spending.Round(t.Context(), rank.Candidates{Database: []rerank.ID{rerank.UintID(0)}}, 1, 1); !slices.Equal(store.read, []string{"others"}) {
		t.Errorf("the ranker's rows are read from %q", store.read)
	}
	if got := s.plan.Request; got.Strategy != rerank.Scan || !slices.Equal(got.Query.Vector, embedded.Vector) || !s.view.StoreAsked {
		t.Errorf("the plan is %+v, and the store was asked: %t", got, s.view.StoreAsked)
	}
}

// TestWhatMayStandIn: the store's own order takes the place of an answer only where the policy, the request and the
// query permit it, and nothing of the answer that failed is left in it.
func TestWhatMayStandIn(t *testing.T) {
	store := embedded.New()
	in := embedded.Collection{Fields: []embedded.Field{{VectorField: adapters.VectorField{Metric: adapters.InnerProduct}, Vectors: rerank.NewMatrix(5, 2)}}}
	if err := store.Load("items", in); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx      context.Context
		change   func(*route.Checked)
		request  plan.Request
		spending *rank.Spending
		want     string
	}{
		"it may":                {t.Context(), func(*route.Checked) {}, plan.Request{}, nil, ""},
		"fail_closed":           {t.Context(), func(c *route.Checked) { c.Failure = route.FailClosed }, plan.Request{}, nil, "fail_closed"},
		"no other answer":       {t.Context(), func(*route.Checked) {}, plan.Request{NoFallback: true}, nil, "no other answer"},
		"no store":              {t.Context(), func(c *route.Checked) { c.Store = nil }, plan.Request{}, nil, "no store"},
		"a vector of scores":    {t.Context(), func(*route.Checked) {}, plan.Request{}, &rank.Spending{}, "scores of support items"},
		"vectors of two models": {t.Context(), func(c *route.Checked) { c.Spec.QueryDim = 3 }, plan.Request{}, nil, "3 elements"},
		"no time":               {ended, func(*route.Checked) {}, plan.Request{}, nil, "no time"},
	} {
		v := viewOf(func(c *route.Checked) { c.Store = store })
		c.change(v.Checked)
		s := &search{engine: &Engine{log: slog.New(slog.DiscardHandler)}, view: v, plan: &plan.Plan{Request: c.request}, spending: c.spending}
		if got := s.cannotFallBack(c.ctx); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	s := &search{engine: &Engine{log: slog.New(slog.DiscardHandler)}, view: viewOf(func(c *route.Checked) { c.Store = store })}
	s.plan = &plan.Plan{Request: plan.Request{K: 4, Query: rerank.Query{Vector: []float32{1, 0}}}, AnswerRows: 2}
	s.answer = Answer{Hits: make([]Hit, 3), NotFinite: 1, NotIndexed: 2, Reembedded: &Reembedded{Candidates: 3}}
	if err := s.fallBack(t.Context(), &failure.Error{Reason: failure.Scoring, Err: errors.New("broken")}); err != nil {
		t.Fatal(err)
	}
	if s.answer.Certificate.Stop != rerank.StopFixed {
		t.Errorf("the certificate is %+v", s.answer.Certificate)
	}
	if a := s.answer; len(a.Hits) != 2 || a.NotFinite != 0 || a.NotIndexed != 0 || a.Reembedded != nil || a.Degraded.Reason != failure.Scoring || a.Certificate.Status != rerank.StatusUnknown {
		t.Errorf("the answer is %+v", a)
	}
	if err := s.fallBack(t.Context(), &failure.Error{Reason: failure.Deadline, Err: errors.New("late")}); err != nil || s.answer.Certificate.Stop != rerank.StopDeadline || s.answer.Degraded.Detail != "late" {
		t.Errorf("at the deadline: %+v, %v", s.answer, err)
	}
}

// TestWrongNormsOfADatabase: a row that contradicts unit_vectors leaves the database's answer unproved.
func TestWrongNormsOfADatabase(t *testing.T) {
	for norm, want := range map[float32]rerank.Status{1: rerank.StatusExact, 2: rerank.StatusUnknown} {
		r := rewrittenOf(func(c *route.Checked) { c.Field.AlwaysExact, c.UnitVectors, c.Norms = true, true, &route.Norms{} })
		r.route.Norms.See([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{norm, 0}})
		if got := r.evidence(DatabaseAnswer{Hits: []Hit{{Score: 9}}}).Certificate(); got.Status != want {
			t.Errorf("a row of norm %g: %+v, want %s", norm, got, want)
		}
	}
}

// observed keeps what an observer was told last.
type observed struct {
	answer Answer
	err    error
}

func (o *observed) Searched(_ context.Context, _ string, _ Request, a Answer, err error) {
	o.answer, o.err = a, err
}

// TestObserversOfADatabasesAnswer: whoever audits answers, or keeps them, learns what the database answered, and whether
// the client had narrowed its search.
func TestObserversOfADatabasesAnswer(t *testing.T) {
	failed := errors.New("the database is down")
	for name, got := range map[string]DatabaseAnswer{
		"whole": {Hits: []Hit{{Score: 9}}}, "narrowed": {Hits: []Hit{{Score: 9}}, Narrowed: true}, "failed": {Err: failed},
	} {
		r, told := rewrittenOf(func(c *route.Checked) { c.Model.Name, c.Model.Version = "m", "v" }), &observed{}
		r.engine, r.span, r.request.Strategy = &Engine{observer: told}, trace.SpanFromContext(t.Context()), rerank.Average
		c := r.Answered(t.Context(), got)
		a := told.answer
		if len(a.Hits) != len(got.Hits) || a.Narrowed != got.Narrowed || !errors.Is(told.err, got.Err) || a.Certificate != c {
			t.Errorf("%s: %+v, %v", name, a, told.err)
		}
		if a.Model != "m" || a.Version != "v" || a.Strategy != rerank.Average {
			t.Errorf("%s: strategy %q of model %q, version %q", name, a.Strategy, a.Model, a.Version)
		}
	}
}
