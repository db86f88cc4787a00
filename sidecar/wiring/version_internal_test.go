package wiring

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/internal/filelock"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/route"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// tabled returns an assembly, a model of version v, and a route whose table has two items of
// that version and of the route's collection.
func tabled(t *testing.T) (*Assembly, *config.Config, *model.Model, config.Route) {
	t.Helper()
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := given(t)
	r, _ := c.RouteAt("b", "")
	r.Table = filepath.Join(t.TempDir(), "table")
	writeTable(t, r.Table, table.Meta{Model: "one", ModelVersion: "v", Collection: r.Collection, Features: 2})
	a := &Assembly{Stores: map[string]adapters.Store{}, open: map[*Version]bool{}}
	return a, c, &model.Model{Name: "one", Version: "v", Similarity: sim}, r
}

func writeTable(t *testing.T, path string, meta table.Meta) {
	t.Helper()
	w, err := table.NewWriter(path, meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append([]rerank.ID{rerank.UintID(1), rerank.UintID(2)}, rerank.NewMatrix(2, 2)), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestATableOfAnotherModelIsRefused, or of another collection, be it live or a file: its features
// score other items, or other vectors.
func TestATableOfAnotherModelIsRefused(t *testing.T) {
	a, c, m, r := tabled(t)
	for name, change := range map[string]func(*config.Route, *model.Model){
		"of both":            func(*config.Route, *model.Model) {},
		"another model":      func(_ *config.Route, m *model.Model) { m.Version = "w" },
		"another collection": func(r *config.Route, _ *model.Model) { r.Collection = "others" },
	} {
		for _, live := range []bool{false, true} {
			of, with := r, *m
			change(&of, &with)
			of.TableLive = live
			v, err := a.openVersion(c, of, "v7", &with)
			if (err == nil) != (name == "of both") {
				t.Errorf("%s, live %t: error %v", name, live, err)
			}
			if err != nil {
				if !errors.Is(err, table.ErrTable) || !contains(err, "routes.b.versions.v7: table:") || len(a.open) != 0 {
					t.Errorf("%s, live %t: %d versions are open, error %v", name, live, len(a.open), err)
				}
				continue
			}
			if (v.Route.Live != nil) != live || (v.Route.Table != nil) == live || v.Route.Model.Version != "v" || v.Route.Database.Address != "q.example:6334" {
				t.Errorf("live %t: %+v", live, v.Route.Parts)
			}
			if err := v.Close(); err != nil || len(a.open) != 0 {
				t.Errorf("live %t: closing: %v", live, err)
			}
		}
	}
	r.Table += " gone"
	for version, command := range map[string]string{"": "`likeness index --route b`", "v7": "`likeness index --route b --version v7`"} {
		if _, err := a.openVersion(c, r, version, m); err == nil || !contains(err, command) {
			t.Errorf("version %q: a table that is missing: error %v, want %s", version, err, command)
		}
	}
}

// TestHowTablesAreOpened: a live table can be read as a file while it is open, and need not be
// opened at all.
func TestHowTablesAreOpened(t *testing.T) {
	a, c, m, r := tabled(t)
	r.TableLive = true
	if _, err := a.openVersion(c, r, "", m); err != nil {
		t.Fatal(err)
	}
	if _, err := a.openVersion(c, r, "", m); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a live table was opened twice: %v", err)
	}
	for how, opened := range map[Tables]bool{TablesAsFiles: true, NoTables: false} {
		a.part.Tables = how
		v, err := a.openVersion(c, r, "", m)
		if err != nil || v.Route.Live != nil || (v.Route.Table != nil) != opened {
			t.Fatalf("%v: %+v, %v", how, v, err)
		}
	}
	// Closing the assembly closes what is left open, so that another process may write.
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	a.part.Tables = TablesAsConfigured
	live, err := a.openVersion(c, r, "", m)
	if err != nil {
		t.Fatal(err)
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}
}

// TestAFailedOpenLeavesNothingOpen: what was opened before the failure is closed.
func TestAFailedOpenLeavesNothingOpen(t *testing.T) {
	path, err := filepath.Abs("../../examples/models/banking77-mol")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c, err := config.Parse(filepath.Join(dir, "likeness.yaml"), []byte(`
stores: {q: {kind: qdrant, address: "localhost:1"}}
models: {one: {path: "`+path+`"}}
routes:
  a: {store: q, collection: items, model: one, placement: stored, table: a, table_live: true}
  b: {store: q, collection: items, model: one, placement: stored, table: b}
`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	meta := table.Meta{Model: "one", ModelVersion: m.Version, Collection: "items", Features: m.Similarity.Spec().Features}
	w, err := table.NewWriter(filepath.Join(dir, "a"), meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one finds the live table free
		a, err := Open(t.Context(), c, Part{})
		if a != nil || err == nil || !contains(err, "routes.b: table:") || errors.Is(err, filelock.ErrHeld) {
			t.Errorf("%v, error %v", a, err)
		}
	}
	a, err := Open(t.Context(), c, Part{KeepBroken: true})
	if err != nil || a.Versions["a"] == nil || a.Versions["b"] != nil || len(a.Routes) != 2 || a.Routes[0].Broken != nil || a.Routes[1].Broken == nil {
		t.Fatalf("with broken routes: %+v, %v", a, err)
	}
	if other, err := Open(t.Context(), c, Part{KeepBroken: true}); other != nil || !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a table that another process has open: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestVersionsGetRankersAndDevices: those that are open when the rankers come, and those that are
// opened later; closing a version ends its use of the device.
func TestVersionsGetRankersAndDevices(t *testing.T) {
	a, c, m, r := tabled(t)
	c.Plugins = map[string]config.Plugin{"p": {Address: "unix://" + filepath.Join(t.TempDir(), "nobody")}}
	c.Rankers = map[string]config.Ranker{"asked": {Plugin: "p"}}
	r.Device, r.RankerName = "p", "asked"
	rankers, err := OpenRankers(t.Context(), c, RankerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.openVersion(c, r, "v1", m)
	if err != nil || first.Route.Ranker != nil || first.Route.Device != nil {
		t.Fatalf("before the rankers: %+v, %v", first, err)
	}
	a.Versions = map[string]*Version{"b": first}
	a.Ask(rankers)
	later, err := a.openVersion(c, r, "v2", m)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*Version{first, later} {
		if v.Route.Ranker != rankers.Ranker("asked") || v.Route.Device == nil || v.deviceName != "p" {
			t.Errorf("version %s has ranker %v and device %v", v.Name, v.Route.Ranker, v.Route.Device)
		}
	}
	if all := rankers.Devices(); len(all) != 2 || all[0].Version != "v1" || all[1].Version != "v2" || all[0].Route != "b" || all[0].Plugin != "p" {
		t.Errorf("devices %+v", all)
	}
	if err := first.Close(); err != nil || len(rankers.Devices()) != 1 {
		t.Errorf("closing a version: %v, devices %+v", err, rankers.Devices())
	}
	r.Device, r.RankerName = "", ""
	plain, err := a.openVersion(c, r, "", m)
	if err != nil || plain.Route.Ranker != nil || plain.Route.Device != nil {
		t.Errorf("of neither: %+v, %v", plain, err)
	}
	if err := errors.Join(a.Close(), rankers.Close()); err != nil || len(rankers.Devices()) != 0 {
		t.Errorf("closing: %v, devices %+v", err, rankers.Devices())
	}
}

// TestABrokenRouteIsReplaced: it keeps its name, policy and store, and what was open is closed.
func TestABrokenRouteIsReplaced(t *testing.T) {
	a, c, m, r := tabled(t)
	v, err := a.openVersion(c, r, "", m)
	if err != nil {
		t.Fatal(err)
	}
	a.Stores["q"] = embedded.New()
	closed := 0
	v.table = closer(func() error { closed++; return v.Route.Table.Close() })
	c.Routes["b"] = r
	a.Versions, a.Routes = map[string]*Version{"b": v}, []*route.Route{v.Route, {Policy: route.Policy{Name: "z"}}}
	for _, name := range []string{"b", "c"} {
		a.Break(c, name, io.EOF)
	}
	var names []string
	for _, of := range a.Routes {
		names = append(names, of.Name)
	}
	if got := strings.Join(names, " "); got != "b c z" || closed != 1 || a.Versions["b"] != nil || len(a.open) != 0 {
		t.Errorf("routes %s, closed %d times, versions %v", got, closed, a.Versions)
	}
	if b := a.Routes[0]; !errors.Is(b.Broken, io.EOF) || b.Store != a.Stores["q"] || b.Store == nil || b.Collection != r.Collection || a.Routes[2].Broken != nil {
		t.Errorf("%+v", b)
	}
}

type closer func() error

func (c closer) Close() error { return c() }
