package h2_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/likenessdb/likeness/sidecar/proxy/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// window is the window of streams and connections in the tests.
const window = 1 << 16

// recorder is a sink that records its calls. It credits bytes if credits is set.
type recorder struct {
	credits bool

	mu     sync.Mutex
	lists  [][]hpack.HeaderField
	data   []byte
	calls  int // calls of Data
	ended  bool
	resets []error
}

func (r *recorder) Headers(_ *h2.Stream, fields []hpack.HeaderField, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = append(r.lists, fields)
	r.ended = r.ended || end
}

func (r *recorder) Data(from *h2.Stream, b []byte, end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.data = append(r.data, b...)
	r.ended = r.ended || end
	if r.credits {
		from.Credit(len(b))
	}
}

func (r *recorder) Reset(_ *h2.Stream, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets = append(r.resets, err)
}

// peer is the other end of a Conn, which reads and sends single frames. It reads all the time,
// unless it is silent.
type peer struct {
	t    *testing.T
	conn net.Conn
	*http2.Framer

	block   bytes.Buffer
	encoder *hpack.Encoder

	mu     sync.Mutex
	frames []string // the frames that arrived, as text
	bytes  map[uint32]int
	err    error
	ran    error // the result of Run
	end    chan struct{}
}

// run runs a Conn in a bubble, with a peer that reads, until the bubble's function ends.
func run(t *testing.T, c *h2.Conn, isClient bool) *peer {
	t.Helper()
	near, far := net.Pipe()
	p := &peer{t: t, conn: far, Framer: http2.NewFramer(far, far), bytes: map[uint32]int{}, end: make(chan struct{})}
	p.encoder = hpack.NewEncoder(&p.block)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go func() {
		defer close(p.end)
		p.ran = c.Run(near, nil)
	}()
	if isClient {
		go p.read()
		_, _ = io.WriteString(far, http2.ClientPreface)
	} else {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(far, preface); err != nil || string(preface) != http2.ClientPreface {
			t.Fatalf("preface %q, %v", preface, err)
		}
		go p.read()
	}
	t.Cleanup(func() {
		_ = far.Close()
		<-p.end
	})
	return p
}

func (p *peer) read() {
	for {
		f, err := p.ReadFrame()
		p.mu.Lock()
		if err != nil {
			p.err = err
			p.mu.Unlock()
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			p.frames = append(p.frames, "HEADERS "+f.PseudoValue("status"))
		case *http2.DataFrame:
			p.bytes[f.StreamID] += len(f.Data())
		case *http2.RSTStreamFrame:
			p.frames = append(p.frames, "RST_STREAM "+f.ErrCode.String())
		case *http2.GoAwayFrame:
			p.frames = append(p.frames, "GOAWAY "+f.ErrCode.String())
		case *http2.PingFrame:
			if f.IsAck() {
				p.frames = append(p.frames, "PONG")
			} else {
				p.frames = append(p.frames, "PING")
			}
		}
		p.mu.Unlock()
	}
}

// count waits until nothing moves, and returns how many frames with this text arrived.
func (p *peer) count(frame string) int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, f := range p.frames {
		if f == frame {
			n++
		}
	}
	return n
}

// open sends the header list of a call.
func (p *peer) open(id uint32, end bool, more ...hpack.HeaderField) {
	p.t.Helper()
	p.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/s/m"}, {Name: ":authority", Value: "a"},
	}, more...) {
		_ = p.encoder.WriteField(f)
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: end})
}

// server returns a server that gives the sinks to its streams in order, and the streams.
func server(o h2.Options, sinks ...*recorder) (*h2.Conn, *[]*h2.Stream) {
	var streams []*h2.Stream
	o.StreamWindow, o.ConnWindow, o.MaxHeaderBytes = window, 4*window, 4<<10
	if o.MaxStreams == 0 {
		o.MaxStreams = 100
	}
	o.Accept = func(s *h2.Stream, fields []hpack.HeaderField, end bool) h2.Sink {
		sink := sinks[min(len(streams), len(sinks)-1)]
		streams = append(streams, s)
		sink.Headers(s, fields, end)
		return sink
	}
	return h2.New(o), &streams
}

var ok = []hpack.HeaderField{{Name: ":status", Value: "200"}}

// A peer that violates the protocol ends the stream or the connection, with the code of the
// violation.
func TestRules(t *testing.T) {
	data := make([]byte, 16<<10)
	for name, c := range map[string]struct {
		do   func(p *peer)
		want string
	}{
		"data beyond the window of a stream": {func(p *peer) {
			p.open(1, false)
			for range window/len(data) + 1 {
				_ = p.WriteData(1, false, data)
			}
		}, "RST_STREAM FLOW_CONTROL_ERROR"},
		"data beyond the window of the connection": {func(p *peer) {
			for id := uint32(1); id < 11; id += 2 {
				p.open(id, false)
				for range window / len(data) {
					_ = p.WriteData(id, false, data)
				}
			}
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"a window beyond 2^31 of a stream": {func(p *peer) {
			p.open(1, false)
			_ = p.WriteWindowUpdate(1, 1<<31-1)
		}, "RST_STREAM FLOW_CONTROL_ERROR"},
		"a window beyond 2^31 of the connection": {func(p *peer) { _ = p.WriteWindowUpdate(0, 1<<31-1) }, "GOAWAY FLOW_CONTROL_ERROR"},
		"data of a stream that is not open":      {func(p *peer) { _ = p.WriteData(1, false, data) }, "GOAWAY PROTOCOL_ERROR"},
		"a reset of a stream that is not open":   {func(p *peer) { _ = p.WriteRSTStream(1, http2.ErrCodeCancel) }, "GOAWAY PROTOCOL_ERROR"},
		"a window of a stream that is not open":  {func(p *peer) { _ = p.WriteWindowUpdate(1, 1) }, "GOAWAY PROTOCOL_ERROR"},
		"an even stream":                         {func(p *peer) { p.open(2, false) }, "GOAWAY PROTOCOL_ERROR"},
		"data after the end": {func(p *peer) {
			p.open(1, true)
			_ = p.WriteData(1, false, data)
		}, "RST_STREAM STREAM_CLOSED"},
		"two header lists": {func(p *peer) {
			p.open(1, false)
			p.open(1, false)
		}, "RST_STREAM PROTOCOL_ERROR"},
		"a name that is not one":  {func(p *peer) { p.open(1, false, hpack.HeaderField{Name: "A b", Value: "c"}) }, "RST_STREAM PROTOCOL_ERROR"},
		"a value that is not one": {func(p *peer) { p.open(1, false, hpack.HeaderField{Name: "a", Value: "b\nc"}) }, "RST_STREAM PROTOCOL_ERROR"},
		"a long header list": {func(p *peer) {
			p.open(1, false, hpack.HeaderField{Name: "a", Value: strings.Repeat("b", 3<<10)}, hpack.HeaderField{Name: "c", Value: strings.Repeat("d", 3<<10)})
		}, "RST_STREAM FRAME_SIZE_ERROR"},
		"a header list without end": {func(p *peer) {
			p.block.Reset()
			for range 100 {
				_ = p.encoder.WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("b", 3<<10), Sensitive: true})
			}
			block := p.block.Bytes()
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:8<<10]})
			for block = block[8<<10:]; len(block) > 8<<10; block = block[8<<10:] {
				if p.WriteContinuation(1, false, block[:8<<10]) != nil {
					break // the server has closed
				}
			}
		}, "GOAWAY PROTOCOL_ERROR"},
		"a frame size that no frame may have": {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }, "GOAWAY PROTOCOL_ERROR"},
		"settings for ever": {func(p *peer) {
			for range h2.FreeSettings + 1 {
				_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			}
		}, "GOAWAY ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := server(h2.Options{}, &recorder{})
				p := run(t, s, true)
				c.do(p)
				if p.count(c.want) != 1 {
					t.Errorf("%q came, want %s", p.frames, c.want)
				}
				if ended := p.err != nil; ended != strings.HasPrefix(c.want, "GOAWAY") {
					t.Errorf("the connection has ended: %v", p.err)
				}
			})
		})
	}
}

// A connection accepts freeSettings settings, and pings, priorities and empty data leave no memory
// in use.
func TestFramesWithoutContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s, _ := server(h2.Options{}, r)
		p := run(t, s, true)
		p.open(1, false)
		for range 10_000 {
			_ = p.WriteData(1, false, nil)
			_ = p.WritePriority(1, http2.PriorityParam{StreamDep: 3})
			_ = p.WriteRawFrame(99, 0, 1, []byte("tomorrow"))
			_ = p.WriteWindowUpdate(1, 1)
		}
		for range h2.FreeSettings {
			_ = p.WriteSettings()
		}
		_ = p.WritePing(false, [8]byte{})
		if p.count("PONG") != 1 || r.calls != 0 || s.Queued() != 0 {
			t.Errorf("%q came, %d calls of the sink, %d bytes wait", p.frames, r.calls, s.Queued())
		}
	})
}

// A client that sends without reading is not read any more once its unread answers exceed a limit.
func TestAClientThatDoesNotRead(t *testing.T) {
	for name, write := range map[string]func(p *peer, i int) error{
		"pings": func(p *peer, _ int) error { return p.WritePing(false, [8]byte{}) },
		"calls that are refused": func(p *peer, i int) error {
			p.open(uint32(2*i+1), true)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := server(h2.Options{MaxStreams: 1}, &recorder{})
				near, far := net.Pipe()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = s.Run(near, nil)
				}()
				p := &peer{t: t, Framer: http2.NewFramer(far, far)}
				p.encoder = hpack.NewEncoder(&p.block)
				const all = 200_000
				sent := 0
				go func() {
					_, _ = io.WriteString(far, http2.ClientPreface)
					for ; sent < all && write(p, sent) == nil; sent++ {
					}
				}()
				synctest.Wait()
				if most := int64(h2.HardLimit + 4*h2.ReadBuffer); sent == all || s.Queued() > most {
					t.Errorf("%d frames were read, %d bytes wait", sent, s.Queued())
				}
				_ = far.Close()
				<-ended
			})
		})
	}
}

// A client with the permitted number of open calls may open the next one as soon as one has ended,
// although its server has not released it yet.
func TestAClientThatKeepsToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, streams := server(h2.Options{MaxStreams: 1}, &recorder{})
		p := run(t, s, true)
		p.open(1, true)
		synctest.Wait()
		first := (*streams)[0]
		first.Retain()
		first.SendHeaders(ok, true)
		s.Flush()
		p.open(3, true)
		synctest.Wait()
		if n := p.count("RST_STREAM REFUSED_STREAM"); n != 0 || len(*streams) != 2 {
			t.Errorf("%d refused, %d accepted", n, len(*streams))
		}
		p.open(5, true) // while the second is open
		synctest.Wait()
		if n := p.count("RST_STREAM REFUSED_STREAM"); n != 1 || len(*streams) != 2 {
			t.Errorf("beyond the limit %d refused, %d accepted", n, len(*streams))
		}
		first.Release()
	})
}

// Calls that are opened and reset at once number at most twice the limit while somebody works on
// them.
func TestCallsThatAreResetAtOnce(t *testing.T) {
	const most, all = 10, 1000
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		var accepted []*h2.Stream
		o := h2.Options{StreamWindow: window, ConnWindow: 4 * window, MaxHeaderBytes: 4 << 10, MaxStreams: most}
		o.Accept = func(s *h2.Stream, _ []hpack.HeaderField, _ bool) h2.Sink {
			s.Retain()
			accepted = append(accepted, s)
			return r
		}
		s := h2.New(o)
		p := run(t, s, true)
		for i := range uint32(all) {
			p.open(2*i+1, false)
			_ = p.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
		if n := p.count("RST_STREAM REFUSED_STREAM"); len(accepted) != 2*most || n != all-2*most || len(r.resets) != 2*most || s.Streams() != 2*most {
			t.Errorf("%d of %d are accepted, %d refused, %d told, %d counted", len(accepted), all, n, len(r.resets), s.Streams())
		}
		for _, a := range accepted {
			a.Release()
		}
		p.open(2*all+1, false)
		synctest.Wait()
		if len(accepted) != 2*most+1 || s.Streams() != 1 {
			t.Errorf("afterwards %d are accepted, %d are open", len(accepted), s.Streams())
		}
	})
}

// held counts the bytes that Options.Hold was called with.
type held struct{ now, most int64 }

func (h *held) hold(n int64) h2.Releaser {
	h.now += n
	h.most = max(h.most, h.now)
	return release(func() { h.now -= n })
}

type release func()

func (r release) Release() { r() }

// forwarding sends everything that it receives on another stream.
type forwarding struct{ to *h2.Stream }

func (f forwarding) Headers(_ *h2.Stream, fields []hpack.HeaderField, end bool) {
	f.to.SendHeaders(fields, end)
}
func (f forwarding) Data(from *h2.Stream, b []byte, end bool) { f.to.SendData(b, end, from) }
func (f forwarding) Reset(_ *h2.Stream, _ error)              { f.to.Reset(http2.ErrCodeCancel) }

// A sender whose bytes the receiver does not take can send one window, which is counted. Once the
// receiver's windows open, all bytes arrive, and the trailers after them.
func TestASlowReceiver(t *testing.T) {
	for name, end := range map[string]string{"it reads on": "", "it resets": "reset", "it closes": "close"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &held{}
				slow, streams := server(h2.Options{Hold: h.hold, HoldAbove: 1 << 10}, &recorder{})
				receiver := run(t, slow, true)
				receiver.open(1, true)
				synctest.Wait()
				client := h2.New(h2.Options{StreamWindow: window, ConnWindow: 4 * window, MaxHeaderBytes: 4 << 10, BeforeRead: nil})
				if _, err := client.Open(ok, true, forwarding{(*streams)[0]}); err != nil {
					t.Fatal(err)
				}
				sender := run(t, client, false)
				sender.block.Reset()
				_ = sender.encoder.WriteField(ok[0])
				_ = sender.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: sender.block.Bytes(), EndHeaders: true})
				// HTTP/2's first window lets the receiver take 64 KiB − 1. By then the sender has
				// half of that back, in two halves of which the second is not full.
				const all = window + window/2
				data, sent := make([]byte, 16<<10), 0
				for sent < all {
					n := min(len(data), all-sent)
					_ = sender.WriteData(1, false, data[:n])
					sent += n
					slow.Flush()
					synctest.Wait()
				}
				sender.block.Reset()
				_ = sender.encoder.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
				_ = sender.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: sender.block.Bytes(), EndHeaders: true, EndStream: true})
				slow.Flush()
				synctest.Wait()
				if got := receiver.bytes[1]; got != 65535 || h.now != window || h.most != window {
					t.Fatalf("%d bytes came, %d are held, %d were", got, h.now, h.most)
				}
				switch end {
				case "reset":
					_ = receiver.WriteRSTStream(1, http2.ErrCodeCancel)
				case "close":
					_ = receiver.conn.Close()
				default:
					_ = receiver.WriteWindowUpdate(0, window)
					_ = receiver.WriteWindowUpdate(1, window)
				}
				synctest.Wait()
				if end == "" && (receiver.bytes[1] != all || receiver.count("HEADERS ") != 1) {
					t.Errorf("%d bytes came, want %d; %q", receiver.bytes[1], all, receiver.frames)
				}
				if h.now != 0 {
					t.Errorf("%d bytes are held at the end", h.now)
				}
			})
		})
	}
}

// A server that shuts down accepts calls until its client knows, answers them, and closes.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s, streams := server(h2.Options{}, r)
		p := run(t, s, true)
		p.open(1, true)
		synctest.Wait()
		s.Shutdown()
		p.open(3, true) // sent before the client knew
		if p.count("GOAWAY NO_ERROR") != 1 || p.count("PING") != 1 || len(*streams) != 2 {
			t.Fatalf("%q came, %d calls", p.frames, len(*streams))
		}
		_ = p.WritePing(true, [8]byte{'d', 'r', 'a', 'i', 'n'})
		p.open(5, true)
		if p.count("GOAWAY NO_ERROR") != 2 || len(*streams) != 2 || p.err != nil {
			t.Fatalf("%q came, %d calls, %v", p.frames, len(*streams), p.err)
		}
		for _, stream := range *streams {
			stream.SendHeaders(ok, true)
		}
		s.Flush()
		if p.count("HEADERS 200") != 2 {
			t.Errorf("%q came", p.frames)
		}
	})
}

// A server that sends GOAWAY has not processed the calls after the last one that it names. The
// others go on, and no new one can be opened.
func TestAServerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := h2.New(h2.Options{StreamWindow: window, ConnWindow: window, MaxHeaderBytes: 4 << 10})
		sinks := []*recorder{{}, {}}
		for _, r := range sinks {
			if _, err := c.Open(ok, true, r); err != nil {
				t.Fatal(err)
			}
		}
		p := run(t, c, false)
		_ = p.WriteGoAway(1, http2.ErrCodeNo, nil)
		synctest.Wait()
		if len(sinks[0].resets) != 0 || len(sinks[1].resets) != 1 || !errors.Is(sinks[1].resets[0], h2.ErrUnprocessed) {
			t.Errorf("told %v and %v", sinks[0].resets, sinks[1].resets)
		}
		if _, err := c.Open(ok, true, sinks[0]); !errors.Is(err, h2.ErrClosed) {
			t.Errorf("another call: %v", err)
		}
		p.block.Reset()
		_ = p.encoder.WriteField(ok[0])
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: true})
		synctest.Wait()
		if !sinks[0].ended {
			t.Error("the call that was processed is not answered")
		}
	})
}

// A client opens as many streams as the server takes.
func TestMostStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := h2.New(h2.Options{StreamWindow: window, ConnWindow: window, MaxHeaderBytes: 4 << 10})
		p := run(t, c, false)
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
		synctest.Wait()
		var opened []error
		for range 3 {
			_, err := c.Open(ok, true, &recorder{})
			opened = append(opened, err)
		}
		if !slices.Equal(opened, []error{nil, nil, h2.ErrFull}) {
			t.Errorf("opened: %v", opened)
		}
	})
}

// The peer of a stream that is reset gets the reset's code.
func TestResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := h2.New(h2.Options{StreamWindow: window, ConnWindow: window, MaxHeaderBytes: 4 << 10})
		stream, err := c.Open(ok, false, &recorder{})
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, c, false)
		stream.Reset(http2.ErrCodeCancel)
		c.Flush()
		if p.count("RST_STREAM CANCEL") != 1 {
			t.Errorf("%q came, want a reset with the code CANCEL", p.frames)
		}
	})
}

// A connection that ends tells every sink once.
func TestAConnectionThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := h2.New(h2.Options{StreamWindow: window, ConnWindow: window, MaxHeaderBytes: 4 << 10})
		r := &recorder{}
		stream, err := c.Open(ok, false, r)
		if err != nil {
			t.Fatal(err)
		}
		p := run(t, c, false)
		_ = p.conn.Close()
		<-p.end
		stream.SendData(make([]byte, 10), true, nil) // nobody receives it
		stream.Reset(http2.ErrCodeCancel)
		c.Flush()
		if len(r.resets) != 1 || !errors.Is(r.resets[0], io.EOF) || c.Streams() != 0 {
			t.Errorf("told %v, %d streams", r.resets, c.Streams())
		}
	})
}

// FuzzFrames: whatever a client sends, the connection ends when the client closes, every stream has
// ended or its sink was told, and no bytes are held.
func FuzzFrames(f *testing.F) {
	var seed bytes.Buffer
	fr := http2.NewFramer(&seed, nil)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/s/m"}, {Name: ":scheme", Value: "http"}} {
		_ = e.WriteField(h)
	}
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = fr.WriteData(1, true, []byte("\x00\x00\x00\x00\x03abc"))
	_ = fr.WriteWindowUpdate(1, 100)
	f.Add(bytes.Clone(seed.Bytes()))
	_ = fr.WriteDataPadded(1, false, []byte("abc"), make([]byte, 9))
	_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = fr.WritePing(false, [8]byte{})
	_ = fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	f.Add(bytes.Clone(seed.Bytes()))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		h := &held{}
		r := &recorder{credits: true}
		o := h2.Options{StreamWindow: window, ConnWindow: 4 * window, MaxHeaderBytes: 4 << 10, MaxStreams: 5, Hold: h.hold, HoldAbove: 1}
		o.Accept = func(s *h2.Stream, _ []hpack.HeaderField, end bool) h2.Sink {
			s.SendHeaders(ok, false)
			s.SendData(make([]byte, 100), false, nil)
			s.SendHeaders([]hpack.HeaderField{{Name: "grpc-status", Value: "0"}}, true)
			s.StopReceiving()
			return r
		}
		c := h2.New(o)
		near, far := net.Pipe()
		go func() {
			_, _ = io.WriteString(far, http2.ClientPreface)
			_, _ = far.Write(sent)
			_ = far.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		_ = c.Run(near, nil)
		if c.Streams() != 0 || h.now != 0 {
			t.Errorf("%d streams are left, %d bytes held", c.Streams(), h.now)
		}
	})
}
