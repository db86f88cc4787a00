package rawgrpc

import (
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAnswerEndsOnce: a database that answers before it has read the whole request resets
// the stream behind the answer (RFC 9113, section 8.1). The answer stands.
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
