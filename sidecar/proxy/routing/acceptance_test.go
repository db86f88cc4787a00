package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/search"
)

// errDenied is the answer of the guarded database to a caller whom it refuses.
var errDenied = errors.New("denied")

// guarded is a database that lets some keys search, and counts its own work and the route's.
type guarded struct {
	allowed   []string
	originals int // unchanged calls
	reads     int // calls that likeness read at all
	ranked    int // searches of the route
}

func (g *guarded) router(t *testing.T, record routing.Recorder) *routing.Router {
	t.Helper()
	return router(t, searcher{route: newRoute(nil), rows: 9, asked: func(search.Request) { g.ranked++ }}, record)
}

// guardedCall is a call of a caller of the guarded database.
type guardedCall struct {
	exchange
	*guarded
	key string
}

func (c guardedCall) Read(ctx context.Context) (routing.Asked, error) {
	c.reads++
	return c.exchange.Read(ctx)
}

func (c guardedCall) Original(context.Context, bool) answer {
	c.originals++
	switch {
	case c.key == "broken":
		return answer{own: true, err: errors.New("no such field")}
	case !slices.Contains(c.allowed, c.key):
		return answer{own: true, err: errDenied}
	}
	return answer{own: true}
}

func (c guardedCall) Access(a answer) routing.Access {
	if errors.Is(a.err, errDenied) {
		return routing.AccessDenied
	}
	return c.exchange.Access(a)
}

func (g *guarded) ask(t *testing.T, r *routing.Router, key, collection string, x exchange) routing.Outcome[answer] {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
	return routing.Answer(ctx, r, routing.Target{Name: collection, Routed: "c", Own: collection}, guardedCall{x, g, key})
}

// The call of a caller whom the database has not accepted lately goes to the database before
// anything in it is read. If the database refuses the caller, the call has no other effect.
func TestAStrangersCallIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, record := &guarded{allowed: []string{"good", "other"}}, &recorder{}
		r := g.router(t, record)
		for _, key := range []string{"", "bad", "broken"} {
			for range 30 {
				o := g.ask(t, r, key, "c", asks(plain(3)))
				if !o.Answered || !o.Answer.own || o.Answer.err == nil || o.Status != "" || o.Refused != "" {
					t.Fatalf("key %q: %+v", key, o)
				}
			}
		}
		if g.reads+g.ranked > 0 || g.originals != 90 || len(record.counts) > 0 || len(r.Unanswered()) > 0 {
			t.Errorf("strangers: %+v, told %v, %v", g, record.counts, r.Unanswered())
		}
		*g = guarded{allowed: g.allowed}
		for _, step := range []struct {
			name, key, collection string
			after                 time.Duration
			originals             int
		}{
			{"the first call", "good", "c", 0, 1},
			{"the second", "good", "c", 0, 0},
			{"of another key", "other", "c", 0, 1},
			{"of another collection", "good", "alias", 0, 1},
			{"nearly a minute later", "good", "c", 59 * time.Second, 0},
			{"confirmed by the last answer", "good", "c", 59 * time.Second, 0},
			{"a minute later", "good", "c", time.Minute, 1},
		} {
			time.Sleep(step.after) //nolint:forbidigo // of the bubble: no time passes
			g.originals = 0
			o := g.ask(t, r, step.key, step.collection, asks(plain(3)))
			if g.originals != step.originals || o.Answer.own {
				t.Errorf("%s: %d originals, %+v", step.name, g.originals, o)
			}
		}
	})
}

// The database's answer to the unchanged call is not requested twice.
func TestTheAnswerThatAcceptedTheCaller(t *testing.T) {
	g := &guarded{allowed: []string{"good"}}
	o := g.ask(t, g.router(t, nil), "good", "c", exchange{read: routing.Pass("filter")})
	if !o.Answered || !o.Answer.own || o.Status != "passed; reason=filter" || g.originals != 1 {
		t.Errorf("%+v, %d originals", o, g.originals)
	}
}

// If the database stops confirming for a caller, the caller must be accepted again.
func TestACallerWhoIsRefusedAgain(t *testing.T) {
	g := &guarded{allowed: []string{"good"}}
	r := g.router(t, nil)
	g.ask(t, r, "good", "c", asks(plain(3)))
	g.allowed = nil
	x := asks(plain(3))
	x.confirm = routing.Degraded{Reason: "confirm"}
	g.ask(t, r, "good", "c", x)
	*g = guarded{}
	if o := g.ask(t, r, "good", "c", asks(plain(3))); o.Status != "" || g.ranked != 0 || g.originals != 1 {
		t.Errorf("%+v, %+v", o, g)
	}
}

// However many credentials a database accepts, the most recently accepted ones are remembered.
func TestManyCredentials(t *testing.T) {
	g := &guarded{}
	for i := range 5000 {
		g.allowed = append(g.allowed, fmt.Sprint(i))
	}
	r := g.router(t, nil)
	for i := range 5000 {
		g.originals = 0
		g.ask(t, r, fmt.Sprint(i), "c", exchange{read: routing.Pass("filter")})
		g.ask(t, r, fmt.Sprint(max(0, i-4000)), "c", exchange{read: routing.Pass("filter")})
		if g.originals != 1 {
			t.Fatalf("after %d credentials: %d originals", i, g.originals)
		}
	}
}

// Passes tells only accepted callers why a search passes.
func TestPassesTellsAcceptedCallers(t *testing.T) {
	record := &recorder{}
	r := router(t, searcher{route: newRoute(nil)}, record)
	target := routing.Target{Name: "c", Routed: "c", Own: "c"}
	if said := r.Passes(t.Context(), target, "malformed"); said != "" || len(record.counts) > 0 {
		t.Errorf("a stranger is told %q", said)
	}
	r.Accept(t.Context(), "c")
	if said := r.Passes(t.Context(), target, "malformed"); said != "passed; reason=malformed" {
		t.Errorf("an accepted caller is told %q", said)
	}
}
