package serve_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// TestEveryListenerStatesItsLimits: each listener that speaks HTTP/2 bounds the streams and
// the header lists of a connection, and tells its clients, with and without TLS. The JSON
// API speaks HTTP/2 over TLS only.
func TestEveryListenerStatesItsLimits(t *testing.T) {
	db := filled(t, servers.Options{})
	const streams = 77 // no library's default
	dir := t.TempDir()
	roots := certificate(t, dir)
	pair := fmt.Sprintf("{cert_file: %q, key_file: %q}", filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	for _, c := range []struct {
		name                string
		listen, proxy       string // more lines of the configuration
		secure              *tls.Config
		speaksJSONOverHTTP2 bool
	}{
		{name: "plain"},
		{
			name: "TLS", listen: ", rest: \"127.0.0.1:0\", tls: " + pair, proxy: ", tls: " + pair, speaksJSONOverHTTP2: true,
			secure: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := startListening(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0"%s}
limits: {max_concurrent_streams: %d}
models: {w: {path: w.safetensors}}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q%s}
`, c.listen, streams, db.Address, db.REST, c.proxy))
			statesItsLimits(t, "gRPC API", at.GRPC, c.secure, streams, 64<<10)
			statesItsLimits(t, "proxy gRPC", at.Proxy.GRPC, c.secure, streams, 64<<10)
			statesItsLimits(t, "proxy REST", at.Proxy.REST, c.secure, 250, 257<<10) // net/http adds some for the fields' own size
			if c.speaksJSONOverHTTP2 {
				statesItsLimits(t, "JSON API", at.REST, c.secure, streams, 65<<10)
			}
		})
	}
}

// statesItsLimits opens an HTTP/2 connection to a listener and reads the limits of its first
// frame.
func statesItsLimits(t *testing.T, name, address string, secure *tls.Config, mostStreams, mostBytes uint32) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must2(t, err)
	defer conn.Close()
	must2(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	if secure != nil {
		over := tls.Client(conn, secure)
		must2(t, over.HandshakeContext(t.Context()))
		if got := over.ConnectionState().NegotiatedProtocol; got != "h2" {
			t.Fatalf("%s speaks %q", name, got)
		}
		conn = over
	}
	_, err = conn.Write([]byte(http2.ClientPreface))
	must2(t, err)
	framer := http2.NewFramer(conn, conn)
	must2(t, framer.WriteSettings())
	frame, err := framer.ReadFrame()
	must2(t, err)
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("%s: the first frame is %v", name, frame)
	}
	for id, most := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: mostStreams, http2.SettingMaxHeaderListSize: mostBytes} {
		if got, ok := settings.Value(id); !ok || got == 0 || got > most {
			t.Errorf("%s: %v is %d, want at most %d", name, id, got, most)
		}
	}
}
