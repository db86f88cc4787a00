package telemetry_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/likenessdb/likeness/sidecar/buildinfo"
	"github.com/likenessdb/likeness/sidecar/telemetry"
)

// oneConn is a listener with a single connection.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l oneConn) Close() error { return nil }

func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestStalledReader: a client of the admin port that reads no answer loses its connection.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admin := telemetry.NewAdmin(telemetry.NewMetrics(buildinfo.Info{}, nil), func() (bool, string) { return true, "" }, slog.New(slog.DiscardHandler))
		client, server := net.Pipe()
		listener := make(oneConn, 1)
		listener <- server
		go func() { _ = admin.Serve(listener) }()
		if _, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // at once: the bubble has its own clock
		if n, err := client.Read(make([]byte, 100)); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes of an answer waited for an hour, %v", n, err)
		}
		_ = client.Close()
		close(listener)
	})
}
