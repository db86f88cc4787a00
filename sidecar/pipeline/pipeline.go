// Package pipeline answers a query in four steps: probes, retrieve, score,
// certify. It is the only place that knows all four; a step never calls an
// earlier one.
package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// Sentinel errors of a request; those of rerank and adapters pass through wrapped.
var (
	// ErrRoute: no route has that name.
	ErrRoute = errors.New("route not found")
	// ErrRequest: a field of the request is out of range; the error is a *FieldError.
	ErrRequest = errors.New("request not valid")
	// ErrDegraded: a fail_closed route could not give a rescored answer.
	ErrDegraded = errors.New("no rescored answer")
	// ErrSetup: a route contradicts its collection, model or table.
	ErrSetup = errors.New("route cannot be served")
)

// FieldError names a field of a request, its value, its limit and the remedy.
// errors.Is(err, ErrRequest) holds.
type FieldError struct {
	Field, Problem string
}

func (e *FieldError) Error() string { return ErrRequest.Error() + ": " + e.Field + ": " + e.Problem }

// Unwrap makes errors.Is(err, ErrRequest) true.
func (e *FieldError) Unwrap() error { return ErrRequest }

// Placement says where the items' features live.
type Placement string

const (
	// PlacementTable: in the sidecar, in a table built by `likeness index`.
	PlacementTable Placement = "table"
	// PlacementStored: computed from the vectors that the store returns.
	PlacementStored Placement = "stored"
	// PlacementDerived: in a companion collection that `likeness index` wrote.
	PlacementDerived Placement = "derived"
)

// Failure says what a route answers when it cannot rescore.
type Failure string

const (
	// FailOpen answers with the store's own dot-product order, marked degraded.
	FailOpen Failure = "fail_open"
	// FailClosed answers with ErrDegraded.
	FailClosed Failure = "fail_closed"
)

// Model is the similarity a route scores by.
type Model struct {
	Name    string
	Version string // digest of the model file
	rerank.Similarity
}

// Route binds a collection to a similarity. Open checks it; after that it is
// read-only.
type Route struct {
	Name       string
	Collection string
	Vector     string // stored vector field; "" is the only or unnamed one
	StoreName  string
	Store      adapters.Store
	Database   Database
	Model      Model

	Placement Placement // table where there is one, otherwise stored, where not given
	// Table holds the features with PlacementTable, and is what StrategyScan reads.
	Table *table.Table
	// Live, where it is set, is the table, and takes writes: every search reads a
	// snapshot of it.
	Live *table.Live
	// Device scores the table's rows where there are many; nil: this machine does.
	Device Device
	// Companion is the collection with the derived fields. Where it is set,
	// per_embedding, average and combined search it, whatever the placement.
	Companion string

	// Freshness, where it is set, says whether Live and the companion show the
	// collection as it is; while they do not, no answer from them is exact.
	Freshness Freshness

	// Defaults of a request that does not say. Strategy is average for a model
	// that is one inner product, and otherwise the first of distilled, average,
	// per_embedding and scan that model and placement can serve; Depth is 200,
	// AverageDepth is Depth, Weights are uniform.
	Strategy     rerank.Strategy
	Depth        int
	AverageDepth int
	Weights      rerank.Weights
	Head         string // learned probe of the distilled strategy
	MaxGap       *float32
	Timeout      time.Duration
	// LatencyBudget is the time within which a client of the proxy has an answer:
	// rescored, or the database's own. 0 is the call's deadline alone.
	LatencyBudget time.Duration
	// Proxied is what else holds for clients of the proxy.
	Proxied Proxied

	// ScanIfFaster scans the table, where a request does not name a strategy, in place
	// of the first stage while that takes no longer: both are measured.
	ScanIfFaster bool
	// ExactSearch asks the store for exhaustive search.
	ExactSearch bool
	// UnitVectors vouches that the stored vectors have norm 1.
	UnitVectors bool
	// Owner is the field with each row's item, for max-sim. Where the model has
	// behavioural vectors it is a field of the companion, maxsim.Owner if empty.
	Owner       string
	Consistency string
	Partitions  []string

	Failure Failure // FailOpen where not given
	// Limits, 1000, 16384 and 8 where not given; MaxDepth is narrowed to the store's.
	MaxK      int
	MaxDepth  int
	MaxRounds int
	// Promise is what was audited of the answers; nil: nothing.
	Promise Promise

	// Ranker has the last word on the order of the best candidates; nil: there is
	// none. Calls are the items that it may score for a request, 100 where not given,
	// RankRounds the rounds in which they are spent, 1 where not given.
	Ranker     ranker.Ranker
	RankerName string
	Calls      int
	RankRounds int
}

// Freshness says whether what was derived from a collection shows every write to
// it that was seen. It is called by every search, concurrently.
type Freshness interface {
	// Fresh reports whether it does, and no write is on its way.
	Fresh() bool
	// Look is Fresh for a caller that can wait: doubt, if not nil, stands for writes on
	// their way that the database may refuse. If it refuses them all, fresh was right.
	Look() (fresh bool, doubt Doubt)
}

// Doubt stands for writes that were on their way at one moment.
type Doubt interface {
	// Cleared reports whether the database refused them all. It waits for a short time,
	// and not beyond the end of ctx; what is not known by then was not refused.
	Cleared(ctx context.Context) bool
}

// FreshNow reports whether f is fresh, once the writes on their way that the
// database may refuse have ended. A nil f is.
func FreshNow(ctx context.Context, f Freshness) bool {
	if f == nil {
		return true
	}
	fresh, doubt := f.Look()
	return fresh && (doubt == nil || doubt.Cleared(ctx))
}

// Proxied says what a client of the proxy gets of a route. The zero value rescores
// every search that means the same rescored.
type Proxied struct {
	// Eager sends the original request at once, beside rescoring.
	Eager bool
	// Passing is the percentage of queries that pass, by a hash of the query.
	Passing int
	// Shadow is the share of queries that are rescored for comparison alone; above 0
	// the database's order is served.
	Shadow float64
	// StoreScores keeps the store's scores in the learned order.
	StoreScores bool
	// OptIn are the reasons to pass that the route answers all the same.
	OptIn []string
}

// Behavioural reports whether the model has vectors of items that are no rows of
// the collection, so that what is derived of a row alone is not all of an item.
func (r *Route) Behavioural() bool {
	v, ok := r.Model.Similarity.(interface{ VectorsDigest() string })
	return ok && v.VectorsDigest() != ""
}

// Asked reports whether the base vectors of the route's items are what a ranker says
// of them and the model's support queries, which no row of the collection holds.
func (r *Route) Asked() bool {
	m, ok := r.Model.Similarity.(interface{ Questions() []rerank.Query })
	return ok && len(m.Questions()) > 0
}

// Narrows reports whether a request of the route's own strategy can name those
// partitions.
func (r *Route) Narrows(partitions []string) bool {
	return r.Strategy != rerank.Scan && !r.derived(r.Strategy) && r.foreign(partitions) == ""
}

// foreign is a partition that is none of those that the route is narrowed to; "" is
// none.
func (r *Route) foreign(partitions []string) string {
	for _, p := range partitions {
		if len(r.Partitions) > 0 && !slices.Contains(r.Partitions, p) {
			return p
		}
	}
	return ""
}

// Resident is the route's table as it is now, nil if it has none. The caller calls
// its Release.
func (r *Route) Resident() *table.Table {
	if r.Live != nil {
		return r.Live.Snapshot()
	}
	return r.Table
}

// Request is one search.
type Request struct {
	Route string
	// Collection, if set, is searched in place of the route's: the collection that an
	// alias in the route stands for.
	Collection string
	Query      rerank.Query
	K          int
	// Filter is passed to the store in its own language.
	Filter string
	// Partitions to search; none are the route's. A route that is narrowed to some
	// takes those alone. The first stage has to run on the collection itself: a
	// table and a companion do not have its partitions.
	Partitions []string
	// Strategy, Depth, AverageDepth and Weights override the route's where set.
	Strategy     rerank.Strategy
	Depth        int
	AverageDepth int
	Weights      rerank.Weights
	Head         string
	// MaxGap asks for deepening until the gap is at most it; nil is the route's.
	MaxGap *float32
	// Explain asks for the terms of each returned score.
	Explain bool
	// Payload asks for the payload of the returned rows: all of it, or PayloadFields.
	Payload       bool
	PayloadFields []string
	// NoFallback asks for ErrDegraded where a fail_open route would answer with
	// the store's own order: the caller has that already.
	NoFallback bool
	// Calls and Rounds override the route's; of Calls nil does not.
	Calls  *int
	Rounds int
	// Confirms says that the caller asks the store itself for the rows of the
	// answer: those that are gone may be in it.
	Confirms bool
	// MaxRank is the last rank that any page of the query may show; 0 stands for K.
	// Requests that differ only in a K up to MaxRank are answered from the same
	// first-stage lists, so that pages neither repeat nor skip an item.
	MaxRank int
}

// Hit is one row of an answer.
type Hit struct {
	ID          rerank.ID
	Score       float32
	Payload     json.RawMessage
	Explanation *rerank.Explanation
	// Ranked: Score is the ranker's. Hits without follow those with.
	Ranked bool
}

// Ranking says what a ranker was asked for a search.
type Ranking struct {
	Ranker, Version string
	Calls, Budget   int // items that it was asked of, and at most
	Rounds          int
	// Cut counts the items that were to be scored and were not.
	Cut    int
	Reason string // CutDeadline, CutBudget or CutFailed, where Cut is not 0
}

// Reasons why items were not scored by a ranker.
const (
	CutDeadline = "deadline"
	CutBudget   = "budget"
	CutFailed   = "failed"
)

// Degraded says that, and why, scores are not what the route's should be.
type Degraded struct {
	Reason string // one of the Reason constants
	Detail string // for people
}

// Reasons of a degraded answer.
const (
	ReasonScoring  = "scoring_failed"
	ReasonDeadline = "deadline"
	ReasonFetch    = "features_unavailable"
	ReasonStore    = "store_failed"
	// ReasonRanker: the ranker scored nothing; scores and order are the similarity's.
	ReasonRanker = "ranker_failed"
)

// Timings are the seconds spent in each step, over all rounds. Rank is that of the
// ranker, and of reading rows for it.
type Timings struct {
	Encode, Retrieve, Score, Certify, Rank, Total time.Duration
}

func (t *Timings) add(more Timings) {
	t.Encode += more.Encode
	t.Retrieve += more.Retrieve
	t.Score += more.Score
	t.Certify += more.Certify
}

// Answer is the answer to a Request.
type Answer struct {
	Hits        []Hit
	Certificate rerank.Certificate
	// Degraded, if not nil: Hits are the store's own dot-product order and
	// scores, or with ReasonRanker the similarity's, and the certificate's status is
	// unknown.
	Degraded *Degraded
	Strategy rerank.Strategy
	// Plan says why that strategy, where the route left it to what was measured.
	Plan    string
	Model   string
	Version string
	Timings Timings
	// NotFinite counts candidates whose score was not finite; they rank last.
	NotFinite int
	// NotIndexed counts candidates that the table did not have; they were
	// scored from their stored vectors.
	NotIndexed int
	// Ranking is set on a route with a ranker.
	Ranking *Ranking
}

// ScoreRequest asks for φ of items that the caller brings: ids or vectors.
type ScoreRequest struct {
	Route string
	// Collection, if set, holds the items in place of the route's, as in a Request.
	Collection string
	Query      rerank.Query
	IDs        []rerank.ID
	Vectors    rerank.Matrix
	Explain    bool
}

// ScoreAnswer has one entry an item, in the order asked.
type ScoreAnswer struct {
	Scores       []float32
	Explanations []rerank.Explanation
	// Missing are the ids that the store does not have; their score is NaN.
	Missing []rerank.ID
	Model   string
	Version string
}

// Observer is told of every search; it must not block and is called concurrently.
// The context is the search's, and may be over.
type Observer interface {
	Searched(ctx context.Context, route string, r Request, a Answer, err error)
}

// Observers are told one after the other.
type Observers []Observer

// Searched implements Observer.
func (all Observers) Searched(ctx context.Context, route string, r Request, a Answer, err error) {
	for _, o := range all {
		o.Searched(ctx, route, r, a, err)
	}
}

// Searcher is what a server needs of a pipeline.
type Searcher interface {
	// Search answers one request. It returns ErrRoute, a *FieldError,
	// rerank.ErrQuery, rerank.ErrStrategy before any call to the store;
	// ErrDegraded from a fail_closed route; otherwise the store's error.
	Search(ctx context.Context, r Request) (Answer, error)
	// Score returns φ of the items of a ScoreRequest, or an error as Search does.
	Score(ctx context.Context, r ScoreRequest) (ScoreAnswer, error)
	// Routes lists the routes by name, as they are served now.
	Routes() []*Route
	// Route is the one of that name as it is served now, read-only, or ErrRoute.
	Route(name string) (*Route, error)
}
