package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/config"
	"github.com/likenessdb/likeness/sidecar/serve"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// Values that must not show: credentials, a caller's token, the values of a filter and of a
// payload, and the numbers of a vector.
const (
	canaryToken  = "canary-token-5f1e"
	canaryFilter = "canary-filter-77aa"
	canaryKey    = "canary-key-3c2d"
	canaryNumber = 13.371337
)

// TestNothingOfACallerShows plants secrets, vectors, payloads and filters in calls that succeed and
// in calls that fail, over the API and the proxy, with the log at each level. It looks for them in
// the log, in callers' errors, on every page of the admin port, and in `config print`.
func TestNothingOfACallerShows(t *testing.T) {
	db := servers.QdrantForTest(t, servers.QdrantNewest, servers.Options{APIKey: key})
	fill(t, connect(t, db.Address))
	searched := 0
	for _, level := range []string{"error", "debug"} {
		t.Run(level, func(t *testing.T) { searched += shows(t, db, level) })
	}
	t.Logf("reliability row=31 figure=secrets, tokens, filters, payloads and vectors in none of %d KiB of logs at two levels, admin pages, errors and printed configuration", searched>>10)
}

// shows looks for the canaries, and returns how many bytes it searched.
func shows(t *testing.T, db *servers.Server, level string) (searched int) {
	dir := t.TempDir()
	must2(t, model.Write(filepath.Join(dir, "w.safetensors"), testModel(t)))
	must2(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte("- {name: me, token: "+canaryToken+", admin: true}\n"), 0o600))
	file := filepath.Join(dir, "likeness.yaml")
	must2(t, os.WriteFile(file, fmt.Appendf(nil, `
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0", auth: {tokens_file: tokens}}
log: {level: %s}
models: {w: {path: w.safetensors}}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20}}
proxy: {store: main, listen_grpc: "127.0.0.1:0"}
`, level, db.Address), 0o600))
	c, err := config.Load(config.Source{File: file, Environ: []string{"QDRANT_KEY=" + key}})
	must2(t, err)
	out := &syncBuffer{}
	log, err := telemetry.NewLogger(out, level, "json")
	must2(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- serve.Run(ctx, c, serve.Options{Logger: log, Build: buildinfo.Read(buildinfo.Stamp{}), Ready: func(at serve.Addresses) { ready <- at }})
	}()
	var at serve.Addresses
	select {
	case at = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var said strings.Builder // the errors that callers got
	for _, with := range []context.Context{
		metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+canaryToken),
		metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer wrong-"+canaryToken),
	} {
		planted(with, t, at, &said)
	}
	s := &sidecar{at: at}
	for _, path := range []string{"/metrics", "/readyz", "/", "/status", "/plugins", "/proxy", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/pprof/heap?debug=1"} {
		_, body := s.get(t, path)
		hidden(t, level, "the page "+path, body)
		searched += len(body)
	}
	var printed bytes.Buffer
	must2(t, c.Print(&printed))
	hidden(t, level, "config print", printed.String())
	stop()
	must2(t, <-ended)
	hidden(t, level, "the log", out.String())
	hidden(t, level, "what callers are told", said.String())
	return searched + printed.Len() + len(out.String()) + said.Len()
}

// planted makes calls that succeed and calls that fail, all with canaries.
func planted(ctx context.Context, t *testing.T, at serve.Addresses, said *strings.Builder) {
	t.Helper()
	note := func(err error) {
		if err != nil {
			said.WriteString(err.Error())
			fmt.Fprint(said, status.Convert(err).Details()...)
		}
	}
	vector := []float32{canaryNumber, canaryNumber, canaryNumber, 1}
	filter := `{"must":[{"key":"` + canaryKey + `","match":{"value":"` + canaryFilter + `"}}]}`
	api := likenessv1.NewSearchServiceClient(connect(t, at.GRPC))
	for _, r := range []*likenessv1.SearchRequest{
		{Route: "things", K: 5, Query: &likenessv1.Query{Vector: vector}},
		{Route: "things", K: 5, Query: &likenessv1.Query{Vector: vector}, Filter: filter},
		{Route: "things", K: 5, Query: &likenessv1.Query{Vector: vector[:3]}},
		{Route: "things", K: 5, Query: &likenessv1.Query{Vector: append(vector[:3:3], float32(math.NaN()))}},
		{Route: "things", K: 5, Query: &likenessv1.Query{Vector: vector}, Filter: `{"must":"` + canaryFilter},
		{Route: "none", K: 5, Query: &likenessv1.Query{Vector: vector}},
		{Route: "things", K: 1 << 20, Query: &likenessv1.Query{Vector: vector}},
	} {
		_, err := api.Search(ctx, r)
		note(err)
	}
	behind := qdrant.NewPointsClient(connect(t, at.Proxy.GRPC))
	match := &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatch(canaryKey, canaryFilter)}}
	for _, user := range []context.Context{asUser(t.Context()), ctx} {
		for _, r := range []*qdrant.SearchPoints{
			{CollectionName: "routed", Vector: vector, Limit: 5, Filter: match},
			{CollectionName: "routed", Vector: vector[:2], Limit: 5, Filter: match},
			{CollectionName: "missing", Vector: vector, Limit: 5},
		} {
			_, err := behind.Search(user, r)
			note(err)
		}
		_, err := behind.Upsert(user, &qdrant.UpsertPoints{CollectionName: "routed", Points: []*qdrant.PointStruct{{
			Id: qdrant.NewIDNum(5), Vectors: qdrant.NewVectors(vector...), Payload: qdrant.NewValueMap(map[string]any{canaryKey: canaryFilter})}}})
		note(err)
	}
}

// hidden fails if a text has one of the canaries.
func hidden(t *testing.T, level, what, text string) {
	t.Helper()
	for _, secret := range []string{canaryToken, canaryFilter, canaryKey, key + `"`, "=" + key, strconv.FormatFloat(canaryNumber, 'g', 5, 32)[:6]} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("log at %s: %s has %q: %s", level, what, secret, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}
