// Package serve runs a sidecar: it opens everything that a configuration describes, listens,
// checks the routes in the background, and shuts down in order.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"

	"github.com/likenessdb/likeness/internal/loglimit"
	"github.com/likenessdb/likeness/internal/openfiles"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/gain"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/proxy"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/reembed"
	"github.com/likenessdb/likeness/sidecar/rollout"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/search"
	"github.com/likenessdb/likeness/sidecar/server"
	"github.com/likenessdb/likeness/sidecar/server/gateway"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/trial"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// Addresses holds the addresses on which a sidecar listens, with the ports that it got.
type Addresses struct {
	GRPC string `json:"grpc"`
	// REST is the address of the API as JSON over HTTP.
	REST  string `json:"rest,omitempty"`
	Admin string `json:"admin,omitempty"`
	// Proxy holds the addresses for clients of the database.
	Proxy *proxy.Addresses `json:"proxy,omitempty"`
}

// Options of Run.
type Options struct {
	Logger *slog.Logger
	Build  buildinfo.Info
	// Reload, if set, reads the configuration again. It is called for every value of Reloads, at
	// POST /reload of the admin port, every reload.interval, and when a version is activated that
	// may be new in the file.
	Reload  func() (*config.Config, error)
	Reloads <-chan os.Signal
	// Listening, if set, is called once, when the listeners are open.
	Listening func(Addresses)
	// Ready, if set, is called once, when the first route can be searched and every route was
	// tried.
	Ready func(Addresses)
	// Answer, if set, replaces the API's listeners: it answers calls until the server drains or no
	// caller is left; then Run ends. All its callers are trusted, because the configuration's
	// tokens and TLS apply to listeners only.
	Answer func(*server.Server) error
	// SpareThread raises GOMAXPROCS by one while Run runs. Scoring keeps every processor busy, and
	// Go only polls the network when a thread is idle. With a spare thread a message waits up to a
	// millisecond, without one up to ten.
	SpareThread bool
	// ReconcileOnRequest compares all rows of a collection with its tables and companions only when
	// Reconcile is called, not at the start and not at intervals. A test that sets it sees only the
	// effect of following writes.
	ReconcileOnRequest bool
}

// Run serves until ctx is done, then drains. It starts even if stores are down, and retries their
// routes until they can be served. It returns config.ErrConfig for a configuration that Check would
// refuse too, or the error of a listener.
func Run(ctx context.Context, c *config.Config, o Options) (err error) {
	s, err := open(ctx, c, o, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.opened.close()) }()
	if o.SpareThread { // after open, which counts the processors
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	}
	return s.run(ctx, c)
}

// closeVersions waits until no replaced version of a route is in use.
func (s *sidecar) closeVersions() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.versions.Close(ctx)
}

// flush sends the last traces. It drops them if that takes too long.
func flush(traces *trace.TracerProvider, log *slog.Logger) {
	if traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := traces.Shutdown(ctx); err != nil {
		log.Warn("last traces lost", "error", err)
	}
}

// maxFollowing is how long a sidecar that is ending goes on following writes. The rest stays in the
// journal.
const maxFollowing = 10 * time.Second

func endFollowing(followers wiring.Followers, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(grace, maxFollowing))
	defer cancel()
	return followers.Close(ctx)
}

// sidecar holds the parts of a running sidecar.
type sidecar struct {
	pieces
	options  Options
	engine   *search.Engine
	gate     *gate.Gate
	searcher search.Searcher // the engine behind the gate
	versions *rollout.Manager
	recent   *rollout.Recent
	server   *server.Server
	admin    *telemetry.Admin
	openings *openings
	watch    *telemetry.SearchHistory
	queries  *telemetry.QueryLog
	switches *routing.Router  // the proxy's switches; nil without a proxy
	gateway  *gateway.Gateway // nil without listen.rest
	proxy    *proxy.Proxy     // nil if the configuration has no proxy
	auditor  *calibrate.Auditor
	reembeds *reembed.Filler
	trials   *trial.Runner
	reloader *reloader   // nil if the configuration is never read again
	adminTLS *tls.Config // nil if the admin port has no TLS
	opened   closers
	// requestLog logs events that requests cause; it limits the lines per caller.
	requestLog *slog.Logger
}

// reconcile compares the table and the companion of a route with all rows of its collection,
// and repairs them.
func (s *sidecar) reconcile(ctx context.Context, rt string) (follow.Drift, error) {
	for _, r := range s.engine.Routes() {
		if r.Name == rt {
			return s.followers.Reconcile(ctx, r)
		}
	}
	return follow.Drift{}, fmt.Errorf("%w: %q", route.ErrUnknown, rt)
}

// newSidecar puts the pieces together. It returns the errors of search.New and server.New.
func newSidecar(c *config.Config, o Options, p pieces) (s *sidecar, err error) {
	s = &sidecar{
		pieces: p, options: o, requestLog: loglimit.Logger(o.Logger, gate.CallerOf),
		gate:     gate.New(gate.Options{Limits: searchLimits(c), ReceivedBytes: receivedBytes(c.Limits), Processors: p.assembly.Turns, Refused: p.metrics.Refused}),
		recent:   rollout.NewRecent(c.RouteNames()),
		watch:    telemetry.NewSearchHistory(c.RouteNames()),
		queries:  telemetry.NewQueryLog(o.Logger, c.Log.Queries, c.Log.Slow),
		openings: newOpenings(c.RouteNames(), c.Proxy.Listens()),
	}
	s.openings.rankers, s.openings.devices = p.rankers.States, p.rankers.Devices
	s.openings.troubles = func() []string { return s.troubles(c.RouteNames()) }
	s.auditor = calibrate.NewAuditor(calibrate.AuditorOptions{Routes: wiring.Audits(c), Busy: s.gate.Busy, Recorder: s.metrics, Logger: o.Logger})
	s.reembeds = reembed.New(reembed.Options{
		Routes: reembeddedRoutes(c), Route: func(name string) (*route.Route, error) { return s.engine.Route(name) },
		Embedder: s.background.Embedder, Write: s.followers.Reembed, Logger: o.Logger,
	})
	if s.engine, err = s.newEngine(); err != nil {
		return nil, err
	}
	s.searcher = search.Admitted{Searcher: s.engine, By: s.gate}
	if s.versions, err = rollout.New(rollout.Options{
		Engine: s.engine, Assembly: s.assembly, Config: c, Reload: o.Reload, Recent: s.recent, Logger: o.Logger,
		Follower: s.followers, Switched: s.metrics.RouteServed,
	}); err != nil {
		return nil, err
	}
	s.trials = trial.New(trial.Options{Engine: s.engine, Versions: s.versions, Events: s.events, StateDir: c.StateDir, Logger: o.Logger}, c)
	if s.server, err = s.newServer(c); err != nil {
		return nil, err
	}
	s.admin = s.newAdmin()
	s.showInMetrics(c.StateDir)
	return s, nil
}

// newEngine makes the engine of the routes. Everything that counts or logs searches observes it.
func (s *sidecar) newEngine() (*search.Engine, error) {
	o := search.Options{
		Turns: s.assembly.Turns, Logger: s.requestLog, Events: s.events,
		Observer: search.Observers{s.metrics, s.recent, s.auditor, s.watch, s.queries, s.reembeds},
	}
	if s.traces != nil {
		o.Tracer = s.traces.Tracer("github.com/likenessdb/likeness")
	}
	return search.New(s.assembly.Routes, o)
}

// newServer makes the server of the gRPC API.
func (s *sidecar) newServer(c *config.Config) (*server.Server, error) {
	o := server.Options{
		Searcher: s.searcher, Admin: s.versions, Models: s.versions.Models, Reconcile: s.reconcile,
		OpenAdmin: s.options.Answer != nil || loopback(c.Listen.GRPC) && (c.Listen.REST == "" || loopback(c.Listen.REST)), Logger: s.options.Logger, Recorder: s.metrics,
		Limits: apiLimits(c.Limits), TokensFile: tokensFile(c, s.options), Gate: s.gate, Events: s.events,
	}
	if s.options.Answer == nil {
		o.TLS = s.watchedTLS(c.Listen.TLS, "api")
	}
	if s.traces != nil {
		o.TracerProvider = s.traces
	}
	return server.New(o)
}

// newAdmin makes the server of the admin port, without its guard, its status page and its reloads.
func (s *sidecar) newAdmin() *telemetry.Admin {
	a := telemetry.NewAdmin(s.metrics, s.openings.ready, s.options.Logger)
	a.Handle("GET /experiments", http.HandlerFunc(s.showTrials))
	a.Handle("POST /experiments/stop", changeTrial(func(route, _ string) error { return s.trials.Stop(route) }))
	a.Handle("POST /experiments/restart", changeTrial(s.trials.Restart))
	a.Handle("GET /plugins", plugins.Handler(s.rankers.States))
	return a
}

// showInMetrics has the metrics show the state of the sidecar's parts.
func (s *sidecar) showInMetrics(stateDir string) {
	s.assembly.Watch(s.metrics)
	s.metrics.WatchPlugins(s.rankers.States)
	s.metrics.WatchDevices(s.rankers.Devices)
	s.metrics.WatchFollowing(s.followers.Status)
	s.metrics.WatchEvents(s.events.Stats)
	s.metrics.WatchNorms(s.engine.Routes)
	s.metrics.WatchReembedding(s.reembeds.States)
	s.metrics.WatchTrials(s.trials.Statuses)
	s.metrics.WatchGains(func() map[string]gain.State { return s.gains(stateDir) })
	s.metrics.WatchGate(s.gate)
	s.metrics.WatchFiles("tokens", s.server.TokensFile)
}

// reembeddedRoutes names the routes that embed their items again.
func reembeddedRoutes(c *config.Config) (names []string) {
	for _, name := range c.RouteNames() {
		if r := c.Routes[name]; r.Reembeds() {
			names = append(names, name)
		}
	}
	return names
}

// searchLimits returns the limits of searches.
func searchLimits(c *config.Config) gate.Limits {
	routes := map[string]gate.Limit{}
	for name, r := range c.Routes {
		routes[name] = gate.Limit{MaxSearches: r.MaxSearches, Rate: r.Rate, Burst: r.Burst}
	}
	return gate.Limits{MaxSearches: c.Limits.MaxSearches, Adaptive: c.Limits.Adaptive, Routes: routes}
}

// At most 1/receivedShare of the memory limit may be messages that are not answered yet. With its
// decoded form a message takes about four times its length, and half of the memory is kept for
// everything else.
const receivedShare = 8

// receivedBytes returns how many bytes of messages all listeners together may hold: the configured
// number, or a share of the memory limit if there is one. 0 means no limit.
func receivedBytes(l config.Limits) int64 {
	if limit := debug.SetMemoryLimit(-1); l.MaxReceivedBytes == 0 && limit < math.MaxInt64 {
		return limit / receivedShare
	}
	return int64(l.MaxReceivedBytes)
}

func apiLimits(l config.Limits) server.Limits {
	return server.Limits{
		MaxMessageBytes: int(l.MaxMessageBytes), MaxConcurrentStreams: l.MaxConcurrentStreams,
		MaxBatch: l.MaxBatch, BatchParallelism: l.BatchParallelism,
	}
}

// tokensFile returns the tokens file. It is "" if Options.Answer is set, because those callers need
// no token.
func tokensFile(c *config.Config, o Options) string {
	if o.Answer != nil {
		return ""
	}
	return c.Listen.Auth.TokensFile
}

// loopback reports whether an address can only be reached from this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// openGateway makes the server of the API as JSON. It returns nil if listen.rest is not set.
func (s *sidecar) openGateway(c *config.Config) (*gateway.Gateway, error) {
	if c.Listen.REST == "" || s.options.Answer != nil {
		return nil, nil
	}
	return gateway.New(gateway.Options{
		Server: s.server, TLS: s.watchedTLS(c.Listen.TLS, "rest"), Private: c.Listen.Auth.TokensFile == "" && loopback(c.Listen.REST),
		AllowedHosts: hostNames(c.Listen, c.Listen.REST), MaxMessageBytes: int(c.Limits.MaxMessageBytes), MaxConcurrentStreams: c.Limits.MaxConcurrentStreams,
		Gate: s.gate, Recorder: s.metrics, Logger: s.options.Logger,
	})
}

// hostNames returns the host names that the listener answers to: the configuration's allowed_hosts,
// and the host in the listener's own address.
func hostNames(l config.Listen, address string) []string {
	names := slices.Clone(l.AllowedHosts)
	if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
		names = append(names, host)
	}
	return names
}

func (s *sidecar) drainGateway(grace time.Duration) {
	if s.gateway != nil {
		s.gateway.Drain(grace)
	}
}

func serverTLS(t config.TLS) server.TLS {
	out := server.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile, MinVersion: tls.VersionTLS12}
	if t.MinVersion == "1.3" {
		out.MinVersion = tls.VersionTLS13
	}
	return out
}

// watchedTLS returns serverTLS(t), and adds the state of its files to the metrics.
func (s *sidecar) watchedTLS(t config.TLS, use string) server.TLS {
	out := serverTLS(t)
	out.Report = func(now func() telemetry.Files) { s.metrics.WatchFiles(use, now) }
	return out
}

// run serves until ctx is done or a listener fails, and then drains.
func (s *sidecar) run(ctx context.Context, c *config.Config) error {
	listeners, err := listen(ctx, c.Listen, s.options.Answer == nil)
	if err != nil {
		return err
	}
	log := s.options.Logger
	listeners.warnOfFiles(log)
	addresses := listeners.addresses()
	if s.proxy != nil {
		if err := s.proxy.Listen(ctx); err != nil {
			return errors.Join(err, listeners.close())
		}
		at := s.proxy.Addresses()
		addresses.Proxy = &at
		log.Info("proxy listening", "store", c.Proxy.Store, "grpc", at.GRPC, "rest", at.REST)
	}
	log.Info("listening", "grpc", addresses.GRPC, "rest", addresses.REST, "admin", addresses.Admin, "tls", c.Listen.TLS.CertFile != "",
		"version", s.options.Build.Version)
	if s.options.Answer == nil {
		warnOfPlainTokens(log, c.Listen)
	}
	if listeners.admin != nil && s.adminTLS != nil {
		listeners.admin = tls.NewListener(listeners.admin, s.adminTLS)
	}
	if s.options.Listening != nil {
		s.options.Listening(addresses)
	}
	asked := ctx.Done()
	group, ctx := errgroup.WithContext(ctx)
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group.Go(func() error { return s.answer(listeners.grpc) })
	if s.gateway != nil {
		group.Go(func() error { return s.gateway.Run(listeners.rest) })
	}
	if listeners.admin != nil {
		group.Go(func() error { return s.admin.Serve(listeners.admin) })
	}
	if s.proxy != nil {
		group.Go(func() error { return s.proxy.Run(ending) })
	}
	group.Go(func() error { return s.auditor.Run(ctx, s.engine) })
	group.Go(func() error { return s.reembeds.Run(ctx) })
	group.Go(func() error {
		s.trials.Run(ctx)
		return nil
	})
	if s.reloader != nil {
		group.Go(func() error { return s.reloader.run(ctx) })
	}
	group.Go(func() error {
		s.openRoutes(ctx, c.RouteNames(), addresses)
		return nil
	})
	group.Go(func() error {
		s.checkREST(ctx)
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.announceEnd(asked, c.Shutdown.Delay)
		end()
		return s.drain(c.Shutdown.Grace)
	})
	if err := group.Wait(); !errors.Is(err, errNobody) {
		return err
	}
	return nil
}

// errNobody ends Run without an error when Answer has no caller left.
var errNobody = errors.New("no caller is left")

// answer answers calls of the API until the server drains.
func (s *sidecar) answer(listener net.Listener) error {
	if s.options.Answer == nil {
		return s.server.Serve(listener)
	}
	if err := s.options.Answer(s.server); err != nil {
		return err
	}
	return errNobody
}

func warnOfPlainTokens(log *slog.Logger, l config.Listen) {
	if l.Auth.TokensFile != "" && l.TLS.CertFile == "" {
		log.Warn("tokens cross the network in plain text; set listen.tls, or listen on a loopback address")
	}
}

// announceEnd makes health checks report that the sidecar is ending. If the sidecar was asked to
// end, it goes on answering calls for the configured delay.
func (s *sidecar) announceEnd(asked <-chan struct{}, delay time.Duration) {
	s.openings.close()
	s.server.Leave()
	select {
	case <-asked:
	default:
		return // a listener failed, so nothing can be answered
	}
	if delay > 0 {
		s.options.Logger.Info("shutting down: answering calls until load balancers have noticed", "delay", delay.String())
		time.Sleep(delay) //nolint:forbidigo // only time ends this wait; a second signal ends the process
	}
}

// drain ends the gRPC server, and then the admin server, which reports the state until the end.
func (s *sidecar) drain(grace time.Duration) error {
	s.options.Logger.Info("draining", "grace", grace.String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.drainGateway(grace)
	}()
	s.server.Drain(grace)
	<-ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.admin.Shutdown(ctx)
	s.options.Logger.Info("drained")
	return err
}

type listeners struct{ grpc, rest, admin net.Listener }

// listenError adds the remedy to the error of an address that is taken.
func listenError(key string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w; stop what listens there, such as another likeness, or set %s to another address", key, err, key)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// listen opens the admin listener and, if api is set, the API's listeners.
func listen(ctx context.Context, l config.Listen, api bool) (listeners, error) {
	var (
		out    listeners
		err    error
		dialer net.ListenConfig
	)
	if api {
		if out.grpc, err = dialer.Listen(ctx, "tcp", l.GRPC); err != nil {
			return out, listenError("listen.grpc", err)
		}
	}
	if api && l.REST != "" {
		if out.rest, err = dialer.Listen(ctx, "tcp", l.REST); err != nil {
			return out, errors.Join(listenError("listen.rest", err), out.close())
		}
	}
	if l.Admin == "" {
		return out, nil
	}
	if out.admin, err = dialer.Listen(ctx, "tcp", l.Admin); err != nil {
		return out, errors.Join(listenError("listen.admin", err), out.close())
	}
	return out, nil
}

// warnOfFiles makes the listeners log a warning when the process has no file descriptor left for
// another connection.
func (l *listeners) warnOfFiles(log *slog.Logger) {
	for _, listener := range []*net.Listener{&l.grpc, &l.rest, &l.admin} {
		if *listener != nil {
			*listener = openfiles.Listener(*listener, log)
		}
	}
}

func (l listeners) close() error {
	var err error
	for _, listener := range []net.Listener{l.grpc, l.rest, l.admin} {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	return err
}

func (l listeners) addresses() Addresses {
	var a Addresses
	if l.grpc != nil {
		a.GRPC = l.grpc.Addr().String()
	}
	if l.rest != nil {
		a.REST = l.rest.Addr().String()
	}
	if l.admin != nil {
		a.Admin = l.admin.Addr().String()
	}
	return a
}
