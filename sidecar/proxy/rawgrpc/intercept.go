package rawgrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/likenessdb/likeness/sidecar/gate"
	"github.com/likenessdb/likeness/sidecar/proxy/h2"
	"github.com/likenessdb/likeness/sidecar/proxy/peer"
)

// held is a call whose frames are kept for an interceptor. Later the call is answered, or its
// frames are sent to the database.
type held struct {
	link      *link
	client    *h2.Stream
	fields    []hpack.HeaderField
	intercept Interceptor
	arrived   time.Time
	ctx       context.Context //nolint:containedctx // context of this call; set by start
	cancel    context.CancelFunc

	mu      sync.Mutex
	came    sync.Cond // signals a change of the fields below
	bytes   []byte    // received and not read yet
	end     bool      // the client has sent everything
	err     error     // the call is over
	started bool      // answer was started
	onward  h2.Sink   // receives later frames; nil: they are kept
}

var (
	_ h2.Sink   = (*held)(nil)
	_ gate.Wire = (*held)(nil)
)

// intercept returns the sink that keeps a call for its interceptor.
func (l *link) intercept(client *h2.Stream, fields []hpack.HeaderField, intercept Interceptor) h2.Sink {
	h := &held{link: l, client: client, fields: fields, intercept: intercept, arrived: time.Now()}
	h.came.L = &h.mu
	return h
}

// Headers implements h2.Sink. It receives a client's trailers.
func (h *held) Headers(from *h2.Stream, fields []hpack.HeaderField, end bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onward != nil {
		h.onward.Headers(from, fields, end)
		return
	}
	h.take(nil, end)
}

// Data implements h2.Sink.
func (h *held) Data(from *h2.Stream, b []byte, end bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.onward != nil:
		h.onward.Data(from, b, end)
		return
	case h.err != nil:
		from.Credit(len(b)) // the call is answered already
		return
	}
	from.CreditConn(len(b)) // a call whose data is kept must not stop other calls
	h.take(b, end)
}

// take keeps data. It starts the answer once reading cannot block it: when the message is complete,
// or too long to be kept uncounted. The caller holds mu.
func (h *held) take(b []byte, end bool) {
	h.bytes = append(h.bytes, b...)
	h.end = end
	h.came.Broadcast()
	if h.started {
		return
	}
	if isKnown := len(h.bytes) >= messageHeader; !isKnown && !end {
		return
	} else if isKnown && h.bytes[0] == 0 {
		length := int64(binary.BigEndian.Uint32(h.bytes[1:]))
		isShort := length <= gate.UncountedBytes
		isWhole := isShort && int64(len(h.bytes)) >= messageHeader+length
		if isShort && !isWhole && !end {
			return
		}
		if isWhole && h.intercept.Ignores != nil && h.intercept.Ignores(h.bytes[messageHeader:messageHeader+length]) {
			h.forward(nil)
			return
		}
	}
	h.start()
}

// start runs answer in a goroutine. The caller holds mu.
func (h *held) start() {
	h.started = true
	h.ctx, h.cancel = callContext(h.fields, h.arrived)
	h.ctx = gate.WithSender(h.ctx, h.link.sender)
	h.client.Retain()
	h.link.server.workers.run(func() {
		defer h.client.Release()
		defer func() { // a panic would otherwise end the process, and cut the calls of everybody
			if p := recover(); p != nil {
				h.answerPanic(p)
			}
		}()
		h.answer()
	})
}

// Reset implements h2.Sink.
func (h *held) Reset(from *h2.Stream, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onward != nil {
		h.onward.Reset(from, err)
		return
	}
	h.finish(context.Canceled)
}

// finish wakes the reader of the call's message with an error. The caller holds mu.
func (h *held) finish(err error) {
	h.err = err
	if h.cancel != nil {
		h.cancel()
	}
	h.came.Broadcast()
}

// ReadMessageHeader implements gate.Wire.
func (h *held) ReadMessageHeader(header []byte) error {
	n, err := h.readFull(header)
	if n == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// Read implements gate.Wire.
func (h *held) Read(n int) (mem.BufferSlice, error) {
	b := make([]byte, n)
	n, err := h.readFull(b)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b[:n])}, nil
}

// readFull waits until it has filled b. It lets the client send that many bytes more.
func (h *held) readFull(b []byte) (n int, err error) {
	for n < len(b) {
		h.mu.Lock()
		for len(h.bytes) == 0 && !h.end && h.err == nil {
			h.came.Wait()
		}
		part := copy(b[n:], h.bytes)
		h.bytes = h.bytes[part:]
		err := h.err
		if err == nil && part == 0 {
			err = io.ErrUnexpectedEOF
		}
		h.mu.Unlock()
		if err != nil {
			return n, err
		}
		n += part
		h.client.CreditStream(part)
		h.link.client.Flush()
	}
	return n, nil
}

// RecvCompress implements gate.Wire. It returns "" for a call that names several encodings: databases differ in
// which of them counts.
func (h *held) RecvCompress() (encoding string) {
	for _, f := range h.fields {
		if f.Name != encodingField {
			continue
		}
		if encoding != "" && encoding != f.Value {
			return ""
		}
		encoding = f.Value
	}
	return encoding
}

// answerPanic answers a call whose interceptor panicked with p.
func (h *held) answerPanic(p any) {
	h.link.server.options.Logger.Error("gRPC: a call panicked", "method", value(h.fields, ":path"), "panic", p, "stack", string(debug.Stack()))
	h.write(Reply{Err: status.Error(codes.Internal, "likeness: the call failed by an internal error")})
}

// answer calls the interceptor with the message, and carries out its decision.
func (h *held) answer() {
	s := h.link.server
	request, grant, err := h.receive()
	defer grant.Release()
	switch {
	case errors.Is(err, errJudge):
		h.passOn(nil)
		return
	case err != nil:
		h.write(Reply{Err: err})
		return
	}
	reply := h.intercept.Answer(h.ctx, request)
	switch {
	case reply.Message != nil || reply.Err != nil:
		h.write(reply)
	case reply.wantsAnswer():
		h.write(h.call(s.options.Upstream, request, reply))
	default:
		h.passOn(frame(request))
	}
}

// errJudge says that the call has no message that an interceptor can read. The database judges the
// call as it came.
var errJudge = errors.New("there is no message that an interceptor can read")

// receive waits for the message. It returns errJudge, or an error with a status.
func (h *held) receive() (request []byte, grant *gate.Grant, err error) {
	receiver := h.link.server.receiver
	h.mu.Lock()
	isPacked := len(h.bytes) > 0 && h.bytes[0] != 0
	h.mu.Unlock()
	if isPacked && h.RecvCompress() != receiver.Gunzip.Type() {
		if h.intercept.MustRead {
			return nil, nil, status.Error(codes.Unimplemented, "likeness: a write to a followed collection is compressed in another way than gzip; send it uncompressed, or with gzip")
		}
		return nil, nil, errJudge
	}
	data, grant, err := receiver.Message(h.ctx, h)
	switch {
	case errors.Is(err, io.EOF):
		return nil, grant, errJudge
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, grant, status.Error(codes.Internal, "likeness: the message is cut")
	case errors.Is(err, gate.ErrTooLarge), errors.Is(err, gate.ErrFull):
		return nil, grant, status.Error(codes.ResourceExhausted, "likeness: "+err.Error())
	case errors.Is(err, gate.ErrStalled):
		return nil, grant, status.Error(codes.DeadlineExceeded, "likeness: "+err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, grant, status.FromContextError(err).Err()
	case err != nil:
		return nil, grant, err
	case receiver.Gunzip.IsTooLarge(data):
		return nil, grant, status.Error(codes.ResourceExhausted, "likeness: "+receiver.Gunzip.Problem())
	}
	if len(data) == 1 {
		return data[0].ReadOnlyData(), grant, nil
	}
	return data.Materialize(), grant, nil //nolint:misspell // the library's word
}

// frame returns a message as gRPC frames it. A long message is not copied.
func frame(message []byte) [][]byte {
	header := make([]byte, messageHeader, messageHeader+min(len(message), gate.UncountedBytes))
	binary.BigEndian.PutUint32(header[1:], uint32(len(message)))
	if len(message) <= gate.UncountedBytes {
		return [][]byte{append(header, message...)}
	}
	return [][]byte{header, message}
}

// passOn forwards the call, whose message has been read.
func (h *held) passOn(message [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.cancel()
	if d := h.forward(message); d != nil {
		d.leg.Flush()
	}
	h.link.client.Flush()
}

// forward sends the message and the kept data to the database, and later frames follow by
// themselves. It returns their sink, or nil if the call was answered instead. The caller holds mu,
// and must flush.
func (h *held) forward(message [][]byte) *toDatabase {
	h.onward = h.link.forward(h.client, h.fieldsOnward(time.Now()), false)
	d, ok := h.onward.(*toDatabase)
	if ok {
		if len(h.bytes) > 0 || len(message) == 0 {
			message = append(message, h.bytes)
		}
		for i, b := range message {
			d.database.SendData(b, h.end && i == len(message)-1, nil)
		}
	}
	h.client.CreditStream(len(h.bytes))
	h.bytes = nil
	return d
}

// fieldsOnward returns the call's headers for the database, with the remaining part of the client's
// timeout.
func (h *held) fieldsOnward(now time.Time) []hpack.HeaderField {
	shortenTimeout(h.fields, now.Sub(h.arrived))
	return h.fields
}

// call sends the message to the database and returns the database's answer.
func (h *held) call(u *Upstream, request []byte, reply Reply) Reply {
	ctx := h.ctx
	if reply.Outlives {
		var cancel context.CancelFunc
		ctx, cancel = peer.Outlive(ctx)
		defer cancel()
	}
	began := time.Now()
	var out Reply
	out.Message, out.Header, out.Trailer, out.Err = u.Call(ctx, value(h.fields, ":path"), request)
	if reply.Passed != nil {
		reply.Passed(time.Since(began))
	}
	if reply.Ended != nil {
		reply.Ended(out.Message, out.Err)
	}
	out.Trailer = reply.trailerOf(out)
	return out
}

// trailerOf returns the trailer of the database's answer, preceded by the interceptor's. A caller
// whom the database denies does not get the interceptor's trailer, which reveals that the
// collection has a route.
func (r Reply) trailerOf(answer Reply) metadata.MD {
	denied := Denied(answer.Err) || answer.Err == nil && r.Denies != nil && r.Denies(answer.Message)
	if len(r.Trailer) == 0 || denied {
		return answer.Trailer
	}
	return metadata.Join(r.Trailer, answer.Trailer)
}

// write sends a reply to the client.
func (h *held) write(r Reply) {
	h.mu.Lock()
	h.finish(context.Canceled)
	h.mu.Unlock()
	if r.Err != nil {
		end(h.client, r.Header, r.Trailer, status.Convert(r.Err))
	} else {
		h.client.SendHeaders(answerHeaders(r.Header), false)
		for _, b := range frame(r.Message) {
			h.client.SendData(b, false, nil)
		}
		end(h.client, nil, r.Trailer, nil)
	}
	h.link.client.Flush()
}

// end ends an answer with a status; nil means OK.
func end(client *h2.Stream, header, trailer metadata.MD, s *status.Status) {
	fields := appendMetadata(statusFields(s), trailer)
	switch {
	case client.HasSentHeaders():
	case len(header) > 0:
		client.SendHeaders(answerHeaders(header), false)
	default:
		fields = append(answerHeaders(nil), fields...)
	}
	client.SendHeaders(fields, true)
	client.StopReceiving()
}
