package serve_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/sidecar/config"
)

// TestEveryListenerStatesItsLimits: each listener that speaks HTTP/2 without TLS bounds the
// streams and the header lists of a connection, and tells its clients.
func TestEveryListenerStatesItsLimits(t *testing.T) {
	db := filled(t, servers.Options{})
	at := startSidecar(t, fmt.Sprintf(`
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, db.REST))
	for name, listener := range map[string]struct {
		address                string
		mostStreams, mostBytes uint32
	}{
		"API":        {at.GRPC, uint32(config.Default().Limits.MaxConcurrentStreams), 64 << 10},
		"proxy gRPC": {at.Proxy.GRPC, uint32(config.Default().Limits.MaxConcurrentStreams), 64 << 10},
		"proxy REST": {at.Proxy.REST, 250, 257 << 10}, // net/http adds some for the fields' own size
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.address)
			must2(t, err)
			defer conn.Close()
			must2(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			_, err = conn.Write([]byte(http2.ClientPreface))
			must2(t, err)
			framer := http2.NewFramer(conn, conn)
			must2(t, framer.WriteSettings())
			frame, err := framer.ReadFrame()
			must2(t, err)
			settings, ok := frame.(*http2.SettingsFrame)
			if !ok {
				t.Fatalf("the first frame is %v", frame)
			}
			for id, most := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: listener.mostStreams, http2.SettingMaxHeaderListSize: listener.mostBytes} {
				if got, ok := settings.Value(id); !ok || got == 0 || got > most {
					t.Errorf("%v is %d, want at most %d", id, got, most)
				}
			}
		})
	}
}
