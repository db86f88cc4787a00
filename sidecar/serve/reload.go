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

// adjustWithin is the time for the stores to check routes whose keys changed.
const adjustWithin = 30 * time.Second

// reloader brings a changed configuration into force while it is served.
type reloader struct {
	*sidecar
	// started is what the process began with; current is what is in force of the keys
	// that can change since.
	started, current *config.Config
	memory           int64 // the limit before the configuration's
	asked            chan chan reloaded
	said             string // the last error, not to be said at every look
	pending          []string
}

// reloaded is what came of reading the configuration again.
type reloaded struct {
	// Applied are the keys that are in force now, Activation those that are when a
	// version is activated, Restart those that are when the sidecar starts again.
	Applied    []string `json:"applied"`
	Activation []string `json:"activation,omitempty"`
	Restart    []string `json:"restart,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// run reads the configuration again when a signal, the admin port or the clock says so.
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
			r.said = ""
			r.read(ctx)
		case <-look:
			r.read(ctx)
		case answer := <-r.asked:
			r.said = ""
			answer <- r.read(ctx)
		}
	}
}

// ServeHTTP reads the configuration again and says what came of it.
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

// read reads the configuration and applies what changed, or nothing of it.
func (r *reloader) read(ctx context.Context) reloaded {
	next, err := r.options.Reload()
	if err != nil {
		return r.refuse(ctx, err)
	}
	changes := r.current.Changes(next)
	out := reloaded{Applied: paths(changes, config.EffectLive), Activation: paths(changes, config.EffectActivation),
		Restart: paths(r.started.Changes(next), config.EffectRestart)}
	if len(out.Applied) > 0 {
		if err := r.apply(ctx, next, out.Applied); err != nil {
			return r.refuse(ctx, err)
		}
	}
	r.current = next
	if len(changes) > 0 || r.said != "" {
		r.metrics.Reloaded(true)
		r.options.Logger.InfoContext(ctx, "configuration read again", "applied", out.Applied, "at_activation", out.Activation)
	}
	r.said = ""
	if !slices.Equal(out.Restart, r.pending) {
		r.pending = out.Restart
		r.metrics.RestartKeys(len(out.Restart))
		if len(out.Restart) > 0 {
			r.options.Logger.WarnContext(ctx, "changed keys take effect when the sidecar is started again: needs a restart", "keys", out.Restart)
		}
	}
	return out
}

func (r *reloader) refuse(ctx context.Context, err error) reloaded {
	if err.Error() != r.said {
		r.said = err.Error()
		r.metrics.Reloaded(false)
		r.options.Logger.ErrorContext(ctx, "the changed configuration cannot be used; what was read before stays in force", "error", err)
	}
	return reloaded{Applied: []string{}, Error: err.Error()}
}

func paths(changes []config.Change, e config.Effect) []string {
	out := []string{}
	for _, c := range changes {
		if c.Effect == e {
			out = append(out, c.Path)
		}
	}
	return out
}

// apply prepares everything that the keys change, and then puts it in force.
func (r *reloader) apply(ctx context.Context, next *config.Config, keys []string) error {
	chosen := r.activations(next)
	short, cancel := context.WithTimeout(ctx, adjustWithin)
	defer cancel()
	routes, err := r.versions.Adjust(short, next, r.touched(next, keys, chosen))
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
	r.gate.SetLimits(searchLimits(next))
	debug.SetMemoryLimit(cmp.Or(int64(next.Limits.Memory), r.memory))
	r.queries.Adjust(next.Log.Queries, next.Log.Slow)
	return telemetry.SetLevel(r.options.Logger, next.Log.Level)
}

// activations lists the routes whose configured version is another now.
func (r *reloader) activations(next *config.Config) []string {
	var out []string
	for _, name := range r.started.RouteNames() {
		is, ok := next.Routes[name]
		if was := r.current.Routes[name]; ok && is.Active != "" && is.Active != was.Active {
			out = append(out, name)
		}
	}
	return out
}

// touched lists the routes that keys change, but for those that are activated anew.
func (r *reloader) touched(next *config.Config, keys, but []string) []string {
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
