package routing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/follow/journal"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// replied is a call whose answers are fixed numbers.
type replied struct {
	Exchange[int]
	asked  Asked
	read   error
	access Access
}

func (r replied) Locate(context.Context) (Asked, error) { return r.asked, r.read }

func (r replied) Read(context.Context) (Asked, error) { return r.asked, r.read }

func (replied) Original(context.Context, bool) int { return 7 }

func (r replied) Access(int) Access { return r.access }

// TestTheFirstCallTellsTheTime: the database's time is learned from a call with which it accepted a
// caller, and not from one that it refused.
func TestTheFirstCallTellsTheTime(t *testing.T) {
	for access, want := range map[Access]int{AccessGranted: 1, AccessDenied: 0, AccessUnknown: 0} {
		c := call[int]{accepted: &acceptances{}, database: &latency{}, x: replied{access: access}, began: time.Now()}
		own, ok := c.checkAccess(t.Context())
		if own != 7 || ok != (want == 1) || c.database.count != want || (c.own != nil) != ok || c.accepted.has(c.caller) != ok {
			t.Errorf("access %d: answered %d, accepted %t, %d times", access, own, ok, c.database.count)
		}
	}
}

// TestReadingACall: a call that cannot be read in time is degraded. A call with too many searches,
// or on a collection with an unknown name, passes.
func TestReadingACall(t *testing.T) {
	search := Search{Vector: "v", Query: []float32{1}, Limit: 1}
	several := func(n int) Asked { return Asked{Searches: slices.Repeat([]Search{search}, n)} }
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		x    replied
		own  string
		want error
	}{
		"one search":        {replied{asked: several(1)}, "c", nil},
		"the most searches": {replied{asked: several(MaxBatch)}, "c", nil},
		"too many searches": {replied{asked: several(MaxBatch + 1)}, "c", Pass("batch")},
		"no search":         {replied{}, "c", Pass("batch")},
		"no name":           {replied{asked: several(1)}, "", Pass("alias")},
		"too late":          {replied{read: context.DeadlineExceeded}, "c", Degraded{Reason: "deadline"}},
		"the client left":   {replied{read: context.Canceled}, "c", Degraded{Reason: "canceled"}},
		"passed":            {replied{read: Pass("filter")}, "c", Pass("filter")},
		"failed":            {replied{read: failed}, "c", failed},
	} {
		r := routerOf(&route.Route{Policy: route.Policy{MaxK: 9, Depth: 9, Ramp: 100}})
		of := newCall(r, Target{Name: "c", Routed: "c", Own: c.own}, c.x, time.Now())
		if err := of.read(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if err == nil && len(of.routes) != len(of.asked.Searches) {
			t.Errorf("%s: %d routes of %d searches", name, len(of.routes), len(of.asked.Searches))
		}
	}
}

// TestSearchesCountForTheirCaller: the engine gets the caller of each search, so that the gate
// shares its places among callers. A client of a database without credentials counts for its host, whatever
// credential it sends.
func TestSearchesCountForTheirCaller(t *testing.T) {
	rt := &route.Route{Policy: route.Policy{MaxK: 9, Depth: 9, Ramp: 100}, Parts: route.Parts{Store: plainStore{}}}
	r := routerOf(rt)
	caller := ""
	r.rescorer.searcher = callers{routes: routes{all: map[string]*route.Route{"r": rt}}, of: func(ctx context.Context) { caller = gate.CallerOf(ctx) }}
	x := replied{asked: Asked{Searches: []Search{{Vector: "v", Query: []float32{1}, Limit: 1}}}, access: AccessGranted}
	for isOpen, want := range map[bool]string{false: "caller " + r.accepted.caller(t.Context()), true: "10.0.0.1"} {
		r.accepted.open, caller = isOpen, ""
		if Answer(gate.WithSender(t.Context(), "10.0.0.1:7"), r, Target{Name: "c", Routed: "c", Own: "c"}, x); caller != want {
			t.Errorf("open %t: the engine was told of caller %q", isOpen, caller)
		}
	}
}

// callers is a Searcher that reports the contexts of its searches, and answers none.
type callers struct {
	routes
	of func(context.Context)
}

func (c callers) Search(ctx context.Context, _ search.Request) (search.Answer, error) {
	c.of(ctx)
	return search.Answer{}, errors.New("no answer")
}

// TestLatencyBudget: the shortest budget of a collection's routes counts.
func TestLatencyBudget(t *testing.T) {
	for _, c := range []struct {
		budgets []time.Duration
		want    time.Duration
	}{{nil, 0}, {[]time.Duration{0, 0}, 0}, {[]time.Duration{3, 2, 0, 5}, 2}, {[]time.Duration{0, 4}, 4}} {
		s, covered := routes{all: map[string]*route.Route{}}, &coverage{names: &Names{collections: map[string][]string{}}}
		for i, b := range c.budgets {
			name := string(rune('a' + i))
			s.all[name] = &route.Route{Policy: route.Policy{LatencyBudget: b}}
			covered.names.collections["c"] = append(covered.names.collections["c"], name)
		}
		covered.find = s.Route
		if got := covered.latencyBudget("c"); got != c.want {
			t.Errorf("%v: %d, want %d", c.budgets, got, c.want)
		}
	}
}

// TestExtraSearchesDoNotPileUp: however many searches earned it, the database gets a small
// burst of extra searches only.
func TestExtraSearchesDoNotPileUp(t *testing.T) {
	var e extra
	for range 10_000 {
		e.earn(extraShare)
	}
	taken := 0
	for e.take() {
		taken++
	}
	if taken != extraBurst {
		t.Errorf("%d extra searches in a burst, want %d", taken, extraBurst)
	}
}

// TestRescoringEnds: rescoring ends at the route's timeout. On a route that fails closed it may go
// on until the caller's deadline, since no other answer would be in time.
func TestRescoringEnds(t *testing.T) {
	began := time.Now()
	deadline := began.Add(9 * time.Second)
	for name, c := range map[string]struct {
		closed  bool
		timeout time.Duration
		end     time.Time
		want    time.Time
	}{
		"no end":                       {},
		"a timeout":                    {timeout: time.Second, end: deadline, want: began.Add(time.Second)},
		"a deadline alone":             {end: deadline},
		"fails closed":                 {closed: true, timeout: time.Second, end: deadline, want: deadline},
		"fails closed, and no timeout": {closed: true, end: deadline, want: deadline},
		"fails closed, no deadline":    {closed: true, timeout: time.Second, want: began.Add(time.Second)},
	} {
		rt := &route.Route{Policy: route.Policy{Timeout: c.timeout}}
		if c.closed {
			rt.Failure = route.FailClosed
		}
		of := call[int]{routes: []*route.Route{rt}, began: began, times: times{end: c.end}}
		if got := of.rescoreEnd(); !got.Equal(c.want) {
			t.Errorf("%s: %v after it began", name, got.Sub(began))
		}
	}
}

// TestCallsOfTwoRoutes: the settings of a call's routes apply to the whole call: the greatest share
// of shadow, the greatest share that passes, and failing closed.
func TestCallsOfTwoRoutes(t *testing.T) {
	one := &route.Route{Policy: route.Policy{Name: "one", Ramp: 100}}
	one.Shadow.Share = 0.1
	two := &route.Route{Policy: route.Policy{Name: "two", Ramp: 0, Failure: route.FailClosed}}
	two.Shadow.Share = 0.5
	for _, routes := range [][]*route.Route{{one, two}, {two, one}} {
		c := call[int]{routes: routes}
		if share, name := c.shadow(); share != 0.5 || name != "two" {
			t.Errorf("the shadow's share is %v, of route %q", share, name)
		}
		if !c.ramped() || !c.closed() {
			t.Errorf("passes by the ramp: %t; fails closed: %t", c.ramped(), c.closed())
		}
	}
	if c := (call[int]{routes: []*route.Route{one}}); c.ramped() || c.closed() {
		t.Error("a route without a ramp passes, or fails closed")
	}
}

// TestLaterPages: only first pages are compared. If a search has several stages, an offset may
// belong to any list.
func TestLaterPages(t *testing.T) {
	first, later := Search{}, Search{Offset: 5}
	stage, laterStage := Search{Staged: true}, Search{Staged: true, Offset: 5}
	for _, c := range []struct {
		searches []Search
		want     []bool
	}{
		{[]Search{first, later}, []bool{false, true}}, {[]Search{later, first}, []bool{true, false}},
		{[]Search{stage, stage}, []bool{false, false}}, {[]Search{stage, laterStage}, []bool{true, true}},
		{[]Search{first, laterStage}, []bool{true, true}}, {[]Search{later, stage}, []bool{true, true}},
	} {
		for i, want := range c.want {
			if got := (&call[int]{asked: Asked{Searches: c.searches}}).isLaterPage(i); got != want {
				t.Errorf("list %d of %+v: %t", i, c.searches, got)
			}
		}
	}
}

// TestRunsOfOneReason: a run counts the searches that were left to the database with one status. A
// long run is logged once an hour.
func TestRunsOfOneReason(t *testing.T) {
	u := &unanswered{runs: map[string]*Unanswered{}, logged: map[string]map[string]time.Time{}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(n int, status string) (run Unanswered, logged int) {
		for range n {
			var log bool
			if run, log = u.add("r", status, at); log {
				logged++
			}
		}
		return run, logged
	}
	if run, logged := add(19, "a"); logged != 0 || run.Searches != 19 || len(u.long()) != 0 {
		t.Errorf("19 searches: %+v, logged %d times", run, logged)
	}
	if run, logged := add(1, "b"); logged != 0 || run.Searches != 1 {
		t.Errorf("another reason: %+v, logged %d times", run, logged)
	}
	if run, logged := add(50, "a"); logged != 1 || run.Searches != 50 || u.long()["r"].Searches != 50 {
		t.Errorf("50 searches: %+v, logged %d times", run, logged)
	}
	at = at.Add(time.Hour - 1)
	if _, logged := add(5, "a"); logged != 0 {
		t.Errorf("within the hour it was logged %d times again", logged)
	}
	at = at.Add(1)
	if _, logged := add(5, "a"); logged != 1 {
		t.Errorf("after an hour it was logged %d times", logged)
	}
	if u.answered("r"); len(u.long()) != 0 {
		t.Errorf("after an answer: %+v", u.long())
	}
}

// checkedStore lets a caller write to some of its collections.
type checkedStore struct {
	adapters.Store
	errs map[string]error
}

func (s checkedStore) CheckWrite(ctx context.Context, collection string, _ adapters.WriteWay) error {
	if md, _ := metadata.FromOutgoingContext(ctx); len(md["x"])+len(md["x!"]) > 0 {
		return errors.New("gRPC sends no such header")
	}
	if !adapters.IsAsCaller(ctx) {
		return errors.New("the sidecar's own credentials were used")
	}
	return s.errs[collection]
}

// follows is a Follower of every collection.
type follows struct{ Follower }

func (follows) Covers(string) bool { return true }

// TestMayWrite: a caller may write unless the database says no for every existing collection that
// the write may address.
func TestMayWrite(t *testing.T) {
	refused := adapters.ErrRefused
	for name, c := range map[string]struct {
		a, b    error
		targets []string
		write   Writing
		reach   reach
		want    bool
	}{
		"refused":                            {refused, nil, []string{"a"}, Writing{}, reachTargets, false},
		"allowed":                            {nil, refused, []string{"a"}, Writing{}, reachTargets, true},
		"one of two":                         {refused, nil, []string{"a", "b"}, Writing{}, reachTargets, true},
		"none of two":                        {refused, refused, []string{"a", "b"}, Writing{}, reachTargets, false},
		"one is not there":                   {refused, adapters.ErrNotFound, []string{"a", "b"}, Writing{}, reachTargets, false},
		"the database says nothing":          {errors.New("down"), nil, []string{"a"}, Writing{}, reachTargets, true},
		"perhaps to another":                 {refused, nil, []string{"a"}, Writing{}, reachRenamed, true},
		"perhaps to another, and refused":    {refused, refused, nil, Writing{}, reachRenamed, false},
		"a rename":                           {refused, refused, nil, Writing{Renamed: []string{"x"}}, reachTargets, false},
		"a rename of somebody who may write": {refused, nil, nil, Writing{Renamed: []string{"x"}}, reachTargets, true},
		"nothing that is followed":           {refused, refused, nil, Writing{}, reachTargets, true},
	} {
		store := checkedStore{errs: map[string]error{"a": c.a, "b": c.b}}
		var all []*route.Route
		for _, collection := range []string{"a", "b"} {
			all = append(all, &route.Route{Policy: route.Policy{Collection: collection, StoreName: "s"}})
		}
		f := flight{Writes: &Writes{searcher: listed{all: all}, follower: follows{}, store: "s", storeCan: adapters.Abilities{CheckWrite: store}}, writing: c.write, reach: c.reach}
		for _, name := range c.targets {
			f.targets = append(f.targets, target{collection: name})
		}
		if got := f.mayWrite(t.Context()); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestMayWriteByOddHeaders: a caller cannot keep the sidecar from asking the database by headers that gRPC does not send.
func TestMayWriteByOddHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		header metadata.MD
		answer error
		want   bool
	}{
		"refused, a value that is not ASCII":    {metadata.MD{"api-key": {"k"}, "x": {"\xff"}}, adapters.ErrRefused, false},
		"refused, a control character":          {metadata.MD{"api-key": {"k"}, "x": {"a\r\nb"}}, adapters.ErrRefused, false},
		"refused, an odd name":                  {metadata.MD{"api-key": {"k"}, "x!": {"y"}}, adapters.ErrRefused, false},
		"allowed, an odd name":                  {metadata.MD{"api-key": {"k"}, "x!": {"y"}}, nil, true},
		"allowed, a binary value":               {metadata.MD{"api-key": {"k"}, "y-bin": {"\xff"}}, nil, true},
		"a credential that no database accepts": {metadata.MD{"api-key": {"k\xff"}}, nil, false},
	} {
		all := []*route.Route{{Policy: route.Policy{Collection: "a", StoreName: "s"}}}
		check := adapters.Abilities{CheckWrite: checkedStore{errs: map[string]error{"a": c.answer}}}
		f := flight{Writes: &Writes{searcher: listed{all: all}, follower: follows{}, store: "s", storeCan: check}, targets: []target{{collection: "a"}}}
		if got := f.mayWrite(metadata.NewOutgoingContext(t.Context(), c.header)); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestFollowedCollections: a write concerns collections of the router's own store alone.
func TestFollowedCollections(t *testing.T) {
	all := []*route.Route{
		{Policy: route.Policy{Collection: "a", StoreName: "s"}}, {Policy: route.Policy{Collection: "b", StoreName: "other"}},
	}
	r := &Writes{searcher: listed{all: all}, follower: follows{}, store: "s"}
	if got := r.followed(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}

// TestReadRowsOfAWrite: which rows a write is followed with. A request whose reader panics, or on a
// collection with an unknown layout, may change any row; so may a request whose ids the database
// chooses, until it is answered.
func TestReadRowsOfAWrite(t *testing.T) {
	one := []rerank.ID{rerank.UintID(1)}
	for name, c := range map[string]struct {
		sure, breaks bool
		rows         Rows
		all          bool
		ids          []rerank.ID
		kind, filter string
		chosen, any  bool
	}{
		"ids":            {sure: true, rows: Rows{IDs: one}, ids: one, kind: "upsert", any: true},
		"a filter":       {sure: true, rows: Rows{Filter: "f"}, kind: "upsert", filter: "f", any: true},
		"another kind":   {sure: true, rows: Rows{IDs: one, Kind: "delete"}, ids: one, kind: "delete", any: true},
		"nothing":        {sure: true},
		"chosen":         {sure: true, rows: Rows{IDs: one, Chosen: true}, all: true, kind: "upsert", chosen: true, any: true},
		"all":            {sure: true, rows: Rows{All: true, IDs: one}, all: true, kind: "upsert", any: true},
		"not sure":       {rows: Rows{IDs: one}, all: true, kind: "upsert", any: true},
		"breaks":         {sure: true, breaks: true, all: true, kind: "upsert", any: true},
		"all and chosen": {sure: true, rows: Rows{All: true, Chosen: true}, all: true, kind: "upsert", any: true},
	} {
		f := flight{Writes: &Writes{log: slog.New(slog.DiscardHandler)}, writing: Writing{Kind: "upsert", Read: func(context.Context, adapters.Identity) Rows {
			if c.breaks {
				panic("planted")
			}
			return c.rows
		}}}
		b, any := f.read(t.Context(), target{collection: "c", sure: c.sure})
		if any != c.any {
			t.Errorf("%s: it is followed: %t", name, any)
		}
		if any && (b.write.All != c.all || !slices.Equal(b.write.IDs, c.ids) || string(b.write.Kind) != c.kind || b.write.Filter != c.filter || b.chosen != c.chosen || b.write.Collection != "c") {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// TestWithdrawnWrites: a write that was not forwarded ends as one that changed nothing, and so
// do the doubts about it.
func TestWithdrawnWrites(t *testing.T) {
	b, cleared := &begun{}, 0
	f := flight{
		Writes: &Writes{follower: b}, standing: writerTrusted, writing: Writing{Renamed: []string{"a"}},
		begun: []begunWrite{{end: b.end}, {end: b.end}},
		doubts: map[string]func(*journal.Write){"x": func(w *journal.Write) {
			if w == nil {
				cleared++
			}
		}},
	}
	f.names.beginRename(f.writing)
	f.withdraw()
	if !slices.Equal(b.applied, []bool{false, false}) || cleared != 1 || f.names.moves([]string{"a"}) {
		t.Errorf("ended as %v, %d doubts cleared, a rename on its way: %t", b.applied, cleared, f.names.moves([]string{"a"}))
	}
}
