package rawgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

// slow connects to a proxy whose messages count towards g, with windows too small for an answer.
func slow(t *testing.T, p *peer, g *gate.Gate) *grpc.ClientConn {
	t.Helper()
	database := grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodecV2(bytesCodec{}))
	upstream, err := rawgrpc.Dial(serve(t, database.Serve), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Stop)
	t.Cleanup(func() { _ = upstream.Close() })
	s := rawgrpc.NewServer(rawgrpc.Options{
		Upstream: upstream, Gate: g,
		Intercept: map[string]rawgrpc.Interceptor{interceptedMethod: {Answer: func(_ context.Context, request []byte) rawgrpc.Reply {
			return rawgrpc.Reply{Message: request}
		}}},
	})
	address := serve(t, func(l net.Listener) error { return s.Serve(l) })
	t.Cleanup(func() { drain(s) })
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const interceptedMethod = "/qdrant.Points/Query"

func drain(s *rawgrpc.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.Drain(ctx)
}

// used waits until the given number of a gate's bytes are in use.
func used(t *testing.T, g *gate.Gate, want int64) {
	t.Helper()
	end := time.After(5 * time.Second)
	for tick := time.Tick(time.Millisecond); g.ReceivedBytes() != want; {
		select {
		case <-tick:
		case <-end:
			t.Fatalf("%d bytes are taken, want %d", g.ReceivedBytes(), want)
		}
	}
}

// The kept bytes of an answer count until its client has them or is gone: a window of a forwarded
// answer, and the whole answer of an interceptor.
func TestAnswersAreCounted(t *testing.T) {
	const size = 1 << 20
	for method, kept := range map[string]int64{knownMethod: gate.StreamWindowBytes, interceptedMethod: size} {
		t.Run(method, func(t *testing.T) {
			b := gate.New(gate.Options{ReceivedBytes: 16 << 20})
			conn := slow(t, &peer{}, b)
			for reads := range 2 {
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
				message := make([]byte, size)
				if err == nil {
					err = s.SendMsg(&message)
				}
				if err == nil {
					err = s.CloseSend()
				}
				if err != nil {
					t.Fatal(err)
				}
				used(t, b, kept) // the request is gone
				if reads == 0 {
					cancel()
				} else if err := s.RecvMsg(&message); err != nil || len(message) != size {
					t.Fatalf("%d bytes, %v", len(message), err)
				}
				used(t, b, 0)
			}
		})
	}
}

// The bytes of a message are given back once the database has them, although the stream continues:
// a stream that lives for days must not keep other messages out.
func TestBytesOfALongStream(t *testing.T) {
	g := gate.New(gate.Options{ReceivedBytes: 16 << 20})
	conn := startWith(t, &peer{}, func(o *rawgrpc.Options) { o.Gate = g })
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, unknownMethod)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		message := make([]byte, 1<<20)
		if err := s.SendMsg(&message); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&message); err != nil || len(message) != 1<<20 {
			t.Fatalf("%d bytes, %v", len(message), err)
		}
		used(t, g, 0)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var none []byte
	if err := s.RecvMsg(&none); !errors.Is(err, io.EOF) {
		t.Errorf("end %v", err)
	}
}

// TestAnswersOfCallsAreCounted: the answer to the proxy's own call counts until the call's context
// ends. An answer longer than the limit is an error.
func TestAnswersOfCallsAreCounted(t *testing.T) {
	database := grpc.NewServer(grpc.UnknownServiceHandler((&peer{}).handle), grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(32<<20))
	g := gate.New(gate.Options{ReceivedBytes: 8 << 20})
	upstream, err := rawgrpc.Dial(serve(t, database.Serve), nil, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Stop)
	t.Cleanup(func() { _ = upstream.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	message, _, _, err := upstream.Call(ctx, knownMethod, make([]byte, 1<<20))
	if err != nil || len(message) != 1<<20 || g.ReceivedBytes() < 1<<20 {
		t.Errorf("%d bytes, of which %d count, %v", len(message), g.ReceivedBytes(), err)
	}
	cancel()
	used(t, g, 0)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if _, _, _, err := upstream.Call(ctx, knownMethod, make([]byte, 9<<20)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an answer of 9 MiB where all may have 8: %v", err)
	}
}
