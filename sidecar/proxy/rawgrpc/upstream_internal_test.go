package rawgrpc

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/proxy/h2"
)

// TestAnswerEndsOnce: a database that answers before it has read the whole request resets the
// stream after the answer (RFC 9113, section 8.1). The answer counts.
func TestAnswerEndsOnce(t *testing.T) {
	a := &answer{done: make(chan struct{})}
	a.Headers(nil, []hpack.HeaderField{{Name: ":status", Value: "200"}}, false)
	a.Data(nil, []byte{0, 0, 0, 0, 1, 'x'}, false)
	a.Headers(nil, []hpack.HeaderField{{Name: "grpc-status", Value: "0"}}, true)
	<-a.done
	a.Data(nil, []byte{1}, true)
	a.Headers(nil, []hpack.HeaderField{{Name: "grpc-status", Value: "7"}}, true)
	a.Reset(nil, http2.StreamError{StreamID: 1, Code: http2.ErrCodeNo})
	if message, _, _, err := a.result(); err != nil || string(message) != "x" {
		t.Errorf("answer %q, error %v, want x", message, err)
	}

	a = &answer{done: make(chan struct{})}
	a.Reset(nil, http2.StreamError{StreamID: 1, Code: http2.ErrCodeCancel})
	a.Reset(nil, http2.StreamError{StreamID: 1, Code: http2.ErrCodeProtocol})
	a.Headers(nil, []hpack.HeaderField{{Name: "grpc-status", Value: "0"}}, true)
	if _, _, _, err := a.result(); status.Code(err) != codes.Canceled {
		t.Errorf("error %v, want that of the first reset", err)
	}
}

// TestTrailersOfAnAnswer: a caller whom the database denies does not get the interceptor's trailer.
func TestTrailersOfAnAnswer(t *testing.T) {
	denies := func(message []byte) bool { return string(message) == "no" }
	for name, c := range map[string]struct {
		err     error
		message string
		denies  func([]byte) bool
		tells   bool
	}{
		"an answer":        {nil, "yes", denies, true},
		"an answer unread": {nil, "no", nil, true},
		"it denies":        {nil, "no", denies, false},
		"another error":    {status.Error(codes.InvalidArgument, ""), "no", denies, true},
		"no token":         {status.Error(codes.Unauthenticated, ""), "", denies, false},
		"not permitted":    {status.Error(codes.PermissionDenied, ""), "", nil, false},
	} {
		r := Reply{Trailer: metadata.Pairs("a", "ours"), Denies: c.denies}
		got := r.trailerOf(Reply{Err: c.err, Message: []byte(c.message), Trailer: metadata.Pairs("b", "theirs")})
		if tells := len(got.Get("a")) == 1; tells != c.tells || !slices.Equal(got.Get("b"), []string{"theirs"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAConnectionThatFailsAtOnce: the call for which a connection is made learns that there is none, however
// early that is known.
func TestAConnectionThatFailsAtOnce(t *testing.T) {
	u := &Upstream{dialer: &dialer{address: "127.0.0.1:1"}}
	for range 2000 {
		u.calls = newPool(u.dialer, 1, 2, h2.Options{}, nil)
		u.calls.cancel() // nothing is dialled any more
		if _, _, _, err := u.Call(t.Context(), "/a/B", nil); !Unsent(err) {
			t.Fatalf("%v, want the error of a call that was not sent", err)
		}
		u.calls.close()
	}
}

// TestConnectionsAreFew: once the limit of taking and retired connections is reached, no other is
// opened.
func TestConnectionsAreFew(t *testing.T) {
	for retired, want := range map[int]error{2*retiredShare - 1: nil, 2 * retiredShare: h2.ErrFull} {
		p := newPool(&dialer{address: "127.0.0.1:1"}, 1, 2, h2.Options{}, nil)
		for range retired {
			p.legs = append(p.legs, &leg{Conn: h2.New(h2.Options{}), retired: true})
		}
		if _, _, err := p.open(nil, false, &answer{done: make(chan struct{})}); !errors.Is(err, want) {
			t.Errorf("beside %d connections that take no calls: %v, want %v", retired, err, want)
		}
		p.close()
	}
}
