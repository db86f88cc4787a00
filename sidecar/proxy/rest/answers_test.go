package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rest"
)

// TestAnswersAreCounted: the answer that an interceptor requested counts while the interceptor's
// request is answered, and not afterwards, although the connection goes on. An answer longer than
// the limit is an error of the database, whether its length is announced or not.
func TestAnswersAreCounted(t *testing.T) {
	for _, tellsLength := range []bool{true, false} {
		t.Run(fmt.Sprint(tellsLength), func(t *testing.T) {
			size := 2 << 20
			d := newDatabase(t, func(conn net.Conn) {
				for in := bufio.NewReader(conn); ; {
					if _, err := readRequest(in); err != nil {
						return
					}
					text := strings.Repeat("a", size)
					if tellsLength {
						_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, text)
					} else {
						_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, text)
					}
				}
			})
			g := gate.New(gate.Options{ReceivedBytes: 8 << 20})
			var counted int64
			_, address := serve(t, rest.Options{
				Upstream: "http://" + d.address(), Gate: g, Wants: func(string, string) bool { return true },
				Intercept: func(r *http.Request, _ []byte, forward rest.Forward) rest.Reply {
					a := forward(r.Context(), "", nil)
					counted = g.ReceivedBytes()
					return rest.Reply{Answer: &a}
				},
			})
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			ask := func() (status, length int) {
				t.Helper()
				_, _ = io.WriteString(conn, "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na")
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				return r.StatusCode, len(b)
			}
			for range 8 { // more than fit if the bytes were not given back
				if status, length := ask(); status != http.StatusOK || length != size || counted < int64(size) || counted > 6<<20 {
					t.Fatalf("%d, %d bytes, of which %d count", status, length, counted)
				}
			}
			size = 9 << 20
			if status, _ := ask(); status != http.StatusBadGateway {
				t.Errorf("an answer of 9 MiB where all may have 8: %d", status)
			}
		})
	}
}
