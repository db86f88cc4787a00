package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/internal/edits"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/internal/statedir"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/events"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// closers is a stack of functions that close open parts. close calls them in reverse order.
type closers []func() error

func (c *closers) add(end func() error) { *c = append(*c, end) }

func (c *closers) close() error {
	var failed []error
	for _, end := range slices.Backward(*c) {
		failed = append(failed, end())
	}
	*c = nil
	return errors.Join(failed...)
}

// open opens everything that a configuration describes, except the listeners. It returns
// config.ErrConfig for a configuration that is refused. The caller closes s.opened.
//
// If check is set, another sidecar may be serving the same configuration. open then starts no
// plugin, opens no journal, and reads a live table that is in use from its file.
func open(ctx context.Context, c *config.Config, o Options, check bool) (s *sidecar, err error) {
	var opened closers
	defer func() {
		if err != nil {
			err = errors.Join(asConfigError(err), opened.close())
		}
	}()
	if len(c.Routes) == 0 {
		return nil, fmt.Errorf("%w: it has no route; give --config, see `likeness config print --default`", config.ErrConfig)
	}
	if !check {
		release, err := lockState(c.StateDir, o.Logger)
		if err != nil {
			return nil, err
		}
		opened.add(release)
	}
	memory := debug.SetMemoryLimit(-1)
	opened.add(func() error {
		debug.SetMemoryLimit(memory)
		return nil
	})
	debug.SetMemoryLimit(cmp.Or(int64(c.Limits.Memory), memory))
	p, err := openPieces(ctx, c, o, check, &opened)
	if err != nil {
		return nil, err
	}
	opened.add(func() error { // after following has ended: a comparison may use a version that was replaced
		if s == nil {
			return nil
		}
		return s.closeVersions()
	})
	if p.followers, err = openFollowers(c, p.assembly, follow.Options{Logger: o.Logger, OnRequest: o.ReconcileOnRequest}, check); err != nil {
		return nil, err
	}
	opened.add(func() error { return endFollowing(p.followers, c.Shutdown.Grace) })
	if p.events, err = openEvents(c, o.Logger, check); err != nil {
		return nil, err
	}
	opened.add(p.events.Close)
	if s, err = newSidecar(c, o, p); err != nil {
		return nil, err
	}
	if o.Reload != nil {
		s.reloader = &reloader{sidecar: s, started: c, current: c, memory: memory, asked: make(chan chan reloaded)}
		s.admin.Handle("POST /reload", s.reloader)
	}
	if err := s.showStatus(c); err != nil {
		return nil, err
	}
	if err := s.openDoors(c, &opened); err != nil {
		return nil, err
	}
	s.opened = opened
	return s, nil
}

// pieces holds what a sidecar is put together from: the open parts of its configuration.
type pieces struct {
	assembly   *wiring.Assembly
	traces     *trace.TracerProvider // nil: no traces are sent
	metrics    *telemetry.Metrics
	rankers    *wiring.Rankers
	embedders  wiring.Embedders // of queries
	background wiring.Embedders // of items; nil if no route embeds them again
	followers  wiring.Followers
	events     events.Book // what routes keep of their answers
}

// openPieces opens every piece except the followers and the events. Also if it fails, opened then
// closes the pieces that are open.
func openPieces(ctx context.Context, c *config.Config, o Options, check bool, opened *closers) (p pieces, err error) {
	if p.assembly, err = openParts(ctx, c, check); err != nil {
		return p, err
	}
	opened.add(p.assembly.Close)
	if p.traces, err = telemetry.NewTracerProvider(ctx, telemetry.TraceOptions{
		Endpoint: c.Trace.Endpoint, Insecure: c.Trace.Insecure, SampleRatio: c.Trace.SampleRatio, Version: o.Build.Version, Logger: o.Logger,
	}); err != nil {
		return p, err
	}
	opened.add(func() error {
		flush(p.traces, o.Logger)
		return nil
	})
	p.metrics = telemetry.NewMetrics(o.Build, p.assembly.Routes)
	if p.rankers, err = openRankers(ctx, c, p.assembly, wiring.RankerOptions{Logger: o.Logger, Observer: p.metrics}, check); err != nil {
		return p, err
	}
	opened.add(p.rankers.Close)
	if p.embedders, err = wiring.OpenEmbedders(c, wiring.EmbedderOptions{Logger: o.Logger, Observer: p.metrics}); err != nil {
		return p, err
	}
	opened.add(p.embedders.Close)
	p.assembly.EmbedBy(p.embedders)
	if p.background, err = openBackground(c); err != nil {
		return p, err
	}
	opened.add(p.background.Close)
	return p, keepBroken(c, p.assembly, o.Logger, check)
}

// openDoors makes the servers beside the gRPC API: JSON, proxy, and the guard of the admin
// port.
func (s *sidecar) openDoors(c *config.Config, opened *closers) (err error) {
	if s.gateway, err = s.openGateway(c); err != nil {
		return err
	}
	opened.add(func() error {
		s.drainGateway(0)
		return nil
	})
	if s.proxy, err = s.openProxy(c); err != nil {
		return err
	}
	if s.proxy != nil {
		opened.add(s.proxy.Close)
	}
	return s.guardAdmin(c.Listen)
}

// lockState takes state_dir, if there is one, for this sidecar. It returns filelock.ErrHeld if another one has
// it. A folder that cannot be written, as on a full disk, is only logged: searches are answered without it.
func lockState(dir string, log *slog.Logger) (release func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	lock, err := statedir.Lock(dir)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, err
	case err != nil:
		log.Warn("state_dir cannot be locked, keep other sidecars away from it", "error", err)
		return func() error { return nil }, nil
	}
	return lock.Close, nil
}

// asConfigError wraps an error in config.ErrConfig, unless the error does not mean that the
// configuration is wrong: another process holds a file, or the caller gave up.
func asConfigError(err error) error {
	if errors.Is(err, config.ErrConfig) || errors.Is(err, filelock.ErrHeld) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", config.ErrConfig, err)
}

// openParts opens stores, models, tables and routes. It keeps broken routes. If check is set, a
// broken route is an error instead, and live tables that another sidecar has open are read from
// their files, without their logs of writes.
func openParts(ctx context.Context, c *config.Config, check bool) (*wiring.Assembly, error) {
	parts, err := wiring.Open(ctx, c, wiring.Part{KeepBroken: !check})
	if check && errors.Is(err, filelock.ErrHeld) {
		return wiring.Open(ctx, c, wiring.Part{Tables: wiring.TablesAsFiles})
	}
	return parts, err
}

// keepBroken marks routes that contradict their models or tables as broken, so that the other
// routes are served. It returns an error if nothing could be served: every route is broken, and
// there is no proxy. If check is set it does nothing, and search.New returns the error.
func keepBroken(c *config.Config, parts *wiring.Assembly, log *slog.Logger, check bool) error {
	if check {
		return nil
	}
	for _, r := range slices.Clone(parts.Routes) {
		if err := route.Consistent(r); err != nil {
			parts.Break(c, r.Name, err)
		}
	}
	var failed []error
	for _, r := range parts.Routes {
		if r.Broken != nil {
			failed = append(failed, r.Broken)
		}
	}
	if len(failed) == len(parts.Routes) && !c.Proxy.Listens() {
		return errors.Join(failed...)
	}
	for _, name := range slices.Sorted(maps.Keys(parts.BrokenModels)) {
		log.Error("model cannot be used", "model", name, "error", parts.BrokenModels[name])
	}
	for _, err := range parts.BrokenCollections() {
		log.Error("collection cannot be used", "error", err)
	}
	return nil
}

// openRankers starts the plugins, makes the rankers and gives them to the routes. If check is set,
// it starts no plugin.
func openRankers(ctx context.Context, c *config.Config, parts *wiring.Assembly, o wiring.RankerOptions, check bool) (*wiring.Rankers, error) {
	if check {
		return &wiring.Rankers{}, wiring.CheckRankers(c)
	}
	rankers, err := wiring.OpenRankers(context.WithoutCancel(ctx), c, o)
	if err == nil {
		parts.Ask(rankers)
	}
	return rankers, err
}

// openEvents opens what routes keep of their answers. If check is set, it only looks for errors,
// because another sidecar may have the files.
func openEvents(c *config.Config, log *slog.Logger, check bool) (events.Book, error) {
	if check {
		return nil, wiring.CheckEvents(c)
	}
	return wiring.OpenEvents(c, log), nil
}

// openBackground opens the embedders a second time, for the routes that embed their items again, so that a
// query never shares a call, a cache or a breaker with the texts of items. Without such a route it opens
// none.
func openBackground(c *config.Config) (wiring.Embedders, error) {
	if len(reembeddedRoutes(c)) == 0 {
		return nil, nil
	}
	return wiring.OpenEmbedders(c, wiring.EmbedderOptions{})
}

// openFollowers starts to follow the collections. If check is set, it only looks for errors.
func openFollowers(c *config.Config, parts *wiring.Assembly, o follow.Options, check bool) (wiring.Followers, error) {
	if check {
		return nil, wiring.CheckFollow(c, parts, o)
	}
	return wiring.Follow(c, parts, o)
}

// CheckOptions are the options of Check.
type CheckOptions struct {
	// Connect also calls the stores. A store that cannot be reached is then an error.
	Connect bool
	// Timeout bounds the time for the answers of the stores; 0 sets no bound.
	Timeout time.Duration
	// Logger gets the messages that Run would log while it starts; it may be nil.
	Logger *slog.Logger
}

// Checked describes a configuration that Run would serve.
type Checked struct {
	// Routes holds the routes with the settings in effect: defaults and, if Check connects,
	// the limits of their stores.
	Routes []*route.Route
	// Unanswered lists the routes that can answer no search of the proxy's clients. Only a
	// Check that connects finds them.
	Unanswered []Unanswered
}

// Unanswered is a route that leaves every search of the proxy's clients to the database. The
// clients see the reason.
type Unanswered struct {
	Route  string `json:"route"`
	Reason string `json:"reason"`
}

// Check returns an error for every configuration that Run refuses, by the same code and with
// the same text. It starts no plugin and opens no listener, so that it can run beside a
// sidecar.
func Check(ctx context.Context, c *config.Config, o CheckOptions) (checked Checked, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := open(ctx, c, Options{Logger: o.Logger, Build: buildinfo.Read(buildinfo.Stamp{})}, true)
	if err != nil {
		return checked, err
	}
	defer func() { err = errors.Join(err, s.opened.close()) }()
	if o.Connect {
		if o.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.Timeout)
			defer cancel()
		}
		if err := errors.Join(s.checkRoutes(ctx), s.tryREST(ctx)); errors.Is(err, route.ErrSetup) {
			return checked, asConfigError(err)
		} else if err != nil {
			return checked, err
		}
		if checked.Unanswered, err = unansweredRoutes(ctx, c, s.engine.Routes()); err != nil {
			return checked, err
		}
	}
	checked.Routes = s.engine.Routes()
	return checked, nil
}

// checkRoutes checks every route against its store. If a collection does not exist, the error names
// the store's collections with the nearest names.
func (s *sidecar) checkRoutes(ctx context.Context) error {
	var failed []error
	for _, r := range s.engine.Routes() {
		err := s.engine.OpenRoute(ctx, r.Name)
		if errors.Is(err, adapters.ErrNotFound) {
			err = fmt.Errorf("%w%s", err, nearestCollections(ctx, r))
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// nearestCollections says which collections of a route's store have names like a collection of the
// route that does not exist. It returns "" if the store does not tell.
func nearestCollections(ctx context.Context, r *route.Route) (hint string) {
	can := adapters.AbilitiesOf(r.Store)
	if can.Inspect == nil || can.Describe == nil {
		return ""
	}
	names, err := can.Inspect.Collections(ctx)
	if err != nil {
		return ""
	}
	for _, name := range []string{r.Collection, r.Companion} {
		if name == "" {
			continue
		}
		if _, err := can.Describe.Describe(ctx, name); !errors.Is(err, adapters.ErrNotFound) {
			continue
		}
		if near := edits.Nearest(name, names, 5); len(near) > 0 {
			hint += fmt.Sprintf("; of the %d collections of store %q, the names nearest to %q are %q", len(names), r.StoreName, name, near)
		} else {
			hint += fmt.Sprintf("; store %q has no collection that these credentials may see", r.StoreName)
		}
	}
	return hint
}

// unansweredRoutes returns the routes of the proxy that can answer no search of its clients
// at all. It returns the store's error.
func unansweredRoutes(ctx context.Context, c *config.Config, routes []*route.Route) (all []Unanswered, err error) {
	if !c.Proxy.Listens() {
		return nil, nil
	}
	for _, r := range routes {
		describer := adapters.AbilitiesOf(r.Store).Describe
		if describer == nil || r.StoreName != c.Proxy.Store || len(c.Proxy.Routes) > 0 && !slices.Contains(c.Proxy.Routes, r.Name) {
			continue
		}
		d, err := describer.Describe(ctx, r.Collection)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", r.Name, err)
		}
		reason := string(routing.AlwaysPasses(r, routing.SearchedFields(r, d)))
		if ranker := c.Rankers[r.RankerName]; reason == "" && ranker.HTTP.URL != "" {
			reason = "ranker" // it reads text, and clients of the database send vectors
		}
		if reason != "" {
			all = append(all, Unanswered{r.Name, reason})
		}
	}
	return all, nil
}
