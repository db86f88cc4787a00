package route

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/turns"
	"github.com/likenessdb/likeness/plugin"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/scan"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/ranker"
)

// Checked is a route with the facts that its model and, once asked, its store give. It is
// read-only and safe for concurrent use.
type Checked struct {
	// Route is a copy of the route with the settings that are in effect: defaults are
	// filled in, and limits are narrowed to the store's. The route that the operator
	// configured stays as it is.
	Route
	Spec rerank.Spec
	// SpellIDs is the route's IDSpeller.
	SpellIDs adapters.Excluder
	// Turns limits how many goroutines keep a processor busy at a time.
	Turns *turns.Turns
	// Behavioural reports that the model owns vectors of items that are no rows of the collection.
	// They live in the companion, or in the table alone.
	Behavioural bool
	// VectorsElsewhere reports that feature rows cannot be computed from the collection's vectors.
	// Only the table or the companion has them.
	VectorsElsewhere bool
	// FeatureFields are the fields of the companion that make a feature row.
	FeatureFields []string
	// CompanionDims are the dimensions of the companion's fields; nil until the store was asked.
	CompanionDims map[string]int
	MaxProbes     int // the most probes in one request to the store; 0 if not known
	// Field is the vector field that the route searches, as the store describes it; the
	// zero value until the store was asked.
	Field adapters.VectorField
	// TextIDs reports that the ids of the collection are strings of any kind. It is false for
	// numbers, for a store that takes both, and until the store was asked.
	TextIDs bool
	// Expires reports that the store removes rows of the collection by itself, after a time to live.
	Expires bool
	// StoreAsked reports that the route was checked against its store.
	StoreAsked bool
	// built is when the build of the table began; zero without a table, or if unknown.
	built time.Time
	// OwnName is the store's own name for the collection when the route was opened; it
	// differs from Collection where that is an alias. "" means that it is not known.
	OwnName string
	// NameHidden reports that the store does not tell whether Collection is an alias, so that
	// calls by this name may read different collections.
	NameHidden bool

	// Costs holds the measured costs of a scan and of the first stage; nil unless
	// Policy.ScanIfFaster.
	Costs *Costs
	// RankWithin asks Ranker, in at most the given number of calls.
	RankWithin func(ctx context.Context, q plugin.Query, items []plugin.Item, calls int) (ranker.Result, error)
	// SupportItemRows caches the support items as the ranker reads them.
	SupportItemRows *ItemCache

	// scanner scans the snapshot that was last scanned, so that searches of one snapshot share a
	// scanner.
	scanner *atomic.Pointer[scan.Scanner]
	// switched reports that the alias stands for another collection now than when the route was
	// opened.
	switched bool
}

// checking is a route while its checks go on. Its methods check the Checked, and fill in its fields.
type checking struct {
	Checked
	// rewriteNamed reports that the operator named PlacementRewrite.
	rewriteNamed bool
	// strategyOpen reports that the operator named no strategy.
	strategyOpen bool
}

// check fills in the defaults of a route and makes every check that needs no call to its store.
func check(r *Route, t *turns.Turns) (*checking, error) {
	c := &checking{Checked: Checked{Route: *r, Turns: t, SupportItemRows: new(ItemCache), scanner: new(atomic.Pointer[scan.Scanner])}}
	if r.Broken != nil {
		return c, nil //nolint:nilerr // there is nothing to check, and Find returns the error
	}
	if err := c.configure(); err != nil {
		return nil, err
	}
	if c.ScanIfFaster {
		c.Costs = new(Costs)
	}
	switch {
	case !c.UnitVectors:
		c.Norms = nil
	case c.Norms == nil:
		c.Norms = new(Norms)
	}
	c.RankWithin = ranker.Within(c.Ranker)
	return c, nil
}

// WithTimeout applies the route's timeout to a request.
func (c *Checked) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// View is a route with its table as one search sees it.
type View struct {
	*Checked
	Table *table.Table // the snapshot of the table, in place of the route's own Table; nil if the route has none
	// Behind reports that the table or the companion lacks a write that was seen, or may lack one
	// that was missed, so nothing can be proved from either.
	Behind bool
	// Horizon says up to when the table and the companion show writes that this process did not see.
	Horizon Horizon
	// Doubt, if not nil, stands for writes on their way. The table is behind unless the database
	// refuses them all.
	Doubt Doubt
}

// View takes a snapshot of the route's table. The caller calls Release.
func (c *Checked) View() View {
	v := View{Checked: c, Table: c.Table, Behind: c.switched}
	v.Horizon.AsOf = c.built
	if c.Freshness != nil { // before the snapshot is taken: it then includes every write applied in between
		var fresh bool
		v.Horizon = c.Freshness.Horizon()
		fresh, v.Doubt = c.Freshness.Assess()
		v.Behind = v.Behind || !fresh
	}
	if c.Live == nil {
		return v
	}
	v.Behind = v.Behind || c.Live.Pending() > 0
	if t := c.Live.Snapshot(); t != nil {
		v.Table = t
	} else {
		v.Behind = true // the live table was closed: the server is stopping
	}
	return v
}

// SeesEveryWrite reports whether the operator declares that all writes pass through this
// process, and nothing contradicts it, such as rows that the store removes by itself.
func (v *View) SeesEveryWrite() bool {
	return v.Writes == config.WritesProxy && v.Horizon.Disputed == "" && !v.Expires
}

// SettleDoubt finds out whether the database refused the writes that were on their way when the
// view was taken. It waits for a short time, and sets Behind if it did not.
func (v *View) SettleDoubt(ctx context.Context) {
	if v.Doubt != nil && !v.Behind {
		v.Behind = !v.Doubt.Cleared(ctx)
		v.Doubt = nil
	}
}

// WithChecked returns a view of the same snapshot with the route as its store's check left it.
func (v View) WithChecked(c *Checked) View {
	v.Checked = c
	return v
}

// Release gives the snapshot back.
func (v View) Release() {
	if v.Table != nil {
		v.Table.Release()
	}
}

// Scanner returns a scanner of the view's table, nil if it has none.
func (v View) Scanner() *scan.Scanner {
	if v.Table == nil {
		return nil
	}
	return v.scannerOf(v.Table)
}

func (c *Checked) scannerOf(t *table.Table) *scan.Scanner {
	last := c.scanner.Load()
	if last != nil && last.Table() == t {
		return last
	}
	mine := scan.NewShared(t, c.Spec, c.Turns)
	if !c.scanner.CompareAndSwap(last, mine) {
		if other := c.scanner.Load(); other.Table() == t {
			return other
		}
	}
	return mine
}

// FiltersTable reports whether the store can list the items that pass a filter, which a filtered
// scan of the table needs.
func (c *Checked) FiltersTable() bool {
	if c.OwnerIn(c.Collection) != "" {
		return c.StoreCan.Scan != nil
	}
	return c.StoreCan.Match != nil
}

// ItemCache keeps a list of items as a ranker reads them, for a minute. It is safe
// for concurrent use.
type ItemCache struct {
	mu    sync.Mutex
	items []plugin.Item
	wants plugin.Description
	until time.Time
}

// itemCacheTTL is how long cached items are used.
const itemCacheTTL = time.Minute

// Get returns the items if they are cached with the fields that the ranker reads.
func (c *ItemCache) Get(wants plugin.Description) ([]plugin.Item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items, time.Now().Before(c.until) && c.wants.SameItems(wants)
}

// Put caches the items, which the caller does not change afterwards.
func (c *ItemCache) Put(items []plugin.Item, wants plugin.Description) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items, c.wants, c.until = items, wants, time.Now().Add(itemCacheTTL)
}

// MissesPartitions reports whether a request for the given partitions cannot be served from the
// companion, which only holds the rows of the route's own partitions.
func (c *Checked) MissesPartitions(s rerank.Strategy, partitions []string) bool {
	return c.SearchesCompanion(s) && !slices.Equal(partitions, c.Partitions)
}

// askOwnName asks the store for its own name of the route's collection. name is "" if the store has
// no aliases, or does not tell what the name stands for.
func (c *Checked) askOwnName(ctx context.Context) (name string, isHidden bool, err error) {
	if c.StoreCan.Identify == nil {
		return "", false, nil
	}
	identity, err := c.StoreCan.Identify.Identify(ctx, c.Collection)
	if errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrUnsupported) {
		return "", true, nil
	}
	return identity.Collection, false, err
}

// ReadAlias asks the store for which collection the route's name stands now. It returns "" if the
// store does not tell.
func (c *Checked) ReadAlias(ctx context.Context) string {
	name, _, err := c.askOwnName(ctx)
	if err != nil {
		return ""
	}
	return name
}

// NamesAlias reports whether the route names its collection by an alias, which can be
// switched to another collection while a search goes on.
func (c *Checked) NamesAlias() bool { return c.OwnName != "" && c.OwnName != c.Collection }

// dependsOnDescription reports whether certificates depend on how the store describes the collection, which others
// can change: on how it compares the vectors of Field, by any strategy but scan, or on a time to live.
func (c *Checked) dependsOnDescription() bool {
	return c.StoreCan.Describe != nil && c.StoreCan.Identify != nil && (c.Placement.ScoresStored() || c.Writes == config.WritesProxy)
}

// ForCollection returns the route with all its calls directed to another collection; "" means the
// route's own.
func (c *Checked) ForCollection(collection string) *Checked {
	if collection == "" || collection == c.Collection {
		return c
	}
	other := *c
	other.Collection = collection
	// If there is a follower, it decides whether the table shows the collection.
	other.switched = c.OwnName != "" && collection != c.OwnName && c.Freshness == nil
	return &other
}
