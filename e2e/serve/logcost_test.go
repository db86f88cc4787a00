package serve_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
	"github.com/likenessdb/likeness/rerank/model"
)

// TestNoCallerFillsTheLog: filters with a key of 3 MB, and a thousand requests that fail,
// cost each listener few and short lines, with nothing of the filter in them.
func TestNoCallerFillsTheLog(t *testing.T) {
	db := filled(t, servers.Options{})
	table := tableOf(t, db)
	dir := t.TempDir()
	text := fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0"}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
models: {a: {path: a.safetensors}}
routes: {things: {store: main, collection: routed, model: a, strategy: scan, table: %q, timeout: 1ns}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, table, db.REST)
	must2(t, model.Write(filepath.Join(dir, "a.safetensors"), testModel(t)))
	must2(t, os.WriteFile(filepath.Join(dir, "likeness.yaml"), []byte(text), 0o600))
	d := startDamaged(t, db, dir)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(url, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		must2(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", key)
		a, err := client.Do(r)
		must2(t, err)
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
	}
	bodies := func(filterKey string) (grpcFilter *qdrant.Filter, json string) {
		return &qdrant.Filter{Must: []*qdrant.Condition{qdrant.NewMatchInt(filterKey, 1)}}, fmt.Sprintf(`{"must":[{"key":%q,"match":{"value":1}}]}`, filterKey)
	}
	search := likenessv1.NewSearchServiceClient(d.api)
	for name, request := range map[string]func(ctx context.Context, filterKey string){
		"the API over gRPC": func(ctx context.Context, filterKey string) {
			_, filter := bodies(filterKey)
			_, _ = search.Search(ctx, &likenessv1.SearchRequest{Route: "things", K: 5, Query: &likenessv1.Query{Vector: query}, Filter: filter})
		},
		"the API over REST": func(_ context.Context, filterKey string) {
			_, filter := bodies(filterKey)
			ask("http://"+d.at.REST+"/v1/routes/things:search", fmt.Sprintf(`{"k":5,"query":{"vector":[1,-2,0.5,3]},"filter":%q}`, filter))
		},
		"Qdrant over gRPC": func(ctx context.Context, filterKey string) {
			filter, _ := bodies(filterKey)
			s := plainSearch("routed")
			s.Filter = filter
			_, _ = qdrant.NewPointsClient(d.proxy).Search(metadata.AppendToOutgoingContext(ctx, "api-key", key), s)
		},
		"Qdrant over REST": func(_ context.Context, filterKey string) {
			_, filter := bodies(filterKey)
			ask(d.rest+"/collections/routed/points/search", `{"vector":[1,-2,0.5,3],"limit":5,"filter":`+filter+`}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(d.log.String())
			for range 5 {
				request(t.Context(), strings.Repeat("canary", 1<<19))
			}
			for range 1000 {
				request(t.Context(), "canary")
			}
			log := d.log.String()[before:]
			for line := range strings.Lines(log) {
				if len(line) > 4<<10 || strings.Contains(line, "canary") {
					t.Errorf("a line of %d bytes: %.500s", len(line), line)
				}
			}
			if len(log) > 64<<10 {
				t.Errorf("%d bytes of log, such as %.500s", len(log), log)
			}
			t.Logf("%d lines, %d bytes", strings.Count(log, "\n"), len(log))
		})
	}
}
