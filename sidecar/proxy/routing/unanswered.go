package routing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// unansweredAfter is the length of a run of unanswered searches from which a route is reported.
	unansweredAfter = 20
	// unansweredEvery limits the log lines about one route and reason.
	unansweredEvery = time.Hour
)

// Unanswered is a run of consecutive searches that a route should answer and did not, all for the
// same reason.
type Unanswered struct {
	Status   string    `json:"status"` // as clients see it
	Searches int       `json:"searches"`
	Since    time.Time `json:"since"`
}

// unanswered keeps the current run of every route. Its methods are safe for concurrent use.
type unanswered struct {
	mu     sync.Mutex
	runs   map[string]*Unanswered
	logged map[string]map[string]time.Time // time of the last line, by route and status
}

func newUnanswered() unanswered {
	return unanswered{runs: map[string]*Unanswered{}, logged: map[string]map[string]time.Time{}}
}

// deliberate lists the statuses that somebody requested, or that are not due to the route.
var deliberate = []string{Pass("off").Error(), Pass("ramp").Error(), Degraded{Reason: "canceled"}.Error()}

// add counts an unanswered search of a route. log is true if the run is to be logged.
func (u *unanswered) add(route, status string, now time.Time) (run Unanswered, log bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.runs[route]
	if r == nil || r.Status != status {
		r = &Unanswered{Status: status, Since: now}
		u.runs[route] = r
	}
	r.Searches++
	last, before := u.logged[route][status]
	if r.Searches < unansweredAfter || before && now.Sub(last) < unansweredEvery {
		return *r, false
	}
	if u.logged[route] == nil {
		u.logged[route] = map[string]time.Time{}
	}
	u.logged[route][status] = now
	return *r, true
}

// answered ends the run of a route.
func (u *unanswered) answered(route string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.runs, route)
}

// long returns the runs that are long enough to be reported, by route.
func (u *unanswered) long() map[string]Unanswered {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]Unanswered{}
	for route, r := range u.runs {
		if r.Searches >= unansweredAfter {
			out[route] = *r
		}
	}
	return out
}

// outcomes counts what became of searches, and logs routes that answer none. It is safe for concurrent use.
type outcomes struct {
	record     Recorder
	unanswered unanswered
	log        *slog.Logger
}

// notRescored counts a search that the routes did not answer, and returns the status text of its
// Pass or Degraded.
func (o *outcomes) notRescored(routes []string, err error) string {
	var p Pass
	var d Degraded
	switch {
	case errors.As(err, &p):
		o.record.Proxied(routes, "passed", string(p))
	case errors.As(err, &d):
		o.record.Proxied(routes, "degraded", d.Reason)
	}
	o.noteUnanswered(context.Background(), routes, err.Error())
	return err.Error()
}

// Unanswered returns the routes whose last searches, at least twenty, were all left to the database
// for one reason.
func (r *Router) Unanswered() map[string]Unanswered { return r.outcomes.unanswered.long() }

// noteUnanswered counts a search that the routes did not answer, and logs runs that are long
// enough.
func (o *outcomes) noteUnanswered(ctx context.Context, routes []string, status string) {
	if slices.Contains(deliberate, status) {
		return
	}
	for _, name := range routes {
		if run, log := o.unanswered.add(name, status, time.Now()); log {
			o.log.LogAttrs(ctx, slog.LevelWarn, "proxy: every search of a route is left to the database", slog.String("route", name),
				slog.String("status", run.Status), slog.Int("searches", run.Searches), slog.Time("since", run.Since),
				slog.String("remedy", "docs/proxy.md says what the status means; likeness config validate --connect checks the route"))
		}
	}
}

// routeNamesOf returns the routes of a call's searches or, if the searches have none, all routes of
// the collection.
func (c *call[A]) routeNamesOf() []string {
	if len(c.routes) == 0 || len(c.routes) < len(c.asked.Searches) {
		return c.coverage.names.routesOf(c.target.Routed)
	}
	names := map[string]bool{}
	for _, r := range c.routes {
		names[r.Name] = true
	}
	return slices.Collect(maps.Keys(names))
}
