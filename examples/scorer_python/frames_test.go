package scorerpython

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/likenessdb/likeness/proto/gen/likeness/plugin/v1"
	likenessv1 "github.com/likenessdb/likeness/proto/gen/likeness/v1"
)

// peer speaks HTTP/2 to the template as no client of gRPC does.
type peer struct {
	t *testing.T
	*http2.Framer
	conn    net.Conn
	decoder *hpack.Decoder
}

func dialFrames(t *testing.T, socket string, settings ...http2.Setting) *peer {
	t.Helper()
	var conn net.Conn
	until(t, func() (there bool) {
		var err error
		conn, err = new(net.Dialer).DialContext(t.Context(), "unix", socket)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t, http2.NewFramer(conn, conn), conn, hpack.NewDecoder(4096, nil)}
	p.must(conn.Write([]byte(http2.ClientPreface)))
	p.must(0, p.WriteSettings(settings...))
	return p
}

func (p *peer) must(_ int, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// begin writes the headers of a call of Score, in three frames.
func (p *peer) begin(stream uint32) {
	p.t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/likeness.plugin.v1.ScorerService/Score"}, {":authority", "x"},
		{"te", "trailers"}, {"content-type", "application/grpc"}, {"grpc-timeout", "20S"},
	} {
		p.must(0, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	block := b.Bytes()
	p.must(0, p.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: block[:5], PadLength: 3, Priority: http2.PriorityParam{Weight: 7},
	}))
	p.must(0, p.WriteContinuation(stream, false, block[5:9]))
	p.must(0, p.WriteContinuation(stream, true, block[9:]))
}

// answer reads until a stream ends, and leaves room for step bytes whenever some came.
func (p *peer) answer(stream, step uint32) (message []byte, status string) {
	p.t.Helper()
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			p.t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			message = append(message, f.Data()...)
			if step > 0 {
				p.must(0, p.WriteWindowUpdate(stream, step))
			}
		case *http2.HeadersFrame:
			fields, err := p.decoder.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				p.t.Fatal(err)
			}
			for _, field := range fields {
				if field.Name == "grpc-status" {
					status = field.Value
				}
			}
			if f.StreamEnded() {
				return message, status
			}
		}
	}
}

// framed is a call's message for some items.
func framed(t *testing.T, items int) []byte {
	t.Helper()
	r := &pluginv1.ScoreRequest{Query: &likenessv1.Query{Text: "a"}}
	for i := range items {
		r.Ids = append(r.Ids, &likenessv1.ItemId{Id: &likenessv1.ItemId_Number{Number: uint64(i)}})
		r.Payloads = append(r.Payloads, `{"text":"a"}`)
	}
	b, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

func TestFrames(t *testing.T) {
	interpreter(t)
	socket := filepath.Join(t.TempDir(), "private", "scorer.sock")
	defer listening(t, "--listen", "unix://"+socket)()
	t.Run("pieces", func(t *testing.T) { pieces(t, socket) })
	t.Run("errors", func(t *testing.T) { frameErrors(t, socket) })
	t.Run("noise", func(t *testing.T) { noise(t, socket) })
	t.Run("pieces again", func(t *testing.T) { pieces(t, socket) })
}

// pieces has requests arrive byte by byte, padded, with other frames between, and the
// answer leave as the windows let it.
func pieces(t *testing.T, socket string) {
	const items = 300
	p := dialFrames(t, socket, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	message := framed(t, items)
	p.begin(1)
	p.begin(3)
	for i := range 40 {
		p.must(0, p.WriteDataPadded(1, false, message[i:i+1], make([]byte, i)))
		p.must(0, p.WritePing(false, [8]byte{byte(i)}))
	}
	p.must(0, p.WriteRSTStream(3, http2.ErrCodeCancel))
	p.must(0, p.WriteRawFrame(0x77, 0, 1, []byte("of tomorrow")))
	p.must(0, p.WriteData(1, false, message[40:]))
	p.must(0, p.WriteData(1, true, nil))
	got, status := p.answer(1, 5)
	var r pluginv1.ScoreResponse
	if len(got) < 5 || proto.Unmarshal(got[5:], &r) != nil || status != "0" || len(r.GetScores()) != items || r.GetScores()[7] != 1 {
		t.Errorf("%d bytes, status %q, %d scores", len(got), status, len(r.GetScores()))
	}
	for stream, what := range map[uint32][]byte{5: {1, 0, 0, 0, 1, 0}, 7: {0, 0, 0, 0, 9, 0}, 9: {0, 0}, 11: {0, 0xff, 0xff, 0xff, 0xff}} {
		want := "12" // a message that is compressed, cut, none; one that is too long, whose end is not waited for
		if stream == 11 {
			want = "8"
		}
		p = dialFrames(t, socket)
		p.begin(stream)
		p.must(0, p.WriteData(stream, stream != 11, what))
		if _, status := p.answer(stream, 0); status != want {
			t.Errorf("%x: status %q, want %s", what, status, want)
		}
	}
}

// frameErrors sees how a connection ends that breaks the protocol.
func frameErrors(t *testing.T, socket string) {
	for name, test := range map[string]struct {
		send func(p *peer) error
		code http2.ErrCode
	}{
		"a large frame": {func(p *peer) error { return p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 16385)) }, http2.ErrCodeFrameSize},
		"among headers": {func(p *peer) error {
			return errors.Join(p.WriteRawFrame(http2.FrameHeaders, 0, 1, nil), p.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		"no headers":           {func(p *peer) error { return p.WriteRawFrame(http2.FrameContinuation, 4, 1, nil) }, http2.ErrCodeProtocol},
		"an even stream":       {func(p *peer) error { return p.WriteRawFrame(http2.FrameHeaders, 4, 2, []byte{0x82}) }, http2.ErrCodeProtocol},
		"an unknown index":     {func(p *peer) error { return p.WriteRawFrame(http2.FrameHeaders, 4, 1, []byte{0xff, 0xff, 0x7f}) }, http2.ErrCodeCompression},
		"padding without room": {func(p *peer) error { return p.WriteRawFrame(http2.FrameHeaders, 4|8, 1, []byte{9, 0x82}) }, http2.ErrCodeProtocol},
	} {
		p := dialFrames(t, socket)
		if err := test.send(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var code http2.ErrCode
		for {
			frame, err := p.ReadFrame()
			if err != nil {
				break
			}
			if f, ok := frame.(*http2.GoAwayFrame); ok {
				code = f.ErrCode
			}
		}
		if code != test.code {
			t.Errorf("%s: %v, want %v", name, code, test.code)
		}
	}
}

// noise sends what means nothing; the server must only live on.
func noise(t *testing.T, socket string) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := dialFrames(t, socket)
		for range random.IntN(20) {
			b := make([]byte, random.IntN(60))
			for i := range b {
				b[i] = byte(random.UintN(256))
			}
			if p.WriteRawFrame(http2.FrameType(random.IntN(11)), http2.Flags(random.UintN(256)), random.Uint32N(5), b) != nil {
				break // it has hung up
			}
		}
		if random.IntN(2) == 0 {
			_, _ = p.conn.Write([]byte{1, 2, 3})
		}
		_ = p.conn.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, p.conn)
		_ = p.conn.Close()
	}
}
