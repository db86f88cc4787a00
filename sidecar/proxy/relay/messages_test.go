package relay

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"
)

// FuzzMessages finds the same ends however the bytes come, and those that net/http
// finds in what it understands. What it does not follow it says.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\nPOST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcHEAD / HTTP/1.0\n\n",
		"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end",
	} {
		f.Add([]byte(s), s[0] == 'H', uint8(3))
	}
	f.Fuzz(func(t *testing.T, sent []byte, answers bool, piece uint8) {
		if len(sent) > maxLine {
			t.Skip("a line may be cut")
		}
		m := messages{answers: answers}
		ends, understood := m.ends(sent, len(sent))
		again := messages{answers: answers}
		if inPieces, also := again.ends(sent, 1+int(piece)); !slices.Equal(ends, inPieces) || understood != also {
			t.Fatalf("messages end at %v (%t), in pieces at %v (%t)", ends, understood, inPieces, also)
		}
		for i, want := range netHTTP(sent, answers) {
			switch {
			case i < len(ends) && ends[i] == want:
			case i == len(ends) && (!understood || m.state == untilClose && want == len(sent)):
				return
			default:
				t.Fatalf("messages end at %v (%t), by net/http %d at %d", ends, understood, i, want)
			}
		}
	})
}

// ends are where messages end that come in pieces. It reports whether all is understood.
func (m *messages) ends(b []byte, piece int) (ends []int, understood bool) {
	at := 0
	for p := range slices.Chunk(b, max(1, piece)) {
		for len(p) > 0 {
			n, e := m.next(p)
			at, p = at+n, p[n:]
			switch e {
			case messageEnded:
				ends = append(ends, at)
			case notHTTP:
				return ends, false
			}
		}
	}
	return ends, true
}

// netHTTP is where messages end by net/http, as far as it can read them.
func netHTTP(b []byte, answers bool) (ends []int) {
	source := bytes.NewReader(b)
	in := bufio.NewReader(source)
	for {
		var body io.ReadCloser
		if answers {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				return ends
			}
			body = r.Body
		} else {
			r, err := http.ReadRequest(in)
			if err != nil {
				return ends
			}
			body = r.Body
		}
		_, err := io.Copy(io.Discard, body)
		body.Close()
		if err != nil {
			return ends
		}
		ends = append(ends, len(b)-source.Len()-in.Buffered())
	}
}
