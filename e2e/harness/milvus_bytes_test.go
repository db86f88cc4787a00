package harness_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	milvusclient "github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/adapters/adaptertest/servers"
	"github.com/likenessdb/likeness/e2e/harness"
	"github.com/likenessdb/likeness/sidecar/proxy"
)

// answerer is a server whose answers depend only on the call: the message reversed, and headers,
// trailers and a status derived from it. A real Milvus would spend its time on random collections,
// and milvus-lite crashes at some messages.
func answerer(t *testing.T) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var b []byte
		if err := s.RecvMsg(&b); err != nil {
			return err
		}
		h := fnv.New64a()
		_, _ = h.Write(b)
		sum := h.Sum64()
		words := metadata.Pairs("x-sum", strconv.FormatUint(sum, 16), "x-sum-bin", string(b[:min(len(b), 20)]))
		s.SetTrailer(words)
		if sum%5 == 0 {
			return status.Error(codes.Code(1+sum%16), "größe 100% of "+strconv.FormatUint(sum, 10))
		}
		if err := s.SetHeader(words); err != nil {
			return err
		}
		turned := make([]byte, len(b))
		for i, x := range b {
			turned[len(b)-1-i] = x
		}
		return s.SendMsg(&turned)
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return listener.Addr().String()
}

// TestRandomMilvusMessagesCross is TestRandomMessagesCross for Milvus's service.
func TestRandomMilvusMessagesCross(t *testing.T) {
	total := 2 * perRound
	if s := os.Getenv(envCrossings); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", envCrossings, err)
		}
	}
	compared := 0
	for round := 0; round*perRound < total; round++ {
		through := tapped(t, harness.Address{GRPC: answerer(t)})
		randomCalls(t, rand.New(rand.NewPCG(uint64(round), 9)), through.at.GRPC, "milvus.proto.milvus.MilvusService", perRound)
		client, database := through.exchanges(t)
		report(t, "round "+strconv.Itoa(round), harness.CompareExchanges(client, database))
		for _, e := range client {
			if !e.Cut {
				compared++
			}
		}
	}
	t.Logf("%d random Milvus calls crossed, both ways the same", compared)
	if compared < total*9/10 {
		t.Errorf("only %d of %d calls ran to their end", compared, total)
	}
}

// oneMilvusSearch is a scenario of one search.
var oneMilvusSearch = harness.Client{Name: "a search", Run: func(ctx context.Context, at harness.Address) ([]harness.Step, error) {
	c, err := milvusclient.NewClient(ctx, milvusclient.Config{Address: at.GRPC, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	g := &milvusGoScenario{ctx: ctx, c: c}
	_ = c.DropCollection(ctx, milvusGoName)
	g.schema()
	g.rows()
	g.steps = nil
	g.step("search", func() (any, error) { return g.search(4, "", "vec", entity.IP).text() })
	return g.steps, nil
}}

// TestTheMilvusHarnessFails is TestTheHarnessFails for Milvus's searches.
func TestTheMilvusHarnessFails(t *testing.T) {
	db := servers.MilvusLiteForTest(t, servers.Options{})
	direct, err := oneMilvusSearch.Run(t.Context(), harness.Address{GRPC: db.Address})
	if err != nil {
		t.Fatal(err)
	}
	edited := func(change func(*milvuspb.SearchResults)) func([]byte) []byte {
		return func(b []byte) []byte {
			m := &milvuspb.SearchResults{}
			if proto.Unmarshal(b, m) != nil || len(m.GetResults().GetScores()) == 0 {
				return b
			}
			change(m)
			if out, err := proto.Marshal(m); err == nil {
				return out
			}
			return b
		}
	}
	for name, tc := range map[string]struct {
		change  func([]byte) []byte
		meaning int // steps that differ
		bytes   bool
	}{
		"nothing is changed": {},
		"a field is dropped": {edited(func(m *milvuspb.SearchResults) { m.Results.FieldsData = m.GetResults().GetFieldsData()[1:] }), 1, true},
		"a score is altered in its last bit": {edited(func(m *milvuspb.SearchResults) {
			m.Results.Scores[0] = next(m.GetResults().GetScores()[0])
		}), 1, true},
		"a field that nobody knows is added": {func(b []byte) []byte { return append(b, 0xf8, 0x3f, 1) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &taps{}
			tap := func(upstream string) *harness.Tap {
				h, err := harness.NewTap(t.Context(), upstream)
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			p.database = []*harness.Tap{tap(db.Address)}
			at, stop := forward(t, proxy.Options{GRPC: proxy.Endpoint{Listen: "127.0.0.1:0", Upstream: p.database[0].Address()}})
			p.stop = stop
			p.client = []*harness.Tap{tap(grpcHop(t, at.GRPC, tc.change))}
			steps, err := oneMilvusSearch.Run(t.Context(), harness.Address{GRPC: p.client[0].Address()})
			if err != nil {
				t.Fatal(err)
			}
			meaning := harness.Compare(steps, direct, harness.MilvusRules())
			differ := harness.CompareExchanges(p.exchanges(t))
			if len(meaning) != tc.meaning || (len(differ) > 0) != tc.bytes {
				t.Errorf("%d steps and %d exchanges differ, want %d and %v\n%v\n%v", len(meaning), len(differ), tc.meaning, tc.bytes, meaning, differ)
			}
		})
	}
}
