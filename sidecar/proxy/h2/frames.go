package h2

import (
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// process handles a frame. It returns an http2.StreamError to end the stream, or the error
// that ends the connection.
func (c *Conn) process(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.processData(f)
	case *http2.MetaHeadersFrame:
		return c.processHeaders(f)
	case *http2.RSTStreamFrame:
		return c.processReset(f)
	case *http2.WindowUpdateFrame:
		return c.processWindowUpdate(f)
	case *http2.SettingsFrame:
		return c.processSettings(f)
	case *http2.PingFrame:
		c.processPing(f)
	case *http2.GoAwayFrame:
		c.processGoAway(f)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // ignores PRIORITY and unknown frames
}

// isIdle reports whether no stream of this number has been opened. The caller holds mu.
func (c *Conn) isIdle(id uint32) bool {
	if c.options.Accept == nil {
		return id%2 == 0 || id >= c.newest
	}
	return id%2 == 0 || id > c.newest
}

func (c *Conn) processData(f *http2.DataFrame) error {
	c.mu.Lock()
	size := int(f.Length) // includes padding
	id := f.StreamID
	s := c.streams[id]
	if size > c.receiveWindow {
		c.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.receiveWindow -= size
	var err error
	switch {
	case s == nil && c.isIdle(id):
		err = http2.ConnectionError(http2.ErrCodeProtocol)
	case s == nil:
		c.credit(size) // the stream ended while the frame was on its way
	case s.receivedEnd:
		c.credit(size)
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	case size > s.receiveWindow:
		c.credit(size)
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	if s == nil || err != nil {
		c.mu.Unlock()
		return err
	}
	data, end := f.Data(), f.StreamEnded()
	s.receiveWindow -= size
	s.receivedData = true
	if end {
		c.endReceiving(s)
	}
	if padding := size - len(data); padding > 0 {
		c.credit(padding)
		s.credit(padding)
	}
	c.mu.Unlock()
	if len(data) > 0 || end {
		s.sink.Data(s, data, end)
	}
	return nil
}

func (c *Conn) processHeaders(f *http2.MetaHeadersFrame) error {
	end := f.StreamEnded()
	c.mu.Lock()
	s := c.streams[f.StreamID]
	if s == nil {
		defer c.mu.Unlock()
		return c.accept(f)
	}
	switch {
	case s.receivedEnd:
		c.mu.Unlock()
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	case f.Truncated:
		c.mu.Unlock()
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFrameSize}
	case !end && (s.receivedData || c.options.Accept != nil):
		c.mu.Unlock()
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	if end {
		c.endReceiving(s)
	}
	c.mu.Unlock()
	s.sink.Headers(s, f.Fields, end)
	return nil
}

// accept opens a stream for a client's header list. The caller holds mu, which accept releases
// while it creates the stream's sink.
func (c *Conn) accept(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if !c.isIdle(id) {
		return nil // trailers of a stream that has ended
	}
	if c.options.Accept == nil || id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if c.draining == refusesNew {
		return nil // the client learns from the GOAWAY that the stream was refused
	}
	c.newest = id
	c.opened++
	switch {
	case len(c.streams) >= c.options.MaxStreams, c.count >= 2*c.options.MaxStreams:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	case f.Truncated:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFrameSize}
	}
	s := &Stream{conn: c, id: id, receivedEnd: f.StreamEnded(), isCounted: true, receiveWindow: c.options.StreamWindow}
	c.streams[id] = s
	c.count++
	c.mu.Unlock()
	s.sink = c.options.Accept(s, f.Fields, f.StreamEnded())
	c.mu.Lock()
	return nil
}

func (c *Conn) processReset(f *http2.RSTStreamFrame) error {
	err := http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode}
	c.mu.Lock()
	s := c.streams[f.StreamID]
	if s == nil {
		defer c.mu.Unlock()
		if c.isIdle(f.StreamID) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	c.remove(s)
	source, credit := c.forget(s)
	c.mu.Unlock()
	source.Credit(credit)
	s.sink.Reset(s, err)
	return nil
}

// reject resets a stream whose frame violated the protocol, and tells the stream's sink.
func (c *Conn) reject(broken http2.StreamError) {
	c.mu.Lock()
	s := c.streams[broken.StreamID]
	if s == nil {
		if c.options.Accept != nil && broken.StreamID%2 == 1 && c.isIdle(broken.StreamID) {
			c.newest = broken.StreamID
		}
		_ = c.framer.WriteRSTStream(broken.StreamID, broken.Code)
		c.mu.Unlock()
		return
	}
	source, credit := c.writeReset(s, broken.Code)
	c.mu.Unlock()
	source.Credit(credit)
	s.sink.Reset(s, broken)
}

func (c *Conn) processWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(f.Increment)
	if f.StreamID == 0 {
		if c.sendWindow += more; c.sendWindow > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		return nil
	}
	s := c.streams[f.StreamID]
	if s == nil {
		if c.isIdle(f.StreamID) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if s.sendBalance += more; s.window() > maxWindow {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	c.enqueue(s)
	return nil
}

func (c *Conn) processSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings++; c.settings > freeSettings+c.opened {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID { //nolint:exhaustive // the other settings concern only their sender
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(min(s.Val, tableSize))
		case http2.SettingInitialWindowSize:
			c.initialWindow = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.maxFrame = min(s.Val, readBuffer)
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = s.Val
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range c.streams {
		c.enqueue(s)
	}
	return c.framer.WriteSettingsAck()
}

func (c *Conn) processPing(f *http2.PingFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !f.IsAck():
		_ = c.framer.WritePing(true, f.Data)
	case c.draining == announced && f.Data == drainPing:
		c.draining = refusesNew
		_ = c.framer.WriteGoAway(c.newest, http2.ErrCodeNo, nil)
		c.closeIfDone()
	}
}

// processGoAway handles the GOAWAY of a server. A client that sends one closes the connection
// itself.
func (c *Conn) processGoAway(f *http2.GoAwayFrame) {
	if c.options.Accept != nil {
		return
	}
	c.mu.Lock()
	c.goAwayFrom = true
	var unprocessed []*Stream
	for id, s := range c.streams {
		if id > f.LastStreamID {
			unprocessed = append(unprocessed, s)
		}
	}
	for _, s := range unprocessed {
		c.remove(s)
		c.forget(s)
	}
	c.closeIfDone()
	c.mu.Unlock()
	for _, s := range unprocessed {
		s.sink.Reset(s, ErrUnprocessed)
	}
}

// The functions below are called with mu held.

// writeHeaders writes a header list in as many frames as the peer's limit takes.
func (c *Conn) writeHeaders(id uint32, fields []hpack.HeaderField, end bool) {
	c.block.Reset()
	for _, f := range fields {
		_ = c.encoder.WriteField(f) // writing to a bytes.Buffer cannot fail
	}
	block := c.block.Bytes()
	first := block[:min(len(block), int(c.maxFrame))]
	block = block[len(first):]
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0})
	for len(block) > 0 {
		next := block[:min(len(block), int(c.maxFrame))]
		block = block[len(next):]
		_ = c.framer.WriteContinuation(id, len(block) == 0, next)
	}
}

func (c *Conn) writeData(s *Stream, b []byte, end bool) {
	_ = c.framer.WriteData(s.id, end, b)
	c.sendWindow -= int64(len(b))
	s.sendBalance -= int64(len(b))
}

// writeReset resets a stream. It returns the stream to credit for the data that is dropped, and how
// many bytes.
func (c *Conn) writeReset(s *Stream, code http2.ErrCode) (source *Stream, credit int) {
	if c.streams[s.id] != s {
		return nil, 0
	}
	_ = c.framer.WriteRSTStream(s.id, code)
	c.remove(s)
	return c.forget(s)
}

// enqueue queues a stream for sending, if it has data or trailers to send and a window.
func (c *Conn) enqueue(s *Stream) {
	if !s.isReady && len(s.pending) > 0 && s.window() > 0 {
		s.isReady = true
		c.ready = append(c.ready, s)
	}
}

// sendReady sends the pending data of the queued streams, one frame of each in turn, while the
// connection's window permits. It appends the streams to credit for the sent data to sources.
func (c *Conn) sendReady(sources []*Stream) []*Stream {
	for len(c.ready) > 0 {
		s := c.ready[0]
		n := s.sendPending()
		if n == 0 && len(s.pending) > 0 && s.window() > 0 {
			return sources // no window of the connection, or no room in the kernel
		}
		c.ready = c.ready[1:]
		s.isReady = false
		c.enqueue(s)
		if source, credit := s.takeCredit(n); source != nil && credit > 0 {
			c.mu.Unlock()
			source.Credit(credit)
			c.mu.Lock()
			sources = append(sources, source)
		}
	}
	c.ready = nil
	return sources
}

// credit lets the peer send n more bytes on the connection. It announces credit once it reaches
// half of the window.
func (c *Conn) credit(n int) {
	if c.uncredited += n; c.uncredited < c.options.ConnWindow/2 {
		return
	}
	_ = c.framer.WriteWindowUpdate(0, uint32(c.uncredited))
	c.receiveWindow += c.uncredited
	c.uncredited = 0
}

// endReceiving records that the peer sends nothing more on a stream.
func (c *Conn) endReceiving(s *Stream) {
	s.receivedEnd = true
	if s.sentEnd {
		c.remove(s)
	}
}

// remove deletes a stream that has ended from the connection's map.
func (c *Conn) remove(s *Stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	c.uncount(s)
	c.closeIfDone()
}

// uncount stops counting a stream that has ended, once nobody retains it.
func (c *Conn) uncount(s *Stream) {
	if s.isCounted && !s.isRetained {
		s.isCounted = false
		c.count--
		c.closeIfDone()
	}
}

// forget drops the pending data of a stream that has ended. It returns the stream to credit for
// that data, and how many bytes.
func (c *Conn) forget(s *Stream) (source *Stream, credit int) {
	s.sentEnd, s.receivedEnd, s.trailers = true, true, nil
	return s.takeCredit(s.dropPending())
}
