package rawgrpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/h2"
)

const (
	connections = 8
	// crowd is the number of calls on a connection before another connection is used too. Calls
	// that share a connection are written and read together. A connection that is replaced has at
	// most maxResets + crowd - 1 cancelled calls.
	crowd = 8
	// attempts limits how often a call is sent that the database did not process.
	attempts = 3
	// messageHeader is the length of a message's prefix: a compression flag and the length.
	messageHeader = 5
)

// Upstream is a database. It is safe for concurrent use.
type Upstream struct {
	dialer *dialer
	calls  *pool
	gate   *gate.Gate // counts answers; nil counts none
}

// Dial prepares to call host:port; it connects to nothing, so a database that is not there
// yet is no error. With a nil secure the connections are plain text. The gate, if not nil,
// counts the bytes of the answers of Call.
func Dial(address string, secure *tls.Config, g *gate.Gate) (*Upstream, error) {
	d, err := newDialer(address, secure)
	if err != nil {
		return nil, err
	}
	return &Upstream{dialer: d, calls: newPool(d, crowd, connections, h2.Options{}, nil), gate: g}, nil
}

// Close closes the connections and cuts the calls on them.
func (u *Upstream) Close() error {
	u.calls.close()
	return nil
}

func (u *Upstream) scheme() string {
	if u.dialer.secure != nil {
		return "https"
	}
	return "http"
}

// readdress adapts a client's header list to the database, which may only be reachable by its own
// name.
func (u *Upstream) readdress(fields []hpack.HeaderField) {
	setValue(fields, ":scheme", u.scheme())
	setValue(fields, ":authority", u.dialer.address)
}

// Call makes a unary call with the outgoing metadata of ctx, and returns the end-to-end
// metadata of its answer. The error has a status. request must not change before ctx is done
// or Call returns.
func (u *Upstream) Call(ctx context.Context, method string, request []byte) (message []byte, header, trailer metadata.MD, err error) {
	framed := make([]byte, messageHeader, messageHeader+len(request))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(request)))
	framed = append(framed, request...)
	for range attempts {
		message, header, trailer, err = u.call(ctx, method, framed)
		if !errors.Is(err, h2.ErrUnprocessed) {
			break
		}
	}
	return message, header, trailer, err
}

func (u *Upstream) call(ctx context.Context, method string, framed []byte) (message []byte, header, trailer metadata.MD, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, status.FromContextError(err).Err()
	}
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: u.scheme()}, {Name: ":path", Value: method}, {Name: ":authority", Value: u.dialer.address},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "user-agent", Value: "likeness"},
	}
	if deadline, ok := ctx.Deadline(); ok {
		fields = append(fields, hpack.HeaderField{Name: timeoutField, Value: formatTimeout(time.Until(deadline))})
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	a := &answer{done: make(chan struct{}), count: u.gate.CountAnswer(ctx)}
	stream, l, err := u.calls.open(appendMetadata(fields, md), false, a)
	if err != nil {
		return nil, nil, nil, unavailable(err).Err()
	}
	stream.SendData(framed, true, nil)
	l.Flush()
	select {
	case <-a.done:
	case <-ctx.Done():
		stream.Reset(http2.ErrCodeCancel)
		l.Flush()
		u.calls.countReset(l)
		return nil, nil, nil, status.FromContextError(ctx.Err()).Err()
	}
	return a.result()
}

// answer collects the parts of an answer to a call.
type answer struct {
	headers, trailers []hpack.HeaderField
	body              bytes.Buffer
	count             *gate.AnswerCount
	err               error         // why there is no answer
	isDone            bool          // later frames of the stream are ignored
	done              chan struct{} // closed when the fields above are final
}

var _ h2.Sink = (*answer)(nil)

// finish marks the answer, or its error, as complete.
func (a *answer) finish() {
	a.isDone = true
	close(a.done)
}

// Headers implements h2.Sink.
func (a *answer) Headers(_ *h2.Stream, fields []hpack.HeaderField, end bool) {
	switch {
	case a.isDone:
	case end:
		a.trailers = fields
		a.finish()
	case a.headers == nil && len(value(fields, ":status")) == 3 && value(fields, ":status")[0] != '1':
		a.headers = fields
	}
}

// Data implements h2.Sink.
func (a *answer) Data(from *h2.Stream, b []byte, end bool) {
	from.Credit(len(b))
	if a.isDone {
		return
	}
	if a.body.Len()+len(b) > maxMessageBytes {
		from.Reset(http2.ErrCodeCancel)
		a.Reset(from, status.Errorf(codes.ResourceExhausted, "likeness: the database's answer has more than %d bytes", maxMessageBytes))
		return
	}
	if err := a.count.Grow(a.body.Len() + len(b)); err != nil {
		from.Reset(http2.ErrCodeCancel)
		a.Reset(from, status.Errorf(codes.ResourceExhausted, "likeness: the database's answer: %v", err))
		return
	}
	a.body.Write(b)
	if end {
		a.finish()
	}
}

// Reset implements h2.Sink.
func (a *answer) Reset(_ *h2.Stream, err error) {
	if !a.isDone {
		a.err = err
		a.finish()
	}
}

// result returns the answer. It must be done.
func (a *answer) result() (message []byte, header, trailer metadata.MD, err error) {
	if a.err != nil {
		return nil, nil, nil, callError(a.err)
	}
	first := a.headers
	if first == nil {
		first = a.trailers
	}
	header, trailer = metadataOf(a.headers), metadataOf(a.trailers)
	if code := value(first, ":status"); code != "200" && !isTrailer(a.trailers) {
		return nil, header, trailer, statusOfHTTP(code).Err()
	}
	if s := statusOf(a.trailers); s.Code() != codes.OK {
		return nil, header, trailer, s.Err()
	}
	b := a.body.Bytes()
	if len(b) < messageHeader || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-messageHeader) {
		return nil, header, trailer, status.Error(codes.Internal, "likeness: the database's answer is not one message")
	}
	return b[messageHeader:], header, trailer, nil
}

// callError returns the error of a call that ended without an answer.
func callError(err error) error {
	reset := http2.StreamError{}
	lost := (*unsentError)(nil)
	switch {
	case errors.As(err, &lost):
		return lost
	case errors.Is(err, h2.ErrUnprocessed):
		return &unprocessedError{err}
	case errors.As(err, &reset) && reset.Code == http2.ErrCodeRefusedStream:
		return &unprocessedError{h2.ErrUnprocessed}
	case errors.As(err, &reset) && reset.Code == http2.ErrCodeCancel:
		return status.Error(codes.Canceled, "likeness: the database cancelled the call")
	case errors.As(err, &reset):
		return status.Errorf(codes.Internal, "likeness: the database reset the call: %v", reset.Code)
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return unavailable(err).Err()
}

// unprocessedError says that the database did not process a call.
type unprocessedError struct{ err error }

// Error implements error.
func (e *unprocessedError) Error() string { return "likeness: " + e.err.Error() }

// Unwrap returns h2.ErrUnprocessed.
func (e *unprocessedError) Unwrap() error { return e.err }

// GRPCStatus returns the status of the call.
func (e *unprocessedError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, e.Error())
}

// Denied reports whether an error of the database refuses the caller.
func Denied(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}
