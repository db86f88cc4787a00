package rest_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkSearch is one search of 384 numbers, by the client of the standard library.
func BenchmarkSearch(b *testing.B) {
	answer := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n" + strings.Repeat("x", 900)
	body := bytes.Repeat([]byte("-0.0123456,"), 384)
	d := newDatabase(b, func(conn net.Conn) {
		in := newReader(conn)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	})
	url := "http://" + start(b, d.address()) + "/collections/c/points/search"
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		a, err := transport.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
}
