package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/likenessdb/likeness/learn/dataset"
	"github.com/likenessdb/likeness/learn/index"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank"
	"github.com/likenessdb/likeness/rerank/table"
	"github.com/likenessdb/likeness/sidecar/calibrate"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/experiment"
	"github.com/likenessdb/likeness/sidecar/follow"
	"github.com/likenessdb/likeness/sidecar/route"
	"github.com/likenessdb/likeness/sidecar/trial"
	"github.com/likenessdb/likeness/sidecar/wiring"
)

// TestWeightedItems: a weight stands behind the last equals sign, and an id may have others.
func TestWeightedItems(t *testing.T) {
	half := float32(0.5)
	for text, want := range map[string]*likenessv1.WeightedItem{
		"7": {Id: itemID("7")}, "a": {Id: itemID("a")}, "7=0.5": {Id: itemID("7"), Weight: &half}, "a=b=0.5": {Id: itemID("a=b"), Weight: &half},
		`"7"=0.5`: {Id: &likenessv1.ItemId{Id: &likenessv1.ItemId_Text{Text: "7"}}, Weight: &half}, "a=b": nil, "a=": nil,
	} {
		if got, err := weightedItem(text); (err != nil) != (want == nil) || want != nil && !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestTheTokenOfAFile is what the file has without the line feed at its end.
func TestTheTokenOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var warned bytes.Buffer
	stderr := func() io.Writer { return &warned }
	for address, want := range map[string]string{"127.0.0.1:7600": "", "[::1]:7600": "", "localhost:7600": "", "unix:here.sock": "", "node-1:7600": "node-1:7600", "10.0.0.7:7600": "10.0.0.7:7600"} {
		warned.Reset()
		if _, err := (&dialFlags{address: address, credentialFlags: credentialFlags{tokenFile: file, stderr: stderr}}).callOptions(); err != nil {
			t.Error(err)
		}
		if got := warned.String(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: warned %q, want %q", address, got, want)
		}
	}
	warned.Reset()
	admins := []string{"http://127.0.0.1:7601", "https://node-1:7601", "http://node-2:7601"}
	if _, err := (&credentialFlags{tokenFile: file, stderr: stderr}).adminPorts(admins); err != nil || strings.Count(warned.String(), "warning:") != 1 || !strings.Contains(warned.String(), "node-2:7601") {
		t.Errorf("admin ports: warned %q, %v", warned.String(), err)
	}
	options, err := (&dialFlags{tls: true, address: "node-1:7600", credentialFlags: credentialFlags{tokenFile: file}}).callOptions()
	if err != nil || len(options) != 1 {
		t.Fatal(options, err)
	}
	sent, err := options[0].(grpc.PerRPCCredsCallOption).Creds.GetRequestMetadata(t.Context())
	if want := map[string]string{"authorization": "Bearer canary"}; err != nil || !maps.Equal(sent, want) {
		t.Errorf("%q is sent, want %q; %v", sent, want, err)
	}
}

// TestWhatIsExported: the flags of events export, and the times and weights that are refused.
func TestWhatIsExported(t *testing.T) {
	f := eventsExportFlags{route: "r", from: "2026-01-31", to: "2026-02-01T12:00:00Z", out: "o", queries: "q", weights: map[string]string{"click": "1.5", "view": "0"}}
	o, err := f.options([]string{"a", "b"})
	from, to := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	if err != nil || o.Route != "r" || o.Log != "o" || o.Queries != "q" || len(o.StateDirs) != 2 || !o.From.Equal(from) || !o.To.Equal(to) || !maps.Equal(o.Weights, map[string]float64{"click": 1.5, "view": 0}) {
		t.Errorf("%+v, %v", o, err)
	}
	for flag, wrong := range map[string]eventsExportFlags{
		"--from": {from: "today"}, "--to": {to: "2026-13-01"}, "--weight a=-1": {weights: map[string]string{"a": "-1"}}, "--weight a=NaN": {weights: map[string]string{"a": "NaN"}},
		"--weight a=2e9": {weights: map[string]string{"a": "2e9"}}, "--weight a=x": {weights: map[string]string{"a": "x"}},
	} {
		if _, err := wrong.options(nil); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestDriftsAreWhole: the report of a sidecar has every number that the command itself reports.
func TestDriftsAreWhole(t *testing.T) {
	want := follow.Drift{Rows: 1, Missing: 2, Changed: 3, Surplus: 4, Unfit: 5}
	if got := toDrift(&likenessv1.Drift{Rows: 1, Missing: 2, Changed: 3, Surplus: 4, Unfit: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestVersionsInService: the list marks the version in service, and the one to which a rollback goes.
func TestVersionsInService(t *testing.T) {
	var out bytes.Buffer
	err := printVersions(&out, &likenessv1.ListVersionsResponse{Versions: []*likenessv1.Version{{Name: "v1", Previous: true}, {Name: "v2", Active: true}, {Name: "v3"}}})
	lines := strings.Split(out.String(), "\n")
	if err != nil || len(lines) != 5 {
		t.Fatalf("%q, %v", lines, err)
	}
	for i, want := range []string{"v1 previous", "v2 active", "v3 "} {
		if got := strings.Join(strings.Fields(lines[i+1])[:2], " "); !strings.HasPrefix(got, want) || strings.Contains(got, "previous") != (i == 0) {
			t.Errorf("line %d: %s, want %s", i, lines[i+1], want)
		}
	}
}

// TestUsersOfACollection: a collection that any route or version names is in use, in the store of that route.
func TestUsersOfACollection(t *testing.T) {
	c, err := config.Parse("likeness.yaml", []byte(`
stores: {s: {kind: qdrant, address: 'a:1'}, o: {kind: qdrant, address: 'b:1'}}
models: {m: {path: m}}
routes:
  one: {store: s, collection: c, model: m, placement: derived, companion: d, companion_alias: e}
  two: {store: s, collection: x, placement: derived, active: v, versions: {v: {model: m, companion: f}}}
`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for collection, want := range map[string]string{"c": "one", "d": "one", "e": "one", "x": "two", "f": "two", "g": ""} {
		if got, other := userOf(c, "s", collection), userOf(c, "o", collection); got != want || other != "" {
			t.Errorf("%s is used by %q, want %q; in another store by %q", collection, got, want, other)
		}
	}
}

// TestFlagsOfServe: a flag that is given sets its key of the configuration, and one that is not given sets none.
func TestFlagsOfServe(t *testing.T) {
	want := map[string]string{"listen": "listen.grpc", "rest": "listen.rest", "admin": "listen.admin", "log-level": "log.level"}
	for _, s := range serveSettings() {
		if s.key != want[s.flag] {
			t.Errorf("--%s sets %s", s.flag, s.key)
		}
		delete(want, s.flag)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if r := execute(t, "", "serve", "--admin", "nowhere"); r.code != 3 || !strings.Contains(r.err, "listen.admin") {
		t.Errorf("code %d, %s", r.code, r.err)
	}
}

// TestWhatIsOpenedToFollow: reconcile and bridge fill open all routes of the journal that they follow. A comparison
// opens its route alone.
func TestWhatIsOpenedToFollow(t *testing.T) {
	if got, want := (&bridgeFillFlags{route: "r"}).part(), (wiring.Part{Route: "r", Siblings: true}); got != want {
		t.Errorf("bridge fill: %+v, want %+v", got, want)
	}
	for compare, want := range map[bool]wiring.Part{true: {Route: "r"}, false: {Route: "r", Siblings: true}} {
		f := reconcileFlags{adminFlags: adminFlags{route: "r"}, compare: compare}
		if got := f.part(); got != want {
			t.Errorf("comparing alone: %t: %+v, want %+v", compare, got, want)
		}
	}
}

// TestEnvironmentOfACheckedPlugin: a plugin sees the variables that --env names, if they are set, and no others.
func TestEnvironmentOfACheckedPlugin(t *testing.T) {
	t.Setenv("LIKENESS_TEST_SEEN", "a=b")
	t.Setenv("LIKENESS_TEST_HIDDEN", "c")
	c := pluginCheck{env: []string{"LIKENESS_TEST_SEEN", "LIKENESS_TEST_UNSET"}, query: "where?"}
	if err := c.read(); err != nil || !slices.Equal(c.command.Env, []string{"LIKENESS_TEST_SEEN=a=b"}) || c.options.Query.Text != "where?" {
		t.Errorf("%q, %+v, %v", c.command.Env, c.options.Query, err)
	}
}

// TestWarningsOfAnExperiment: the status warns of sessions without a user, says what is missing, describes the segments
// and says why the experiment ended. An experiment without any of these has no such line.
func TestWarningsOfAnExperiment(t *testing.T) {
	lines := map[string]string{"sessions have no user": "", "are missing": "", "sessions with one answer": "", "a person stopped it": ""}
	for _, has := range []bool{false, true} {
		s := trial.Status{State: trial.State{Kind: experiment.Interleaving, Comparison: trial.Comparison{Test: &experiment.Test{}}}}
		if has {
			s.Unnamed, s.Missing, s.Why = 3, 4, []string{"a person stopped it"}
			s.Segments = []trial.SegmentStatus{{Name: "one answer", Sessions: 1}}
		}
		var out bytes.Buffer
		if err := printExperiment(&out, s); err != nil {
			t.Fatal(err)
		}
		for line := range lines {
			if strings.Contains(out.String(), line) != has {
				t.Errorf("%q with it: %t\n%s", line, has, &out)
			}
		}
	}
}

// TestWhatIsTried: examples show the field that was embedded unless --title names another one, the fragment of
// --embedder is its model, and --questions is both queries and pairs.
func TestWhatIsTried(t *testing.T) {
	f := tryFlags{questions: "q.jsonl"}
	f.options.Embedder.Field, f.options.Embedder.URL = "text", "http://h/embed#m"
	o, err := f.of([]string{"http://db", "c"})
	if err != nil || o.Title != "text" || o.Embedder.URL != "http://h/embed" || o.Embedder.Model != "m" || o.URL != "http://db" || o.Collection != "c" || o.Log.Queries != "q.jsonl" || o.Log.Pairs != "q.jsonl" {
		t.Errorf("%+v, %v", o, err)
	}
	f.options.Title = "title"
	if o, err := f.of([]string{"http://db", "c"}); err != nil || o.Title != "title" {
		t.Errorf("title %q, %v", o.Title, err)
	}
}

// TestKeysOfAFilterThatFindsNothing: a key that the best row lacks is named with its neighbours; a filter of Milvus is not read.
func TestKeysOfAFilterThatFindsNothing(t *testing.T) {
	var asked *likenessv1.SearchRequest
	search := func(r *likenessv1.SearchRequest) (*likenessv1.SearchResponse, error) {
		asked = r
		return &likenessv1.SearchResponse{Hits: []*likenessv1.Hit{{PayloadJson: `{"brand":"Osmia","size":{"eu":38}}`}}}, nil
	}
	r := &likenessv1.SearchRequest{K: 5, Filter: `{"must":[{"key":"size.eu","range":{"gt":40}},{"should":{"key":"brnd","match":{"value":"Osmia"}}}]}`}
	got := unknownKeys(r, search)
	if len(got) != 1 || !strings.Contains(got[0], `has no field "brnd"; the nearest of 2 fields are ["brand"`) || asked.GetFilter() != "" || asked.GetK() != 1 {
		t.Errorf("%q, asked %v", got, asked)
	}
	r.Filter, asked = `brnd == "Osmia"`, nil
	if got := unknownKeys(r, search); got != nil || asked != nil {
		t.Errorf("a filter of Milvus: %q, asked %v", got, asked)
	}
}

// TestNothingIsDeletedUnasked: without their flags, model gc only lists, and model activate does not force.
func TestNothingIsDeletedUnasked(t *testing.T) {
	if got := (&gcFlags{}).request(); got.GetRemove() {
		t.Errorf("model gc: %v", got)
	}
	if got := (&activateFlags{}).request("v2"); got.GetForce() || got.GetVersion() != "v2" {
		t.Errorf("model activate: %v", got)
	}
}

// TestARequestOnStdinStays: flags that are not given change nothing in a request that was read from stdin.
func TestARequestOnStdinStays(t *testing.T) {
	r := &likenessv1.SearchRequest{
		Route: "r", Query: &likenessv1.Query{Text: "where?", Vector: []float32{1}}, K: 5, Depth: 6, AverageDepth: 7, Rounds: 2, Filter: "f", Head: "h",
		Strategy: likenessv1.Strategy_STRATEGY_AVERAGE, Weights: likenessv1.Weights_WEIGHTS_GATES, MaxGap: proto.Float32(0.5), Calls: proto.Int32(8), Mix: proto.Float32(0.25),
		ExcludeIds: []*likenessv1.ItemId{itemID("7")}, StoredVector: []float32{2}, Explain: true, RequireExact: true, Payload: &likenessv1.PayloadSelector{Fields: []string{"a"}},
		Timeout: durationpb.New(time.Second),
	}
	want := proto.Clone(r)
	f, cmd := &queryFlags{}, &cobra.Command{}
	f.add(cmd)
	if err := f.apply(cmd, r); err != nil || !proto.Equal(r, want) {
		t.Errorf("%v, %v; want %v", r, err, want)
	}
}

// TestWhatARouteIsFittedFrom: the collection and the vector field are the route's, and its field of several vectors
// for a model of late interaction.
func TestWhatARouteIsFittedFrom(t *testing.T) {
	var r config.Route
	r.StoreName, r.Collection, r.Vector, r.Vectors = "s", "c", "v", "w"
	c := &config.Config{Stores: map[string]config.Store{"s": {}, "o": {}}, Routes: map[string]config.Route{"r": r}}
	for late, want := range map[bool]string{false: "v", true: "w"} {
		f := dataFlags{Sources: dataset.Sources{ManyVectors: late}, route: "r"}
		if store, got, err := f.named(c); err != nil || store != "s" || got != (dataset.Collection{Name: "c", Vector: want}) {
			t.Errorf("late interaction %t: store %s, %+v, %v; want field %s", late, store, got, err, want)
		}
	}
	if _, _, err := (&dataFlags{collection: "c"}).named(c); err == nil {
		t.Error("one of two stores is taken unasked")
	}
}

// TestStateOfACalibration: --state keeps a calibration out of the folder whose promises are in service.
func TestStateOfACalibration(t *testing.T) {
	for given, want := range map[string]string{"": "served", "apart": "apart"} {
		c, err := config.Parse("likeness.yaml", []byte("{state_dir: served, stores: {s: {kind: qdrant, address: 'a:1'}}, models: {m: {path: none}}, routes: {r: {store: s, collection: c, model: m, placement: stored}}}"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := calibrateFlags{route: "r", state: given, input: calibrate.Input{Parallel: 1}}
		if _, _, err := f.open(t.Context(), c); err == nil || c.StateDir != want {
			t.Errorf("--state %q: folder %q, want %q, and the missing model named: %v", given, c.StateDir, want, err)
		}
	}
}

// TestKeptTable: a table that an earlier run built is kept if it has this model's features of this collection.
func TestKeptTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.table")
	w, err := table.NewWriter(path, table.Meta{ModelVersion: "m", Collection: "c", Features: 1})
	if err == nil {
		err = errors.Join(w.Append([]rerank.ID{rerank.UintID(7)}, rerank.NewMatrix(1, 1)), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []struct {
		model, collection string
		kept              bool
	}{{"m", "c", true}, {"m", "d", false}, {"n", "c", false}} {
		b, err := keptTable(target{table: path, model: route.Model{Version: now.model}, source: index.Source{Collection: now.collection}})
		if (err == nil) != now.kept || now.kept && (!b.Kept || b.Rows != 1) {
			t.Errorf("%+v: %+v, %v", now, b, err)
		}
	}
}
