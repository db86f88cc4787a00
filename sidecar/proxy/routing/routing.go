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
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/search/failure"
	"github.com/likenessdb/likeness/sidecar/search/plan"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// ErrRoutes says that two routes cover the same vector field of a collection.
var ErrRoutes = errors.New("routes of the proxy contradict each other")

// Router knows which searches the routes cover. It is safe for concurrent use.
type Router struct {
	searcher search.Searcher
	routes   map[field]string    // by name, since a route can be replaced by another version
	known    map[string][]string // names of a collection's routes
	log      *slog.Logger
	record   Recorder
	database latency
	extra    extra
	aliases  aliases
	shadows  *semaphore.Weighted

	// Work that outlives its call. closing ends it, and Close waits for it.
	background sync.WaitGroup
	closing    context.Context //nolint:containedctx // the life of the router, which no call has
	close      context.CancelFunc

	gate     *gate.Gate
	events   events.Book
	trials   Trials
	store    string
	follower Follower // nil: no writes are followed
	budget   time.Duration
	names    names
	accepted acceptances

	unanswered unanswered

	mu      sync.Mutex
	schemas map[string]schema // by the route's name for the collection
	off     map[string]bool   // routes that are switched off
}

// Recorder receives the outcomes of searches. Its methods are called concurrently and must not
// block.
type Recorder interface {
	// Proxied records that a search on a collection of these routes ended with an outcome
	// (rewritten, rescored, passed, degraded or shadow) for a reason.
	Proxied(routes []string, outcome, reason string)
	// Raced records that an original request was sent beside rescoring (late or eagerly) and won or
	// lost; or that it was withheld, or sent instead of rescoring.
	Raced(fallback, outcome string)
	// Shadowed records how the answer that a client got differs from the rescored one.
	Shadowed(rt string, c telemetry.Comparison)
	// ShadowFailed records why a sample was not compared.
	ShadowFailed(rt, reason string)
	// Switched records that a route was switched off or on.
	Switched(rt string, off bool)
}

// Trials says which searches experiments answer. search.Engine is one.
type Trials interface {
	// Trying reports whether any experiment runs.
	Trying() bool
	// Tries reports whether the experiment of a request's route answers it.
	Tries(r search.Request) bool
}

// silent is a Recorder that records nothing.
type silent struct{}

func (silent) Proxied([]string, string, string)      {}
func (silent) Raced(string, string)                  {}
func (silent) Shadowed(string, telemetry.Comparison) {}
func (silent) ShadowFailed(string, string)           {}
func (silent) Switched(string, bool)                 {}

// field is a vector field of a collection.
type field struct{ collection, vector string }

// Options configure New.
type Options struct {
	// Store is the name of the store that clients connect to. Names lists the routes that answer
	// them; empty means all routes of the store.
	Store  string
	Names  []string
	Logger *slog.Logger
	// Recorder may be nil.
	Recorder Recorder
	// Gate, if set, makes parsers of long JSON take turns.
	Gate *gate.Gate
	// Events keeps what answers show.
	Events events.Book
	// Trials, if not nil, says which searches the routes' experiments answer.
	Trials Trials
	// Follower, if not nil, is told of writes. WriteBudget limits how long it may delay a write; 0
	// means 5 ms.
	Follower    Follower
	WriteBudget time.Duration
}

// New returns a router for the searcher's routes. The caller must close it. It returns ErrRoutes.
func New(searcher search.Searcher, o Options) (*Router, error) {
	r := &Router{
		searcher: searcher, routes: map[field]string{}, known: map[string][]string{}, schemas: map[string]schema{},
		off: map[string]bool{}, log: o.Logger, record: o.Recorder, shadows: semaphore.NewWeighted(inShadow),
		aliases: aliases{own: map[string]string{}}, gate: o.Gate, events: o.Events, trials: o.Trials, store: o.Store, follower: o.Follower, budget: cmp.Or(o.WriteBudget, writeBudget),
	}
	r.unanswered.runs, r.unanswered.logged = map[string]*Unanswered{}, map[string]map[string]time.Time{}
	if r.record == nil {
		r.record = silent{}
	}
	for _, rt := range searcher.Routes() {
		if rt.StoreName != o.Store || len(o.Names) > 0 && !slices.Contains(o.Names, rt.Name) {
			continue
		}
		at := field{rt.Collection, rt.ItemField()}
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

// InTurn calls parse for a call of the given length. Long calls wait for their turn, as in
// gate.Parse.
func (r *Router) InTurn(ctx context.Context, bytes int, parse func() error) error {
	return r.gate.Parse(ctx, bytes, parse)
}

// Close ends the background work, and waits for it.
func (r *Router) Close() error {
	r.close()
	r.background.Wait()
	return nil
}

// Field reports whether a vector field of a collection has a route.
func (r *Router) Field(collection, vector string) bool {
	return r.routes[field{collection, vector}] != ""
}

// searchPanicked logs a recovered panic, and returns the error of the call.
func (r *Router) searchPanicked(ctx context.Context, collection string, cause any) error {
	r.log.ErrorContext(ctx, "a search of the proxy panicked", "collection", collection, "panic", cause)
	return Degraded{Reason: "panic"}
}

// Pass is the reason why a search is forwarded to the database unchanged.
type Pass string //nolint:errname // it is the outcome of a search, and reads as one

func (p Pass) Error() string { return "passed; reason=" + string(p) }

// Degraded is the reason why a search that a route covers was not rescored.
type Degraded struct { //nolint:errname // as Pass
	Reason string
	Closed bool // the route forbids the database's own answer
}

func (d Degraded) Error() string { return "degraded; reason=" + d.Reason }

// Search is a nearest-neighbour search of any interface.
type Search struct {
	Vector string // name of the field
	Query  []float32
	// Vectors takes the place of Query if the client searches by several vectors.
	Vectors       rerank.Matrix
	Limit, Offset uint64
	Filter        string // in the store's filter language
	Exact         bool
	// Threshold, if not nil, is the score that all rows of the answer must exceed.
	Threshold *float32
	// IDsOnly reports that the answer shows only ids, scores and versions.
	IDsOnly bool
	// Needs lists features of the search. The route must have opted in to each of them, or the
	// search passes with that reason.
	Needs []string
	// Partitions names the partitions to search; empty means all.
	Partitions []string
	// Unquantized reports that an exact search uses the original vectors even if the field is
	// quantized. Only Locate sets it and the fields below.
	Unquantized bool
	// HasEF reports that the request sets the size of the index's candidate list, or asks to
	// compare every row.
	HasEF bool
	// Staged: the search contributes to an answer with others. It is a prefetch, a query that
	// orders the rows of its prefetches, or a list of a hybrid search.
	Staged bool
	// Narrowed: the rows of the answer are not the first rows of the whole collection, because of a
	// filter, a threshold, an offset or the like.
	Narrowed bool
	// Unmapped is the reason why a rewritten search passes if the similarity's scores differ from
	// the database's. Empty means that it does not pass.
	Unmapped Pass
	// Tried: an experiment answers a search of the call, so that all of them are ranked here.
	Tried bool
	// Find, if not nil, replaces the route's first stage: it asks the database for the best rows of
	// the search itself, at most the given number.
	Find func(ctx context.Context, rows int) ([]rerank.ID, error)

	// answerBy is when the rows must be ranked, so that the database can confirm them in time. The
	// router sets it; zero means no such time.
	answerBy time.Time
}

// similarityQuery returns the query that the route's similarity scores.
func (s *Search) similarityQuery() rerank.Query {
	if s.Vectors.Rows > 0 {
		return rerank.Query{Vectors: s.Vectors}
	}
	return rerank.Query{Vector: s.Query}
}

// NeedConsistency records that the request asks for a read consistency: the route must have opted
// in to it, and the rows of the answer must be read with it.
func (s *Search) NeedConsistency() {
	s.Needs, s.IDsOnly = append(s.Needs, "consistency"), false
}

// Row is a hit as the database returned it.
type Row struct {
	IsThere bool
	// Vector is the vector that the route scores, or nil if it did not come with the row.
	Vector []float32
}

// Ranked is the ranking of a search: its best hits, more than the search asks for if some may be
// gone.
type Ranked struct {
	Hits          []search.Hit
	Limit, Offset int
	// More reports that a deeper ranking may find more hits, All that these are all hits.
	More, All bool
	Route     string
	Vector    string // field that the route scores, by the search's name for it
	// StoreScores reports that the answer keeps the store's scores, with which the search's
	// threshold is compared.
	StoreScores bool
	// Cut reports that a threshold may shorten the answer.
	Cut         bool
	Certificate rerank.Status
	AsOf        time.Time // with StatusSnapshot
	// Shown: the search that found the hits showed each of them, with its version, to this caller,
	// and the answer shows nothing more of them.
	Shown   bool
	Epsilon float32 // for certificates that prove something
	// Partial reports that the route's ranker scored only some of the items that it should score.
	Partial bool
	// WrongNorm reports that a row violated the route's unit_vectors.
	WrongNorm bool
	// Reembedded is the share of the candidates with a vector of the new model, on a route that embeds its
	// items again; otherwise nil.
	Reembedded *float64

	// score returns the similarities of vectors. It is nil if the hits' scores do not follow from
	// the vectors.
	score func(ctx context.Context, vectors rerank.Matrix) ([]float32, error)
	// version is the digest of the model that scored the hits, gap bounds what a missing hit could
	// gain, and page holds the hits that the answer shows.
	version string
	gap     float32
	page    []search.Hit
	// experiment is set if the hits are of the route's experiment.
	experiment experiment.Kind
	arm        experiment.Arm
	// isLast reports that the search is not ranked again, even if the collection has changed.
	isLast bool
}

// AllShown reports whether all rankings are Shown.
func AllShown(all []Ranked) bool {
	return !slices.ContainsFunc(all, func(r Ranked) bool { return !r.Shown })
}

// Page returns the hits of the requested page, among those that the database returns. A hit whose
// row has its vector gets the score of that vector. Page returns ErrShort if there are too few
// hits. If an exact ranking and the database's rows contradict each other, the collection changed
// in between: Page then returns ErrChanged or, if this is the last ranking, the rows as they are
// with an unknown certificate.
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
		// The database's own threshold may have removed the rows, so that ranking again would not
		// help.
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
	r.page = here[from:to]
	return here[from:to], r.scoreReturned(ctx, here[from:to], rows[from:to])
}

// contradict records that the database's rows contradict the ranking, which invalidates the
// certificates. It returns ErrChanged if the search is to be ranked again.
func (r *Ranked) contradict(certificates ...rerank.Status) error {
	switch {
	case r.Certificate == rerank.StatusExact && !r.isLast:
		return ErrChanged
	case slices.Contains(certificates, r.Certificate):
		r.Certificate = rerank.StatusUnknown
	}
	return nil
}

// scoreReturned rescores and reorders the hits of a page whose rows have their vectors. Scores that
// differ only by rounding stay.
func (r *Ranked) scoreReturned(ctx context.Context, page []search.Hit, rows []Row) error {
	if r.score == nil || r.StoreScores || len(rows) == 0 {
		return nil
	}
	vectors := rerank.NewMatrix(len(rows), len(rows[0].Vector))
	for i, row := range rows {
		if len(row.Vector) != vectors.Cols || vectors.Cols == 0 {
			return nil // the client did not request vectors
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

// isSameScore reports whether two scores can belong to the same vector, if one is computed in
// float32 and the other is off by at most epsilon.
func isSameScore(a, b, epsilon float32) bool {
	return math.Abs(float64(a)-float64(b)) <= 2*float64(epsilon)+1e-5*max(math.Abs(float64(a)), math.Abs(float64(b)))+1e-6
}

// statusText returns the status text of a rescored or rewritten answer. It names the weakest
// certificate, and the oldest snapshot.
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
	if least := leastReembedded(all); least != nil {
		said += fmt.Sprintf("; reembedded=%.2f", math.Floor(100**least)/100) // 1.00 if no candidate lacks one
	}
	if i := slices.IndexFunc(all, func(r Ranked) bool { return r.experiment != "" }); i >= 0 {
		said += "; experiment=" + string(all[i].experiment)
	}
	return said
}

// leastReembedded returns the least share of candidates with a vector of the new model, or nil if no
// route embeds its items again.
func leastReembedded(all []Ranked) (least *float64) {
	for _, r := range all {
		if r.Reembedded != nil && (least == nil || *r.Reembedded < *least) {
			least = r.Reembedded
		}
	}
	return least
}

func strength(s rerank.Status) int {
	return slices.Index([]rerank.Status{rerank.StatusUnknown, rerank.StatusCalibrated, rerank.StatusSnapshot, rerank.StatusExact}, s)
}

// MaxBatch limits the searches of one call that are answered. A call with more passes.
const MaxBatch = 256

// parallel limits the searches of one call that are ranked concurrently.
const parallel = 4

// rankAll ranks the searches of a call, with more hits each time deeper grows. It returns the first
// Pass or Degraded among them, since a call is answered by one side and one version of the route
// only.
func (r *Router) rankAll(ctx context.Context, target Target, searches []Search, deeper int) ([]Ranked, error) {
	if len(searches) == 1 { // a goroutine's stack would have to grow
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

// find returns the route of a vector field, or the Pass of its searches.
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
		return nil, Degraded{Reason: "failed"} // the route is gone
	case rt.Broken != nil:
		return nil, Degraded{Reason: "broken", Closed: rt.Failure == route.FailClosed}
	case rt.Owner != "":
		return nil, Pass("owner") // the route's items are not points
	}
	return rt, nil
}

// route returns the route of a search that is rescored, or the Pass of the search.
func (r *Router) route(ctx context.Context, collection string, s Search) (*route.Route, error) {
	rt, err := r.find(ctx, collection, s.Vector)
	switch {
	case s.Vectors.Rows > 0 && errors.Is(err, Pass("vector")):
		return nil, Pass("not-nearest")
	case err != nil:
		return nil, err
	case s.Vectors.Rows > 0 && (rt.Model.Similarity == nil || !rt.Model.Similarity.Spec().ManyVectors):
		return nil, Pass("not-nearest") // the similarity takes one vector
	case rt.Placement == route.PlacementRewrite && s.Find == nil && !s.Tried: // and Locate found no plain search
		return nil, Pass(cmp.Or(append(slices.Clone(s.Needs), "not-rewritten")...))
	case s.Exact && !rt.ExactSearch:
		return nil, Pass("exact")
	case s.Limit == 0:
		return nil, Pass("limit")
	case !sameNames(s.Partitions, rt.Partitions) && (len(s.Partitions) == 0 || !rt.TakesPartitions(s.Partitions)):
		return nil, Pass("partitions") // the route covers fewer partitions, or does not know which rows they hold
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
	if most := s.maxRank(rt); s.Limit > most || s.Offset > most-s.Limit {
		return nil, Pass("depth") // the page lies beyond the ranked list
	}
	return rt, nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// otherPartitions returns the partitions that a request names, or nil if they are the route's
// partitions.
func otherPartitions(asked, rt []string) []string {
	if sameNames(asked, rt) {
		return nil
	}
	return asked
}

// maxRank returns the greatest offset+limit that one ranked list of a route serves.
func maxRank(rt *route.Route) uint64 {
	switch {
	case rt.Ranker != nil:
		return uint64(min(rt.MaxK, rt.Calls)) // later rows have no ranker's score
	case rt.Strategy == rerank.Scan:
		return uint64(rt.MaxK)
	}
	return uint64(min(rt.MaxK, rt.Depth))
}

// maxRank returns the greatest offset+limit that one ranked list of a route serves for the search.
func (s Search) maxRank(rt *route.Route) uint64 {
	if s.Tried { // both versions rank as much, so that a page goes on where the page before ended
		return min(maxRank(rt), search.MaxTried)
	}
	return maxRank(rt)
}

// hitsFor returns how many hits to rank for a search: those that are asked for, more if the
// features may be older than the database or if a threshold cuts the answer, and more each time
// deeper grows. more reports whether a deeper ranking has more hits.
func hitsFor(rt *route.Route, s Search, deeper int) (k int, more bool) {
	k = int(s.Limit + s.Offset)
	most := rt.MaxK
	if s.Tried {
		most = min(most, search.MaxTried)
	}
	if rt.Strategy != rerank.Scan && rt.MaxDepth > 0 {
		most = min(most, rt.MaxDepth)
	}
	if rt.Ranker != nil {
		return min(most, int(maxRank(rt))), false // its cost does not depend on the number of hits
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
		if p := recover(); p != nil { // a panic in a goroutine would end the process
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
		Route: rt.Name, Query: s.similarityQuery(), K: k, Filter: s.Filter, NoFallback: true, Confirms: true,
		Partitions: otherPartitions(s.Partitions, rt.Partitions), MaxRank: int(s.maxRank(rt)), Collection: target.renamed(),
		Versions: s.IDsOnly && !target.Aliased() && !rt.KeepsStoreScores(), Tried: s.Tried, AnswerBy: s.answerBy, User: userOf(ctx),
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
		version: a.Version, gap: a.Certificate.Gap, experiment: a.Experiment, arm: a.Arm,
	}
	if out.Certificate == rerank.StatusExact || out.Certificate == rerank.StatusSnapshot { // other certificates may have an infinite one
		out.Epsilon = a.Certificate.Epsilon
	}
	if a.Reembedded != nil {
		share := a.Reembedded.Share()
		out.Reembedded = &share
	}
	if a.Experiment == "" { // otherwise hits have scores of two versions
		out.score = r.scoring(rt, s.similarityQuery())
	}
	out.keepRanked(a.Ranking)
	return out, out.finish(s)
}

// scoring returns a function that scores vectors of the collection as the route does, or nil if the
// route's scores do not follow from these vectors.
func (r *Router) scoring(rt *route.Route, query rerank.Query) func(context.Context, rerank.Matrix) ([]float32, error) {
	if rt.Ranker != nil || rt.Reembeds() || rt.Model.Similarity == nil || rt.Model.Similarity.Spec().Kind == rerank.KindRBE || rerank.AbilitiesOf(rt.Model.Similarity).Vectors != nil {
		return nil
	}
	return func(ctx context.Context, vectors rerank.Matrix) ([]float32, error) {
		a, err := r.searcher.Score(search.WithinCall(ctx), search.ScoreRequest{Route: rt.Name, Query: query, Vectors: vectors})
		return a.Scores, err
	}
}

// finish checks the hits of a search, and cuts them at the search's threshold.
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

// cut keeps the hits whose score exceeds a threshold, as Qdrant does.
func (r *Ranked) cut(threshold float32) {
	for i, h := range r.Hits {
		if h.Score <= threshold {
			r.Hits, r.More, r.All = r.Hits[:i], false, true
			return
		}
	}
}

// failed classifies an error of a search. Errors that the database reports better itself pass; the
// others are Degraded.
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
	if errors.Is(err, gate.ErrOverload) { // the database's answer is cheaper, and one log line for each would be too much
		return Degraded{Reason: "overload"}
	}
	if errors.Is(err, context.Canceled) { // the client left; nothing is wrong
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
