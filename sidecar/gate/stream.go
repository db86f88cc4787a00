package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// StreamWindowBytes is the HTTP/2 window of a stream whose messages a Gate receives: how much of a
// message may come before the message is let in.
const StreamWindowBytes = 256 << 10

// smallFrameBytes is the frame length from which gRPC's overhead per frame is small compared with
// the data.
const smallFrameBytes = 1 << 10

// Receiver receives the messages of a server's streams. gRPC itself reads a whole message as soon
// as a handler asks for one. A Receiver first learns the message's length, then asks the Gate for
// so many bytes, and only then opens the HTTP/2 window.
type Receiver struct {
	Gate *Gate
	// Codec is the server's codec.
	Codec encoding.CodecV2
	// Gunzip decompresses messages.
	Gunzip *Gunzip
	// MaxBytes is limits.max_message_bytes.
	MaxBytes int
}

// Wire is a stream of a gRPC server below the level of messages. gRPC's own streams have these
// methods.
type Wire interface {
	// ReadMessageHeader reads the first bytes of a message. It returns io.EOF at the end.
	ReadMessageHeader(header []byte) error
	// Read reads n bytes, for which it opens the HTTP/2 window.
	Read(n int) (mem.BufferSlice, error)
	// RecvCompress returns the grpc-encoding of the call.
	RecvCompress() string
}

// stream is a server's stream whose messages a Receiver receives.
type stream struct {
	grpc.ServerStream
	receiver *Receiver
	wire     Wire
	// isUnary: the client sends exactly one message.
	isUnary     bool
	hasReceived bool

	mu    sync.Mutex
	ended bool
	grant *Grant // holds the bytes of the last message
}

// Stream returns a stream whose messages the Gate lets in. The caller calls end when the call has
// ended. If the Gate limits no bytes, Stream returns s.
func (r *Receiver) Stream(s grpc.ServerStream, clientStreams bool) (received grpc.ServerStream, end func()) {
	w, ok := grpc.ServerTransportStreamFromContext(s.Context()).(Wire)
	if !r.Gate.CountsBytes() || !ok {
		return s, func() {}
	}
	own := &stream{ServerStream: s, receiver: r, wire: w, isUnary: !clientStreams}
	return own, func() { own.setGrant(nil, true) }
}

// setGrant stores the grant of a message and releases the previous message's. After the end of the
// call it releases every grant.
func (s *stream) setGrant(g *Grant, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant.Release()
	s.grant = g
	if s.ended = s.ended || ended; s.ended {
		g.Release()
	}
}

// RecvMsg implements grpc.ServerStream. It first gives back the bytes of the message before. It
// returns io.EOF after the last message, a *RefusedError, or a status.
func (s *stream) RecvMsg(m any) error {
	s.setGrant(nil, false)
	data, err := s.receiver.receive(s.Context(), s.wire, s.isUnary, func(g *Grant) { s.setGrant(g, false) })
	switch {
	case errors.Is(err, io.EOF):
		if s.isUnary && !s.hasReceived {
			return status.Error(codes.Internal, "the call has no message")
		}
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.Internal, "the message is cut")
	case err != nil:
		return err
	}
	s.hasReceived = true
	defer data.Free()
	if err := s.receiver.Codec.Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "the message is not readable: %v", err)
	}
	return nil
}

// Message returns the next message of a stream, decompressed, and the Grant of its bytes, which the
// caller releases. Gunzip.IsTooLarge tells whether the message was too large. Message returns the
// errors of Receive, io.EOF after the last message, or a status.
func (r *Receiver) Message(ctx context.Context, w Wire) (data mem.BufferSlice, grant *Grant, err error) {
	data, err = r.receive(ctx, w, false, func(g *Grant) { grant = g })
	if err != nil {
		grant.Release()
		return nil, nil, err
	}
	return data, grant, nil
}

// receive returns the next message, decompressed, and passes the Grant of its bytes to keep.
func (r *Receiver) receive(ctx context.Context, w Wire, isUnary bool, keep func(*Grant)) (mem.BufferSlice, error) {
	s := part{w, isUnary}
	var header [5]byte // a flag of compression, and the length (gRPC over HTTP/2: Length-Prefixed-Message)
	if err := w.ReadMessageHeader(header[:]); err != nil {
		return nil, err
	}
	length, isPacked := int64(binary.BigEndian.Uint32(header[1:])), header[0] == 1
	most, setting := r.Gate.MaxMessageBytes(r.MaxBytes)
	if length > int64(most) {
		return nil, messageTooLarge(length, int64(most), setting)
	}
	if !isPacked && length <= UncountedBytes {
		return s.readMessage(nil, int(length))
	}
	if isPacked && w.RecvCompress() != r.Gunzip.Type() {
		return nil, status.Errorf(codes.Internal, "a compressed message of a call whose encoding is %q", w.RecvCompress())
	}
	needed := length
	if isPacked {
		needed = min(int64(most), length*maxGzipRatio)
	}
	// The first bytes come before the message takes any bytes of the Gate, so that a message
	// that is announced and does not come keeps nobody out.
	first, err := readWithin(paceTime, func() (mem.BufferSlice, error) { return s.readPart(int(min(length, paceBytes))) })
	if err != nil {
		return nil, err
	}
	grant, err := r.Gate.Receive(ctx, needed, min(length, StreamWindowBytes))
	if err != nil {
		first.Free()
		return nil, err
	}
	keep(grant)
	data, err := readWithin(messageTime(length), func() (mem.BufferSlice, error) { return s.readMessage(first, int(length)) })
	if errors.Is(err, ErrStalled) {
		err = messageStalled(length)
	}
	if err != nil || !isPacked {
		return data, err
	}
	defer data.Free()
	plain, err := r.Gunzip.Do(data.Reader())
	if err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("the message is not gzip: %v", err))
	}
	grant.Shrink(int64(len(plain)))
	return mem.BufferSlice{mem.SliceBuffer(plain)}, nil
}

// readWithin returns the result of read, or ErrStalled if read takes longer than limit. The caller
// then ends the call, which also ends the read.
func readWithin(limit time.Duration, read func() (mem.BufferSlice, error)) (mem.BufferSlice, error) {
	type result struct {
		data mem.BufferSlice
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := read()
		done <- result{data, err}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-done:
		return r.data, r.err
	case <-late.C:
		return nil, bytesStalled("message", limit)
	}
}

// part reads parts of a message.
type part struct {
	wire    Wire
	isUnary bool // no other message may follow
}

// readMessage reads a message of n bytes, whose first bytes are here, and the end of a
// unary call.
func (s part) readMessage(first mem.BufferSlice, n int) (data mem.BufferSlice, err error) {
	if n > StreamWindowBytes {
		data, err = s.readParts(first, n)
	} else if data = first; n > first.Len() {
		var rest mem.BufferSlice
		rest, err = s.readPart(n - first.Len())
		data = append(data, rest...)
	}
	if err == nil && s.isUnary {
		err = s.readEnd()
	}
	if err != nil {
		data.Free()
		return nil, err
	}
	return data, nil
}

// readParts reads n bytes, whose first bytes are here, into one buffer, window by window,
// so that a codec that wants one buffer need not copy them.
func (s part) readParts(first mem.BufferSlice, n int) (mem.BufferSlice, error) {
	pool := mem.DefaultBufferPool()
	whole := pool.Get(n)
	at := first.CopyTo(*whole)
	first.Free()
	for at < n {
		part, err := s.wire.Read(min(n-at, StreamWindowBytes))
		at += part.CopyTo((*whole)[at:])
		part.Free()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			pool.Put(whole)
			return nil, err
		}
	}
	return mem.BufferSlice{mem.NewBuffer(whole, pool)}, nil
}

// readPart reads n bytes. It copies many small frames, which take more memory than they
// hold, into one buffer.
func (s part) readPart(n int) (mem.BufferSlice, error) {
	data, err := s.wire.Read(n)
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if len(data) <= 2+n/smallFrameBytes {
		return data, err
	}
	defer data.Free()
	return mem.BufferSlice{data.MaterializeToBuffer(mem.DefaultBufferPool())}, err
}

// readEnd reads the end of a unary call.
func (s part) readEnd() error {
	var next [5]byte
	switch err := s.wire.ReadMessageHeader(next[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return status.Error(codes.Internal, "the call has more than one message")
	default:
		return err
	}
}
