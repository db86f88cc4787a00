package serve_test

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/qdrant/go-client/qdrant"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
)

// called is a gRPC listener in front of a database, with a call that is answered.
type called struct {
	address string
	well    func() error
}

func calledBefore(t *testing.T) map[string]called {
	t.Helper()
	q, _ := startRuled(t, filled(t, servers.Options{}), "")
	m := startMilvusProxied(t)
	return map[string]called{
		"qdrant": {q.proxy.Target(), func() error {
			_, err := qdrant.NewQdrantClient(q.proxy).HealthCheck(asUser(t.Context()), &qdrant.HealthCheckRequest{})
			return err
		}},
		"milvus": {m.address, func() error {
			_, err := m.proxy.Connect(t.Context(), &milvuspb.ConnectRequest{})
			return err
		}},
	}
}

// heading returns the head of a call with one more field.
func heading(t *testing.T, value string) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/a.B/C"},
		{Name: ":authority", Value: "a"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "x", Value: value}} {
		must2(t, encoder.WriteField(f))
	}
	return out.Bytes()
}

// The gRPC listeners in front of a database refuse heads that are longer than any honest one: in
// one frame, by repeated HPACK references, and in endless frames.
func TestCallHeadsWithoutEnd(t *testing.T) {
	indexed := heading(t, strings.Repeat("x", 3<<10))
	for range 10_000 { // one byte each for three thousand: what HPACK remembers
		indexed = append(indexed, 0x80|62)
	}
	for name, to := range calledBefore(t) {
		for form, block := range map[string][]byte{"long": heading(t, strings.Repeat("x", 256<<10)), "indexed": indexed, "without end": nil} {
			if !refusesHead(t, to.address, block) {
				t.Errorf("%s, %s: not refused", name, form)
			}
		}
		if err := to.well(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Empty frames of a head take no memory, and are read for as long as they come. Their sender keeps
// only its own connection busy.
func TestCallHeadsOfNothing(t *testing.T) {
	for name, to := range calledBefore(t) {
		conn, framer := dialHTTP2(t, to.address)
		ended := make(chan error, 1)
		go func() { ended <- writeHead(framer, []byte{}) }()
		for range 100 {
			if err := to.well(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = conn.Close()
		<-ended
	}
}

// dialHTTP2 opens an HTTP/2 connection.
func dialHTTP2(t *testing.T, address string) (net.Conn, *http2.Framer) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must2(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must2(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Write([]byte(http2.ClientPreface))
	must2(t, err)
	framer := http2.NewFramer(conn, conn)
	must2(t, framer.WriteSettings())
	return conn, framer
}

// refusesHead sends a head, and reports whether the server ended the call or its connection.
func refusesHead(t *testing.T, address string, block []byte) bool {
	t.Helper()
	conn, framer := dialHTTP2(t, address)
	defer conn.Close()
	go func() { _ = writeHead(framer, block) }()
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			timeout, ok := err.(net.Error) //nolint:errorlint // the framer returns the connection's own
			return !ok || !timeout.Timeout()
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return true
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				return true // an answer without a call
			}
		}
	}
}

// writeHead writes a head in frames, until the other side takes no more. If block is nil the head
// is endless and has fields; if block is empty, it has endless empty frames.
func writeHead(framer *http2.Framer, block []byte) error {
	const most = 16 << 10
	endless := len(block) == 0
	part := block
	if block == nil { // without indexing, of a new name each (RFC 7541, 6.2.2): 0, length, name, length, value
		part = bytes.Repeat(append([]byte{0, 1, 'x', 100}, bytes.Repeat([]byte("x"), 100)...), 100)
	}
	first := part[:min(len(part), most)]
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: !endless && len(first) == len(part), EndStream: true})
	if !endless {
		part = part[len(first):]
	}
	for err == nil && (endless || len(part) > 0) {
		n := min(len(part), most)
		err = framer.WriteContinuation(1, !endless && n == len(part), part[:n])
		if !endless {
			part = part[n:]
		}
	}
	return err
}
