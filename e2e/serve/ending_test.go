package serve_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestEndsWhileRowsAreCompared asks a sidecar to end while the database holds back the rows that a
// comparison reads, and the comparison holds a version that was replaced meanwhile. startSidecar checks
// that it ends without an error.
func TestEndsWhileRowsAreCompared(t *testing.T) {
	db := filled(t, servers.Options{})
	var holds atomic.Bool
	reading, release := make(chan struct{}, 100), make(chan struct{})
	h := &hop{as: metadata.Pairs("api-key", key), forward: func(string) bool { return true }, edit: func(method string, answer []byte) []byte {
		if holds.Load() && strings.HasSuffix(method, "/Scroll") {
			reading <- struct{}{}
			<-release
		}
		return answer
	}}
	address := startHop(t, h, db.Address)
	t.Cleanup(func() { close(release) })
	at := startSidecar(t, fmt.Sprintf(`
shutdown: {grace: 1s}
state_dir: %q
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, strategy: scan, table_live: true, active: v1, versions: {v1: {model: w, table: %q}, v2: {model: w, table: %q}}}}
`, t.TempDir(), address, tableOf(t, db), tableOf(t, db)))
	admin := likenessv1.NewAdminServiceClient(connect(t, at.GRPC))
	holds.Store(true)
	go func() { _, _ = admin.Reconcile(t.Context(), &likenessv1.ReconcileRequest{Route: things}) }()
	<-reading
	_, err := admin.ActivateVersion(t.Context(), &likenessv1.ActivateVersionRequest{Route: things, Version: "v2", Force: true})
	must2(t, err)
}
