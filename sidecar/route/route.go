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
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/search/score"
)

// Sentinel errors.
var (
	// ErrUnknown: no route has that name.
	ErrUnknown = errors.New("route not found")
	// ErrVersion: the route has no version of that name.
	ErrVersion = errors.New("version not found")
	// ErrSetup: a route contradicts its collection, model or table.
	ErrSetup = errors.New("route cannot be served")
)

// The operator's settings have the types of the configuration.
type (
	// Policy holds the operator's settings of a route.
	Policy = config.Policy
	// Placement says where the feature rows of the items are kept.
	Placement = config.Placement
	// FailurePolicy says what a route answers when it cannot rescore.
	FailurePolicy = config.FailurePolicy
)

// Values of Placement and FailurePolicy.
const (
	PlacementRewrite = config.PlacementRewrite
	PlacementTable   = config.PlacementTable
	PlacementStored  = config.PlacementStored
	PlacementDerived = config.PlacementDerived
	FailOpen         = config.FailOpen
	FailClosed       = config.FailClosed
)

// WritesProxy declares that all writes to the collection pass through this process.
const WritesProxy = config.WritesProxy

// Model is the similarity that a route scores by.
type Model struct {
	Name       string
	Version    string // digest of the model file
	Similarity rerank.Similarity
	// FirstStages holds the recall of the model's first stages, as a fit measured it; empty if no
	// fit did.
	FirstStages rerank.RecallTable
}

// Database names a store in traces: its kind and host:port, empty if not known.
type Database struct{ System, Address string }

// Parts are the things that are open for a route. Optional ones are nil.
type Parts struct {
	// Broken says why the files of the route cannot be used; it is nil if they are open. A broken
	// route has a store and no other part, and answers no search.
	Broken   error
	Store    adapters.Store // nil: only scans of the table are served
	Database Database
	Model    Model
	// Table holds the feature rows for PlacementTable and for scans.
	Table *table.Table
	// Live, if set, replaces Table: it takes writes while it is searched, and every search reads a
	// snapshot of it.
	Live *table.Live
	// Device scores many rows of the table on another processor, such as a GPU. If nil, this
	// machine's CPU scores them.
	Device score.Device
	// Freshness tells whether Live and the companion show every write; nil if nothing watches
	// writes.
	Freshness Freshness
	// Norms checks the vectors of a route with UnitVectors; nil if nothing does.
	Norms *Norms
	// Promise holds the calibration of the route's answers; nil if the route makes no promise.
	Promise Promise
	// Ranker orders the best candidates; if nil, the similarity alone does.
	Ranker ranker.Ranker
	// Embedder makes the vector of a query that is only text; if nil, queries need a vector.
	Embedder embed.Embedder
}

// Freshness tells whether the table and the companion of a collection show the writes to it.
// Searches call it concurrently.
type Freshness interface {
	// Fresh reports whether the table and the companion show every write that was seen, and no
	// write is on its way.
	Fresh() bool
	// Horizon says up to when the table and the companion show the writes that were not seen too.
	// Call it before reading the data.
	Horizon() Horizon
	// Assess is like Fresh, for callers that can wait. If doubt is not nil, writes are on their way
	// that the database may refuse, and fresh holds if it refuses them all.
	Assess() (fresh bool, doubt Doubt)
}

// Horizon says up to when a table and a companion show writes that this process may not have seen,
// such as writes of other clients or through another sidecar.
type Horizon struct {
	// AsOf is the time before which they show every write, whoever made it; zero if unknown.
	AsOf time.Time
	// Disputed says why an operator's declaration that all writes pass through this process
	// is not believed: a Disputed constant, or "".
	Disputed Dispute
}

// Dispute is a reason not to believe that all writes pass through this process.
type Dispute string

// The disputes.
const (
	// DisputeForeign: a comparison of all rows found writes that this process did not see.
	DisputeForeign Dispute = "foreign_writes"
	// DisputeUnchecked: no comparison that began within the detection window has ended.
	DisputeUnchecked Dispute = "not_compared"
	// DisputePeers: writes of other sidecars may not be seen.
	DisputePeers Dispute = "sidecars_not_seen"
)

// Doubt stands for the writes that were on their way at one moment.
type Doubt interface {
	// Cleared reports whether the database refused all the writes. It waits for a short time, and
	// not beyond the deadline of ctx; a write without an answer by then counts as carried out.
	Cleared(ctx context.Context) bool
}

// FreshNow reports whether f is fresh. It waits a short time for writes that the database may
// refuse. A nil f is fresh.
func FreshNow(ctx context.Context, f Freshness) bool {
	if f == nil {
		return true
	}
	fresh, doubt := f.Assess()
	return fresh && (doubt == nil || doubt.Cleared(ctx))
}

// Route binds a collection to a similarity. It is read-only once it is served.
type Route struct {
	Policy
	Parts
	// StoreCan and ModelCan are the optional abilities of Store and of Model. They are filled in when the
	// route is opened.
	StoreCan adapters.Abilities
	ModelCan rerank.Abilities
	// WhyNotRewritten says why a route without a configured placement did not become
	// PlacementRewrite; empty if it did, or if a placement is configured. It is filled in when the
	// route is opened.
	WhyNotRewritten string
	// WhyNeverExact says why even exact_search makes no list of the route exact: the store's
	// description of the vector field rules it out. It is filled in when the route is opened.
	WhyNeverExact string
}

// HasBehaviouralVectors reports whether the model owns vectors of items that are
// no rows of the collection.
func (r *Route) HasBehaviouralVectors() bool {
	return rerank.AbilitiesOf(r.Model.Similarity).Vectors != nil
}

// NeedsRankerToEncode reports whether an item's base vector consists of a ranker's scores for the
// model's support queries, which no row of the collection holds.
func (r *Route) NeedsRankerToEncode() bool {
	return rerank.AbilitiesOf(r.Model.Similarity).Questions != nil
}

// TakesPartitions reports whether a request with the route's own strategy may name the given
// partitions.
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

// CurrentTable returns the route's table as it is now, or nil if it has none. The caller calls
// Release of the table.
func (r *Route) CurrentTable() *table.Table {
	if r.Live != nil {
		return r.Live.Snapshot()
	}
	return r.Table
}

// IDSpeller returns what adapters.CanonicalIDs needs to spell the ids of the route's items as the store does. It
// returns nil if ids stay as they are: the store has only one spelling, or a field names the items, whose values the
// store compares as text.
func (r *Route) IDSpeller() adapters.Excluder {
	if ownersNamed := r.Owner != "" && (r.Broken != nil || !r.HasBehaviouralVectors()); ownersNamed {
		return nil
	}
	return adapters.AbilitiesOf(r.Store).Exclude
}

// ItemField returns the vector field from which items are scored.
func (r *Route) ItemField() string {
	if r.Vectors != "" {
		return r.Vectors
	}
	return r.Vector
}
