// Package route holds one collection's rule in service: the Policy that the
// operator wrote, the Parts that are open for it, and what its model and store
// say of both. A Set has the routes of a process and replaces one by another
// version while searches run.
package route

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// Sentinel errors.
var (
	// ErrUnknown: no route has that name.
	ErrUnknown = errors.New("route not found")
	// ErrSetup: a route contradicts its collection, model or table.
	ErrSetup = errors.New("route cannot be served")
)

// Placement says where the items' feature rows live.
type Placement string

const (
	// PlacementTable: feature rows live in the sidecar, in a table that `likeness index` built.
	PlacementTable Placement = "table"
	// PlacementStored: feature rows are computed from the vectors that the store returns.
	PlacementStored Placement = "stored"
	// PlacementDerived: feature rows live in a companion collection that `likeness index` wrote.
	PlacementDerived Placement = "derived"
)

// FailurePolicy says what a route answers when it cannot rescore.
type FailurePolicy string

const (
	// FailOpen answers with the store's own dot-product order, marked degraded.
	FailOpen FailurePolicy = "fail_open"
	// FailClosed answers with an error.
	FailClosed FailurePolicy = "fail_closed"
)

// Policy holds the operator's settings of a route. The zero value of a field asks for
// its default, which Open fills in.
type Policy struct {
	Name       string
	Collection string
	Vector     string // stored vector field; "" is the only or unnamed one
	StoreName  string
	// Placement is PlacementTable where the route has a table, PlacementDerived for a
	// model with behavioural vectors, and PlacementStored otherwise.
	Placement Placement
	// Companion is the collection with the derived fields. Where it is set,
	// per_embedding, average and combined search it, whatever the placement.
	Companion string

	// Defaults of a request that leaves the field empty. Strategy is average for a
	// model that is one inner product, and otherwise the first of distilled, average,
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
	// rescored, or the database's own. 0 leaves the call's deadline alone.
	LatencyBudget time.Duration
	// Proxied holds what only concerns clients of the proxy.
	Proxied Proxied

	// ScanIfFaster scans the table instead of searching the store, where a request
	// names no strategy, while the scan takes no longer. Both are measured.
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

	Failure FailurePolicy // FailOpen by default
	// Limits: 1000, 16384 and 8 by default. The store may narrow MaxDepth.
	MaxK      int
	MaxDepth  int
	MaxRounds int

	// RankerName names the ranker that orders the best candidates; "" means none.
	// Calls is the number of items that it may score for a request, 100 by default;
	// RankRounds the number of rounds in which they are spent, 1 by default.
	RankerName string
	Calls      int
	RankRounds int
}

// Proxied says what clients of the proxy get of a route. The zero value rescores
// every search that means the same when it is rescored.
type Proxied struct {
	// Eager sends the original request at once, beside rescoring.
	Eager bool
	// Passing is the percentage of queries that pass, chosen by a hash of the query.
	Passing int
	// Shadow is the share of queries that are rescored for comparison only; above 0
	// clients get the database's order.
	Shadow float64
	// StoreScores keeps the store's scores in the learned order.
	StoreScores bool
	// OptIn lists reasons to pass that the route answers all the same.
	OptIn []string
}

// Model is the similarity that a route scores by.
type Model struct {
	Name       string
	Version    string // digest of the model file
	Similarity rerank.Similarity
}

// Database names a store in traces: its kind and host:port, empty if not known.
type Database struct{ System, Address string }

// Parts are the things that are open for a route. Optional ones are nil.
type Parts struct {
	Store    adapters.Store // nil: only scans of the table are served
	Database Database
	Model    Model
	// Table holds the feature rows for PlacementTable and for scans.
	Table *table.Table
	// Live takes the table's place where it is set: it is written to while it is
	// searched, and every search reads a snapshot of it.
	Live *table.Live
	// Device scores many rows of the table elsewhere; nil: this machine scores them.
	Device score.Device
	// Freshness tells whether Live and the companion show every write; nil: nobody watches.
	Freshness Freshness
	// Promise holds the calibration of the route's answers; nil: the route makes no promise.
	Promise Promise
	// Ranker orders the best candidates; nil: the similarity alone does.
	Ranker ranker.Ranker
}

// Freshness tells whether the table and the companion of a collection show every write
// to it that was seen. Searches call it concurrently.
type Freshness interface {
	// Fresh reports whether they do, and no write is on its way.
	Fresh() bool
	// Look is Fresh for a caller that can wait: doubt, if not nil, stands for writes on
	// their way that the database may refuse. If it refuses them all, fresh was right.
	Look() (fresh bool, doubt Doubt)
}

// Doubt stands for the writes that were on their way at one moment.
type Doubt interface {
	// Cleared reports whether the database refused them all. It waits for a short time,
	// and not beyond the end of ctx; a write whose outcome is not known by then counts
	// as not refused.
	Cleared(ctx context.Context) bool
}

// FreshNow reports whether f is fresh, once the writes on their way that the database
// may refuse have ended. A nil f is fresh.
func FreshNow(ctx context.Context, f Freshness) bool {
	if f == nil {
		return true
	}
	fresh, doubt := f.Look()
	return fresh && (doubt == nil || doubt.Cleared(ctx))
}

// Route binds a collection to a similarity. It is read-only once it is served.
type Route struct {
	Policy
	Parts
}

// HasBehaviouralVectors reports whether the model owns vectors of items that are
// no rows of the collection.
func (r *Route) HasBehaviouralVectors() bool {
	return rerank.AbilitiesOf(r.Model.Similarity).Vectors != nil
}

// NeedsRankerToEncode reports whether an item's base vector is made of a ranker's
// answers to the model's support queries, which no row of the collection holds.
func (r *Route) NeedsRankerToEncode() bool {
	return rerank.AbilitiesOf(r.Model.Similarity).Questions != nil
}

// TakesPartitions reports whether a request of the route's own strategy may name
// those partitions.
func (r *Route) TakesPartitions(partitions []string) bool {
	return r.Strategy != rerank.Scan && !r.SearchesCompanion(r.Strategy) && r.ForeignPartition(partitions) == ""
}

// ForeignPartition returns the first partition that the route is not narrowed to,
// or "".
func (r *Route) ForeignPartition(partitions []string) string {
	for _, p := range partitions {
		if len(r.Partitions) > 0 && !slices.Contains(r.Partitions, p) {
			return p
		}
	}
	return ""
}

// SearchesCompanion reports whether the probes of a strategy search the companion.
func (r *Route) SearchesCompanion(s rerank.Strategy) bool {
	return r.Companion != "" && s != rerank.Distilled
}

// CurrentTable returns the route's table as it is now, or nil if it has none. The
// caller calls its Release.
func (r *Route) CurrentTable() *table.Table {
	if r.Live != nil {
		return r.Live.Snapshot()
	}
	return r.Table
}
