package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// TestAStalledClientKeepsNobodyOut: a client begins thirty messages at a listener, which
// together are six times what all messages may have, and stops in the middle of each. A
// client of another address gets answers to messages that are counted, while every message
// of the first is still awaited.
func TestAStalledClientKeepsNobodyOut(t *testing.T) {
	db := filled(t, servers.Options{})
	at := startListening(t, fmt.Sprintf(`listen: {grpc: "127.0.0.1:0", rest: "127.0.0.1:0", admin: "127.0.0.1:0"}
limits: {max_received_bytes: 1MiB}
models: {w: {path: w.safetensors}}
stores: {main: {kind: qdrant, address: %q, api_key_env: QDRANT_KEY}}
routes: {things: {store: main, collection: routed, model: w, placement: stored}}
proxy: {store: main, listen_grpc: "127.0.0.1:0", listen_rest: "127.0.0.1:0", rest_url: %q}
`, db.Address, db.REST))
	const listeners, stalls, announced, sent, counted = 4, 30, 200 << 10, 80 << 10, 150 << 10
	ownText := `{"query":{"vector":[1,-2,0.5,3]},"k":1}` + strings.Repeat(" ", counted)
	theirText := plainBody + strings.Repeat(" ", counted)
	padding := strings.Repeat("p", counted)
	own, err := proto.Marshal(&likenessv1.SearchRequest{Route: "things", K: 1, Query: &likenessv1.Query{Vector: query}, Filter: `{"must":[]}` + strings.Repeat(" ", counted)})
	must2(t, err)
	search := plainSearch("routed")
	search.Filter = &qdrant.Filter{Should: []*qdrant.Condition{qdrant.NewMatch("n", padding), qdrant.NewIsEmpty("n"), qdrant.NewHasID(qdrant.NewIDNum(1))}}
	theirs, err := proto.Marshal(search)
	must2(t, err)
	for _, l := range [listeners]struct {
		name, address, path string
		honest              func(ctx context.Context) error
	}{
		{"API, gRPC", at.GRPC, likenessv1.SearchService_Search_FullMethodName, callBytes(t, at.GRPC, likenessv1.SearchService_Search_FullMethodName, own)},
		{"API, JSON", at.REST, "/v1/routes/things:search", postFrom(at.REST, "/v1/routes/things:search", ownText)},
		{"proxy, gRPC", at.Proxy.GRPC, "/qdrant.Points/Search", callBytes(t, at.Proxy.GRPC, "/qdrant.Points/Search", theirs)},
		{"proxy, REST", at.Proxy.REST, "/collections/routed/points/search", postFrom(at.Proxy.REST, "/collections/routed/points/search", theirText)},
	} {
		t.Run(l.name, func(t *testing.T) {
			soon(t, "the listener answers", l.honest)
			begin := beginREST
			if strings.Contains(l.name, "gRPC") {
				begin = beginGRPC
			}
			message := begin(t, l.path, announced, sent)
			for attempt := 1; ; attempt++ { // a stalled message is given up after three seconds, or ten
				var over atomic.Int64 // connections with a message that was refused or given up
				for range stalls {
					conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", l.address)
					must2(t, err)
					t.Cleanup(func() { _ = conn.Close() })
					_, err = conn.Write(message)
					must2(t, err)
					go func() {
						_, _ = io.Copy(io.Discard, conn)
						over.Add(1)
					}()
				}
				soon(t, "two stalled messages hold half of the bytes", func(context.Context) error {
					held := receivedBytes.FindStringSubmatch(admin(t, at, http.MethodGet, "/metrics"))
					if n, _ := strconv.ParseFloat(held[1], 64); n < 2*announced {
						return fmt.Errorf("%s bytes are held", held[1])
					}
					return nil
				})
				before := over.Load()
				for range 5 {
					if err := l.honest(t.Context()); err != nil {
						t.Errorf("beside stalled messages: %v", err)
					}
				}
				after := over.Load()
				t.Logf("%d of %d messages were given up before, %d after the honest client was answered", before, stalls, after)
				if before == after {
					break
				}
				if attempt == 3 {
					t.Fatal("the honest client had to wait until stalled messages were given up")
				}
			}
		})
	}
}

var receivedBytes = regexp.MustCompile(`(?m)^likeness_received_bytes (\S+)$`)

// beginREST returns the head of a request of JSON and the beginning of its body.
func beginREST(_ *testing.T, path string, length, sent int) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\napi-key: %s\r\nContent-Length: %d\r\n\r\n", path, key, length)
	return append([]byte(head), bytes.Repeat([]byte{' '}, sent)...)
}

// beginGRPC returns what a client sends that begins a message.
func beginGRPC(t *testing.T, path string, length, sent int) []byte {
	t.Helper()
	var head, out bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"api-key", key}} {
		must2(t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, nil)
	must2(t, framer.WriteSettings())
	must2(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), make([]byte, sent)...)
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		must2(t, framer.WriteData(1, false, message[:n]))
		message = message[n:]
	}
	return out.Bytes()
}

// callBytes returns a function that calls a method with a message.
func callBytes(t *testing.T, address, method string, message []byte) func(ctx context.Context) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asBytes{})))
	must2(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func(ctx context.Context) error { return conn.Invoke(asUser(ctx), method, message, new([]byte)) }
}

// postFrom returns a function that posts JSON.
func postFrom(address, path, body string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", key)
		a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err == nil && a.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", a.Status, text)
		}
		return err
	}
}
