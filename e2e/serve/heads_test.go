package serve_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// headed are the listeners of HTTP of a sidecar before a real Qdrant, by name.
func headed(t *testing.T) map[string]string {
	t.Helper()
	db := filled(t, servers.Options{})
	at := startListening(t, fmt.Sprintf(`
listen: {grpc: "127.0.0.1:0", admin: "127.0.0.1:0", rest: "127.0.0.1:0"}
models: {w: {path: w.safetensors}}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored, exact_search: true, depth: 20}}
proxy: {store: main, listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, db.REST))
	return map[string]string{"api": at.REST, "admin": at.Admin, "proxy": at.Proxy.REST}
}

// dialHead sends the beginning of a request.
func dialHead(t *testing.T, address, first string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, first); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}

// No listener holds a head that is longer than any honest one: it says so and ends the
// connection, however the head is cut.
func TestHeadsWithoutEnd(t *testing.T) {
	for name, address := range headed(t) {
		for form, field := range map[string]string{
			"one field":   "X: " + strings.Repeat("x", 1<<20),
			"many fields": strings.TrimSuffix(strings.Repeat("X: x\r\n", 200_000), "\r\n"),
			"a path":      "",
		} {
			first := "GET / HTTP/1.1\r\nHost: h\r\n"
			if field == "" {
				first, field = "GET /", strings.Repeat("x", 1<<20)
			}
			conn := dialHead(t, address, first)
			go func() { _, _ = io.WriteString(conn, field) }() // as much as is read of it
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			switch {
			case err == nil:
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !answer.Close {
					t.Errorf("%s, %s: %s, close: %t", name, form, answer.Status, answer.Close)
				}
			case errors.Is(err, os.ErrDeadlineExceeded):
				t.Errorf("%s, %s: %v", name, form, err)
			}
		}
	}
}

// A client that sends its head byte by byte, or never to its end, loses its connection: a head may
// take half a minute.
func TestHeadsThatDoNotCome(t *testing.T) {
	if os.Getenv("LIKENESS_SOAK") == "" {
		t.Skip("takes half a minute: LIKENESS_SOAK=1")
	}
	const most = 45 * time.Second
	for name, address := range headed(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, began := dialHead(t, address, "GET / HTTP/1.1\r\nHost: h\r\n"), time.Now()
			ticker := time.NewTicker(time.Second)
			defer ticker.Stop()
			gone := make(chan error, 1)
			go func() {
				_ = conn.SetReadDeadline(began.Add(most))
				_, err := io.ReadAll(conn)
				gone <- err
			}()
			for {
				select {
				case err := <-gone:
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("it still has its connection after %v", most)
					}
					t.Logf("ended after %v", time.Since(began).Round(time.Second))
					return
				case <-ticker.C:
					_, _ = io.WriteString(conn, "X: x\r\n")
				}
			}
		})
	}
}
