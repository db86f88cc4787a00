package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// adjustWithin bounds the time for checking changed routes against their stores.
const adjustWithin = 30 * time.Second

// reloader reads the configuration again, and applies the keys that can change while the sidecar
// runs.
type reloader struct {
	*sidecar
	// started is the configuration at the start of the process, whose values stay in force for keys
	// that need a restart. current is the configuration that was read last, whose values are in
	// force for live keys.
	started, current *config.Config
	memory           int64 // the memory limit that the process would have without the configuration
	asked            chan chan reloaded
	lastError        string   // already logged, so not logged again at every interval
	pending          []string // changed keys that need a restart
}

// reloaded reports what reading the configuration again has changed.
type reloaded struct {
	// Applied lists the changed keys that are in effect now. Keys in Activation take effect when a
	// version is activated, keys in Restart when the sidecar starts again.
	Applied    []string `json:"applied"`
	Activation []string `json:"activation,omitempty"`
	Restart    []string `json:"restart,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// run reads the configuration again at every signal, at every request to the admin port, and every
// reload.interval.
func (r *reloader) run(ctx context.Context) error {
	for {
		var look <-chan time.Time
		if every := r.current.Reload.Interval; every > 0 {
			look = time.After(every)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.options.Reloads:
			r.lastError = ""
			r.read(ctx)
			r.tryBroken(ctx)
		case <-look:
			r.read(ctx)
		case answer := <-r.asked:
			r.lastError = ""
			out := r.read(ctx)
			r.tryBroken(ctx)
			answer <- out
		}
	}
}

// tryBroken tries to open the files of broken routes now, before the next regular attempt.
func (r *reloader) tryBroken(ctx context.Context) {
	for _, name := range r.openings.brokenRoutes() {
		_, _, _ = r.tryRoute(ctx, name) // tryRoute logs the error
	}
}

// ServeHTTP reads the configuration again and answers with the result.
func (r *reloader) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	answer := make(chan reloaded, 1)
	select {
	case r.asked <- answer:
	case <-in.Context().Done():
		return
	}
	var out reloaded
	select {
	case out = <-answer:
	case <-in.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if out.Error != "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// read reads the configuration again. It applies all changed live keys, or none if one of them
// cannot be used.
func (r *reloader) read(ctx context.Context) reloaded {
	next, err := r.options.Reload()
	if err != nil {
		return r.refuse(ctx, err)
	}
	changes := r.current.Changes(next)
	out := reloaded{Applied: pathsWith(changes, config.EffectLive), Activation: pathsWith(changes, config.EffectActivation),
		Restart: pathsWith(r.started.Changes(next), config.EffectRestart)}
	if len(out.Applied) > 0 {
		if err := r.apply(ctx, next, out.Applied); err != nil {
			return r.refuse(ctx, err)
		}
	}
	r.current = next
	if len(changes) > 0 || r.lastError != "" {
		r.metrics.Reloaded(true)
		r.options.Logger.InfoContext(ctx, "configuration read again", "applied", out.Applied, "at_activation", out.Activation)
	}
	r.lastError = ""
	if !slices.Equal(out.Restart, r.pending) {
		r.pending = out.Restart
		r.metrics.RestartKeys(len(out.Restart))
		if len(out.Restart) > 0 {
			r.options.Logger.WarnContext(ctx, "changed configuration needs a restart", "keys", out.Restart)
		}
	}
	return out
}

func (r *reloader) refuse(ctx context.Context, err error) reloaded {
	if err.Error() != r.lastError {
		r.lastError = err.Error()
		r.metrics.Reloaded(false)
		r.options.Logger.ErrorContext(ctx, "changed configuration refused; the previous one stays in force", "error", err)
	}
	return reloaded{Applied: []string{}, Error: err.Error()}
}

// pathsWith lists the paths of the changes that take effect at the given time.
func pathsWith(changes []config.Change, e config.Effect) []string {
	out := []string{}
	for _, c := range changes {
		if c.Effect == e {
			out = append(out, c.Path)
		}
	}
	return out
}

// apply prepares all changes, and applies them if no preparation failed.
func (r *reloader) apply(ctx context.Context, next *config.Config, keys []string) error {
	chosen := r.routesToActivate(next)
	short, cancel := context.WithTimeout(ctx, adjustWithin)
	defer cancel()
	routes, err := r.versions.Adjust(short, next, r.routesToAdjust(next, keys, chosen))
	if err != nil {
		return err
	}
	defer routes.Discard()
	api, err := r.server.Adjust(apiLimits(next.Limits), tokensFile(next, r.options))
	if err != nil {
		return err
	}
	for _, route := range chosen {
		if _, err := r.versions.Activated(ctx, route, next.Routes[route].Active); err != nil {
			return err
		}
	}
	if err := routes.Apply(); err != nil {
		return err
	}
	api.Apply()
	r.auditor.Adjust(wiring.Audits(next))
	r.trials.Configure(next)
	r.gate.SetLimits(searchLimits(next))
	debug.SetMemoryLimit(cmp.Or(int64(next.Limits.Memory), r.memory))
	r.queries.Adjust(next.Log.Queries, next.Log.Slow)
	return telemetry.SetLevel(r.options.Logger, next.Log.Level)
}

// routesToActivate lists the routes whose active key has changed.
func (r *reloader) routesToActivate(next *config.Config) []string {
	var out []string
	for _, name := range r.started.RouteNames() {
		is, ok := next.Routes[name]
		if was := r.current.Routes[name]; ok && is.Active != "" && is.Active != was.Active {
			out = append(out, name)
		}
	}
	return out
}

// routesToAdjust lists the routes that the changed keys concern, except the routes in but, which a
// version activation replaces anyway.
func (r *reloader) routesToAdjust(next *config.Config, keys, but []string) []string {
	all := slices.Contains(keys, "limits.max_k") || slices.Contains(keys, "limits.max_depth")
	var out []string
	for _, name := range r.started.RouteNames() {
		if _, ok := next.Routes[name]; !ok || slices.Contains(but, name) {
			continue
		}
		if all || slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, "routes."+name+".") }) {
			out = append(out, name)
		}
	}
	return out
}
