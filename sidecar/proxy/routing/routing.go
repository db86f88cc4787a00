// Package routing decides which searches of a database's clients a route
// answers, answers those, and says of every other one why it passes. It knows no
// database's messages: the packages qdrant and milvus do.
package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
)

// ErrRoutes says that two routes cover the same vector of a collection.
var ErrRoutes = errors.New("routes of the proxy contradict each other")

// Router knows which searches the routes cover. It is safe for concurrent use.
type Router struct {
	searcher search.Searcher
	routes   map[field]string    // names: a route can be replaced by another version
	known    map[string][]string // the routes of a collection, by name
	log      *slog.Logger
	record   Recorder
	database latency
	extra    extra
	aliases  aliases
	shadows  *semaphore.Weighted

	// What runs on when its call has ended: closing ends it, Close waits for it.
	background sync.WaitGroup
	closing    context.Context //nolint:containedctx // the life of the router, which no call has
	close      context.CancelFunc

	gate     *gate.Gate
	store    string
	follower Follower // nil: nothing follows writes
	budget   time.Duration
	names    names
	accepted acceptances

	unanswered unanswered

	mu      sync.Mutex
	schemas map[string]schema // by collection, as routes name it
	off     map[string]bool   // routes that are switched off
}

// Recorder is told the outcomes of searches. It must not block and is called
// concurrently.
type Recorder interface {
	// Proxied: a search on a routed collection ended with an outcome (rewritten, rescored,
	// passed, degraded or shadow) for a reason.
	Proxied(outcome, reason string)
	// Raced: the original request was sent beside rescoring, late or eagerly, and won
	// or lost; or it was withheld and sent in place of it.
	Raced(fallback, outcome string)
	// Shadowed: how the answer that a client got differs from the rescored one.
	Shadowed(rt string, overlap, rankBiased float64, firstChanged bool)
	// ShadowFailed: a sample was not compared, and why.
	ShadowFailed(rt, reason string)
	// Switched: a route was switched off, or on.
	Switched(rt string, off bool)
}

// silent is told and says nothing.
type silent struct{}

func (silent) Proxied(string, string)                  {}
func (silent) Raced(string, string)                    {}
func (silent) Shadowed(string, float64, float64, bool) {}
func (silent) ShadowFailed(string, string)             {}
func (silent) Switched(string, bool)                   {}

// field is a vector field of a collection.
type field struct{ collection, vector string }

// Options of New.
type Options struct {
	// Store is the name of the store that clients connect to. Names are the routes that
	// answer them; empty means all routes of the store.
	Store  string
	Names  []string
	Logger *slog.Logger
	// Recorder may be nil.
	Recorder Recorder
	// Parsing, if set, are the turns of long JSON.
	Gate *gate.Gate
	// Follower, if not nil, is told of writes; WriteBudget is how long it may hold one
	// up, 5 ms if 0.
	Follower    Follower
	WriteBudget time.Duration
}

// New makes a router of the searcher's routes, to be closed. It returns ErrRoutes.
func New(searcher search.Searcher, o Options) (*Router, error) {
	r := &Router{
		searcher: searcher, routes: map[field]string{}, known: map[string][]string{}, schemas: map[string]schema{},
		off: map[string]bool{}, log: o.Logger, record: o.Recorder, shadows: semaphore.NewWeighted(inShadow),
		aliases: aliases{own: map[string]string{}}, gate: o.Gate, store: o.Store, follower: o.Follower, budget: cmp.Or(o.WriteBudget, writeBudget),
	}
	r.unanswered.runs, r.unanswered.logged = map[string]*Unanswered{}, map[string]map[string]time.Time{}
	if r.record == nil {
		r.record = silent{}
	}
	for _, rt := range searcher.Routes() {
		if rt.StoreName != o.Store || len(o.Names) > 0 && !slices.Contains(o.Names, rt.Name) {
			continue
		}
		at := field{rt.Collection, rt.Vector}
		if other := r.routes[at]; other != "" {
			return nil, fmt.Errorf("%w: %q and %q both cover vector %q of collection %q; name one of them in proxy.routes",
				ErrRoutes, other, rt.Name, at.vector, at.collection)
		}
		r.routes[at] = rt.Name
		r.known[at.collection] = append(r.known[at.collection], rt.Name)
		r.record.Switched(rt.Name, false)
	}
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

// InTurn parses a call of so many bytes, a long one when it has its turn, as gate.Parse does.
func (r *Router) InTurn(ctx context.Context, bytes int, parse func() error) error {
	return r.gate.Parse(ctx, bytes, parse)
}

// Close ends what runs on after its call, and waits for it.
func (r *Router) Close() error {
	r.close()
	r.background.Wait()
	return nil
}

// Field reports whether a vector field of a collection has a route.
func (r *Router) Field(collection, vector string) bool {
	return r.routes[field{collection, vector}] != ""
}

// searchPanicked logs what a recover returned and says what it means for the call.
func (r *Router) searchPanicked(ctx context.Context, collection string, cause any) error {
	r.log.ErrorContext(ctx, "a search of the proxy panicked", "collection", collection, "panic", cause)
	return Degraded{Reason: "panic"}
}

// Pass is why a search goes to the database as it came.
type Pass string //nolint:errname // it is the outcome of a search, and reads as one

func (p Pass) Error() string { return "passed; reason=" + string(p) }

// Degraded is why a search that a route covers was not rescored.
type Degraded struct { //nolint:errname // as Pass
	Reason string
	Closed bool // the route does not want the database's own answer
}

func (d Degraded) Error() string { return "degraded; reason=" + d.Reason }

// Search is a nearest-neighbour search, whatever interface it came by.
type Search struct {
	Vector        string // field
	Query         []float32
	Limit, Offset uint64
	Filter        string // in the store's language
	Exact         bool
	// Threshold, if not nil, is the score that an answer's rows exceed.
	Threshold *float32
	// IDsOnly: the answer shows ids, scores and versions alone.
	IDsOnly bool
	// Needs are the reasons to pass that the route has to have opted in to.
	Needs []string
	// Partitions names the partitions to search; empty means all.
	Partitions []string
	// Unquantized: an exact search compares the vectors themselves, also of a quantized
	// field. It is set by Locate alone, as the fields below are.
	Unquantized bool
	// HasEF: the request says how far the index is to look, or to compare every row.
	HasEF bool
	// Staged: the search is one of several that make an answer together: a prefetch, the
	// query that orders the rows of its prefetches, or a list of a hybrid search.
	Staged bool
	// Narrowed: the answer's rows are not the first of the whole collection, for there is
	// a filter, a threshold, an offset or the like.
	Narrowed bool
	// Unmapped is why a rewritten search passes unless the similarity's scores are the
	// database's own; empty: it does not matter.
	Unmapped Pass
	// Find, if not nil, asks the database for the candidates in place of the route's
	// first stage: so many rows of its own answer, the best first.
	Find func(ctx context.Context, rows int) ([]rerank.ID, error)
}

// NeedConsistency notes that the request asks for a read consistency: the route has to have
// opted in to that, and the rows of the answer have to be read with it.
func (s *Search) NeedConsistency() {
	s.Needs, s.IDsOnly = append(s.Needs, "consistency"), false
}

// Row is what the database returned of a hit.
type Row struct {
	IsThere bool
	// Vector is the vector that the route scores; nil if it did not come with the row.
	Vector []float32
}

// Ranked is the ranking of a search: hits from the first on, more of them than
// the search asks for where some may be gone.
type Ranked struct {
	Hits          []search.Hit
	Limit, Offset int
	// More: a deeper ranking may find more. All: none can.
	More, All bool
	Route     string
	Vector    string // the field that the route scores, as the search names it
	// StoreScores says that the answer keeps the store's scores, with which the search's
	// threshold is compared.
	StoreScores bool
	// Cut: a threshold cuts the answer, so that it may have fewer rows than asked.
	Cut         bool
	Certificate rerank.Status
	AsOf        time.Time // of StatusSnapshot
	// Shown: the database showed this caller every hit, with its version, in the search that
	// found the hits, and the answer shows nothing else of them.
	Shown   bool
	Epsilon float32 // of a certificate that proves something
	// Partial: the route's ranker did not score all that it was to.
	Partial bool
	// WrongNorm: a row was seen against the route's unit_vectors.
	WrongNorm bool

	// score returns the similarities of vectors; nil if the hits have other scores.
	score func(ctx context.Context, vectors rerank.Matrix) ([]float32, error)
	// isLast: the search is not ranked again, however the collection has changed.
	isLast bool
}

// AllShown reports whether the database has shown this caller the hits of every search.
func AllShown(all []Ranked) bool {
	return !slices.ContainsFunc(all, func(r Ranked) bool { return !r.Shown })
}

// Page returns the hits of the page that was asked for, of those that the database returns.
// A hit that came with its vector has the score of that vector. Page returns ErrShort if the
// hits are too few. If a ranking that is exact and the database's rows contradict each
// other, the collection changed in between: Page returns ErrChanged, or of the last ranking
// the rows as they are, whose certificate is then unknown.
func (r *Ranked) Page(ctx context.Context, row func(rerank.ID) Row) ([]search.Hit, error) {
	here, rows, hasGone := make([]search.Hit, 0, len(r.Hits)), make([]Row, 0, len(r.Hits)), false
	for _, h := range r.Hits {
		if shown := row(h.ID); shown.IsThere {
			here, rows = append(here, h), append(rows, shown)
		} else if len(here) < r.Offset+r.Limit {
			hasGone = true
		}
	}
	if hasGone {
		// The database's own threshold may have left the rows out: to rank again would tell nothing.
		r.isLast = r.isLast || r.StoreScores && r.Cut
		if err := r.contradict(rerank.StatusExact); err != nil {
			return nil, err
		}
	}
	whole := r.All && (r.Cut || len(here) == len(r.Hits))
	if len(here) < r.Offset+r.Limit && !whole {
		return nil, ErrShort
	}
	from, to := min(r.Offset, len(here)), min(r.Offset+r.Limit, len(here))
	return here[from:to], r.scoreReturned(ctx, here[from:to], rows[from:to])
}

// contradict notes that the database's rows contradict the ranking, so that the certificates
// do not hold. It returns ErrChanged if the search is to be ranked again.
func (r *Ranked) contradict(certificates ...rerank.Status) error {
	switch {
	case r.Certificate == rerank.StatusExact && !r.isLast:
		return ErrChanged
	case slices.Contains(certificates, r.Certificate):
		r.Certificate = rerank.StatusUnknown
	}
	return nil
}

// scoreReturned gives the hits of a page that came with their vectors the scores of these
// vectors, and their order. Scores that rounding alone tells apart stay.
func (r *Ranked) scoreReturned(ctx context.Context, page []search.Hit, rows []Row) error {
	if r.score == nil || r.StoreScores || len(rows) == 0 {
		return nil
	}
	vectors := rerank.NewMatrix(len(rows), len(rows[0].Vector))
	for i, row := range rows {
		if len(row.Vector) != vectors.Cols || vectors.Cols == 0 {
			return nil // the client did not ask for them
		}
		copy(vectors.Row(i), row.Vector)
	}
	scores, err := r.score(ctx, vectors)
	if err != nil || len(scores) != len(page) {
		return Degraded{Reason: confirmReason}
	}
	changed := false
	for i, h := range page {
		changed = changed || !isSameScore(h.Score, scores[i], r.Epsilon)
	}
	if !changed {
		return nil
	}
	if err := r.contradict(rerank.StatusExact, rerank.StatusSnapshot, rerank.StatusCalibrated); err != nil {
		return err
	}
	for i := range page {
		page[i].Score = scores[i]
	}
	slices.SortStableFunc(page, func(a, b search.Hit) int { return cmp.Compare(b.Score, a.Score) })
	return nil
}

// isSameScore reports whether two scores can be of the same vector: one computed in float32,
// the other off by at most epsilon.
func isSameScore(a, b, epsilon float32) bool {
	return math.Abs(float64(a)-float64(b)) <= 2*float64(epsilon)+1e-5*max(math.Abs(float64(a)), math.Abs(float64(b)))+1e-6
}

// statusText returns the status of a rescored or rewritten answer. It names the weakest of
// the certificates, and of snapshots the oldest.
func statusText(how string, all []Ranked) string {
	weakest := all[0]
	for _, r := range all {
		if c := cmp.Compare(strength(r.Certificate), strength(weakest.Certificate)); c < 0 || c == 0 && r.AsOf.Before(weakest.AsOf) {
			weakest = r
		}
	}
	said := how + "; route=" + weakest.Route + "; certificate=" + string(weakest.Certificate)
	if weakest.Certificate == rerank.StatusSnapshot && !weakest.AsOf.IsZero() {
		said += "; as-of=" + weakest.AsOf.UTC().Format(time.RFC3339)
	}
	if slices.ContainsFunc(all, func(r Ranked) bool { return r.Partial }) {
		said += "; ranking=partial"
	}
	if slices.ContainsFunc(all, func(r Ranked) bool { return r.WrongNorm }) {
		said += "; norms=wrong"
	}
	return said
}

func strength(s rerank.Status) int {
	return slices.Index([]rerank.Status{rerank.StatusUnknown, rerank.StatusCalibrated, rerank.StatusSnapshot, rerank.StatusExact}, s)
}

// MaxBatch is the most searches of one call that are answered. A call with more passes.
const MaxBatch = 256

// parallel is how many searches of one call are ranked at a time.
const parallel = 4

// rankAll ranks the searches of a call, the deeper the more hits of each. It
// returns the Pass or Degraded of the first that has one: a call is answered by
// one side as a whole, and by one version of the route.
func (r *Router) rankAll(ctx context.Context, target Target, searches []Search, deeper int) ([]Ranked, error) {
	if len(searches) == 1 { // needs no goroutine, whose stack would have to grow
		out, err := r.rank(adapters.AsCaller(ctx), target, searches[0], deeper)
		return []Ranked{out}, err
	}
	out, failed := make([]Ranked, len(searches)), make([]error, len(searches))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, s := range searches {
		group.Go(func() error {
			out[i], failed[i] = r.rank(adapters.AsCaller(ctx), target, s, deeper)
			return nil
		})
	}
	_ = group.Wait()
	return out, cmp.Or(failed...)
}

// find returns the route of a vector field, or why none answers its searches.
func (r *Router) find(ctx context.Context, collection, vector string) (*route.Route, error) {
	name, err := r.routeOf(ctx, collection, vector)
	if err != nil {
		return nil, err
	}
	if r.isOff(name) {
		return nil, Pass("off")
	}
	rt, err := r.searcher.Route(name)
	switch {
	case err != nil:
		return nil, Degraded{Reason: "failed"} // it is gone
	case rt.Broken != nil:
		return nil, Degraded{Reason: "broken", Closed: rt.Failure == route.FailClosed}
	case rt.Owner != "":
		return nil, Pass("owner") // its items are no points
	}
	return rt, nil
}

// route returns the route of a search that is rescored, or why none answers it.
func (r *Router) route(ctx context.Context, collection string, s Search) (*route.Route, error) {
	rt, err := r.find(ctx, collection, s.Vector)
	switch {
	case err != nil:
		return nil, err
	case rt.Placement == route.PlacementRewrite && s.Find == nil: // and Locate did not find a plain search
		return nil, Pass(cmp.Or(append(slices.Clone(s.Needs), "not-rewritten")...))
	case s.Exact && !rt.ExactSearch:
		return nil, Pass("exact")
	case s.Limit == 0:
		return nil, Pass("limit")
	case !sameNames(s.Partitions, rt.Partitions) && (len(s.Partitions) == 0 || !rt.TakesPartitions(s.Partitions)):
		return nil, Pass("partitions") // the route sees less, or cannot tell what is in them
	}
	needs := s.Needs
	if s.Threshold != nil && !rt.KeepsStoreScores() {
		needs = append(slices.Clone(needs), "score-threshold")
	}
	for _, reason := range needs {
		if !slices.Contains(rt.OptIn, reason) {
			return nil, Pass(reason)
		}
	}
	if most := maxRank(rt); s.Limit > most || s.Offset > most-s.Limit {
		return nil, Pass("depth") // the page ends behind the list
	}
	return rt, nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// otherPartitions returns the partitions that a request names, or nil if they are the
// route's own.
func otherPartitions(asked, rt []string) []string {
	if sameNames(asked, rt) {
		return nil
	}
	return asked
}

// maxRank returns the deepest offset+limit that one ranked list of a route serves.
func maxRank(rt *route.Route) uint64 {
	switch {
	case rt.Ranker != nil:
		return uint64(min(rt.MaxK, rt.Calls)) // rows behind those have another score
	case rt.Strategy == rerank.Scan:
		return uint64(rt.MaxK)
	}
	return uint64(min(rt.MaxK, rt.Depth))
}

// hitsFor is how many hits to rank for a search: those that are asked for, more
// where the features are older than the database or a threshold cuts, and more
// again the deeper. more says whether a deeper ranking has more.
func hitsFor(rt *route.Route, s Search, deeper int) (k int, more bool) {
	k = int(s.Limit + s.Offset)
	most := rt.MaxK
	if rt.Strategy != rerank.Scan && rt.MaxDepth > 0 {
		most = min(most, rt.MaxDepth)
	}
	if rt.Ranker != nil {
		return min(most, int(maxRank(rt))), false // it scores as many, however few are asked
	}
	here := most
	if deeper == 0 {
		here = max(k, int(maxRank(rt)))
	}
	fresh := rt.Placement == route.PlacementStored && rt.Strategy != rerank.Scan && !rt.ScanIfFaster && rt.Companion == ""
	if !fresh || s.Threshold != nil && rt.KeepsStoreScores() {
		k += max(8, k/2)
	}
	for range deeper {
		k *= 4
	}
	k = min(k, here)
	return k, k < most
}

// rank ranks one search.
func (r *Router) rank(ctx context.Context, target Target, s Search, deeper int) (out Ranked, err error) {
	defer func() {
		if p := recover(); p != nil { // in a goroutine of its own it would end the process
			err = r.searchPanicked(ctx, target.Routed, p)
		}
	}()
	rt, err := r.route(ctx, target.Routed, s)
	if err != nil {
		return Ranked{}, err
	}
	if err := r.checkMetric(ctx, rt); err != nil {
		return Ranked{}, err
	}
	if err := checkRanker(ctx, rt, s); err != nil {
		return Ranked{}, err
	}
	if s.Find != nil {
		return r.rankFound(ctx, rt, target, s)
	}
	k, more := hitsFor(rt, s, deeper)
	a, err := r.searcher.Search(ctx, search.Request{
		Route: rt.Name, Query: rerank.Query{Vector: s.Query}, K: k, Filter: s.Filter, NoFallback: true, Confirms: true,
		Partitions: otherPartitions(s.Partitions, rt.Partitions), MaxRank: int(maxRank(rt)), Collection: target.renamed(),
		Versions: s.IDsOnly && !target.Aliased() && !rt.KeepsStoreScores(),
	})
	switch {
	case err != nil:
		return Ranked{}, r.failed(ctx, rt, err)
	case a.Degraded != nil:
		return Ranked{}, Degraded{Reason: a.Degraded.Reason, Closed: rt.Failure == route.FailClosed}
	}
	out = Ranked{
		Hits: a.Hits, Limit: int(s.Limit), Offset: int(s.Offset), More: len(a.Hits) == k && more, All: len(a.Hits) < k,
		Route: rt.Name, Vector: s.Vector, StoreScores: rt.KeepsStoreScores(), Cut: s.Threshold != nil,
		Certificate: a.Certificate.Status, AsOf: a.Certificate.AsOf, Shown: a.HasVersions, WrongNorm: rt.Norms.Wrong() != nil,
	}
	if out.Certificate == rerank.StatusExact || out.Certificate == rerank.StatusSnapshot { // of others it can be infinite
		out.Epsilon = a.Certificate.Epsilon
	}
	out.score = r.scoring(rt, s.Query)
	out.keepRanked(a.Ranking)
	return out, out.finish(s)
}

// scoring returns a function that scores vectors of the collection as the route does; nil if
// the route's scores do not follow from these vectors.
func (r *Router) scoring(rt *route.Route, query []float32) func(context.Context, rerank.Matrix) ([]float32, error) {
	if rt.Ranker != nil || rt.Model.Similarity == nil || rt.Model.Similarity.Spec().Kind == rerank.KindRBE || rerank.AbilitiesOf(rt.Model.Similarity).Vectors != nil {
		return nil
	}
	return func(ctx context.Context, vectors rerank.Matrix) ([]float32, error) {
		a, err := r.searcher.Score(search.WithinCall(ctx), search.ScoreRequest{Route: rt.Name, Query: rerank.Query{Vector: query}, Vectors: vectors})
		return a.Scores, err
	}
}

// finish checks the hits of a search, and cuts them at its threshold.
func (r *Ranked) finish(s Search) error {
	for _, h := range r.Hits {
		if f := float64(h.Score); math.IsNaN(f) || math.IsInf(f, 0) {
			return Degraded{Reason: "score-not-finite"}
		}
	}
	if s.Threshold != nil && !r.StoreScores {
		r.cut(*s.Threshold)
	}
	if !r.Cut && len(r.Hits) <= r.Offset {
		return Pass("no-candidates")
	}
	return nil
}

// cut keeps the hits whose score exceeds a threshold, as Qdrant has it.
func (r *Ranked) cut(threshold float32) {
	for i, h := range r.Hits {
		if h.Score <= threshold {
			r.Hits, r.More, r.All = r.Hits[:i], false, true
			return
		}
	}
}

// failed sorts an error of a search: what the database words better itself
// passes, the rest is degraded.
func (r *Router) failed(ctx context.Context, rt *route.Route, err error) error {
	if errors.Is(err, adapters.ErrFilter) && strings.Contains(err.Error(), "unknown key") {
		return Pass("unknown-field")
	}
	for reason, targets := range map[string][]error{
		"filter":  {adapters.ErrFilter},
		"refused": {adapters.ErrRefused},
		"request": {plan.ErrRequest, rerank.ErrQuery, rerank.ErrStrategy, adapters.ErrLimit, adapters.ErrNotFound, adapters.ErrDimension, adapters.ErrField},
	} {
		for _, target := range targets {
			if errors.Is(err, target) {
				return Pass(reason)
			}
		}
	}
	if errors.Is(err, gate.ErrOverload) { // the database's own answer is cheaper, and a log line each is not
		return Degraded{Reason: "overload"}
	}
	if errors.Is(err, context.Canceled) { // nobody waits any more, and nothing is wrong
		return Degraded{Reason: "canceled"}
	}
	r.log.WarnContext(ctx, "a search of the proxy was not rescored", "route", rt.Name, "error", err)
	reason := "failed"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reason = "deadline"
	case errors.Is(err, adapters.ErrUnavailable):
		reason = "unavailable"
	}
	return Degraded{Reason: reason, Closed: rt.Failure == route.FailClosed && errors.Is(err, failure.ErrDegraded)}
}
