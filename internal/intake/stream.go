package intake

import (
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

	"github.com/likenessdb/likeness/internal/inflate"
)

// Window is the HTTP/2 window of a stream for servers whose messages are taken by a
// Budget: what of a message may come before it is let in.
const Window = 256 << 10

// smallFrame is a length of frames, in bytes, of which gRPC's own overhead is a small part.
const smallFrame = 1 << 10

// mostInflated is the most that a byte of gzip's becomes (RFC 1951: 258 bytes of two bits).
const mostInflated = 1032

// Receiver receives the messages of a server's streams. gRPC itself reads a message whole
// as soon as a handler asks for one; here the handler learns its length first, takes
// that of the Budget, and only then the window of HTTP/2 is opened for it.
type Receiver struct {
	Budget *Budget
	// Codec is the server's.
	Codec encoding.CodecV2
	// Gzip unpacks what comes compressed.
	Gzip *inflate.Decompressor
	// Most is limits.max_message_bytes.
	Most int
}

// wire is a stream of gRPC's server, below its messages.
type wire interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
}

// Stream is a server's stream whose messages are taken of a Budget. Close it when its
// call has ended.
type Stream struct {
	grpc.ServerStream
	by   *Receiver
	wire wire
	// single: the client sends one message, and no other may follow.
	single bool
	began  bool

	mu    sync.Mutex
	ended bool
	grant *Grant // of the message that was received last
}

// Stream returns a stream of the server. Without a Budget it is the server's own.
func (r *Receiver) Stream(s grpc.ServerStream, clientStreams bool) (stream grpc.ServerStream, end func()) {
	w, ok := grpc.ServerTransportStreamFromContext(s.Context()).(wire)
	if r.Budget == nil || !ok {
		return s, func() {}
	}
	own := &Stream{ServerStream: s, by: r, wire: w, single: !clientStreams}
	return own, func() { own.hold(nil, true) }
}

// hold keeps what a message took, in place of the last one's; nothing once the call has ended.
func (s *Stream) hold(g *Grant, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant.Release()
	s.grant = g
	if s.ended = s.ended || ended; s.ended {
		g.Release()
	}
}

// RecvMsg implements grpc.ServerStream. What the last message took is free again. It
// returns io.EOF after the last, ErrTooLarge, ErrFull, ErrStalled, or a status.
func (s *Stream) RecvMsg(m any) error {
	s.hold(nil, false)
	data, err := s.receive()
	switch {
	case errors.Is(err, io.EOF):
		if s.single && !s.began {
			return status.Error(codes.Internal, "the call has no message")
		}
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.Internal, "the message is cut")
	case err != nil:
		return err
	}
	s.began = true
	defer data.Free()
	if err := s.by.Codec.Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "the message is not readable: %v", err)
	}
	return nil
}

// receive returns the next message, unpacked.
func (s *Stream) receive() (mem.BufferSlice, error) {
	var header [5]byte // whether it is compressed, and its length (gRPC over HTTP/2: Length-Prefixed-Message)
	if err := s.wire.ReadMessageHeader(header[:]); err != nil {
		return nil, err
	}
	length, packed := int64(binary.BigEndian.Uint32(header[1:])), header[0] == 1
	most, setting := s.by.Budget.Most(s.by.Most)
	if length > int64(most) {
		return nil, TooLarge(length, int64(most), setting)
	}
	if !packed && length <= Free {
		return s.body(nil, int(length))
	}
	if packed && s.wire.RecvCompress() != s.by.Gzip.Type() {
		return nil, status.Errorf(codes.Internal, "a compressed message of a call whose encoding is %q", s.wire.RecvCompress())
	}
	need := length
	if packed {
		need = min(int64(most), length*mostInflated)
	}
	// What is announced and does not come keeps nobody out.
	first, err := s.within(stallTime, func() (mem.BufferSlice, error) { return s.part(int(min(length, stallBytes))) })
	if err != nil {
		return nil, err
	}
	grant, err := s.by.Budget.Take(s.Context(), need, min(length, Window))
	if err != nil {
		first.Free()
		return nil, err
	}
	s.hold(grant, false)
	data, err := s.within(Patience(length), func() (mem.BufferSlice, error) { return s.body(first, int(length)) })
	if errors.Is(err, ErrStalled) {
		err = Stalled(length)
	}
	if err != nil || !packed {
		return data, err
	}
	defer data.Free()
	plain, err := s.by.Gzip.Do(data.Reader())
	if err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("the message is not gzip: %v", err))
	}
	grant.Shrink(int64(len(plain)))
	return mem.BufferSlice{mem.SliceBuffer(plain)}, nil
}

// within returns what read returns, or ErrStalled where that takes too long. The end of the
// call, which is the caller's to bring about, ends the reading too.
func (s *Stream) within(limit time.Duration, read func() (mem.BufferSlice, error)) (mem.BufferSlice, error) {
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
		return nil, fmt.Errorf("%w: fewer than %d bytes of the message came within %s; send faster", ErrStalled, stallBytes, limit)
	}
}

// body reads a message of n bytes, the first of which are here, and the end of the call
// where that must follow.
func (s *Stream) body(first mem.BufferSlice, n int) (data mem.BufferSlice, err error) {
	if n > Window {
		data, err = s.parts(first, n)
	} else if data = first; n > first.Len() {
		var rest mem.BufferSlice
		rest, err = s.part(n - first.Len())
		data = append(data, rest...)
	}
	if err == nil && s.single {
		err = s.last()
	}
	if err != nil {
		data.Free()
		return nil, err
	}
	return data, nil
}

// parts reads n bytes, the first of which are here, into one buffer, window by window, so
// that a codec which wants them in one need not hold them twice.
func (s *Stream) parts(first mem.BufferSlice, n int) (mem.BufferSlice, error) {
	pool := mem.DefaultBufferPool()
	whole := pool.Get(n)
	at := first.CopyTo(*whole)
	first.Free()
	for at < n {
		part, err := s.wire.Read(min(n-at, Window))
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

// part reads n bytes. What came in many small frames, each of which takes more than it
// holds, becomes one buffer.
func (s *Stream) part(n int) (mem.BufferSlice, error) {
	data, err := s.wire.Read(n)
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if len(data) <= 2+n/smallFrame {
		return data, err
	}
	defer data.Free()
	return mem.BufferSlice{data.MaterializeToBuffer(mem.DefaultBufferPool())}, err
}

// last reads the end of a call that has one message.
func (s *Stream) last() error {
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

// Free gives back what the last message of a stream took, as far as that is one of a Receiver.
func (r *Receiver) Free(s grpc.ServerStream) {
	if own, ok := s.(*Stream); ok {
		own.hold(nil, false)
	}
}
