// Package h2 is an end of an HTTP/2 connection that reads, answers and writes in as few
// steps as there are: a proxy has two ends for each client and hands every frame on from the
// one to the other. The framing and the header compression are golang.org/x/net/http2's.
//
// One goroutine runs a Conn: it reads frames and calls the Sink of their stream. What a sink
// sends on a stream of another Conn is appended to that Conn's buffer; the buffers are
// written when the reader has handled all that came, in Options.BeforeRead. So a small call
// is one read and one write each way, and wakes nobody.
//
// Windows bound what is kept. A Conn sends as its peer's windows permit, keeps what they do
// not, and credits the source of the bytes only when they are sent: a peer that takes nothing
// stops the other peer. No write waits: bytes that the kernel does not take are kept too, no
// data follows them beyond softLimit, and a reader that finds more than hardLimit of them
// (answers to pings, headers) reads nothing more until they are gone.
package h2

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// softLimit bounds the bytes of data that wait for the kernel.
	softLimit = 64 << 10
	// hardLimit bounds all bytes that wait for the kernel. Beyond it the connection reads no
	// frames, whose answers would add to them.
	hardLimit = 256 << 10
	// readBuffer is the size of one read from the network.
	readBuffer = 16 << 10
	// keptBuffer is the capacity of a write buffer that is used again.
	keptBuffer = 2 * softLimit
	// freeSettings is how many SETTINGS frames a peer may send in addition to one for each stream.
	// The number is limited because each frame makes the connection look at all waiting streams.
	freeSettings = 100
	// lastStream is the number of the last stream that a client's connection opens; later streams
	// need a new Conn.
	lastStream = 1 << 30
	maxWindow  = 1<<31 - 1
	// goodbyeTime bounds the wait for a peer that was told to close.
	goodbyeTime = 5 * time.Second
	// startTime bounds the wait for a client's first bytes.
	startTime = 20 * time.Second
	// tableSize bounds the memory of header compression.
	tableSize = 4 << 10
)

var (
	// ErrClosed says that the connection has ended.
	ErrClosed = errors.New("the connection is closed")
	// ErrUnprocessed says that the peer has not processed a stream, so that it may be sent
	// again.
	ErrUnprocessed = errors.New("the peer did not process the call")
	// ErrFull says that the peer takes no further stream now.
	ErrFull = errors.New("the connection has no room for a stream")
)

// Options configure a Conn.
type Options struct {
	// StreamWindow and ConnWindow bound the bytes that the peer may send ahead of Credit,
	// on a stream and on all.
	StreamWindow, ConnWindow int
	// MaxStreams bounds the streams that a client may have open. With the retained streams,
	// which have ended for the client, there may be twice as many: a client that keeps to the
	// limit is not refused.
	MaxStreams int
	// MaxHeaderBytes bounds a header list, as SETTINGS_MAX_HEADER_LIST_SIZE counts it.
	MaxHeaderBytes int
	// Accept receives a stream that a client opens and returns its Sink; nil: the Conn is a
	// client itself.
	Accept func(s *Stream, fields []hpack.HeaderField, end bool) Sink
	// BeforeRead is called before each read from the network. It must flush every Conn that the
	// sinks write to, and wait until these Conns have room. nil flushes this Conn only.
	BeforeRead func()
	// Hold, if not nil, is called when more than HoldAbove bytes of one stream wait for the peer.
	// Its result is released when they no longer wait.
	Hold      func(bytes int64) Releaser
	HoldAbove int
}

// Conn is one end of a connection. Streams may be opened and written to before Run.
type Conn struct {
	options Options
	framer  *http2.Framer // reads for the goroutine of Run; writes to out under mu
	network net.Conn      // the socket, or TLS on it; set before isStarted
	queued  atomic.Int64  // bytes that wait for the kernel: in out, and in the socket

	mu        sync.Mutex
	written   sync.Cond // some bytes have left
	encoder   *hpack.Encoder
	block     bytes.Buffer // a header list, encoded
	out       []byte       // frames to write
	spare     []byte       // the buffer of the last write, used for the next frames
	isStarted bool         // network may be written to
	isWriting bool         // a goroutine is in Flush
	socket    *socket      // nil before Run
	closed    error        // why the connection has ended
	isClosing bool         // the connection closes once all frames are written

	streams   map[uint32]*Stream
	count     int // streams that a client has open, and retained streams
	newest    uint32
	opened    int
	settings  int  // SETTINGS frames received
	isGreeted bool // a client has sent its first bytes

	// Limits that the peer has set.
	sendWindow    int64
	initialWindow int64
	maxFrame      uint32
	maxStreams    uint32
	ready         []*Stream // have pending data and a window of their own

	receiveWindow, uncredited int

	goAwayFrom bool // the peer accepts no further streams
	draining   drainState
}

// drainState is how far Shutdown has come.
type drainState int

const (
	serving    drainState = iota
	announced             // a GOAWAY was sent that still permits streams, and a PING
	refusesNew            // the PING came back: the client knows
)

// drainPing is the payload of the PING that Shutdown sends.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}

// New returns a Conn that waits for Run.
func New(o Options) *Conn {
	c := &Conn{
		options: o, streams: map[uint32]*Stream{}, sendWindow: 65535, initialWindow: 65535, maxFrame: 16 << 10, maxStreams: 1<<32 - 1,
		receiveWindow: o.ConnWindow, newest: 1,
	}
	c.written.L = &c.mu
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(outWriter{c}, nil)
	own := []http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(o.StreamWindow)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(o.MaxHeaderBytes)},
	}
	if o.Accept == nil {
		_, _ = outWriter{c}.Write([]byte(http2.ClientPreface))
		own = append(own, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	} else {
		c.newest = 0
		own = append(own, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(o.MaxStreams)})
	}
	_ = c.framer.WriteSettings(own...)
	_ = c.framer.WriteWindowUpdate(0, uint32(o.ConnWindow-65535))
	return c
}

// outWriter appends the framer's frames to a Conn's buffer.
type outWriter struct{ c *Conn }

func (w outWriter) Write(b []byte) (int, error) {
	if w.c.closed != nil {
		return 0, w.c.closed
	}
	w.c.out = append(w.c.out, b...)
	w.c.queued.Add(int64(len(b)))
	return len(b), nil
}

// networkReader calls before ahead of every read.
type networkReader struct {
	io.Reader
	before func()
}

func (r networkReader) Read(b []byte) (int, error) {
	r.before()
	return r.Reader.Read(b)
}

// Run runs the connection over network until it ends, and returns why: io.EOF, if the peer
// closed it. secure, if not nil, wraps network in TLS and shakes hands. Run closes
// network.
func (c *Conn) Run(network net.Conn, secure func(net.Conn) (net.Conn, error)) error {
	err := c.run(network, secure)
	c.Fail(err)
	return err
}

func (c *Conn) run(network net.Conn, secure func(net.Conn) (net.Conn, error)) (err error) {
	defer func() { _ = network.Close() }()
	socket := newSocket(network, &c.queued, c.progress)
	if err := c.attach(socket); err != nil {
		return err
	}
	c.network = socket
	if secure != nil {
		if c.network, err = secure(socket); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	c.mu.Lock()
	c.isStarted = true
	c.mu.Unlock()
	before := c.options.BeforeRead
	if before == nil {
		before = func() {
			c.Flush()
			c.AwaitRoom()
		}
	}
	from := bufio.NewReaderSize(networkReader{c.network, before}, readBuffer)
	if c.options.Accept != nil {
		if err := c.readPreface(from); err != nil {
			return err
		}
	}
	reading := http2.NewFramer(nil, from)
	reading.SetReuseFrames()
	reading.SetMaxReadFrameSize(16 << 10)
	reading.MaxHeaderListSize = uint32(c.options.MaxHeaderBytes)
	reading.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	err = c.read(reading, before)
	if code := (http2.ConnectionError)(0); errors.As(err, &code) {
		c.mu.Lock()
		_ = c.framer.WriteGoAway(c.newest, http2.ErrCode(code), nil)
		c.mu.Unlock()
		c.Flush()
		_ = c.network.SetWriteDeadline(time.Now().Add(goodbyeTime))
		c.await(0)
	}
	return err
}

// readPreface reads the first bytes of a client, within startTime.
func (c *Conn) readPreface(from io.Reader) error {
	_ = c.network.SetReadDeadline(time.Now().Add(startTime))
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(from, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return fmt.Errorf("%w: the client does not speak HTTP/2", ErrClosed)
	}
	c.mu.Lock()
	c.isGreeted = true
	c.mu.Unlock()
	return c.network.SetReadDeadline(time.Time{})
}

func (c *Conn) read(from *http2.Framer, before func()) error {
	for {
		f, err := from.ReadFrame()
		if err == nil {
			err = c.process(f)
		}
		if broken := (http2.StreamError{}); errors.As(err, &broken) {
			c.reject(broken)
			err = nil
		}
		if err != nil {
			return err
		}
		if c.queued.Load() > hardLimit {
			before()
		}
	}
}

// attach sets the socket, unless the Conn was closed before.
func (c *Conn) attach(s *socket) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = s
	return c.closed
}

// Open opens a stream to a server, before or during Run. It returns ErrFull or ErrClosed if
// the connection takes none.
func (c *Conn) Open(fields []hpack.HeaderField, end bool, sink Sink) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed != nil || c.goAwayFrom || c.isClosing || c.newest > lastStream:
		return nil, ErrClosed
	case uint64(len(c.streams)) >= uint64(c.maxStreams):
		return nil, ErrFull
	}
	s := &Stream{conn: c, id: c.newest, sink: sink, sentEnd: end, receiveWindow: c.options.StreamWindow}
	c.newest += 2
	c.opened++
	c.streams[s.id] = s
	c.writeHeaders(s.id, fields, end)
	return s, nil
}

// Flush writes all sent frames that the windows permit. It does not wait for the peer. If another
// Flush is running, that one writes them.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isWriting || !c.isStarted {
		return
	}
	c.isWriting = true
	var sources []*Stream
	for c.closed == nil {
		sources = c.sendReady(sources[:0])
		if len(c.out) == 0 {
			break
		}
		b := c.out
		c.out = c.spare
		c.mu.Unlock()
		_, _ = c.network.Write(b) // the reader finds out that the connection has ended
		c.queued.Add(-int64(len(b)))
		for _, s := range sources { // announces the credit, so that the senders of the data go on
			s.conn.Flush()
		}
		c.mu.Lock()
		c.spare = b[:0]
		if cap(b) > keptBuffer {
			c.spare = nil
		}
	}
	c.isWriting = false
	if c.isClosing && c.queued.Load() == 0 {
		c.halfClose()
	}
}

// halfClose tells a peer that nothing follows, and waits a while for it to close.
func (c *Conn) halfClose() {
	c.isClosing = false
	if secure, ok := c.network.(*tls.Conn); ok {
		_ = secure.CloseWrite() // sends close_notify, and keeps the socket open
	}
	if half, ok := c.socket.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(goodbyeTime))
}

// progress is called after bytes have left that the kernel did not take at once.
func (c *Conn) progress() {
	c.mu.Lock()
	c.written.Broadcast()
	c.mu.Unlock()
	c.Flush()
}

// AwaitRoom waits while too many bytes wait for the peer.
func (c *Conn) AwaitRoom() {
	if c.queued.Load() > hardLimit {
		c.await(hardLimit)
	}
}

// await waits until at most the given number of bytes wait for the peer.
func (c *Conn) await(most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.queued.Load() > most && c.closed == nil {
		c.written.Wait()
	}
}

// Close ends the connection at once; Run then returns.
func (c *Conn) Close() { c.end(ErrClosed) }

// end records why the connection ends, and closes it.
func (c *Conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(err)
}

func (c *Conn) endLocked(err error) {
	if c.closed == nil {
		c.closed = err
	}
	if c.socket != nil {
		_ = c.socket.Close()
	}
	c.written.Broadcast()
}

// Fail ends a connection and tells the sinks of its streams. Run calls it when it ends; a caller
// that never calls Run calls Fail itself.
func (c *Conn) Fail(err error) {
	c.end(err)
	c.mu.Lock()
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	for _, s := range streams {
		c.forget(s)
		c.uncount(s)
	}
	c.out, c.ready = nil, nil
	c.mu.Unlock()
	for _, s := range streams {
		s.sink.Reset(s, err)
	}
}

// Finish ends a client's connection once its streams have ended. The connection opens no more
// streams.
func (c *Conn) Finish() {
	c.mu.Lock()
	c.goAwayFrom = true
	c.closeIfDone()
	c.mu.Unlock()
	c.Flush()
}

// Streams returns the number of streams that are open, or retained.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(len(c.streams), c.count)
}

// Shutdown tells a client to open no more streams on this connection, and closes it once its open
// streams have ended. A connection whose client has not sent its preface is closed at once.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	if c.draining == serving {
		c.draining = announced
		_ = c.framer.WriteGoAway(maxWindow, http2.ErrCodeNo, nil)
		_ = c.framer.WritePing(false, drainPing)
	}
	isGreeted := c.isGreeted
	c.mu.Unlock()
	if !isGreeted {
		c.Close()
	}
	c.Flush()
}

// closeIfDone closes a connection that is shutting down once it has no streams. The caller holds
// mu.
func (c *Conn) closeIfDone() {
	leaves := c.draining == refusesNew || c.options.Accept == nil && c.goAwayFrom
	if !leaves || len(c.streams) > 0 || c.count > 0 {
		return
	}
	c.isClosing = true
	if !c.isStarted {
		c.endLocked(ErrClosed)
	}
}
