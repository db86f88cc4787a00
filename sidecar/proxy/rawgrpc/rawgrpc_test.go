package rawgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/likenessdb/likeness/internal/balance"
	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

func TestMain(m *testing.M) {
	encoding.RegisterCompressor(otherCompressor{encoding.GetCompressor(gzip.Name)})
	goleak.VerifyTestMain(m)
}

const (
	knownMethod   = "/qdrant.Points/Search"
	unknownMethod = "/of.tomorrow.Service/Method"
	// answeredMethod is answered by a peer even if its other calls wait.
	answeredMethod = "/qdrant.Points/Count"
)

// bytesCodec sends and receives *[]byte.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := make([]byte, data.Len())
	data.CopyTo(b)
	*v.(*[]byte) = b
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// call is a call as a peer saw it.
type call struct {
	method   string
	md       metadata.MD
	deadline time.Time
	messages [][]byte
}

// peer plays the database and records the calls. It answers each message with its bytes reversed,
// after the header, and ends with end.
type peer struct {
	header, trailer metadata.MD
	end             error
	blocked         chan context.Context // if set, a call waits here for its end
	links           *links               // if set, counts the connections
	received        atomic.Int64         // messages

	mu    sync.Mutex
	calls []call
}

func (p *peer) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	md, _ := metadata.FromIncomingContext(s.Context())
	deadline, _ := s.Context().Deadline()
	c := call{method: method, md: md, deadline: deadline}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = append(p.calls, c)
	}()
	if len(p.header) > 0 {
		if err := s.SendHeader(p.header); err != nil {
			return err
		}
	}
	s.SetTrailer(p.trailer)
	if p.blocked != nil && method != answeredMethod {
		p.blocked <- s.Context()
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	for {
		var m []byte
		if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
			return p.end
		} else if err != nil {
			return err
		}
		c.messages = append(c.messages, m)
		p.received.Add(1)
		if p.end == nil {
			answer := reversed(m)
			if err := s.SendMsg(&answer); err != nil {
				return err
			}
		}
	}
}

func (p *peer) last(t *testing.T) call {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) == 0 {
		t.Fatal("no call reached the peer")
	}
	return p.calls[len(p.calls)-1]
}

func reversed(b []byte) []byte {
	b = slices.Clone(b)
	slices.Reverse(b)
	return b
}

// start runs a peer and a proxy in front of it, and connects to the proxy.
func start(t testing.TB, p *peer) *grpc.ClientConn {
	t.Helper()
	return startWith(t, p, func(*rawgrpc.Options) {})
}

// startWith is start with changed options.
func startWith(t testing.TB, p *peer, change func(*rawgrpc.Options)) *grpc.ClientConn {
	t.Helper()
	received := gate.New(gate.Options{ReceivedBytes: 64 << 20})
	balance.Check(t, balance.Bytes(received))
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(1 << 30)}
	if p.links != nil {
		options = append(options, grpc.StatsHandler(p.links))
	}
	database := grpc.NewServer(options...)
	address := serve(t, database.Serve)
	upstream, err := rawgrpc.Dial(address, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := rawgrpc.Options{Upstream: upstream, MaxStreams: 100, MaxUnpacked: 1 << 20, Gate: received}
	change(&o)
	server := rawgrpc.NewServer(o)
	conn := connect(t, serve(t, server.Serve))
	t.Cleanup(func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if server.Drain(ctx) {
			t.Error("drain had to cut calls")
		}
		if err := upstream.Close(); err != nil {
			t.Error(err)
		}
		database.Stop()
	})
	return conn
}

func serve(t testing.TB, run func(net.Listener) error) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = run(listener) }()
	return listener.Addr().String()
}

func connect(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// passing intercepts three methods: calls of passedMethod and ignoredMethod are forwarded
// unchanged, and so are those of askedMethod, whose answers are observed.
func passing(o *rawgrpc.Options) {
	o.Intercept = map[string]rawgrpc.Interceptor{
		passedMethod:  {Answer: func(context.Context, []byte) (r rawgrpc.Reply) { return r }},
		ignoredMethod: {Ignores: func([]byte) bool { return true }},
		askedMethod: {Answer: func(context.Context, []byte) rawgrpc.Reply {
			return rawgrpc.Reply{Ended: func([]byte, error) {}}
		}},
	}
}

const (
	passedMethod = "/qdrant.Points/SearchBatch"
	askedMethod  = "/qdrant.Points/QueryBatch"
	// ignoredMethod has short messages in the tests; longer ones are not ignored.
	ignoredMethod = "/qdrant.Points/Discover"
)

func TestMessagesCrossUnchanged(t *testing.T) {
	p := &peer{}
	conn := startWith(t, p, passing)
	random := rand.NewChaCha8([32]byte{6})
	for _, size := range []int{0, 1, 5, 1 << 10, 1 << 20, 5 << 20, 20 << 20} {
		for _, method := range []string{knownMethod, unknownMethod, passedMethod, askedMethod} {
			if size > 5<<20 && method != askedMethod { // one is enough, byte by byte under the race detector
				continue
			}
			request := make([]byte, size)
			_, _ = random.Read(request)
			var answer []byte
			if err := conn.Invoke(t.Context(), method, &request, &answer); err != nil {
				t.Fatalf("%s, %d bytes: %v", method, size, err)
			}
			got := p.last(t)
			if got.method != method || len(got.messages) != 1 || !bytes.Equal(got.messages[0], request) {
				t.Errorf("%s, %d bytes: the peer saw %s and %d messages", method, size, got.method, len(got.messages))
			}
			if !bytes.Equal(answer, reversed(request)) {
				t.Errorf("%s, %d bytes: another answer of %d bytes", method, size, len(answer))
			}
		}
	}
}

func TestMetadataAndStatusCrossUnchanged(t *testing.T) {
	detailed, err := status.New(codes.ResourceExhausted, "50 % – naïve\nÜ").WithDetails(&errdetails.RetryInfo{}, &errdetails.ErrorInfo{Reason: "r"})
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]error{
		"ok": nil, "details": detailed.Err(), "empty message": status.Error(codes.Unimplemented, ""), "odd code": status.Error(codes.Code(77), "x"),
	} {
		p := &peer{
			header:  metadata.Pairs("h", "1", "h", "2", "h-bin", "\x00\xff,"),
			trailer: metadata.Pairs("t", "3", "t-bin", "\x01\xfe"),
			end:     end,
		}
		conn := startWith(t, p, passing)
		for _, method := range []string{knownMethod, unknownMethod, passedMethod, ignoredMethod, askedMethod} {
			t.Run(name+method, func(t *testing.T) {
				sent := metadata.Pairs("api-key", "k", "authorization", "Bearer b", "x-bin", "\x00\x80", "x", "a, b", "x", "c")
				var header, trailer metadata.MD
				request, answer := []byte("q"), []byte(nil)
				err := conn.Invoke(metadata.NewOutgoingContext(t.Context(), sent), method, &request, &answer, grpc.Header(&header), grpc.Trailer(&trailer))
				if got, want := status.Convert(err).Proto(), status.Convert(end).Proto(); !proto.Equal(got, want) {
					t.Errorf("status %v, want %v", got, want)
				}
				contains(t, "request", p.last(t).md, sent)
				contains(t, "header", header, p.header)
				contains(t, "trailer", trailer, p.trailer)
			})
		}
	}
}

func contains(t *testing.T, what string, got, want metadata.MD) {
	t.Helper()
	for name, values := range want {
		if !slices.Equal(got[name], values) {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], values)
		}
	}
}

func TestStreamsCrossBothWays(t *testing.T) {
	p := &peer{header: metadata.Pairs("early", "1"), trailer: metadata.Pairs("late", "2")}
	conn := start(t, p)
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, unknownMethod)
	if err != nil {
		t.Fatal(err)
	}
	header, err := s.Header() // before any message
	if err != nil || len(header["early"]) != 1 {
		t.Fatalf("header %v, %v", header, err)
	}
	for i := range 50 {
		request := fmt.Appendf(nil, "message %d", i)
		if err := s.SendMsg(&request); err != nil {
			t.Fatal(err)
		}
		var answer []byte
		if err := s.RecvMsg(&answer); err != nil || !bytes.Equal(answer, reversed(request)) {
			t.Fatalf("answer %q, %v", answer, err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var none []byte
	if err := s.RecvMsg(&none); !errors.Is(err, io.EOF) || len(s.Trailer()["late"]) != 1 {
		t.Errorf("end %v, trailer %v", err, s.Trailer())
	}
}

// A call without a message is left to the database.
func TestACallWithoutAMessage(t *testing.T) {
	p := &peer{}
	conn := start(t, p)
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, knownMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := s.RecvMsg(&answer); !errors.Is(err, io.EOF) {
		t.Errorf("end %v", err)
	}
	if got := p.last(t); len(got.messages) != 0 {
		t.Errorf("%d messages", len(got.messages))
	}
}

func TestDeadlineAndCancellationReachTheDatabase(t *testing.T) {
	p := &peer{blocked: make(chan context.Context)}
	conn := startWith(t, p, passing)
	for _, method := range []string{knownMethod, unknownMethod, passedMethod, askedMethod} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ended := make(chan error)
		go func() {
			request, answer := []byte("q"), []byte(nil)
			ended <- conn.Invoke(ctx, method, &request, &answer)
		}()
		database := <-p.blocked
		want, _ := ctx.Deadline()
		if got, ok := database.Deadline(); !ok || got.After(want.Add(time.Second)) {
			t.Errorf("%s: the database's deadline is %v, the client's %v", method, got, want)
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", method, err)
		}
		<-database.Done()
	}
}

// mostResets is fewer than the cancelled calls after which Qdrant closes a connection,
// which would fail the calls of other clients on it.
const mostResets = 19

// links counts a server's connections, and is told when one ends.
type links struct {
	mu        sync.Mutex
	open, all int
	ended     chan struct{}
}

func (*links) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*links) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*links) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (l *links) HandleConn(_ context.Context, s stats.ConnStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, begins := s.(*stats.ConnBegin); begins {
		l.open++
		l.all++
		return
	}
	l.open--
	select {
	case l.ended <- struct{}{}:
	default:
	}
}

// await waits until at most n connections are open.
func (l *links) await(t *testing.T, n int) {
	t.Helper()
	patience := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open <= n {
			return
		}
		select {
		case <-l.ended:
		case <-patience:
			t.Errorf("%d connections are open, want %d at most", open, n)
			return
		}
	}
}

// TestCancelledCallsMoveToNewConnections: no connection to the database gets so many cancelled
// calls that Qdrant would close it, whether calls come one after the other or concurrently. Retired
// connections are closed, and other calls go on.
func TestCancelledCallsMoveToNewConnections(t *testing.T) {
	const calls = 300
	for method, parallel := range map[string]int{knownMethod: 1, unknownMethod: 1, knownMethod + " ": 8, "/qdrant.Points/Query": 1} {
		t.Run(fmt.Sprintf("%s%d at a time", method, parallel), func(t *testing.T) {
			p := &peer{blocked: make(chan context.Context), links: &links{ended: make(chan struct{}, 1)}}
			var asking *rawgrpc.Upstream
			conn := startWith(t, p, func(o *rawgrpc.Options) {
				asking = o.Upstream
				o.Intercept = map[string]rawgrpc.Interceptor{"/qdrant.Points/Query": {Answer: func(ctx context.Context, request []byte) (r rawgrpc.Reply) {
					_, _, _, r.Err = asking.Call(ctx, knownMethod, request)
					return r
				}}}
			})
			cancelled := map[string]int{}
			for range calls / parallel {
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range parallel {
					all.Go(func() {
						request, answer := []byte("q"), []byte(nil)
						if err := conn.Invoke(ctx, strings.TrimSpace(method), &request, &answer); status.Code(err) != codes.Canceled {
							t.Error(err)
						}
					})
				}
				var inside []context.Context
				for range parallel {
					inside = append(inside, <-p.blocked)
				}
				cancel()
				all.Wait()
				for _, database := range inside {
					<-database.Done()
					from, _ := grpcpeer.FromContext(database)
					cancelled[from.Addr.String()]++
				}
			}
			for address, n := range cancelled {
				if n > mostResets {
					t.Errorf("the connection of %s saw %d cancelled calls, of %d", address, n, calls)
				}
			}
			if len(cancelled) < calls/mostResets {
				t.Errorf("%d calls were cancelled on %d connections", calls, len(cancelled))
			}
			p.links.await(t, 8)
			request, answer := []byte("q"), []byte(nil)
			if err := conn.Invoke(t.Context(), answeredMethod, &request, &answer); err != nil || string(answer) != "q" {
				t.Errorf("a call afterwards: %q, %v", answer, err)
			}
		})
	}
}

func TestCompressedRequests(t *testing.T) {
	p := &peer{}
	conn := start(t, p)
	request, answer := bytes.Repeat([]byte("abcd"), 10_000), []byte(nil)
	if err := conn.Invoke(t.Context(), knownMethod, &request, &answer, grpc.UseCompressor(gzip.Name)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.last(t).messages[0], request) || !bytes.Equal(answer, reversed(request)) {
		t.Error("another message")
	}
}

// otherCompressor compresses in a way that no interceptor can read.
type otherCompressor struct{ encoding.Compressor }

func (otherCompressor) Name() string { return "other" }

// TestAMessageThatMustBeRead: a write that is compressed in another way than gzip is refused, and other calls are
// forwarded as they came.
func TestAMessageThatMustBeRead(t *testing.T) {
	p := &peer{end: status.Error(codes.DataLoss, "the database's")}
	unseen := func(context.Context, []byte) (r rawgrpc.Reply) { t.Error("an interceptor was asked"); return r }
	conn := startWith(t, p, func(o *rawgrpc.Options) {
		o.Intercept = map[string]rawgrpc.Interceptor{passedMethod: {Answer: unseen}, askedMethod: {Answer: unseen, MustRead: true}}
	})
	request, answer := []byte("abc"), []byte(nil)
	for method, want := range map[string]codes.Code{passedMethod: codes.DataLoss, askedMethod: codes.Unimplemented} {
		if err := conn.Invoke(t.Context(), method, &request, &answer, grpc.UseCompressor("other")); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	if got := p.last(t).method; got != passedMethod {
		t.Errorf("%s reached the database", got)
	}
}

// TestAPathWithoutASlash: some databases read such a path as a method's, so the proxy itself refuses it. The peer of
// this test would refuse it too.
func TestAPathWithoutASlash(t *testing.T) {
	p := &peer{}
	direct, err := rawgrpc.Dial(start(t, p).Target(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if _, _, _, err := direct.Call(t.Context(), knownMethod[1:], nil); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "likeness:") || len(p.calls) > 0 {
		t.Errorf("%v, and %d calls reached the database", err, len(p.calls))
	}
}

// An interceptor that panics fails its own call, and no other.
func TestAPanicFailsOneCall(t *testing.T) {
	conn := startWith(t, &peer{}, func(o *rawgrpc.Options) {
		o.Intercept = map[string]rawgrpc.Interceptor{interceptedMethod: {Answer: func(context.Context, []byte) rawgrpc.Reply { panic("a fault") }}}
	})
	request := []byte("abc")
	for range 3 {
		var answer []byte
		if err := conn.Invoke(t.Context(), interceptedMethod, &request, &answer); status.Code(err) != codes.Internal {
			t.Errorf("a panic: %v, want Internal", err)
		}
		if err := conn.Invoke(t.Context(), knownMethod, &request, &answer); err != nil {
			t.Errorf("beside it: %v", err)
		}
	}
}

// The uncompressed length of a message that an interceptor reads is limited, and the error names
// the setting. Other messages are left to the database, and so are uncompressed ones of that
// length.
func TestBombs(t *testing.T) {
	p := &peer{}
	conn := startWith(t, p, func(o *rawgrpc.Options) {
		o.Intercept = map[string]rawgrpc.Interceptor{interceptedMethod: {Answer: func(context.Context, []byte) (r rawgrpc.Reply) { return r }}}
	})
	bomb := make([]byte, 4<<20)
	for _, method := range []string{interceptedMethod, knownMethod} {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				var answer []byte
				err := conn.Invoke(t.Context(), method, &bomb, &answer, grpc.UseCompressor(gzip.Name))
				if method == knownMethod {
					if err != nil || len(answer) != len(bomb) {
						t.Errorf("not intercepted: %d bytes, %v", len(answer), err)
					}
				} else if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.max_message_bytes") {
					t.Errorf("%s: %v", method, err)
				}
			})
		}
		group.Wait()
		var answer []byte
		if err := conn.Invoke(t.Context(), method, &bomb, &answer); err != nil || len(answer) != len(bomb) {
			t.Errorf("not compressed: %d bytes, %v", len(answer), err)
		}
	}
}

func TestDatabaseThatIsDown(t *testing.T) {
	upstream, err := rawgrpc.Dial("127.0.0.1:1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := rawgrpc.NewServer(rawgrpc.Options{Upstream: upstream})
	conn := connect(t, serve(t, server.Serve))
	for _, method := range []string{knownMethod, unknownMethod} {
		request, answer := []byte("q"), []byte(nil)
		if err := conn.Invoke(t.Context(), method, &request, &answer); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", method, err)
		}
	}
	_ = conn.Close()
	server.Drain(t.Context())
	if err := upstream.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzMessages(f *testing.F) {
	p := &peer{}
	conn := start(f, p)
	f.Add([]byte{0x0a, 4, 'n', 'o', 'p', 'e', 0xfa, 0xff, 0x0f}, true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, request []byte, known bool) {
		method := unknownMethod
		if known {
			method = knownMethod
		}
		var answer []byte
		if err := conn.Invoke(t.Context(), method, &request, &answer); err != nil {
			t.Fatal(err)
		}
		if got := p.last(t).messages; len(got) != 1 || !bytes.Equal(got[0], request) || !bytes.Equal(answer, reversed(request)) {
			t.Errorf("%x arrived as %x and came back as %x", request, got, answer)
		}
	})
}
