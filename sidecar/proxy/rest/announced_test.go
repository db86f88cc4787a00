package rest_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/likenessdb/likeness/internal/cost"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// The memory for an announced body grows with the bytes that arrive, even without a limit on all
// bodies.
func TestAnnouncedBodiesTakeMemoryAsTheyCome(t *testing.T) {
	_, address := serve(t, rest.Options{
		Upstream: "http://127.0.0.1:1", Wants: func(string, string) bool { return true },
		Intercept: func(*http.Request, []byte, rest.Forward) rest.Reply {
			t.Error("the interceptor was asked about a body that did not come")
			return rest.Reply{}
		},
	})
	const most = 512 << 10
	allocated := cost.Allocated(func() {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST /collections/c/points/search HTTP/1.1\r\nHost: h\r\nContent-Length: 33554432\r\n\r\n        ")
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
	})
	if allocated > most {
		t.Errorf("%d bytes were allocated for 8 of 32 MiB, at most %d", allocated, most)
	}
}
