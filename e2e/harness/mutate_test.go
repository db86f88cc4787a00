package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	qdrantapi "github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// searches is a scenario of one search, over gRPC and over REST.
var searches = harness.Client{Name: "searches", Run: func(ctx context.Context, at harness.Address) ([]harness.Step, error) {
	c, err := connectGo(at, qdrantKey)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	wait := true
	create := &qdrantapi.CreateCollection{CollectionName: "c", VectorsConfig: qdrantapi.NewVectorsConfig(&qdrantapi.VectorParams{Size: 2, Distance: qdrantapi.Distance_Dot})}
	upsert := &qdrantapi.UpsertPoints{CollectionName: "c", Wait: &wait, Points: []*qdrantapi.PointStruct{
		{Id: qdrantapi.NewIDNum(1), Vectors: qdrantapi.NewVectors(1, 0.3), Payload: qdrantapi.NewValueMap(map[string]any{"html": "<&>"})},
		{Id: qdrantapi.NewIDNum(2), Vectors: qdrantapi.NewVectors(0.1, 2)},
	}}
	if err := c.CreateCollection(ctx, create); err != nil {
		return nil, err
	}
	if _, err := c.Upsert(ctx, upsert); err != nil {
		return nil, err
	}
	g := &goScenario{ctx: ctx, c: c}
	g.step("gRPC", func() (any, error) {
		return c.Query(ctx, &qdrantapi.QueryPoints{CollectionName: "c", Query: qdrantapi.NewQueryDense([]float32{0.7, 1}), WithPayload: qdrantapi.NewWithPayload(true)})
	})
	g.step("REST", func() (any, error) { return searchREST(ctx, at.REST) })
	return g.steps, nil
}}

func searchREST(ctx context.Context, base string) (any, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/collections/c/points/search", strings.NewReader(`{"vector":[0.7,1],"limit":2,"with_payload":true}`))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Api-Key", qdrantKey)
	r.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	a, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return json.RawMessage(b), err
}

// TestTheHarnessFails puts a hop that changes answers between the client's tap
// and the proxy.
func TestTheHarnessFails(t *testing.T) {
	start := qdrant(servers.QdrantNewest).start
	direct := runs(t, searches, start(t))[0]
	score := regexp.MustCompile(`"score":[0-9.]+`)
	for name, tc := range map[string]struct {
		rest, grpc func([]byte) []byte
		meaning    int // steps that differ
		bytes      int // exchanges that differ
	}{
		"nothing is changed": {},
		"a field is dropped": {
			rest:    func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1,`), nil, 1) },
			grpc:    func(b []byte) []byte { return changed(b, func(p *qdrantapi.ScoredPoint) { p.Version = 0 }) },
			meaning: 2, bytes: 2,
		},
		"a score is altered in its last bit": {
			rest: func(b []byte) []byte { return score.ReplaceAllFunc(b, nextScore) },
			grpc: func(b []byte) []byte {
				return changed(b, func(p *qdrantapi.ScoredPoint) { p.Score = next(p.GetScore()) })
			},
			meaning: 2, bytes: 2,
		},
		"JSON is encoded again": {
			rest: func(b []byte) []byte {
				var v any
				if json.Unmarshal(b, &v) != nil {
					return b
				}
				again, _ := json.Marshal(v)
				return again
			},
			meaning: 1, bytes: 1, // 1.0 is not 1
		},
		"a field that nobody knows is added": {
			grpc:  func(b []byte) []byte { return append(b, 0xf8, 0x3f, 1) },
			bytes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			through := tappedBy(t, start(t), tc.rest, tc.grpc)
			proxied := runs(t, searches, through.at)[0]
			meaning := harness.Compare(proxied, direct, harness.QdrantRules())
			differ := harness.CompareExchanges(through.exchanges(t))
			if len(meaning) != tc.meaning || len(differ) != tc.bytes {
				t.Errorf("%d steps and %d exchanges differ, want %d and %d\n%v\n%v", len(meaning), len(differ), tc.meaning, tc.bytes, meaning, differ)
			}
		})
	}
}

// nextScore is a score's JSON with its number one bit greater.
func nextScore(s []byte) []byte {
	const key = `"score":`
	x, err := strconv.ParseFloat(strings.TrimPrefix(string(s), key), 32)
	if err != nil {
		return s
	}
	return strconv.AppendFloat([]byte(key), float64(next(float32(x))), 'g', -1, 32)
}

func next(x float32) float32 { return math.Nextafter32(x, 2*x) }

// changed decodes a query's answer, changes its first point and encodes it.
func changed(b []byte, change func(*qdrantapi.ScoredPoint)) []byte {
	var r qdrantapi.QueryResponse
	if proto.Unmarshal(b, &r) != nil || len(r.GetResult()) == 0 {
		return b
	}
	change(r.GetResult()[0])
	out, err := proto.Marshal(&r)
	if err != nil {
		return b
	}
	return out
}

// tappedBy is tapped with two functions that change the database's answers between the tap and the proxy.
func tappedBy(t *testing.T, server harness.Address, rest, query func([]byte) []byte) *taps {
	t.Helper()
	p := &taps{}
	tap := func(upstream string) string {
		h, err := harness.NewTap(t.Context(), upstream)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.database) < 2 {
			p.database = append(p.database, h)
		} else {
			p.client = append(p.client, h)
		}
		return h.Address()
	}
	at, stop := forward(t, proxy.Options{
		GRPC: proxy.Endpoint{Listen: "127.0.0.1:0", Upstream: tap(server.GRPC)},
		REST: proxy.Endpoint{Listen: "127.0.0.1:0", Upstream: "http://" + tap(strings.TrimPrefix(server.REST, "http://"))},
	})
	p.stop = stop
	p.at = harness.Address{GRPC: tap(grpcHop(t, at.GRPC, query)), REST: "http://" + tap(restHop(t, at.REST, rest))}
	return p
}

// restHop forwards requests and changes the bodies of answers to searches.
func restHop(t *testing.T, upstream string, change func([]byte) []byte) (address string) {
	t.Helper()
	hop := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	hop.Transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	hop.ModifyResponse = func(r *http.Response) error {
		b, err := io.ReadAll(r.Body)
		if err == nil && change != nil {
			b = change(b)
			r.Header.Set("Content-Length", strconv.Itoa(len(b)))
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		return err
	}
	direct := hop.Director
	hop.Director = func(r *http.Request) {
		direct(r)
		r.Header["X-Forwarded-For"] = nil // not added
	}
	s := httptest.NewServer(hop)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// rawCodec sends and receives *[]byte.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := make([]byte, data.Len())
	data.CopyTo(b)
	*v.(*[]byte) = b
	return nil
}

func (rawCodec) Name() string { return "" }

// grpcHop forwards unary calls and changes the answers to searches.
func grpcHop(t *testing.T, upstream string, change func([]byte) []byte) (address string) {
	t.Helper()
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	handle := func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		md, _ := metadata.FromIncomingContext(s.Context())
		var request, answer []byte
		var trailer metadata.MD
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		err := conn.Invoke(metadata.NewOutgoingContext(s.Context(), md), method, &request, &answer, grpc.Trailer(&trailer))
		s.SetTrailer(trailer)
		if err != nil {
			return err
		}
		if change != nil && (strings.HasSuffix(method, "/Query") || strings.HasSuffix(method, "/Search")) {
			answer = change(answer)
		}
		return s.SendMsg(&answer)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(handle), grpc.ForceServerCodecV2(rawCodec{}))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		conn.Close()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
