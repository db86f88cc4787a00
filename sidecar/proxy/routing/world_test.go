package routing_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// described is a store that only answers for descriptions and aliases.
type described struct {
	adapters.Store
	aliases []string
}

func (described) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: []adapters.VectorField{{Name: "v", Dim: 1, Metric: adapters.InnerProduct}}}, nil
}

func (d described) Identify(_ context.Context, name string) (adapters.Identity, error) {
	if slices.Contains(d.aliases, name) {
		name = "c"
	}
	return adapters.Identity{Collection: name, Aliases: d.aliases}, nil
}

// searcher answers every search of its one route with as many ids from 1 on as requested, at most
// rows.
type searcher struct {
	search.Searcher
	route  *route.Route
	rows   int
	search func(ctx context.Context) error
	asked  func(search.Request) // may be nil
	status rerank.Status        // of the certificates
}

func (s searcher) Routes() []*route.Route { return []*route.Route{s.route} }

func (s searcher) Route(string) (*route.Route, error) { return s.route, nil }

func (s searcher) Search(ctx context.Context, r search.Request) (a search.Answer, err error) {
	if s.asked != nil {
		s.asked(r)
	}
	a.Certificate.Status = s.status
	for i := range min(r.K, s.rows) {
		a.Hits = append(a.Hits, search.Hit{ID: rerank.UintID(uint64(i) + 1), Score: float32(100 - i)})
	}
	if s.search != nil {
		err = s.search(ctx)
	}
	return a, err
}

// Score scores vectors by their first element.
func (searcher) Score(_ context.Context, r search.ScoreRequest) (a search.ScoreAnswer, err error) {
	for i := range r.Vectors.Rows {
		a.Scores = append(a.Scores, r.Vectors.Row(i)[0])
	}
	return a, nil
}

func newRoute(change func(*route.Route)) *route.Route {
	r := &route.Route{Policy: route.Policy{Name: "r", StoreName: "s", Ramp: 100, Collection: "c", Vector: "v", MaxK: 100, Depth: 10, Placement: route.PlacementStored}, Parts: route.Parts{Store: described{}}}
	if change != nil {
		change(r)
	}
	return r
}

// switched is a store whose alias "a" stands for one collection after the other.
type switched struct {
	described
	target atomic.Pointer[string] // of the alias
	failed atomic.Bool
}

func newSwitched(target string) *switched {
	s := &switched{}
	s.to(target)
	return s
}

func (s *switched) to(target string) { s.target.Store(&target) }

func (s *switched) Identify(_ context.Context, name string) (adapters.Identity, error) {
	if s.failed.Load() {
		return adapters.Identity{}, adapters.ErrUnavailable
	}
	id := adapters.Identity{Collection: name}
	target := *s.target.Load()
	if name == "a" {
		id.Collection = target
	}
	if id.Collection == target {
		id.Aliases = []string{"a"}
	}
	return id, nil
}

// exchange is a call whose answers are lists of ids. The database's own answer says own.
type exchange struct {
	asked    routing.Asked
	read     error
	located  error                     // of Locate alone
	shown    func(rerank.ID) bool      // nil: all
	vectorOf func(rerank.ID) []float32 // nil: rows come without
	confirm  error                     // of Confirm
	original func(ctx context.Context) answer
	rewrite  func(ctx context.Context, all []routing.Replacement) (answer, [][]search.Hit, error)
}

type answer struct {
	own   bool
	ids   []rerank.ID
	score []float32
	err   error
}

func (x exchange) Locate(context.Context) (routing.Asked, error) {
	if x.located != nil {
		return routing.Asked{}, x.located
	}
	return x.asked, x.read
}

func (x exchange) Rewrite(ctx context.Context, all []routing.Replacement) (answer, [][]search.Hit, error) {
	return x.rewrite(ctx, all)
}

func (x exchange) Read(context.Context) (routing.Asked, error) { return x.asked, x.read }

func (x exchange) Confirm(ctx context.Context, all []routing.Ranked) (a answer, err error) {
	if x.confirm != nil {
		return a, x.confirm
	}
	if ctx.Err() != nil {
		return a, routing.Degraded{Reason: "confirm"}
	}
	shown := x.shown
	if shown == nil {
		shown = func(rerank.ID) bool { return true }
	}
	hits, err := all[0].Page(ctx, func(id rerank.ID) routing.Row {
		row := routing.Row{IsThere: shown(id)}
		if x.vectorOf != nil {
			row.Vector = x.vectorOf(id)
		}
		return row
	})
	for _, h := range hits {
		a.ids, a.score = append(a.ids, h.ID), append(a.score, h.Score)
	}
	return a, err
}

func (x exchange) Original(ctx context.Context, _ bool) answer {
	if x.original == nil {
		return answer{own: true, ids: ids(2, 1)}
	}
	return x.original(ctx)
}

func (exchange) Access(a answer) routing.Access {
	if a.err != nil {
		return routing.AccessUnknown
	}
	return routing.AccessGranted
}

func (exchange) IDs(a answer) ([][]rerank.ID, bool) { return [][]rerank.ID{a.ids}, a.err == nil }

func ids(numbers ...uint64) (all []rerank.ID) {
	for _, n := range numbers {
		all = append(all, rerank.UintID(n))
	}
	return all
}

func plain(limit uint64) routing.Search {
	return routing.Search{Vector: "v", Query: []float32{1}, Limit: limit}
}

func asks(searches ...routing.Search) exchange {
	return exchange{asked: routing.Asked{Searches: searches}}
}

// recorder counts its calls.
type recorder struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *recorder) count(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[fmt.Sprintf(format, args...)]++
}

func (r *recorder) of(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

func (r *recorder) Proxied(_ []string, outcome, reason string) { r.count("%s %s", outcome, reason) }
func (r *recorder) Raced(fallback, outcome string)             { r.count("%s %s", fallback, outcome) }
func (r *recorder) Shadowed(rt string, c telemetry.Comparison) {
	r.count("%s %.3f %.3f %v", rt, c.Overlap, c.RankBiased, c.FirstChanged())
}
func (r *recorder) ShadowFailed(rt, reason string) { r.count("%s not compared: %s", rt, reason) }
func (r *recorder) Switched(string, bool)          {}

var quiet = slog.New(slog.DiscardHandler)

func router(t *testing.T, s search.Searcher, record routing.Recorder) *routing.Router {
	t.Helper()
	out, err := routing.New(s, routing.Options{Store: "s", Logger: quiet, Recorder: record})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// ask asks for an answer as a caller whom the database accepted lately.
func ask(ctx context.Context, r *routing.Router, x exchange) routing.Outcome[answer] {
	return askOf(ctx, r, routing.Target{Name: "c", Routed: "c", Own: "c"}, x)
}

func askOf(ctx context.Context, r *routing.Router, target routing.Target, x exchange) routing.Outcome[answer] {
	r.Accept(ctx, target.Name)
	return routing.Answer(ctx, r, target, x)
}

const rescoredStatus = "rescored; route=r; certificate="
