package wiring

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters"
	"github.com/likenessdb/likeness/adapters/embedded"
	"github.com/likenessdb/likeness/adapters/guard"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/dot"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/embed"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/plugins"
	"github.com/likenessdb/likeness/sidecar/ranker"
	"github.com/likenessdb/likeness/sidecar/ranker/httprank"
	"github.com/likenessdb/likeness/sidecar/route"
)

// given reads a configuration in which every setting of a store and of following is given.
func given(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Parse(filepath.Join(t.TempDir(), "likeness.yaml"), []byte(`
state_dir: state
stores:
  q:
    kind: qdrant
    address: q.example:6334
    api_key_env: KEY
    tls: {enabled: true, server_name: other.example}
    limits: {max_depth: 1, max_probes: 2, max_vector_fields: 3, max_message_bytes: 4KiB}
    guard: {break_after: 5, break_for: 6s, retry_budget: 0.07, hedge_after: 8ms}
  m:
    kind: milvus
    address: m.example:19530
    username: u
    password_env: PASSWORD
    database: d
    tls: {enabled: true}
    limits: {max_depth: 1, max_probes: 2, max_vector_fields: 3, max_message_bytes: 4KiB}
models: {one: {path: one}}
routes:
  a: {store: q, collection: items, model: one, placement: stored, companion: c, write_budget: 9ms, reconcile: {interval: 10m, rows_per_second: 11}}
  b: {store: q, collection: items, model: one, placement: stored}
  c: {store: m, collection: items, model: one, placement: stored}
  d: {store: q, collection: others, model: one, placement: stored}
`), []string{"KEY=key", "PASSWORD=word"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSettingsOfStores: what the operator wrote reaches the clients of the stores.
func TestSettingsOfStores(t *testing.T) {
	c := given(t)
	limits := adapters.Limits{MaxDepth: 1, MaxProbes: 2, MaxVectorFields: 3, MaxMessageBytes: 4 << 10}
	q, err := qdrantOptions(c, "q")
	if err != nil || q.Address != "q.example:6334" || q.APIKey != "key" || q.Limits != limits || q.TLS == nil || q.TLS.ServerName != "other.example" {
		t.Errorf("Qdrant: %+v, %v", q, err)
	}
	m, err := milvusOptions(c, "m")
	if err != nil || m.Address != "m.example:19530" || m.Username != "u" || m.Password != "word" || m.Database != "d" || m.Limits != limits || m.TLS == nil {
		t.Errorf("Milvus: %+v, %v", m, err)
	}
	want := guard.Options{Name: "q", BreakAfter: 5, BreakFor: 6 * time.Second, RetryBudget: 0.07, HedgeAfter: 8 * time.Millisecond}
	if got := guardOptions("q", c.Stores["q"].Guard); got != want {
		t.Errorf("the guard has %+v, want %+v", got, want)
	}
}

// observing is an Observer that can be told from another one.
type observing struct{ ranker.Observer }

// TestSettingsOfPluginsAndRankers: what the operator wrote reaches plugins, rankers and rerank
// services.
func TestSettingsOfPluginsAndRankers(t *testing.T) {
	c, err := config.Parse(filepath.Join(t.TempDir(), "likeness.yaml"), []byte(`
plugins:
  p:
    path: /opt/p
    args: [a, b]
    env: [SEEN]
    sha256: `+strings.Repeat("ab", 32)+`
    manifest: /opt/sums
    start_timeout: 1m
    health_interval: 2s
    health_timeout: 3s
    memory: 4KiB
    max_message_bytes: 5KiB
    quarantine_after: 6
    quarantine: 7s
rankers:
  of_p: {plugin: p, max_items: 1, parallel: 2, timeout: 3s, break_after: 4, break_for: 5s, retry_budget: 0.06, twice: true}
  service:
    parallel: 8
    http: {url: https://r.example/rerank, dialect: jina, model: m, token_env: TOKEN, fields: [title], version: v, cost: 9}
`), []string{"SEEN=1", "HIDDEN=2", "TOKEN=word"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := pluginOptions(c, "p", log)
	if want := (plugins.Options{
		Name: "p", Path: "/opt/p", Args: []string{"a", "b"}, Env: []string{"SEEN=1"}, SHA256: strings.Repeat("ab", 32), Manifest: "/opt/sums",
		StartTimeout: time.Minute, HealthInterval: 2 * time.Second, HealthTimeout: 3 * time.Second,
		Memory: 4 << 10, MaxMessageBytes: 5 << 10, QuarantineAfter: 6, Quarantine: 7 * time.Second, Logger: log,
	}); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("the plugin has %+v, %v, want %+v", p, err, want)
	}
	seen := new(observing)
	if got, want := rankerOptions("of_p", c.Rankers["of_p"], RankerOptions{Observer: seen}), (ranker.Options{
		Name: "of_p", MaxItems: 1, Parallel: 2, Timeout: 3 * time.Second,
		BreakAfter: 4, BreakFor: 5 * time.Second, RetryBudget: 0.06, Twice: true, Observer: seen,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("the ranker has %+v, want %+v", got, want)
	}
	token, err := c.RankerToken("service")
	if got, want := serviceOptions(c.Rankers["service"], token), (httprank.Options{
		URL: "https://r.example/rerank", Dialect: "jina", Model: "m", Token: "word", Fields: []string{"title"}, Version: "v", Cost: 9, Parallel: 8,
	}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the service has %+v, %v, want %+v", got, err, want)
	}
	rankers, err := OpenRankers(t.Context(), c, RankerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer rankers.Close()
	if rankers.Ranker("of_p") == nil || rankers.Ranker("service") == nil || rankers.Ranker("other") != nil || rankers.Plugin("p") == nil {
		t.Error("a ranker or a plugin is missing, or there is one too many")
	}
	if rankers.Breaker("of_p") != "closed" || rankers.Breaker("other") != "" || len(rankers.States()) != 1 {
		t.Errorf("breaker %q, of another %q, states %v", rankers.Breaker("of_p"), rankers.Breaker("other"), rankers.States())
	}
}

// TestMissingPluginFiles: a check names each file of a plugin that does not exist.
func TestMissingPluginFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		plugin config.Plugin
		want   []string
	}{
		{config.Plugin{Path: file, Manifest: file}, nil},
		{config.Plugin{Address: "unix:///not/there"}, nil},
		{config.Plugin{Path: dir}, []string{"plugins.p.path"}},
		{config.Plugin{Path: filepath.Join(dir, "gone"), Manifest: filepath.Join(dir, "sums")}, []string{"plugins.p.path", "plugins.p.manifest"}},
	} {
		err := checkPluginFiles("p", test.plugin)
		if (err == nil) != (test.want == nil) || err != nil && !errors.Is(err, config.ErrConfig) {
			t.Errorf("%+v: error %v, want keys %q", test.plugin, err, test.want)
		}
		for _, key := range test.want {
			if !strings.Contains(err.Error(), key+":") {
				t.Errorf("%+v: error %v does not name %s", test.plugin, err, key)
			}
		}
	}
}

// TestSettingsOfFollowing: what the operator wrote reaches the follower, which reads Milvus with
// consistency Strong.
func TestSettingsOfFollowing(t *testing.T) {
	c, a := given(t), &Assembly{Stores: map[string]adapters.Store{}}
	r := &route.Route{}
	if got, want := followRoute(c.Routes["a"], r), (follow.Route{Route: r, WriteBudget: 9 * time.Millisecond, Interval: 10 * time.Minute, RowsPerSecond: 11}); got != want {
		t.Errorf("a route is followed with %+v, want %+v", got, want)
	}
	for store, want := range map[string]follow.Options{"q": {}, "m": {Consistency: "Strong", Applied: true}} {
		got := ofStore(follow.Options{OnRequest: true}, c, store, a)
		if got.Consistency != want.Consistency || got.Applied != want.Applied || !got.OnRequest || filepath.Dir(filepath.Dir(got.Dir)) != c.StateDir && filepath.Dir(got.Dir) != c.StateDir {
			t.Errorf("store %s is followed with %+v, want %+v", store, got, want)
		}
	}
}

// TestFollowedRoutes: a route is followed if it derives something, and a broken one if it may when it is
// mended. A store is followed with no route where only a version that may be activated derives something.
func TestFollowedRoutes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config, *route.Route)
		want   string // the number of followed routes of each store
	}{
		"nothing derived":          {func(*config.Config, *route.Route) {}, "map[]"},
		"a companion":              {func(_ *config.Config, r *route.Route) { r.Companion = "c" }, "map[q:1]"},
		"broken, nothing derived":  {func(_ *config.Config, r *route.Route) { r.Broken = io.EOF }, "map[]"},
		"broken, with a companion": {func(_ *config.Config, r *route.Route) { r.Broken, r.Companion = io.EOF, "c" }, "map[q:1]"},
		"broken, with a table": {func(c *config.Config, r *route.Route) {
			r.Broken = io.EOF
			setRoute(c, "b", func(r *config.Route) { r.Table = "t" })
		}, "map[q:1]"},
		"broken, with versions":    {func(c *config.Config, r *route.Route) { r.Broken = io.EOF; setRoute(c, "b", withVersion) }, "map[q:1]"},
		"versions that may derive": {func(c *config.Config, _ *route.Route) { setRoute(c, "b", withVersion) }, "map[q:0]"},
		"an embedded store": {func(c *config.Config, r *route.Route) {
			s := c.Stores["q"]
			s.Kind, r.Companion = "embedded", "c"
			c.Stores["q"] = s
		}, "map[]"},
	} {
		configured, r := given(t), &route.Route{Policy: route.Policy{Name: "b", StoreName: "q", Collection: "items"}, Parts: route.Parts{Store: embedded.New()}}
		c.change(configured, r)
		found := map[string]int{}
		for store, routes := range followedRoutes(configured, &Assembly{Routes: []*route.Route{r}}) {
			found[store] = len(routes)
		}
		if got := fmt.Sprint(found); got != c.want {
			t.Errorf("%s: followed are %s, want %s", name, got, c.want)
		}
	}
}

func withVersion(r *config.Route) { r.Versions = map[string]config.Version{"v": {}} }

// setRoute changes a route of a configuration.
func setRoute(c *config.Config, name string, change func(*config.Route)) {
	r := c.Routes[name]
	change(&r)
	c.Routes[name] = r
}

// TestPromises: a route keeps a calibration unless a ranker orders its answers or its items are embedded again.
// The operator says whether it makes one itself, and which answers are audited.
func TestPromises(t *testing.T) {
	c := given(t)
	setRoute(c, "b", func(r *config.Route) {
		r.SelfCalibration, r.Audit.Share, r.Audit.PerSecond = true, 0.25, 3
		r.CalibrationScan.At, r.CalibrationScan.RowsPerSecond = "03:30", 7
	})
	for name, change := range map[string]func(*route.Route){
		"a similarity":   func(*route.Route) {},
		"a ranker":       func(r *route.Route) { r.RankerName = "ranker" },
		"embedded again": func(r *route.Route) { r.Reembed.Text = "text" },
	} {
		r := &route.Route{Policy: route.Policy{Name: "a"}}
		change(r)
		if err := Promise(c, r); err != nil || (r.Promise != nil) != (name == "a similarity") {
			t.Errorf("%s: the promise is %v, %v", name, r.Promise, err)
		}
	}
	all := Audits(c)
	if got, want := all["b"], (calibrate.Audits{Share: 0.25, PerSecond: 3, Self: true, Scans: calibrate.Scans{At: 210 * time.Minute, RowsPerSecond: 7}}); got != want {
		t.Errorf("the audits of b are %+v, want %+v", got, want)
	}
	setRoute(c, "b", func(r *config.Route) { r.SelfCalibration = false })
	if all = Audits(c); all["b"].Self || all["c"].Share != 0 {
		t.Errorf("the audits are %+v", all)
	}
}

// TestSettingsOfEmbedders: what the operator wrote reaches the client of an embedder.
func TestSettingsOfEmbedders(t *testing.T) {
	c, err := config.Parse(filepath.Join(t.TempDir(), "likeness.yaml"), []byte(`
embedders:
  e:
    url: https://e.example/v1/embeddings
    model: m
    token_env: TOKEN
    query_prefix: "query: "
    document_prefix: "passage: "
    dimension: 1
    shorten: true
    batch: 2
    parallel: 3
    timeout: 4s
    cache: 5KiB
    break_after: 6
    break_for: 7s
    retry_budget: 0.08
`), []string{"TOKEN=word"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := embedderOptions(c, "e", EmbedderOptions{})
	if want := (embed.Options{
		Name: "e", URL: "https://e.example/v1/embeddings", Model: "m", Token: "word", QueryPrefix: "query: ", DocumentPrefix: "passage: ",
		Dimension: 1, Shorten: true, Batch: 2, Parallel: 3, Timeout: 4 * time.Second, CacheBytes: 5 << 10, BreakAfter: 6, BreakFor: 7 * time.Second, RetryBudget: 0.08,
	}); err != nil || got != want {
		t.Errorf("the embedder has %+v, %v, want %+v", got, err, want)
	}
	if _, err := embedderOptions(c, "other", EmbedderOptions{}); !errors.Is(err, config.ErrConfig) {
		t.Errorf("an embedder that there is not: %v", err)
	}
}

// TestSiblings: they search the same collection of the same store.
func TestSiblings(t *testing.T) {
	if got := siblings(given(t), "a"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the siblings of a are %q, want b", got)
	}
}

// closing is a Closer that notes its name.
type closing struct {
	name  string
	notes *[]string
}

func (c closing) Close() error {
	*c.notes = append(*c.notes, c.name)
	return errors.New(c.name)
}

// TestCloseClosesEverything: in the reverse order of opening, once, and with all errors.
func TestCloseClosesEverything(t *testing.T) {
	var notes []string
	a := &Assembly{closers: []io.Closer{closing{"file", &notes}, closing{"store", &notes}}}
	err := a.Close()
	if !slices.Equal(notes, []string{"store", "file"}) || err == nil || err.Error() != "store\nfile" {
		t.Errorf("%q were closed, with %v", notes, err)
	}
	if err := a.Close(); err != nil || len(notes) != 2 {
		t.Errorf("closed again: %q, %v", notes, err)
	}
}

// TestNormsAreCounted: where the operator declares unit vectors, and only there, what is read is
// looked at for others.
func TestNormsAreCounted(t *testing.T) {
	sim, err := dot.New(dot.Config{Dim: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := given(t)
	for _, unit := range []bool{false, true} {
		a := &Assembly{Stores: map[string]adapters.Store{}, open: map[*Version]bool{}, part: Part{Tables: NoTables}}
		r := c.Routes["b"]
		r.UnitVectors = unit
		v, err := a.openVersion(c, r, "", &model.Model{Name: "one", Similarity: sim})
		if err != nil {
			t.Fatal(err)
		}
		if v.Route.Norms.See([]rerank.ID{rerank.UintID(1)}, rerank.Matrix{Rows: 1, Cols: 2, Data: []float32{3, 4}}); (v.Route.Norms.Wrong() != nil) != unit {
			t.Errorf("unit vectors are declared: %t; a vector of norm 5 is %v", unit, v.Route.Norms.Wrong())
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}
