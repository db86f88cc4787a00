package gate_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/likenessdb/likeness/sidecar/gate"
)

// one is a listener of one connection.
type one struct {
	conn   chan net.Conn
	closed chan struct{}
}

func listen(conn net.Conn) *one {
	l := &one{make(chan net.Conn, 1), make(chan struct{})}
	l.conn <- conn
	return l
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *one) Close() error {
	close(l.closed)
	return nil
}

func (l *one) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// asBytes is a codec of messages that are bytes.
type asBytes struct{}

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:misspell // gRPC spells it so
	return nil
}
func (asBytes) Name() string { return "bytes" }

// received is the result of RecvMsg in a handler, and the time that it took.
type received struct {
	message []byte
	err     error
	after   time.Duration
}

// call is a gRPC call whose client sends single frames.
type call struct {
	framer *http2.Framer
	got    chan received
}

// begin begins a call at a server whose messages count towards b, and runs a test with it.
func begin(t *testing.T, b *gate.Gate, run func(t *testing.T, c *call)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := &call{framer: http2.NewFramer(ours, ours), got: make(chan received, 1)}
		r := &gate.Receiver{Gate: b, Codec: asBytes{}, Gunzip: gate.NewGunzip(1<<20, gate.MessageSetting), MaxBytes: 1 << 20}
		server := grpc.NewServer(grpc.ForceServerCodecV2(asBytes{}), r.Gunzip.Option(), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			began := time.Now()
			own, end := r.Stream(s, false)
			defer end()
			var m []byte
			err := own.RecvMsg(&m)
			c.got <- received{m, err, time.Since(began)}
			return err
		}), grpc.StaticStreamWindowSize(gate.StreamWindowBytes), grpc.StaticConnWindowSize(16*gate.StreamWindowBytes))
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listen(theirs)) }()
		reading := make(chan struct{})
		go func() { // reads and drops the server's frames
			defer close(reading)
			_, _ = io.Copy(io.Discard, ours)
		}()
		_, err := ours.Write([]byte(http2.ClientPreface))
		if err = errors.Join(err, c.framer.WriteSettings()); err != nil {
			t.Fatal(err)
		}
		c.head(t)
		run(t, c)
		_ = ours.Close()
		server.Stop()
		<-ended
		<-reading
	})
}

// head sends the head of the call, which allows compressed messages.
func (c *call) head(t *testing.T) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/a.B/C"},
		{Name: ":authority", Value: "a"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "grpc-encoding", Value: "gzip"}}
	for _, f := range fields {
		if err := e.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

// announce begins a message of n bytes.
func (c *call) announce(t *testing.T, packed byte, n int) {
	t.Helper()
	if err := c.framer.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{packed}, uint32(n))); err != nil {
		t.Fatal(err)
	}
}

// send sends bytes of the message in frames of a given length.
func (c *call) send(t *testing.T, b []byte, frame int, end bool) {
	t.Helper()
	for len(b) > 0 {
		n := min(len(b), frame)
		if err := c.framer.WriteData(1, end && n == len(b), b[:n]); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
}

// A client that announces a message without sending it takes no room. A client that sends its first
// 64 KiB, but not the rest in time, gives the room back.
func TestStalled(t *testing.T) {
	for name, tc := range map[string]struct {
		sent  int
		used  int64
		after time.Duration
	}{
		"nothing": {0, 0, 10 * time.Second}, "its beginning": {1000, 0, 10 * time.Second},
		"all but a byte": {100*kib - 1, 100 * kib, gate.MessageTime(100 * kib)},
	} {
		t.Run(name, func(t *testing.T) {
			b := gateOf(1 << 20)
			begin(t, b, func(t *testing.T, c *call) {
				c.announce(t, 0, 100*kib)
				c.send(t, make([]byte, tc.sent), 10*kib, false)
				synctest.Wait()
				if b.ReceivedBytes() != tc.used {
					t.Errorf("%d bytes are taken", b.ReceivedBytes())
				}
				got := <-c.got
				if !errors.Is(got.err, gate.ErrStalled) || got.after != tc.after {
					t.Errorf("%v after %s", got.err, got.after)
				}
				synctest.Wait()
				if b.ReceivedBytes() != 0 {
					t.Errorf("%d bytes are taken behind it", b.ReceivedBytes())
				}
			})
		})
	}
}

// A message that arrives slowly, but in time, is received completely, in whatever frames.
func TestSlow(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 2*kib)
	for name, frame := range map[string]int{"large frames": 8 * kib, "small frames": 100} {
		t.Run(name, func(t *testing.T) {
			b := gateOf(1 << 20)
			begin(t, b, func(t *testing.T, c *call) {
				c.announce(t, 0, len(want))
				c.send(t, want[:1000], frame, false)
				time.Sleep(gate.MessageTime(0) - time.Millisecond) //nolint:forbidigo // of the bubble: no time passes
				c.send(t, want[1000:], frame, true)
				if got := <-c.got; got.err != nil || !bytes.Equal(got.message, want) {
					t.Errorf("%d bytes, %v", len(got.message), got.err)
				}
			})
		})
	}
}

// The time of a message does not run while the message waits for its turn.
func TestWaitingIsNoStall(t *testing.T) {
	b := gateOf(512 * kib)
	begin(t, b, func(t *testing.T, c *call) {
		others, err := b.Receive(t.Context(), 512*kib, kib)
		if err != nil {
			t.Fatal(err)
		}
		c.announce(t, 0, 100*kib)
		c.send(t, make([]byte, 64*kib), 8*kib, false)
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		synctest.Wait()
		select {
		case got := <-c.got:
			t.Errorf("%v after %s", got.err, got.after)
		default:
		}
		others.Release()
		synctest.Wait()
		c.send(t, make([]byte, 36*kib), 10*kib, true)
		if got := <-c.got; got.err != nil || len(got.message) != 100*kib {
			t.Errorf("%d bytes, %v", len(got.message), got.err)
		}
	})
}

// A compressed message takes the room of its greatest possible length, and then of its real length.
func TestCompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(make([]byte, 300*kib))
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	b := gateOf(4 << 20)
	begin(t, b, func(t *testing.T, c *call) {
		c.announce(t, 1, packed.Len())
		c.send(t, packed.Bytes(), 10*kib, false)
		synctest.Wait()
		if most := min(int64(packed.Len())*1032, 1<<20); b.ReceivedBytes() != most {
			t.Errorf("%d bytes are taken, want %d", b.ReceivedBytes(), most)
		}
		if err := c.framer.WriteData(1, true, nil); err != nil {
			t.Fatal(err)
		}
		if got := <-c.got; got.err != nil || len(got.message) != 300*kib {
			t.Errorf("%d bytes, %v", len(got.message), got.err)
		}
	})
}

// A body that is announced and does not arrive in time is given up, whether its length is known or
// not, and sooner if it holds room, which it does after its first 64 KiB.
func TestBodyStalls(t *testing.T) {
	for name, c := range map[string]struct {
		head string
		sent int
		want time.Duration
		used int64
	}{
		"of a length":            {"Content-Length: 102400\r\n\r\n", 1000, 10 * time.Second, 0},
		"of a length, begun":     {"Content-Length: 102400\r\n\r\n", 70000, 3 * time.Second, 100 * kib},
		"of no length":           {"Transfer-Encoding: chunked\r\n\r\n8000\r\n", 20000, 10 * time.Second, 0},
		"of no length, begun":    {"Transfer-Encoding: chunked\r\n\r\n12000\r\n", 70000, 3 * time.Second, 1 << 20},
		"of no length, and tiny": {"Transfer-Encoding: chunked\r\n\r\n8000\r\n", 1000, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := gateOf(2 << 20)
				ours, theirs := net.Pipe()
				got := make(chan received, 1)
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					began := time.Now()
					body := gate.NewBody(r.Body, http.NewResponseController(w))
					g, err := b.ReceiveBody(r.Context(), body, r.ContentLength, 1<<20)
					defer g.Release()
					if err == nil {
						_, err = io.ReadAll(body)
					}
					got <- received{err: err, after: time.Since(began)}
				})}
				ended := make(chan error, 1)
				go func() { ended <- server.Serve(listen(theirs)) }()
				go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(ours)) }()
				if _, err := ours.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\n" + c.head + string(make([]byte, c.sent)))); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if b.ReceivedBytes() != c.used {
					t.Errorf("%d bytes are taken, want %d", b.ReceivedBytes(), c.used)
				}
				if r := <-got; !errors.Is(r.err, gate.ErrStalled) || r.after != c.want {
					t.Errorf("%v after %s, want %s", r.err, r.after, c.want)
				}
				_ = ours.Close()
				_ = server.Close()
				<-ended
				synctest.Wait()
				if b.ReceivedBytes() != 0 {
					t.Errorf("%d bytes are taken behind it", b.ReceivedBytes())
				}
			})
		})
	}
}
