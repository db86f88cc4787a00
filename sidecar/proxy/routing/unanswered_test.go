package routing_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/sidecar/proxy/routing"
	"github.com/likenessdb/likeness/sidecar/route"
)

// shaped is a store that only answers for the fields of a collection.
type shaped struct {
	adapters.Store
	fields []adapters.VectorField
}

func (s shaped) Describe(context.Context, string) (adapters.Description, error) {
	return adapters.Description{Fields: s.fields}, nil
}

func fieldNamed(name string, m adapters.Metric) adapters.VectorField {
	return adapters.VectorField{Name: name, Dim: 1, Metric: m}
}

// TestARouteWithoutAFieldsName: a route without a field serves the collection's unnamed or only
// field, which clients name as the database requires.
func TestARouteWithoutAFieldsName(t *testing.T) {
	const cosine = adapters.Cosine
	for _, c := range []struct {
		name   string
		route  string
		fields []adapters.VectorField
		asked  map[string]string // by the field that the client names
	}{
		{"one named field", "", []adapters.VectorField{fieldNamed("img", cosine)},
			map[string]string{"img": rescoredStatus, "": "passed; reason=vector", "other": "passed; reason=vector"}},
		{"the unnamed field", "", []adapters.VectorField{fieldNamed("", cosine)},
			map[string]string{"": rescoredStatus, "img": "passed; reason=vector"}},
		{"the unnamed field among others", "", []adapters.VectorField{fieldNamed("img", cosine), fieldNamed("", cosine)},
			map[string]string{"": rescoredStatus, "img": "passed; reason=vector"}},
		{"several named fields", "", []adapters.VectorField{fieldNamed("img", cosine), fieldNamed("txt", cosine)},
			map[string]string{"": "passed; reason=vector", "img": "passed; reason=vector"}},
		{"a route that names it", "img", []adapters.VectorField{fieldNamed("img", cosine)},
			map[string]string{"img": rescoredStatus, "": "passed; reason=vector"}},
		{"another metric", "", []adapters.VectorField{fieldNamed("img", adapters.L2)}, map[string]string{"img": "passed; reason=metric"}},
	} {
		for asked, want := range c.asked {
			r := router(t, searcher{route: newRoute(func(r *route.Route) { r.Vector, r.Store = c.route, shaped{fields: c.fields} }), rows: 9}, nil)
			s := plain(3)
			s.Vector = asked
			if o := ask(t.Context(), r, asks(s)); o.Status != want {
				t.Errorf("%s, asked of %q: %q, want %q", c.name, asked, o.Status, want)
			}
		}
	}
}

// TestEverySearchIsLeftToTheDatabase: when every search of a route has passed for one reason, the
// log says so once an hour, and Unanswered reports it until a search is answered.
func TestEverySearchIsLeftToTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r, err := routing.New(searcher{route: newRoute(nil), rows: 9}, routing.Options{Store: "s", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		other := plain(3)
		other.Vector = "other"
		pass := func(n int, s routing.Search) {
			for range n {
				ask(t.Context(), r, asks(s))
			}
		}
		lines := func() int { return strings.Count(log.String(), "every search of a route is left to the database") }
		pass(19, other)
		if lines() != 0 || len(r.Unanswered()) != 0 {
			t.Errorf("after 19 searches: %v, %s", r.Unanswered(), log.String())
		}
		pass(1, plain(3))
		pass(19, other)
		if lines() != 0 || len(r.Unanswered()) != 0 {
			t.Errorf("with an answered one between: %v, %s", r.Unanswered(), log.String())
		}
		since := time.Now()
		pass(21, other)
		if u := r.Unanswered()["r"]; u.Searches != 40 || u.Status != "passed; reason=vector" || !u.Since.Equal(since) {
			t.Errorf("after 40 searches: %+v", u)
		}
		if lines() != 1 || !strings.Contains(log.String(), `status="passed; reason=vector"`) {
			t.Errorf("logged %s", log.String())
		}
		<-time.After(time.Hour)
		pass(1, other)
		if lines() != 2 {
			t.Errorf("an hour later: logged %s", log.String())
		}
		deep := plain(1000)
		pass(20, deep)
		if u := r.Unanswered()["r"]; u.Searches != 20 || u.Status != "passed; reason=depth" || lines() != 3 {
			t.Errorf("of another reason: %+v, %s", u, log.String())
		}
		for range 20 {
			r.Passes(t.Context(), routing.Target{Name: "c", Routed: "c", Own: "c"}, "groups")
		}
		if u := r.Unanswered()["r"]; u.Status != "passed; reason=groups" {
			t.Errorf("of searches that are never answered: %+v", u)
		}
		if err := r.Switch("r", true); err != nil {
			t.Fatal(err)
		}
		pass(1, plain(3))
		if err := r.Switch("r", false); err != nil {
			t.Fatal(err)
		}
		if len(r.Unanswered()) != 1 {
			t.Errorf("a route that was switched off has %+v", r.Unanswered())
		}
		pass(1, plain(3))
		if len(r.Unanswered()) != 0 {
			t.Errorf("after an answer: %+v", r.Unanswered())
		}
	})
}
