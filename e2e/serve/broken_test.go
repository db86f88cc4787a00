package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/internal/statedir"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/rerank/npy"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// twoRoutes serves two collections of one database, each by a model and a table of its own.
const twoRoutes = `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
models: {a: {path: a.safetensors}, b: {path: b.safetensors}}
state_dir: state
routes:
  things: {store: main, collection: routed, strategy: scan, versions: {v1: {model: a, table: a.table}, v2: {model: a, table: b.table}}, active: v1, table_live: %t}
  others: {store: main, collection: plain, model: b, placement: stored}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`

// damagedSidecar is a sidecar over files that a test damages and repairs.
type damagedSidecar struct {
	proxied
	at  serve.Addresses
	log *syncBuffer
}

// startDamaged serves the configuration in a folder until the test ends.
func startDamaged(t *testing.T, db *servers.Server, dir string) *damagedSidecar {
	t.Helper()
	load := func() (*config.Config, error) {
		return config.Load(config.Source{File: filepath.Join(dir, "likeness.yaml"), Environ: []string{"QDRANT_KEY=" + key}})
	}
	c, err := load()
	must2(t, err)
	d := &damagedSidecar{log: &syncBuffer{}}
	log, err := telemetry.NewLogger(d.log, "info", "text")
	must2(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: log, Build: buildinfo.Read(buildinfo.Stamp{}), Reload: load,
			Ready: func(at serve.Addresses) { ready <- at }})
	}()
	select {
	case d.at = <-ready:
	case err := <-ended:
		stop()
		t.Fatalf("the sidecar ended: %v", err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	d.proxied = proxied{direct: connect(t, db.Address), restDirect: db.REST, api: connect(t, d.at.GRPC), proxy: connect(t, d.at.Proxy.GRPC), rest: "http://" + d.at.Proxy.REST}
	return d
}

// admin calls a path of the admin port.
func (d *damagedSidecar) admin(t *testing.T, method, path string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.at.Admin+path, http.NoBody)
	must2(t, err)
	a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	must2(t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	must2(t, err)
	return a.StatusCode, string(b)
}

// statusOf searches a collection through the proxy, which has to answer as its status says. A search
// passes until the names of the collections are read, so that it is asked again until then.
func (d *damagedSidecar) statusOf(t *testing.T, collection string) string {
	t.Helper()
	got, state := d.ask(t, d.proxy, d.rest, plainSearch(collection), plainBody)
	for until := time.Now().Add(10 * time.Second); state == "passed; reason=alias" && time.Now().Before(until); { // the aliases were not read in time
		got, state = d.ask(t, d.proxy, d.rest, plainSearch(collection), plainBody)
	}
	own, _ := d.ask(t, d.direct, d.restDirect, plainSearch(collection), plainBody)
	if passed := strings.HasPrefix(state, "degraded") || strings.HasPrefix(state, "passed"); passed != (fmt.Sprint(got) == fmt.Sprint(own)) {
		t.Errorf("%s: %q with %v; the database has %v", collection, state, got, own)
	}
	return state
}

// damage writes a damaged file.
type damage struct {
	name, file string
	spoil      func(good []byte) []byte // nil: the file is removed
}

func damages(live bool) []damage {
	empty := func([]byte) []byte { return nil }
	cut := func(good []byte) []byte { return good[:len(good)*2/3] }
	flip := func(good []byte) []byte {
		bad := bytes.Clone(good)
		bad[len(bad)-5] ^= 64
		return bad
	}
	text := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	version := filepath.Join(statedir.Route("state", "things"), "version.json")
	all := []damage{
		{"no table", "a.table", nil}, {"an empty table", "a.table", empty}, {"half a table", "a.table", cut}, {"a table with another bit", "a.table", flip},
		{"a table of text", "a.table", text("table")},
	}
	if live {
		return all
	}
	return append(all,
		damage{"no model", "a.safetensors", nil}, damage{"an empty model", "a.safetensors", empty}, damage{"half a model", "a.safetensors", cut},
		damage{"a model with another bit", "a.safetensors", flip}, damage{"half a record of versions", version, text("{")},
		damage{"a record of a version that is gone", version, text(`{"active":"v0","configured":"v1","history":[]}`)},
	)
}

// TestADamagedFileStopsOneRoute damages the files of one route in several ways. The sidecar
// starts all the same: it serves the other route, passes the searches of the broken one with
// a status that says so, and reports the file. When the file is repaired, a reload opens the
// route.
func TestADamagedFileStopsOneRoute(t *testing.T) {
	db := filled(t, servers.Options{})
	table, err := os.ReadFile(tableOf(t, db))
	must2(t, err)
	for _, live := range []bool{false, true} {
		for _, tc := range damages(live) {
			t.Run(fmt.Sprintf("%s, live %t", tc.name, live), func(t *testing.T) {
				dir := damagedFolder(t, db, table, live)
				path := filepath.Join(dir, tc.file)
				good, _ := os.ReadFile(path) // version.json may not exist
				must2(t, os.MkdirAll(filepath.Dir(path), 0o700))
				if tc.spoil == nil {
					must2(t, os.Remove(path))
				} else {
					must2(t, os.WriteFile(path, tc.spoil(good), 0o600))
				}
				c, err := config.Load(config.Source{File: filepath.Join(dir, "likeness.yaml"), Environ: []string{"QDRANT_KEY=" + key}})
				must2(t, err)
				if _, err := serve.Check(t.Context(), c, serve.CheckOptions{}); err == nil {
					t.Error("config validate finds nothing")
				}
				d := startDamaged(t, db, dir)
				d.checkBroken(t)
				if good == nil {
					must2(t, os.Remove(path))
				} else {
					must2(t, os.WriteFile(path, good, 0o600))
				}
				if code, body := d.admin(t, http.MethodPost, "/reload"); code != http.StatusOK {
					t.Errorf("reload: %d %s", code, body)
				}
				if state := d.statusOf(t, "routed"); !strings.HasPrefix(state, "rescored; route=things") {
					t.Errorf("after the repair: %q", state)
				}
				if _, body := d.admin(t, http.MethodGet, "/readyz"); strings.Contains(body, "things") {
					t.Errorf("after the repair: %s", body)
				}
			})
		}
	}
}

// damagedFolder writes the files of twoRoutes, all of them good.
func damagedFolder(t *testing.T, db *servers.Server, table []byte, live bool) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		must2(t, model.Write(filepath.Join(dir, name+".safetensors"), testModel(t)))
	}
	must2(t, os.WriteFile(filepath.Join(dir, "a.table"), table, 0o600))
	must2(t, os.WriteFile(filepath.Join(dir, "likeness.yaml"), fmt.Appendf(nil, twoRoutes, db.Address, live, db.REST), 0o600))
	return dir
}

// checkBroken checks that everything says that the route things is broken, and that others
// is served.
func (d *damagedSidecar) checkBroken(t *testing.T) {
	t.Helper()
	if state := d.statusOf(t, "routed"); state != "degraded; reason=broken" {
		t.Errorf("the broken route: %q", state)
	}
	if state := d.statusOf(t, "plain"); !strings.HasPrefix(state, "rescored; route=others") {
		t.Errorf("the other route: %q", state)
	}
	_, err := likenessv1.NewSearchServiceClient(d.api).Search(t.Context(), &likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: query}}, grpc.WaitForReady(true))
	if status.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), "safetensors") || strings.Contains(err.Error(), "a.table") {
		t.Errorf("the API says %v", err)
	}
	if code, body := d.admin(t, http.MethodGet, "/readyz"); code != http.StatusOK || !strings.Contains(body, "route things:") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if _, body := d.admin(t, http.MethodGet, "/metrics"); !strings.Contains(body, `likeness_route_open{route="things"} 0`) || !strings.Contains(body, `likeness_route_open{route="others"} 1`) {
		t.Error("the metrics do not say which route is open")
	}
	if _, body := d.admin(t, http.MethodGet, "/status.json"); !strings.Contains(body, `"things"`) {
		t.Errorf("the status page: %s", body)
	}
	if log := d.log.String(); !strings.Contains(log, "route not open") || !strings.Contains(log, "route=things") {
		t.Errorf("the log: %s", log)
	}
}

// TestEveryRouteBrokenPasses: without any route that can be served the proxy still passes
// every call, and is ready for them.
func TestEveryRouteBrokenPasses(t *testing.T) {
	db := filled(t, servers.Options{})
	table, err := os.ReadFile(tableOf(t, db))
	must2(t, err)
	dir := damagedFolder(t, db, table, false)
	for _, name := range []string{"a", "b"} {
		must2(t, os.WriteFile(filepath.Join(dir, name+".safetensors"), []byte("no model"), 0o600))
	}
	d := startDamaged(t, db, dir)
	for _, collection := range []string{"routed", "plain"} {
		if state := d.statusOf(t, collection); state != "degraded; reason=broken" {
			t.Errorf("%s: %q", collection, state)
		}
	}
	if code, body := d.admin(t, http.MethodGet, "/readyz"); code != http.StatusOK || !strings.Contains(body, "route others:") {
		t.Errorf("readyz: %d %s", code, body)
	}
}

// TestARoundedTableStopsItsAuditedRoute: a route whose live answers are to be audited, and
// whose table is too rounded for that, is left to the database until its table is built again.
func TestARoundedTableStopsItsAuditedRoute(t *testing.T) {
	db := filled(t, servers.Options{})
	precise, err := os.ReadFile(tableOf(t, db))
	must2(t, err)
	rounded, err := os.ReadFile(formattedTable(t, db, "routed", rerank.FormatInt8))
	must2(t, err)
	dir := damagedFolder(t, db, rounded, false)
	file := filepath.Join(dir, "likeness.yaml")
	text, err := os.ReadFile(file)
	must2(t, err)
	must2(t, os.WriteFile(file, bytes.Replace(text, []byte("active: v1,"), []byte("active: v1, audit: {share: 1},"), 1), 0o600))
	d := startDamaged(t, db, dir)
	d.checkBroken(t)
	must2(t, os.WriteFile(filepath.Join(dir, "a.table"), precise, 0o600))
	if code, body := d.admin(t, http.MethodPost, "/reload"); code != http.StatusOK {
		t.Errorf("reload: %d %s", code, body)
	}
	if state := d.statusOf(t, "routed"); !strings.HasPrefix(state, "rescored; route=things") {
		t.Errorf("after the repair: %q", state)
	}
}

// embeddedRoutes adds an embedded store to twoRoutes, with a route for each of its collections.
var embeddedRoutes = strings.NewReplacer(
	"stores: {", "stores: {here: {kind: embedded, collections: {items: {vectors: items.npy}, more: {vectors: more.npy, payload: more.jsonl}}}, ",
	"routes:\n", "routes:\n  near: {store: here, collection: items, model: b, placement: stored}\n  far: {store: here, collection: more, model: b, placement: stored}\n",
).Replace(twoRoutes)

// TestADamagedCollectionStopsItsRoute damages the files of one embedded collection. The routes
// of the store's other collection, and of other stores, are served. After the repair a reload
// serves the route too.
func TestADamagedCollectionStopsItsRoute(t *testing.T) {
	db := filled(t, servers.Options{})
	table, err := os.ReadFile(tableOf(t, db))
	must2(t, err)
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"no vectors":  func(t *testing.T, dir string) { must2(t, os.Remove(filepath.Join(dir, "more.npy"))) },
		"half a file": func(t *testing.T, dir string) { must2(t, os.Truncate(filepath.Join(dir, "more.npy"), 90)) },
		"fewer vectors": func(t *testing.T, dir string) {
			must2(t, npy.Write(filepath.Join(dir, "more.npy"), rerank.NewMatrix(2, 4)))
		},
		"no JSON": func(t *testing.T, dir string) {
			must2(t, os.WriteFile(filepath.Join(dir, "more.jsonl"), []byte("{}\n{}\n{\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damagedFolder(t, db, table, false)
			repair := func() {
				for _, file := range []string{"items.npy", "more.npy"} {
					must2(t, npy.Write(filepath.Join(dir, file), rerank.NewMatrix(3, 4)))
				}
				must2(t, os.WriteFile(filepath.Join(dir, "more.jsonl"), []byte("{}\n{}\n{}\n"), 0o600))
			}
			repair()
			spoil(t, dir)
			must2(t, os.WriteFile(filepath.Join(dir, "likeness.yaml"), fmt.Appendf(nil, embeddedRoutes, db.Address, false, db.REST), 0o600))
			d := startDamaged(t, db, dir)
			rows := func(route string) (int, error) {
				a, err := likenessv1.NewSearchServiceClient(d.api).Search(t.Context(), &likenessv1.SearchRequest{Route: route, K: 3, Query: &likenessv1.Query{Vector: query}}, grpc.WaitForReady(true))
				return len(a.GetHits()), err
			}
			if _, err := rows("far"); status.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), "more.") {
				t.Errorf("the broken route: %v", err)
			}
			if n, err := rows("near"); n != 3 || err != nil {
				t.Errorf("the route of the other collection: %d rows, %v", n, err)
			}
			if state := d.statusOf(t, "routed"); !strings.HasPrefix(state, "rescored; route=things") {
				t.Errorf("the route of the other store: %q", state)
			}
			if code, body := d.admin(t, http.MethodGet, "/readyz"); code != http.StatusOK || !strings.Contains(body, "route far: stores.here: collections.more:") {
				t.Errorf("readyz: %d %s", code, body)
			}
			if log := d.log.String(); !strings.Contains(log, "collection cannot be used") {
				t.Errorf("the log: %s", log)
			}
			repair()
			if code, body := d.admin(t, http.MethodPost, "/reload"); code != http.StatusOK {
				t.Errorf("reload: %d %s", code, body)
			}
			if n, err := rows("far"); n != 3 || err != nil {
				t.Errorf("after the repair: %d rows, %v", n, err)
			}
		})
	}
}
