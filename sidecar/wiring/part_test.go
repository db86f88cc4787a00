package wiring_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// parse reads a configuration with three routes. Two of the routes search the same collection. The
// model named gone has no file.
func parse(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	if err := npy.Write(filepath.Join(dir, "items.npy"), rerank.NewMatrix(3, 384)); err != nil {
		t.Fatal(err)
	}
	model, err := filepath.Abs("../../examples/models/banking77-mol")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(filepath.Join(dir, "likeness.yaml"), fmt.Appendf(nil, `
stores:
  here: {kind: embedded, collections: {items: {vectors: items.npy}, others: {vectors: items.npy}}}
  there: {kind: embedded, collections: {items: {vectors: items.npy}}}
models: {m: {path: %[1]q}, n: {path: %[1]q}, gone: {path: not-there}}
routes:
  a: {store: here, collection: items, placement: stored, active: v1, versions: {v1: {model: m}, v2: {model: n, depth: 7}, v3: {model: gone}}}
  b: {store: here, collection: items, model: n, placement: stored}
  c: {store: there, collection: items, model: n, placement: stored}
  d: {store: here, collection: others, model: n, placement: stored}
`, model), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpenOpensThePartAlone(t *testing.T) {
	c := parse(t)
	for _, test := range []struct {
		name                   string
		part                   wiring.Part
		routes, stores, models []string
	}{
		{"everything", wiring.Part{}, []string{"a", "b", "c", "d"}, []string{"here", "there"}, []string{"m", "n"}},
		{"a route", wiring.Only("a", ""), []string{"a"}, []string{"here"}, []string{"m"}},
		{"a version", wiring.Only("a", "v2"), []string{"a"}, []string{"here"}, []string{"n"}},
		{"siblings", wiring.WithJournal("a"), []string{"a", "b"}, []string{"here"}, []string{"m", "n"}},
		{"without a store", wiring.Part{Route: "a", WithoutStore: true}, []string{"a"}, nil, []string{"m"}},
		{"a store", wiring.OnlyStore("there"), nil, []string{"there"}, nil},
	} {
		a, err := wiring.Open(t.Context(), c, test.part)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var routes, models []string
		for _, r := range a.Routes {
			routes = append(routes, r.Name)
		}
		for _, m := range a.Models {
			models = append(models, m.Name)
		}
		stores := slices.Sorted(maps.Keys(a.Stores))
		if !slices.Equal(routes, test.routes) || !slices.Equal(stores, test.stores) || !slices.Equal(models, test.models) {
			t.Errorf("%s: routes %q, stores %q, models %q; want %q, %q, %q", test.name, routes, stores, models, test.routes, test.stores, test.models)
		}
		if v := a.Versions["a"]; v != nil && test.part.Version == "v2" && (v.Name != "v2" || v.Route.Depth != 7 || v.Route.MaxK != 1000) {
			t.Errorf("%s: version %q, depth %d, max_k %d", test.name, v.Name, v.Route.Depth, v.Route.MaxK)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: closing: %v", test.name, err)
		}
	}
	for _, test := range []struct {
		part wiring.Part
		want error
	}{
		{wiring.Only("none", ""), route.ErrUnknown},
		{wiring.Only("a", "v9"), route.ErrVersion},
		{wiring.Only("b", "v1"), route.ErrVersion},
	} {
		if _, err := wiring.Open(t.Context(), c, test.part); !errors.Is(err, test.want) {
			t.Errorf("%+v: error %v, want %v", test.part, err, test.want)
		}
	}
}

func TestLivePolicyKeepsWhatIsOpen(t *testing.T) {
	c := parse(t)
	a, err := wiring.Open(t.Context(), c, wiring.Only("b", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	served := a.Versions["b"]
	promise := served.Route.Promise
	r := c.Routes["b"]
	r.Depth, r.Placement = 9, config.PlacementDerived // live, and at the next activation
	c.Routes["b"] = r
	next, err := served.WithLivePolicy(c)
	if err != nil {
		t.Fatal(err)
	}
	if next.Route.Depth != 9 || next.Route.Placement != config.PlacementStored || next.Route.Store != served.Route.Store || next.Model != served.Model {
		t.Errorf("depth %d, placement %s, store %v, model %v", next.Route.Depth, next.Route.Placement, next.Route.Store, next.Model)
	}
	if promise == nil || next.Route.Promise != promise { // there is no state_dir to read it from
		t.Errorf("the calibration is %v, was %v", next.Route.Promise, promise)
	}
	if served.Route.Depth != 200 {
		t.Errorf("the version in service has depth %d now", served.Route.Depth)
	}
}

// audited is a promise with results of audits in memory.
type audited struct {
	route.Promise

	saved int
	err   error
}

func (a *audited) Save() error {
	a.saved++
	return a.err
}

// TestLivePolicySavesTheAudit: the version with the new settings reads the calibration from the state folder, so what
// the audits found is written there first. If that fails, the settings do not change.
func TestLivePolicySavesTheAudit(t *testing.T) {
	c := parse(t)
	a, err := wiring.Open(t.Context(), c, wiring.Only("b", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c.StateDir = t.TempDir()
	p := &audited{}
	a.Versions["b"].Route.Promise = p
	next, err := a.Versions["b"].WithLivePolicy(c)
	if err != nil || p.saved != 1 || next.Route.Promise == p {
		t.Errorf("the audit was saved %d times, and is %v, %v", p.saved, next, err)
	}
	p.err = errors.New("full")
	if _, err := a.Versions["b"].WithLivePolicy(c); !errors.Is(err, p.err) {
		t.Errorf("the audit cannot be saved: %v", err)
	}
}
