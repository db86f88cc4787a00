package rawgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/rawgrpc"
)

// ended is what a watcher learnt of a call's end.
type ended struct {
	answer []byte
	err    error
}

// watching watches each call that no interceptor of passing sees, and sends the end of each. It fails the test if the
// database gets a message before.
func watching(t *testing.T, p *peer, reply rawgrpc.Reply, ends chan<- ended) func(*rawgrpc.Options) {
	return func(o *rawgrpc.Options) {
		passing(o)
		o.Intercept[knownMethod] = rawgrpc.Interceptor{}
		o.Intercept[rawgrpc.AnyOther] = rawgrpc.Interceptor{Watch: func(context.Context, string) rawgrpc.Reply {
			r := reply
			r.Ended = func(answer []byte, err error) { ends <- ended{answer, err} }
			runtime.Gosched()
			if n := p.received.Swap(0); n > 0 {
				t.Errorf("the database has %d messages before the watcher knows", n)
			}
			return r
		}}
	}
}

// TestWatchedCalls: a call of a method without an interceptor of its own crosses unchanged, whatever its length, and its
// watcher learns of the answer before the client does.
func TestWatchedCalls(t *testing.T) {
	p := &peer{}
	ends := make(chan ended, 1)
	conn := startWith(t, p, watching(t, p, rawgrpc.Reply{Outlives: true}, ends))
	for _, length := range []int{0, 1, 16 << 10, 3 << 20} {
		p.received.Store(0)
		request, answer := bytes.Repeat([]byte("ab"), length), []byte(nil)
		if err := conn.Invoke(t.Context(), unknownMethod, &request, &answer); err != nil || !bytes.Equal(answer, reversed(request)) {
			t.Fatalf("%d: %v, an answer of %d bytes", length, err, len(answer))
		}
		select {
		case e := <-ends:
			if e.err != nil || !bytes.HasPrefix(append([]byte{0, 0, byte(len(answer) >> 16), byte(len(answer) >> 8), byte(len(answer))}, answer...), e.answer) || len(e.answer) < min(len(answer), 64<<10) {
				t.Errorf("%d: the watcher got %v and %d bytes", length, e.err, len(e.answer))
			}
		default:
			t.Fatalf("%d: the client has the answer before the watcher", length)
		}
	}
	request, answer := []byte("ab"), []byte(nil)
	if err := conn.Invoke(t.Context(), knownMethod, &request, &answer); err != nil || len(ends) > 0 {
		t.Errorf("a call that is not watched: %v, %d ends", err, len(ends))
	}
}

// TestWatchedStreams: a stream of a watched method crosses both ways, and its client may get headers and messages before
// it sends any. The watcher learns of the end alone.
func TestWatchedStreams(t *testing.T) {
	p := &peer{header: map[string][]string{"early": {"1"}}}
	ends := make(chan ended, 1)
	conn := startWith(t, p, watching(t, p, rawgrpc.Reply{}, ends))
	for _, messages := range []int{0, 1, 20} {
		p.received.Store(0)
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, unknownMethod)
		if err != nil {
			t.Fatal(err)
		}
		if header, err := s.Header(); err != nil || len(header["early"]) != 1 {
			t.Fatalf("header %v, %v", header, err)
		}
		for range messages {
			request, answer := bytes.Repeat([]byte("ab"), 5_000), []byte(nil)
			if err := s.SendMsg(&request); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&answer); err != nil || !bytes.Equal(answer, reversed(request)) {
				t.Fatalf("an answer of %d bytes, %v", len(answer), err)
			}
		}
		if len(ends) > 0 {
			t.Errorf("%+v before the end", <-ends)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		var none []byte
		if err := s.RecvMsg(&none); !errors.Is(err, io.EOF) {
			t.Errorf("end %v", err)
		}
		if e := <-ends; e.err != nil {
			t.Errorf("end %v", e.err)
		}
	}
}

// TestWatchedCallsThatFail: the watcher gets the status of the database, of the connection, or of a client that leaves,
// and a refusal of the watcher keeps the call from the database.
func TestWatchedCallsThatFail(t *testing.T) {
	request, answer := []byte("ab"), []byte(nil)
	t.Run("refused by the database", func(t *testing.T) {
		p := &peer{end: status.Error(codes.PermissionDenied, "no")}
		ends := make(chan ended, 1)
		err := startWith(t, p, watching(t, p, rawgrpc.Reply{}, ends)).Invoke(t.Context(), unknownMethod, &request, &answer)
		if e := <-ends; status.Code(err) != codes.PermissionDenied || status.Code(e.err) != codes.PermissionDenied {
			t.Errorf("%v, and the watcher got %v", err, e.err)
		}
	})
	t.Run("refused by the watcher", func(t *testing.T) {
		p := &peer{}
		conn := startWith(t, p, watching(t, p, rawgrpc.Reply{Err: status.Error(codes.Unavailable, "not now")}, nil))
		if err := conn.Invoke(t.Context(), unknownMethod, &request, &answer); status.Convert(err).Message() != "not now" {
			t.Errorf("%v", err)
		}
		if n := p.received.Load(); n > 0 {
			t.Errorf("the database got %d messages", n)
		}
	})
	t.Run("the database is away", func(t *testing.T) {
		p := &peer{}
		ends := make(chan ended, 1)
		conn := startWith(t, p, func(o *rawgrpc.Options) {
			watching(t, p, rawgrpc.Reply{}, ends)(o)
			upstream, err := rawgrpc.Dial("127.0.0.1:1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = upstream.Close() })
			o.Upstream = upstream
		})
		if err := conn.Invoke(t.Context(), unknownMethod, &request, &answer); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		select {
		case e := <-ends:
			if !rawgrpc.Unsent(e.err) {
				t.Errorf("the watcher got %v", e.err)
			}
		default: // the connection had failed before the message came
		}
	})
	for _, outlives := range []bool{true, false} {
		t.Run("the client leaves", func(t *testing.T) {
			p := &peer{}
			ends := make(chan ended, 1)
			conn := startWith(t, p, watching(t, p, rawgrpc.Reply{Outlives: outlives}, ends))
			ctx, leave := context.WithCancel(t.Context())
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, unknownMethod)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.SendMsg(&request), s.RecvMsg(&answer)); err != nil {
				t.Fatal(err)
			}
			leave()
			want := codes.Canceled
			if outlives { // the database ends the stream once it knows that no more messages come
				want = codes.OK
			}
			if e := <-ends; status.Code(e.err) != want {
				t.Errorf("the watcher got %v", e.err)
			}
		})
	}
	t.Run("the watcher panics", func(t *testing.T) {
		conn := startWith(t, &peer{}, func(o *rawgrpc.Options) {
			o.Intercept = map[string]rawgrpc.Interceptor{rawgrpc.AnyOther: {Watch: func(context.Context, string) rawgrpc.Reply { panic("a fault") }}}
		})
		if err := conn.Invoke(t.Context(), unknownMethod, &request, &answer); status.Code(err) != codes.Internal {
			t.Errorf("%v, want Internal", err)
		}
	})
}
