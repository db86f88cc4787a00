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
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/plugins/offload"
	"github.com/likenessdb/likeness/sidecar/reembed"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/trial"
)

// StatusSources has the sources of a Status. Its functions are called for every status. They
// may be nil.
type StatusSources struct {
	Build  buildinfo.Info
	Watch  *SearchHistory
	Stores []StoreStatus // name, kind and address

	Ready    func() (ok bool, detail string)
	Routes   func() []*route.Route
	Waiting  func(rt string) (why string) // why a route is not open; "" if it is
	Versions func(rt string) ([]rollout.Info, error)
	Load     func(rt string) (gate.Load, bool)
	// Off holds for each route of the proxy whether it is switched off; nil if there is no proxy.
	Off func() map[string]bool
	// Unanswered holds the routes whose searches through the proxy were all left to the database,
	// for one reason.
	Unanswered func() map[string]Unanswered
	// Proxied returns what became of a route's searches through the proxy.
	Proxied   func(rt string) (counts ProxyCounts, changed []Comparison)
	Plugins   func() []plugins.State
	Rankers   func() []RankerStatus
	Embedders func() map[string]embed.State // by name
	Devices   func() []offload.Status
	Following func() []follow.Status
	// Reembedding returns the states of the routes that embed their items again.
	Reembedding func() []reembed.State
	Trials      func() []trial.Status
}

// StoreStatus is the state of a vector store.
type StoreStatus struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Address string `json:"address,omitempty"`
	// Answers: the store answered a ping within a second. Error is the type of its error.
	Answers bool    `json:"answers"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"ping_seconds"`
	// Breaker is "closed", or names the collections for which it is open; "" if the store has no
	// breaker.
	Breaker string `json:"breaker,omitempty"`

	Pinged adapters.Store `json:"-"`
}

// RankerStatus is the state of a heavy ranker.
type RankerStatus struct {
	Name   string `json:"name"`
	Source string `json:"source"` // its plugin, or the host of its URL
	State  string `json:"state"`  // the state of its breaker: closed, open or half-open
}

// Status is the state of a sidecar.
type Status struct {
	Build   buildinfo.Info `json:"build"`
	Now     time.Time      `json:"now"`
	Started time.Time      `json:"started"`
	Ready   bool           `json:"ready"`
	// Detail has a line for each problem.
	Detail  []string        `json:"detail,omitempty"`
	Process ProcessStatus   `json:"process"`
	Routes  []RouteStatus   `json:"routes"`
	Stores  []StoreStatus   `json:"stores"`
	Plugins []plugins.State `json:"plugins,omitempty"`
	Rankers []RankerStatus  `json:"rankers,omitempty"`
	Devices []DeviceStatus  `json:"devices,omitempty"`
}

// ProcessStatus has the resources of the process.
type ProcessStatus struct {
	Goroutines int    `json:"goroutines"`
	Processors int    `json:"processors"`
	HeapBytes  uint64 `json:"heap_bytes"`
	// MemoryLimit is the soft memory limit of the Go runtime, or 0 without a limit.
	MemoryLimit int64 `json:"memory_limit_bytes"`
}

// RouteStatus is the state of a route.
type RouteStatus struct {
	Name string `json:"name"`
	Open bool   `json:"open"`
	Why  string `json:"why,omitempty"` // why it is not open
	Off  bool   `json:"off,omitempty"` // the route is switched off in the proxy
	// Proxy is nil if the proxy does not answer this route.
	Proxy      *ProxyStatus `json:"proxy,omitempty"`
	Store      string       `json:"store"`
	Collection string       `json:"collection"`
	Companion  string       `json:"companion,omitempty"`
	Placement  string       `json:"placement"`
	// WhyNotRewritten says why the placement did not become rewrite, if the operator named none.
	WhyNotRewritten string `json:"why_not_rewritten,omitempty"`
	// WrongNorm names a row that contradicts the route's unit_vectors, which ends its certificates.
	WrongNorm string `json:"wrong_norm,omitempty"`
	Strategy  string `json:"strategy"`
	Failure   string `json:"failure"`
	Ranker    string `json:"ranker,omitempty"`
	// Embedder is the state of the route's embedder, which other routes may share.
	Embedder *embed.State `json:"embedder,omitempty"`
	Model    string       `json:"model"`
	Version  string       `json:"model_version"`

	Versions    []VersionStatus    `json:"versions,omitempty"`
	Unanswered  *Unanswered        `json:"proxy_unanswered,omitempty"`
	Calibration *CalibrationStatus `json:"calibration,omitempty"`
	Trouble     *StoreTrouble      `json:"store_trouble,omitempty"`
	Searches    SearchCounts       `json:"searches"`
	Answers     int                `json:"recent_answers"` // how many answers Stages covers
	Stages      []StageTimes       `json:"stages,omitempty"`
	Load        *gate.Load         `json:"admission,omitempty"`
	Following   *follow.Status     `json:"following,omitempty"`
	Reembedding *reembed.State     `json:"reembedding,omitempty"`
	Experiment  *trial.Status      `json:"experiment,omitempty"`
}

// Unanswered counts the last searches of a route through the proxy, if all of them were left to the
// database for one reason.
type Unanswered struct {
	Status   string    `json:"status"` // the status that clients see
	Searches int       `json:"searches"`
	Since    time.Time `json:"since"`
}

// ProxyStatus has what became of a route's searches through the proxy.
type ProxyStatus struct {
	Ramp   int         `json:"ramp"`         // percent of the queries that are rescored
	Shadow float64     `json:"shadow_share"` // above 0 clients get the database's order, and this share is compared
	Counts ProxyCounts `json:"counts"`
	// Changed has the comparisons of the last day that differ most, the least alike first.
	Changed []Comparison `json:"most_changed,omitempty"`
}

// VersionStatus is the state of a version of a route.
type VersionStatus struct {
	Name      string    `json:"name"`
	Model     string    `json:"model"`
	Digest    string    `json:"model_version,omitempty"`
	Active    bool      `json:"active"`
	Previous  bool      `json:"previous"`
	Activated time.Time `json:"activated,omitzero"`
}

// CalibrationStatus has a route's promise and the audit of its live answers.
type CalibrationStatus struct {
	*rerank.Calibration
	Holds bool            `json:"holds"`
	Void  string          `json:"void,omitempty"` // why answers do not carry it
	Audit calibrate.Audit `json:"audit"`
	// MeanRecall is the mean recall of the audited answers.
	MeanRecall float64 `json:"mean_recall"`
}

// DeviceStatus is the state of a device for a route.
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
	// pingedFor is how long the result of a ping is reused.
	pingedFor = 2 * time.Second
)

// StatusBoard collects a Status and serves it as a page. It is safe for concurrent use.
type StatusBoard struct {
	from       StatusSources
	started    time.Time
	processors int // GOMAXPROCS at the start; later it also counts a thread that does not score

	mu     sync.Mutex // held during a ping
	pinged time.Time
	stores []StoreStatus
}

// NewStatusBoard makes a board of the given sources.
func NewStatusBoard(from StatusSources) *StatusBoard {
	return &StatusBoard{from: from, started: time.Now(), processors: runtime.GOMAXPROCS(0)}
}

// Status collects the current state. It pings the stores for at most a second, unless it has just
// done so.
func (b *StatusBoard) Status(ctx context.Context) Status {
	s := Status{
		Build: b.from.Build, Now: time.Now().UTC().Truncate(time.Millisecond), Started: b.started.UTC().Truncate(time.Second),
		Process: b.process(), Stores: b.ping(ctx), Rankers: callOrNil(b.from.Rankers), Plugins: callOrNil(b.from.Plugins),
	}
	if b.from.Ready != nil {
		ok, detail := b.from.Ready()
		s.Ready = ok
		_, rest, _ := strings.Cut(detail, "\n")
		s.Detail = strings.FieldsFunc(rest, func(r rune) bool { return r == '\n' })
	}
	following, off := map[string]*follow.Status{}, map[string]bool(nil)
	for _, f := range callOrNil(b.from.Following) {
		following[f.Route] = &f
	}
	reembedding := map[string]*reembed.State{}
	for _, r := range callOrNil(b.from.Reembedding) {
		reembedding[r.Route] = &r
	}
	if b.from.Off != nil {
		off = b.from.Off()
	}
	unanswered := map[string]Unanswered{}
	if b.from.Unanswered != nil {
		unanswered = b.from.Unanswered()
	}
	embedders := map[string]embed.State(nil)
	if b.from.Embedders != nil {
		embedders = b.from.Embedders()
	}
	trials := map[string]*trial.Status{}
	for _, t := range callOrNil(b.from.Trials) {
		trials[t.Route] = &t
	}
	for _, r := range callOrNil(b.from.Routes) {
		one := b.route(r)
		one.Experiment = trials[r.Name]
		if e, ok := embedders[r.EmbedderName]; ok {
			one.Embedder = &e
		}
		if u, ok := unanswered[r.Name]; ok {
			one.Unanswered = &u
		}
		one.Following, one.Reembedding = following[r.Name], reembedding[r.Name]
		if isOff, proxied := off[r.Name]; proxied {
			one.Off, one.Proxy = isOff, b.proxy(r)
		}
		s.Routes = append(s.Routes, one)
	}
	for _, d := range callOrNil(b.from.Devices) {
		s.Devices = append(s.Devices, DeviceStatus{Plugin: d.Plugin, Route: d.Route, Version: d.Version, State: string(d.State), Detail: d.Detail, Rows: d.Rows, Answers: d.Answers})
	}
	return s
}

// callOrNil calls f, which may be nil.
func callOrNil[T any](f func() []T) []T {
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
		Name: r.Name, Open: true, Store: r.StoreName, Collection: r.Collection, Companion: r.Companion, Placement: string(r.Placement), WhyNotRewritten: r.WhyNotRewritten,
		Strategy: string(r.Strategy), Failure: string(r.Failure), Ranker: r.RankerName, Model: r.Model.Name, Version: r.Model.Version,
		Calibration: calibrationOf(r),
	}
	if w := r.Norms.Wrong(); w != nil {
		out.WrongNorm = w.String()
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
	versions, _ := b.from.Versions(r.Name) // activating a version reports a configuration that cannot be read
	for _, v := range versions {
		out.Versions = append(out.Versions, VersionStatus{
			Name: v.Name, Model: v.Model, Digest: v.ModelVersion, Active: v.Active, Previous: v.Previous, Activated: v.Activated,
		})
	}
	return out
}

func (b *StatusBoard) proxy(r *route.Route) *ProxyStatus {
	out := &ProxyStatus{Ramp: r.Ramp, Shadow: r.Shadow.Share}
	if b.from.Proxied != nil {
		out.Counts, out.Changed = b.from.Proxied(r.Name)
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

// ping pings all stores at once.
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
