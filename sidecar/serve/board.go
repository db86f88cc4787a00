package serve

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/telemetry"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// showStatus serves the status page on the admin port.
func (s *sidecar) showStatus(c *config.Config) error {
	from := telemetry.StatusSources{
		Build: s.options.Build, Watch: s.watch, Ready: s.openings.ready, Routes: s.engine.Routes, Waiting: s.openings.reasonNotOpen,
		Versions: s.versions.List, Load: s.gate.Load, Plugins: s.rankers.States, Devices: s.rankers.Devices, Following: s.followers.Status, Trials: s.trials.Statuses,
		Rankers: func() []telemetry.RankerStatus { return rankerStates(c, s.rankers) }, Embedders: s.embedders.States, Reembedding: s.reembeds.States,
		Proxied: s.metrics.ProxyOf,
		Off: func() map[string]bool {
			if s.switches == nil {
				return nil
			}
			return s.switches.Off()
		},
		Unanswered: func() map[string]telemetry.Unanswered {
			out := map[string]telemetry.Unanswered{}
			if s.switches != nil {
				for route, u := range s.switches.Unanswered() {
					out[route] = telemetry.Unanswered(u)
				}
			}
			return out
		},
	}
	for _, name := range c.StoreNames() {
		from.Stores = append(from.Stores, telemetry.StoreStatus{Name: name, Kind: c.Stores[name].Kind, Address: c.Stores[name].Address, Pinged: s.assembly.Stores[name]})
	}
	page, err := telemetry.NewStatusBoard(from).Handler()
	if err != nil {
		return err
	}
	for _, path := range []string{"/{$}", "/status.json", "/page/"} {
		s.admin.Handle("GET "+path, page)
	}
	return nil
}

// rankerStates lists the rankers by name with their plugin or service. Of a URL it shows the
// host alone.
func rankerStates(c *config.Config, rankers *wiring.Rankers) (out []telemetry.RankerStatus) {
	for _, name := range c.RankerNames() {
		of := telemetry.RankerStatus{Name: name, State: rankers.Breaker(name)}
		if r := c.Rankers[name]; r.Plugin != "" {
			of.Source = "plugin " + r.Plugin
		} else if u, err := url.Parse(r.HTTP.URL); err == nil {
			of.Source = u.Host
		}
		out = append(out, of)
	}
	return out
}

// troubles returns a line for each open route whose store fails, whose journal of writes or events
// cannot be written, or that does not see the other sidecars. It also returns a line for each
// certificate or tokens file that needs attention.
func (s *sidecar) troubles(routes []string) (lines []string) {
	for _, route := range routes {
		if t := s.watch.Trouble(route); t != nil {
			lines = append(lines, fmt.Sprintf("route %s: its store fails since %s: %s, %d searches", route, t.Since.UTC().Format("15:04:05Z"), t.Error, t.Searches))
		}
	}
	for _, f := range s.followers.Status() {
		if f.JournalError != "" {
			lines = append(lines, fmt.Sprintf("route %s: its writes are forwarded without a record: %s", f.Route, f.JournalError))
		}
		if f.PeerError != "" {
			lines = append(lines, fmt.Sprintf("route %s: other sidecars are not seen: %s", f.Route, f.PeerError))
		}
	}
	kept := s.events.Stats()
	for _, route := range routes {
		if err := kept[route].Failed; err != nil {
			lines = append(lines, fmt.Sprintf("route %s: its events are not kept: %s", route, err))
		}
	}
	files := s.metrics.Files()
	for _, use := range slices.Sorted(maps.Keys(files)) {
		switch f := files[use]; {
		case f.Refused:
			lines = append(lines, fmt.Sprintf("%s: its changed files cannot be used; what was read before is in force", use))
		case f.Ending(time.Now()):
			lines = append(lines, fmt.Sprintf("%s: its certificate ends at %s", use, f.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return lines
}
