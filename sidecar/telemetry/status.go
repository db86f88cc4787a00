// Package status shows how a sidecar does: a page for people, and its twin in JSON.
// Neither holds a vector, a payload, a filter or a secret.
package telemetry

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
)

// StatusSources are what a status is made of. Functions are called for every status, and
// may be nil.
type StatusSources struct {
	Build  buildinfo.Info
	Watch  *SearchHistory
	Stores []StoreStatus // name, kind and address

	Ready    func() (ok bool, detail string)
	Routes   func() []*route.Route
	Waiting  func(rt string) (why string) // empty: the route is open
	Versions func(rt string) ([]rollout.Info, error)
	Load     func(rt string) (gate.Load, bool)
	Off      func() map[string]bool // routes that are switched off before the proxy
	// Unanswered are the routes of which every search through the proxy is left to the
	// database, for one reason.
	Unanswered func() map[string]Unanswered
	Plugins    func() []plugins.State
	Rankers    func() []RankerStatus
	Devices    func() []offload.Status
	Following  func() []follow.Status
}

// StoreStatus is a vector store.
type StoreStatus struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Address string `json:"address,omitempty"`
	// Answers: it answered a ping within a second. Error is the type of its error.
	Answers bool    `json:"answers"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"ping_seconds"`
	// Breaker is closed, or names the collections for which it is not; empty: there is none.
	Breaker string `json:"breaker,omitempty"`

	Pinged adapters.Store `json:"-"`
}

// RankerStatus is a heavy ranker.
type RankerStatus struct {
	Name   string `json:"name"`
	Source string `json:"source"` // the plugin or the host that is asked
	State  string `json:"state"`  // of its breaker: closed, open or half-open
}

// Status is how a sidecar does.
type Status struct {
	Build   buildinfo.Info `json:"build"`
	Now     time.Time      `json:"now"`
	Started time.Time      `json:"started"`
	Ready   bool           `json:"ready"`
	// Detail says what is not as it should be, a line each.
	Detail  []string        `json:"detail,omitempty"`
	Process ProcessStatus   `json:"process"`
	Routes  []RouteStatus   `json:"routes"`
	Stores  []StoreStatus   `json:"stores"`
	Plugins []plugins.State `json:"plugins,omitempty"`
	Rankers []RankerStatus  `json:"rankers,omitempty"`
	Devices []DeviceStatus  `json:"devices,omitempty"`
}

// ProcessStatus is what the process uses.
type ProcessStatus struct {
	Goroutines int    `json:"goroutines"`
	Processors int    `json:"processors"`
	HeapBytes  uint64 `json:"heap_bytes"`
	// MemoryLimit is the soft limit of the Go runtime; 0: none.
	MemoryLimit int64 `json:"memory_limit_bytes"`
}

// RouteStatus is how a route does.
type RouteStatus struct {
	Name       string `json:"name"`
	Open       bool   `json:"open"`
	Why        string `json:"why,omitempty"` // it is not open
	Off        bool   `json:"off,omitempty"` // before the proxy
	Store      string `json:"store"`
	Collection string `json:"collection"`
	Companion  string `json:"companion,omitempty"`
	Placement  string `json:"placement"`
	Strategy   string `json:"strategy"`
	Failure    string `json:"failure"`
	Ranker     string `json:"ranker,omitempty"`
	Model      string `json:"model"`
	Version    string `json:"model_version"`

	Versions    []VersionStatus    `json:"versions,omitempty"`
	Unanswered  *Unanswered        `json:"proxy_unanswered,omitempty"`
	Calibration *CalibrationStatus `json:"calibration,omitempty"`
	Trouble     *StoreTrouble      `json:"store_trouble,omitempty"`
	Searches    SearchCounts       `json:"searches"`
	Answers     int                `json:"recent_answers"` // that the stages are of
	Stages      []StageTimes       `json:"stages,omitempty"`
	Load        *gate.Load         `json:"admission,omitempty"`
	Following   *follow.Status     `json:"following,omitempty"`
}

// Unanswered says that the last searches of a route through the proxy were all left to
// the database, for one reason.
type Unanswered struct {
	Status   string    `json:"status"` // as clients see it
	Searches int       `json:"searches"`
	Since    time.Time `json:"since"`
}

// VersionStatus is a version of a route.
type VersionStatus struct {
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	Digest    string    `json:"model_version,omitempty"`
	Active    bool      `json:"active"`
	Previous  bool      `json:"previous"`
	Activated time.Time `json:"activated,omitzero"`
}

// CalibrationStatus is a route's promise and what the audit of live answers says of it.
type CalibrationStatus struct {
	*rerank.Calibration
	Holds bool            `json:"holds"`
	Void  string          `json:"void,omitempty"` // why it does not
	Audit calibrate.Audit `json:"audit"`
	// MeanRecall of the audited answers.
	MeanRecall float64 `json:"mean_recall"`
}

// DeviceStatus is how a device does for a route.
type DeviceStatus struct {
	Plugin  string           `json:"plugin"`
	Route   string           `json:"route"`
	Version string           `json:"version,omitempty"`
	State   string           `json:"state"`
	Detail  string           `json:"detail,omitempty"`
	Rows    int              `json:"rows"`
	Answers map[string]int64 `json:"answers"`
}

const (
	pingWithin = time.Second
	// pingedFor is how long the answer to a ping is shown, however many look.
	pingedFor = 2 * time.Second
)

// StatusBoard makes a Status of its sources. It is safe for concurrent use.
type StatusBoard struct {
	from       StatusSources
	started    time.Time
	processors int // before a thread was added beside those that score

	mu     sync.Mutex // one pings
	pinged time.Time
	stores []StoreStatus
}

// NewStatusBoard makes a board.
func NewStatusBoard(from StatusSources) *StatusBoard {
	return &StatusBoard{from: from, started: time.Now(), processors: runtime.GOMAXPROCS(0)}
}

// Status of now. It pings the stores, unless somebody just did, for at most a second.
func (b *StatusBoard) Status(ctx context.Context) Status {
	s := Status{
		Build: b.from.Build, Now: time.Now().UTC().Truncate(time.Millisecond), Started: b.started.UTC().Truncate(time.Second),
		Process: b.process(), Stores: b.ping(ctx), Rankers: call(b.from.Rankers), Plugins: call(b.from.Plugins),
	}
	if b.from.Ready != nil {
		ok, detail := b.from.Ready()
		s.Ready = ok
		_, rest, _ := strings.Cut(detail, "\n")
		s.Detail = strings.FieldsFunc(rest, func(r rune) bool { return r == '\n' })
	}
	following, off := map[string]*follow.Status{}, map[string]bool(nil)
	for _, f := range call(b.from.Following) {
		following[f.Route] = &f
	}
	if b.from.Off != nil {
		off = b.from.Off()
	}
	unanswered := map[string]Unanswered{}
	if b.from.Unanswered != nil {
		unanswered = b.from.Unanswered()
	}
	for _, r := range call(b.from.Routes) {
		one := b.route(r)
		if u, ok := unanswered[r.Name]; ok {
			one.Unanswered = &u
		}
		one.Following, one.Off = following[r.Name], off[r.Name]
		s.Routes = append(s.Routes, one)
	}
	for _, d := range call(b.from.Devices) {
		s.Devices = append(s.Devices, DeviceStatus{Plugin: d.Plugin, Route: d.Route, Version: d.Version, State: string(d.State), Detail: d.Detail, Rows: d.Rows, Answers: d.Answers})
	}
	return s
}

func call[T any](f func() []T) []T {
	if f == nil {
		return nil
	}
	return f()
}

func (b *StatusBoard) process() ProcessStatus {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p := ProcessStatus{Goroutines: runtime.NumGoroutine(), Processors: b.processors, HeapBytes: m.HeapAlloc}
	if limit := debug.SetMemoryLimit(-1); limit < 1<<62 {
		p.MemoryLimit = limit
	}
	return p
}

func (b *StatusBoard) route(r *route.Route) RouteStatus {
	out := RouteStatus{
		Name: r.Name, Open: true, Store: r.StoreName, Collection: r.Collection, Companion: r.Companion, Placement: string(r.Placement),
		Strategy: string(r.Strategy), Failure: string(r.Failure), Ranker: r.RankerName, Model: r.Model.Name, Version: r.Model.Version,
		Calibration: calibrationOf(r),
	}
	if b.from.Waiting != nil {
		out.Why = b.from.Waiting(r.Name)
		out.Open = out.Why == ""
	}
	if b.from.Watch != nil {
		out.Searches, out.Stages, out.Answers = b.from.Watch.read(r.Name)
		out.Trouble = b.from.Watch.Trouble(r.Name)
	}
	if b.from.Load != nil {
		if l, ok := b.from.Load(r.Name); ok {
			out.Load = &l
		}
	}
	if b.from.Versions == nil {
		return out
	}
	versions, _ := b.from.Versions(r.Name) // a configuration that cannot be read is for who activates one
	for _, v := range versions {
		out.Versions = append(out.Versions, VersionStatus{
			Name: v.Name, Model: v.Model, Digest: v.ModelVersion, Active: v.Active, Previous: v.Previous, Activated: v.Activated,
		})
	}
	return out
}

func calibrationOf(r *route.Route) *CalibrationStatus {
	k, ok := r.Promise.(*calibrate.Keeper)
	if !ok {
		return nil
	}
	c, void := k.Calibration()
	if c == nil {
		return nil
	}
	audit := k.Audit()
	return &CalibrationStatus{Calibration: c, Holds: void == "", Void: void, Audit: audit, MeanRecall: audit.MeanRecall()}
}

func breakerOf(s adapters.Store) string {
	guarded, ok := s.(interface{ Broken() []string })
	if !ok {
		return ""
	}
	if broken := guarded.Broken(); len(broken) > 0 {
		return "open for " + strings.Join(broken, ", ")
	}
	return "closed"
}

// ping asks every store whether it answers, all at once.
func (b *StatusBoard) ping(ctx context.Context) []StoreStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.pinged) < pingedFor {
		return slices.Clone(b.stores)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingWithin)
	defer cancel()
	b.stores = slices.Clone(b.from.Stores)
	var all sync.WaitGroup
	for i := range b.stores {
		s := &b.stores[i]
		s.Breaker = breakerOf(s.Pinged)
		all.Go(func() {
			began := time.Now()
			err := s.Pinged.Ping(ctx)
			s.Answers, s.Error, s.Seconds = err == nil, search.ErrorType(err), time.Since(began).Seconds()
		})
	}
	all.Wait()
	b.pinged = time.Now()
	return slices.Clone(b.stores)
}
