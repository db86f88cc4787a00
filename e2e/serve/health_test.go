package serve_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestHealthWhileAStoreIsDown: a store's failure changes neither readiness nor the health of a
// route, which would take all replicas out of service at once. Reports and traces show the failure
// until the store is back.
func TestHealthWhileAStoreIsDown(t *testing.T) {
	const ok, failed = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	db := filled(t, servers.Options{})
	collected, collector := collect(t)
	t.Cleanup(func() { // the sidecar has ended, and sent its spans
		for name, want := range map[string]string{"likeness.search": "", "likeness.retrieve": "search"} {
			got := collected.attributes(failed, name)
			if got["error.type"] != "unavailable" || got["db.operation.name"] != want {
				t.Errorf("span %s: %v", name, got)
			}
		}
		host, port, _ := net.SplitHostPort(db.Address)
		if got := collected.attributes(failed, "likeness.retrieve"); got["kind"] != "SPAN_KIND_CLIENT" || got["db.system.name"] != "qdrant" ||
			got["db.collection.name"] != "routed" || got["server.address"] != host || got["server.port"] != port {
			t.Errorf("the call to the store: %v", got)
		}
	})
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, timeout: 2s}}
trace: {endpoint: %q, insecure: true, sample_ratio: 0}
`, db.Address, collector))
	api := connect(t, at.GRPC)
	search := func(trace string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		_, err := likenessv1.NewSearchServiceClient(api).Search(ctx, &likenessv1.SearchRequest{Route: "things", Query: &likenessv1.Query{Vector: query}, K: 1})
		return err
	}
	check := func(trouble bool) {
		t.Helper()
		body := admin(t, at, http.MethodGet, "/readyz")
		if !strings.HasPrefix(body, "ok") || strings.Contains(body, "route things: its store fails since") != trouble {
			t.Errorf("/readyz: %s", body)
		}
		if body := admin(t, at, http.MethodGet, "/status.json"); strings.Contains(body, `"store_trouble"`) != trouble {
			t.Errorf("/status.json: %s", body)
		}
		for _, service := range []string{"", "likeness.v1.SearchService", "likeness.v1.CatalogService", "route/things"} {
			h, err := grpc_health_v1.NewHealthClient(api).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil || h.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
				t.Errorf("health of %q: %v %v", service, h, err)
			}
		}
	}
	if err := search(ok); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := db.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := search(failed); status.Code(err) != codes.Unavailable {
		t.Errorf("with the store down: %v", err)
	}
	check(true)
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for search(ok) != nil {
		if t.Context().Err() != nil {
			t.Fatal("the store is back and no search succeeds")
		}
	}
	check(false)
}
