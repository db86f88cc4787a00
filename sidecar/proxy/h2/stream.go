package h2

import (
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sink receives the headers and data that the peer sends on a stream. The goroutine that runs the
// connection makes the calls, one at a time, until the stream ends or is reset. A Sink may keep
// header lists, but no data.
type Sink interface {
	// Headers receives a header list. end says that the peer sends nothing more.
	Headers(from *Stream, fields []hpack.HeaderField, end bool)
	// Data receives bytes. Once they are stored or forwarded, the sink must credit them to from: by
	// Stream.Credit, or by the SendData of another stream.
	Data(from *Stream, b []byte, end bool)
	// Reset tells that the stream is gone: by an http2.StreamError, or by the error that
	// ended the connection. ErrUnprocessed says that the peer did not process the stream.
	Reset(from *Stream, err error)
}

// Stream is one stream of a Conn. Its methods may be called from any goroutine. The frames that
// they send leave with the next Flush. On a stream that has ended they do nothing.
type Stream struct {
	conn *Conn
	id   uint32
	sink Sink

	// Guarded by conn.mu.

	// source is the stream that the pending data came from. It is credited for sent bytes, except
	// for the first unowed ones.
	source *Stream
	unowed int

	sentHeaders, unwanted bool
	sentEnd, receivedEnd  bool // no more is sent, or received
	isRetained, isCounted bool
	receivedData          bool

	// sendBalance is the sum of the peer's window updates, minus the bytes sent. The window is
	// sendBalance plus the peer's initial window, so a change of that setting touches no stream.
	sendBalance int64
	pending     []byte              // data that no window permits to send yet
	trailers    []hpack.HeaderField // sent after pending
	pendingEnd  bool                // pending, or trailers, end the stream
	isReady     bool                // in conn.ready
	hold        Releaser            // of pending

	receiveWindow int // what the peer may send
	uncredited    int // credited here, but not announced to the peer yet
}

// Releaser gives back what Options.Hold took.
type Releaser interface{ Release() }

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.id }

// window returns how much data the peer takes on the stream.
func (s *Stream) window() int64 { return s.conn.initialWindow + s.sendBalance }

// SendHeaders sends a header list: the first, or the trailers, with which the stream ends.
func (s *Stream) SendHeaders(fields []hpack.HeaderField, end bool) {
	c := s.conn
	c.mu.Lock()
	var source *Stream
	var credit int
	switch {
	case s.sentEnd || s.pendingEnd:
	case len(s.pending) == 0:
		c.writeHeaders(s.id, fields, end)
		s.sentHeaders = true
		if end {
			s.endSending()
		}
	case end:
		s.trailers, s.pendingEnd = fields, true
	default: // HTTP/2 has no headers between data
		source, credit = c.writeReset(s, http2.ErrCodeProtocol)
	}
	c.mu.Unlock()
	source.Credit(credit)
}

// SendData sends bytes as far as the peer's windows permit, and keeps the rest until they do. Once
// bytes are sent, source, the stream that they came from, is credited for them; this bounds the
// kept bytes. If source is nil, b must not change afterwards.
func (s *Stream) SendData(b []byte, end bool, source *Stream) {
	c := s.conn
	c.mu.Lock()
	if source != nil {
		s.source = source
	} else {
		s.unowed += len(b)
	}
	sent := len(b)
	if !s.sentEnd && !s.pendingEnd {
		sent = s.sendData(b, end, source == nil)
	}
	source, credit := s.takeCredit(sent)
	c.mu.Unlock()
	source.Credit(credit)
}

// sendData sends the bytes that the windows permit, and queues the rest. It returns how many bytes
// it sent. It may keep b without a copy if isOwn.
func (s *Stream) sendData(b []byte, end, isOwn bool) (sent int) {
	c := s.conn
	if len(s.pending) == 0 && len(c.ready) == 0 {
		for sent < len(b) {
			n := s.permitted(len(b) - sent)
			if n == 0 {
				break
			}
			c.writeData(s, b[sent:sent+n], end && sent+n == len(b))
			sent += n
		}
	}
	rest := b[sent:]
	switch {
	case len(rest) > 0:
		if isOwn && len(s.pending) == 0 {
			s.pending = slices.Clip(rest)
		} else {
			s.pending = append(s.pending, rest...)
		}
		s.pendingEnd = end
		if s.hold == nil && c.options.Hold != nil && len(s.pending) > c.options.HoldAbove {
			s.hold = c.options.Hold(int64(max(len(s.pending), c.options.StreamWindow)))
		}
		c.enqueue(s)
	case end && len(s.pending) > 0:
		s.pendingEnd = true
	case end && len(b) == 0:
		c.writeData(s, nil, true)
		s.endSending()
	case end:
		s.endSending()
	}
	return sent
}

// permitted returns how many of n bytes may be sent in one frame now.
func (s *Stream) permitted(n int) int {
	c := s.conn
	room := softLimit - c.queued.Load()
	return int(max(0, min(int64(n), c.sendWindow, s.window(), room, int64(c.maxFrame))))
}

// sendPending sends one frame of the pending data. It returns the number of bytes.
func (s *Stream) sendPending() int {
	c := s.conn
	n := s.permitted(len(s.pending))
	if n == 0 {
		return 0
	}
	isLast := n == len(s.pending)
	end := isLast && s.pendingEnd && s.trailers == nil
	c.writeData(s, s.pending[:n], end)
	s.pending = s.pending[n:]
	if isLast {
		s.dropPending()
		if trailers := s.trailers; trailers != nil {
			s.trailers, end = nil, true
			c.writeHeaders(s.id, trailers, true)
		}
	}
	if end {
		s.endSending()
	}
	return n
}

// dropPending drops the pending data, and returns its length.
func (s *Stream) dropPending() int {
	n := len(s.pending)
	s.pending = nil
	if s.hold != nil {
		s.hold.Release()
		s.hold = nil
	}
	return n
}

// takeCredit returns the stream to credit for sent bytes, and how many of them.
func (s *Stream) takeCredit(sent int) (source *Stream, credit int) {
	unowed := min(sent, s.unowed)
	s.unowed -= unowed
	return s.source, sent - unowed
}

// Credit lets the peer send n bytes more on the stream and on its connection. It does
// nothing on a nil Stream.
func (s *Stream) Credit(n int) {
	if s == nil || n == 0 {
		return
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.credit(n)
	s.credit(n)
}

// CreditConn lets the peer send n more bytes on the connection, but not on this stream.
func (s *Stream) CreditConn(n int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.credit(n)
}

// CreditStream lets the peer send n more bytes on the stream. It completes a CreditConn for the
// same bytes.
func (s *Stream) CreditStream(n int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.credit(n)
}

// credit announces credit once it reaches half of the window, so that small calls cause no frame.
func (s *Stream) credit(n int) {
	s.uncredited += n
	if s.receivedEnd || s.uncredited < s.conn.options.StreamWindow/2 {
		return
	}
	_ = s.conn.framer.WriteWindowUpdate(s.id, uint32(s.uncredited))
	s.receiveWindow += s.uncredited
	s.uncredited = 0
}

// Reset ends the stream in both directions.
func (s *Stream) Reset(code http2.ErrCode) {
	c := s.conn
	c.mu.Lock()
	source, credit := c.writeReset(s, code)
	c.mu.Unlock()
	source.Credit(credit)
}

// StopReceiving tells the peer to send no more, once the stream's own data has been sent.
func (s *Stream) StopReceiving() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.unwanted = true
	if s.sentEnd {
		s.endSending()
	}
}

// endSending notes that the stream's own data has ended.
func (s *Stream) endSending() {
	s.sentEnd = true
	switch {
	case s.receivedEnd:
		s.conn.remove(s)
	case s.unwanted:
		s.conn.writeReset(s, http2.ErrCodeNo)
	}
}

// HasSentHeaders reports whether the first header list was sent.
func (s *Stream) HasSentHeaders() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.sentHeaders
}

// Retain makes the stream count towards Options.MaxStreams until Release, even after it has ended,
// while somebody still works for it.
func (s *Stream) Retain() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.isRetained = true
}

// Release ends Retain.
func (s *Stream) Release() {
	c := s.conn
	c.mu.Lock()
	s.isRetained = false
	if c.streams[s.id] != s {
		c.uncount(s)
	}
	c.mu.Unlock()
	c.Flush()
}
